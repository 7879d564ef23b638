"""Short random walks from the nodes of a coreset: where they end, and how often two of them meet.

Everything here assumes a valid symmetric graph and owns no random generator.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.graphs.csr import (
    UNLABELLED,
    Indices,
    Labels,
    Nodes,
    Rows,
    ShortLabels,
    in_threads,
    parts_of,
    transpose,
)
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.threads import equal_parts

Singles = NDArray[np.float32]


class Walks(NamedTuple):
    """Where walks end: row r is the distribution of walk r over nodes, in single precision."""

    starts: Indices
    nodes: Nodes
    masses: Singles


@part()
def _step(rows: Rows, degrees: Floats, at: Nodes, here: Singles, reached: Nodes, there: Singles, stay: float) -> int:
    """Move all mass from the nodes `at` along their edges; return the number of nodes `reached`."""
    found = 0
    for a in range(len(at)):
        i = at[a]
        mass, here[i] = here[i], 0.0
        if stay > 0.0:
            if there[i] == 0.0:
                reached[found] = i
                found += 1
            there[i] += stay * mass
        share = (1.0 - stay) * mass / degrees[i]
        for e in range(rows.starts[i], rows.starts[i + 1]):
            j = rows.indices[e]
            part = np.float32(share * rows.data[e])
            if part > 0.0:
                if there[j] == 0.0:
                    reached[found] = j
                    found += 1
                there[j] += part
    return found


def walk(rows: Rows, degrees: Floats, nodes: Indices, hops: int, lazy: bool) -> Walks:
    """Return the distribution of a walk of `hops` steps from each of the nodes.

    If `lazy`, half of the mass does not move in the last step. Takes the sum of the degrees of all nodes passed.
    """
    parts = equal_parts(len(nodes), len(parts_of(rows)))
    found = in_threads(lambda part: _walk(rows, degrees, nodes[part], hops, lazy), parts)
    before = np.cumsum([0, *(len(some.nodes) for some in found)])
    starts = [some.starts[1:] + count for some, count in zip(found, before[:-1], strict=True)]
    nodes_reached, masses = (np.concatenate([some[place] for some in found]) for place in (1, 2))
    return Walks(np.concatenate([[0], *starts]), nodes_reached, masses)


@compiled(nogil=True)
def _walk(rows: Rows, degrees: Floats, nodes: Indices, hops: int, lazy: bool) -> Walks:
    """Return the same, by one thread."""
    n = len(degrees)
    here, there = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    at, reached = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    starts = np.zeros(len(nodes) + 1, dtype=np.int64)
    ends, masses = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.float32)
    fill = 0
    for r in range(len(nodes)):
        at[0], count = nodes[r], 1
        here[nodes[r]] = 1.0
        for hop in range(hops):
            stay = 0.5 if lazy and hop == hops - 1 else 0.0
            count = _step(rows, degrees, at[:count], here, reached, there, stay)
            here, there = there, here
            at, reached = reached, at
        while fill + count > len(ends):
            ends, masses = np.append(ends, ends), np.append(masses, masses)
        for a in range(count):
            ends[fill], masses[fill] = at[a], here[at[a]]
            here[at[a]] = 0.0
            fill += 1
        starts[r + 1] = fill
    return Walks(starts, ends[:fill], masses[:fill])


def meetings(walks: Walks, n: int) -> Walks:
    """Return the same masses by node: row i lists the walks that end at node i, in ascending order."""
    return Walks(*transpose(*walks, n))


def meet(met: Walks, degrees: Floats, similarities: Singles) -> None:
    """Add sum_v m_i(v) m_j(v) / d_v, the inner products of all walks, to `similarities`.

    This is a Gram matrix, so it is positive semidefinite whatever the graph.
    """
    # Row i has i products per node: these parts have as many. Each of them passes over all nodes, so they are few.
    count = min(2, len(parts_of(Rows(met.starts, met.nodes, degrees))))
    ends = [int(len(similarities) * np.sqrt(i / count)) for i in range(count + 1)]
    parts = [slice(low, high) for low, high in pairwise(ends)]
    in_threads(lambda part: _meet(met, degrees, part.start, part.stop, similarities), parts)


@compiled(nogil=True)
def _meet(met: Walks, degrees: Floats, first: int, last: int, similarities: Singles) -> None:
    """Do it for the walks from `first` on and before `last`."""
    for v in range(len(degrees)):
        for a in range(met.starts[v], met.starts[v + 1]):
            if not first <= met.nodes[a] < last:
                continue
            row = similarities[met.nodes[a]]
            factor = np.float32(met.masses[a] / degrees[v])
            for b in range(met.starts[v], a + 1):  # walks are in ascending order: this is the lower half
                row[met.nodes[b]] += factor * met.masses[b]
    for i in range(first, last):
        for j in range(i):
            similarities[j, i] = similarities[i, j]


def spread_labels(met: Walks, weights: Floats, clusters: Labels, volumes: Floats) -> ShortLabels:
    """Return, per node, the cluster whose walks bring most mass relative to its volume; -1 if no walk arrives."""
    found = in_threads(
        lambda part: _spread_labels(
            met._replace(starts=met.starts[part.start : part.stop + 1]), weights, clusters, volumes
        ),
        parts_of(Rows(met.starts, met.nodes, weights)),
    )
    return np.concatenate(found)


@compiled(nogil=True)
def _spread_labels(met: Walks, weights: Floats, clusters: Labels, volumes: Floats) -> ShortLabels:
    """Return the same for some of the nodes."""
    n = len(met.starts) - 1
    labels = np.full(n, UNLABELLED, dtype=np.int16)
    arrived = np.zeros(len(volumes))
    for i in range(n):
        most = 0.0
        for e in range(met.starts[i], met.starts[i + 1]):
            r = met.nodes[e]
            arrived[clusters[r]] += weights[r] * met.masses[e]
        for e in range(met.starts[i], met.starts[i + 1]):
            c = clusters[met.nodes[e]]
            share = arrived[c] / volumes[c]
            if share > most or (share == most and c < labels[i]):
                most, labels[i] = share, c
        for e in range(met.starts[i], met.starts[i + 1]):
            arrived[clusters[met.nodes[e]]] = 0.0
    return labels
