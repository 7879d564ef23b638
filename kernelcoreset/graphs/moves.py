"""Labels of the nodes of a graph, compiled: exact measures of a partition, and moves that improve it.

Each node takes O(degree). Everything here assumes a valid symmetric graph and owns no random generator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.graphs.csr import UNLABELLED, Indices, Labels, Rows, ShortLabels
from kernelcoreset.kernels.jit import compiled, part

# A gain below this is rounding.
_ROUNDING = 1e-12
# Up to this many clusters, gains of all of them take less time than a list of those that have neighbours.
_FEW = 64


class Least(NamedTuple):
    """Lower bounds over all clusters."""

    volume: float
    ratio: float
    """Of inner weight by volume."""


@compiled(nogil=True)
def measure(
    first: int, rows: Rows, degrees: Floats, labels: ShortLabels, k: int, held: Floats
) -> tuple[Floats, Floats]:
    """Return volume and inner weight per cluster: the sums of degrees, and of all entries with both ends in it.

    Row i is that of node `first` + i, so that the parts of a graph that is kept in blocks add up. `held` gets the
    weight of each node's entries in its own cluster; it may be empty.
    """
    volumes, inner = np.zeros(k), np.zeros(k)
    keeps = len(held) > 0
    for i in range(len(degrees)):
        own = labels[first + i]
        if own >= 0:
            volumes[own] += degrees[i]
            inside = 0.0
            for e in range(rows.starts[i], rows.starts[i + 1]):
                inside += rows.data[e] * (labels[rows.indices[e]] == own)  # a branch here takes twice the time
            inner[own] += inside
            if keeps:
                held[i] = inside
    return volumes, inner


@part()
def _tally(rows: Rows, i: int, skipped: int, labels: ShortLabels, shared: Floats, seen: Indices) -> tuple[int, float]:
    """Add the weights of row i by cluster to `shared`, and list these clusters in `seen`.

    Returns the number of clusters seen, and the weight to the skipped node.
    """
    count = 0
    apart = 0.0
    for e in range(rows.starts[i], rows.starts[i + 1]):
        j = rows.indices[e]
        c = labels[j]
        if j == skipped:
            apart += rows.data[e]
        elif c >= 0 and rows.data[e] > 0.0:
            if shared[c] == 0.0:
                seen[count] = c
                count += 1
            shared[c] += rows.data[e]
    return count, apart


@part()
def _best_cluster(
    seen: Indices, shared: Floats, degree: float, loop: float, volumes: Floats, inner: Floats, own: int
) -> tuple[int, float]:
    """Return the cluster seen, other than `own`, that gains most from a node of this degree, and the gain."""
    best, most = UNLABELLED, -np.inf
    for q in range(len(seen)):
        c = seen[q]
        if c != own:
            gain = (inner[c] + 2.0 * shared[c] + loop) / (volumes[c] + degree) - inner[c] / volumes[c]
            if gain > most or (gain == most and c < best):
                most, best = gain, c
    return best, most


@part()
def _tally_all(rows: Rows, i: int, skipped: int, labels: ShortLabels, shared: Floats) -> float:
    """Set `shared` to the weights of row i by cluster, and return the weight to the skipped node.

    The last element of `shared` is for the label -1. Labels come in no order, so that a branch would often be
    predicted wrongly, and wait for the label.
    """
    apart = 0.0
    shared[:] = 0.0
    for e in range(rows.starts[i], rows.starts[i + 1]):
        j = rows.indices[e]
        shared[labels[j]] += rows.data[e] * (j != skipped)
        apart += rows.data[e] * (j == skipped)
    return apart


@part(error_model="numpy")
def _best_of_all(
    shared: Floats, degree: float, loop: float, volumes: Floats, inner: Floats, own: int, gains: Floats
) -> tuple[int, float]:
    """Return the same as `_best_cluster`, of all clusters with neighbours; `gains` is room for one number each."""
    for c in range(len(gains)):  # in vector registers
        gain = (inner[c] + 2.0 * shared[c] + loop) / (volumes[c] + degree) - inner[c] / volumes[c]
        gains[c] = gain if shared[c] > 0.0 else -np.inf
    if own >= 0:
        gains[own] = -np.inf
    best, most = UNLABELLED, -np.inf
    for c in range(len(gains)):
        if gains[c] > most:
            best, most = c, gains[c]
    return best, most


@part()
def _lower(least: Least, volume: float, inner: float) -> Least:
    """Return the bounds with one more cluster; a cluster without volume has no neighbours."""
    if volume <= 0.0:
        return least
    return Least(min(least.volume, volume), min(least.ratio, inner / volume))


@part()
def _least(volumes: Floats, inner: Floats) -> Least:
    """Return the bounds of these clusters."""
    least = Least(np.inf, np.inf)
    for c in range(len(volumes)):
        least = _lower(least, volumes[c], inner[c])
    return least


@part()
def _is_better_off(degree: float, held: float, volume: float, inner: float, gain: float) -> bool:
    """Return whether leaving its cluster, where a node holds so much of the inner weight, costs more than the gain."""
    left = volume - degree
    if left <= _ROUNDING * volume:
        return True  # the last node of its cluster
    return gain <= inner / volume - (inner - held) / left + _ROUNDING


@part()
def _stays(degree: float, inside: float, loop: float, volume: float, inner: float, least: Least) -> bool:
    """Return whether a node stays in its cluster even if all its edges to other clusters led to the best of them.

    `inside` is the weight of its edges to its own cluster. A move to cluster c gains (2 shared_c + loop - degree
    inner_c / volume_c) / (volume_c + degree). With the weight of all edges that leave the own cluster as shared_c, and
    the least ratio and volume of all clusters, this is at least the gain of every move.
    """
    left = volume - degree
    if left <= _ROUNDING * volume:
        return True  # the last node of its cluster
    most = max(0.0, 2.0 * (degree - inside) + loop - degree * least.ratio) / (least.volume + degree)
    return most <= (2.0 * inside - loop - degree * inner / volume) / left


@part()
def _is_settled(
    rows: Rows, i: int, first: int, labels: ShortLabels, degree: float, volume: float, inner: float, least: Least
) -> bool:
    """Return whether a node stays, without its tally. Most nodes do, and this takes half the time of their tally."""
    own = labels[first + i]
    inside, loop = 0.0, 0.0
    for e in range(rows.starts[i], rows.starts[i + 1]):  # without a branch
        j = rows.indices[e]
        inside += rows.data[e] * (labels[j] == own)
        loop += rows.data[e] * (j == first + i)
    stays: bool = _stays(degree, inside, loop, volume, inner, least)
    return stays


@compiled()
def mark_unsettled(
    degrees: Floats,
    loops: Floats,
    labels: ShortLabels,
    inside: Floats,
    volumes: Floats,
    inner: Floats,
    waiting: NDArray[np.bool_],
) -> None:
    """Let only those nodes wait that may gain by a move; `inside` is what `measure` has put into `held`."""
    least = _least(volumes, inner)
    for i in range(len(degrees)):
        own = labels[i]
        waiting[i] = own < 0 or not _stays(degrees[i], inside[i], loops[i], volumes[own], inner[own], least)


@part()
def _mark_neighbours(rows: Rows, i: int, waiting: NDArray[np.bool_]) -> None:
    """Mark the neighbours of node i as waiting."""
    for e in range(rows.starts[i], rows.starts[i + 1]):
        waiting[rows.indices[e]] = True


@compiled(nogil=True)
def improve(
    first: int,
    rows: Rows,
    degrees: Floats,
    labels: ShortLabels,
    volumes: Floats,
    inner: Floats,
    waiting: NDArray[np.bool_],
    whole: bool,
) -> int:
    """Make one sweep of single moves, each to the cluster that increases sum_c inner_c / volume_c most.

    This sum is k minus the normalized cut. These are the exact moves of weighted kernel k-means; a diagonal shift of
    the kernel adds the same to every partition and does not matter. A node without a label joins the best cluster of
    its neighbours. The last node of a cluster stays. Only nodes marked in `waiting` are visited. In a `whole` sweep all
    of them stay marked, else only neighbours of nodes that move. Returns the number of nodes that moved.

    Row i is that of node `first` + i. In a part of a graph, where `first` is not 0, sweeps must be whole.
    """
    few = len(volumes) <= _FEW
    shared, gains = np.zeros(len(volumes) + 1), np.empty(len(volumes))
    seen = np.empty(len(volumes), dtype=np.int64)
    count, moved = 0, 0
    least = _least(volumes, inner)
    for i in range(len(degrees)):
        if not waiting[i]:
            continue
        waiting[i] = whole
        degree, own = degrees[i], labels[first + i]
        if own >= 0 and _is_settled(rows, i, first, labels, degree, volumes[own], inner[own], least):
            continue
        if few:
            loop = _tally_all(rows, i, first + i, labels, shared)
            best, gain = _best_of_all(shared, degree, loop, volumes, inner, own, gains)
        else:
            count, loop = _tally(rows, i, first + i, labels, shared, seen)
            best, gain = _best_cluster(seen[:count], shared, degree, loop, volumes, inner, own)
        if own >= 0 and best >= 0 and _is_better_off(degree, 2.0 * shared[own] + loop, volumes[own], inner[own], gain):
            best = UNLABELLED
        if best >= 0:
            if own >= 0:
                inner[own] -= 2.0 * shared[own] + loop
                volumes[own] -= degree
                least = _lower(least, volumes[own], inner[own])
            inner[best] += 2.0 * shared[best] + loop
            volumes[best] += degree
            least = _lower(least, volumes[best], inner[best])
            labels[first + i] = best
            moved += 1
            if not whole:
                _mark_neighbours(rows, i, waiting)
        for q in range(count):
            shared[seen[q]] = 0.0
    return moved


@compiled()
def label_new(rows: Rows, sums: Floats, labels: ShortLabels, volumes: Floats, inner: Floats) -> Labels:
    """Return the best cluster for each row of edges to labelled nodes; -1 for a row without any."""
    found = np.empty(len(sums), dtype=np.int32)
    shared = np.zeros(len(volumes))
    seen = np.empty(len(volumes), dtype=np.int64)
    for r in range(len(sums)):
        count, _ = _tally(rows, r, -1, labels, shared, seen)
        found[r], _ = _best_cluster(seen[:count], shared, sums[r], 0.0, volumes, inner, UNLABELLED)
        for q in range(count):
            shared[seen[q]] = 0.0
    return found


@compiled()
def fill_components(rows: Rows, degrees: Floats, labels: ShortLabels, volumes: Floats, inner: Floats) -> int:
    """Add every component without labels, as a whole, to the cluster of least volume; return their number."""
    stack = np.empty(len(labels), dtype=np.int32)
    count = 0
    for first in range(len(labels)):
        if labels[first] >= 0 or degrees[first] == 0.0:
            continue
        target = np.argmin(volumes)
        labels[first] = target
        stack[0], height = first, 1
        while height > 0:
            height -= 1
            i = stack[height]
            volumes[target] += degrees[i]
            inner[target] += degrees[i]  # all its edges stay in the component
            for e in range(rows.starts[i], rows.starts[i + 1]):
                j = rows.indices[e]
                if labels[j] < 0 and rows.data[e] > 0.0:
                    labels[j] = target
                    stack[height] = j
                    height += 1
        count += 1
    return count
