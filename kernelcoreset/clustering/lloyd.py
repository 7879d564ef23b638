"""Descent for z = 2 on a matrix of squared distances, compiled: from any labels to a local optimum of the cost.

The best center of a cluster is its mean, so labels describe a solution completely.

Only squared distances D are needed, never feature vectors: a center with coefficients a that sum to 1 has

    d2(x, c) = sum_j a_j D[x, j] - 1/2 sum_ij a_i a_j D[i, j].

A common offset of all kernel values cancels in D, so no digits are lost to it, unlike in K(x, x) - 2 sum a K + c.c.
Everything here assumes validated input and owns no random generator; `labels` are changed in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.problem import Labels
from kernelcoreset.kernels.jit import compiled, part

# A change of the cost below this share of it is rounding, not progress.
ROUNDING = 1e-12
# A cluster that keeps less than this share of its weight is computed from its points: of a difference nothing is left.
_LEFT = 1e-9
# Squared distances below this share of their mean count as zero.
COINCIDE = 1e-13


class _Clusters(NamedTuple):
    """State of k clusters: sums[c, i] = sum_{j in c} w_j D[i, j], weights, numbers of points, mean spreads."""

    sums: Floats
    mass: Floats
    counts: Floats
    spreads: Floats


@part(fastmath={"contract"})
def add_row(total: Floats, row: Floats, factor: float) -> None:
    """Add factor * row to `total`."""
    for i in range(len(total)):
        total[i] += factor * row[i]


@part()
def _move(squared: Floats, weights: Floats, clusters: _Clusters, j: int, source: int, target: int) -> None:
    """Update the clusters after one point moved."""
    add_row(clusters.sums[source], squared[j], -weights[j])
    add_row(clusters.sums[target], squared[j], weights[j])
    clusters.mass[source] -= weights[j]
    clusters.mass[target] += weights[j]
    clusters.counts[source] -= 1
    clusters.counts[target] += 1


@part()
def _recompute(squared: Floats, weights: Floats, labels: Labels, clusters: _Clusters) -> float:
    """Compute all clusters from the labels; return the cost."""
    for c in range(len(clusters.mass)):
        clusters.sums[c, :] = 0.0
    clusters.mass[:] = 0.0
    clusters.counts[:] = 0.0
    for j in range(len(labels)):
        c = labels[j]
        add_row(clusters.sums[c], squared[j], weights[j])
        clusters.mass[c] += weights[j]
        clusters.counts[c] += 1
    cost: float = _spread(weights, labels, clusters)
    return cost


@part()
def _recompute_one(squared: Floats, weights: Floats, labels: Labels, clusters: _Clusters, c: int) -> None:
    """Compute one cluster from the labels."""
    clusters.sums[c] = 0.0
    clusters.mass[c] = 0.0
    for j in range(len(labels)):
        if labels[j] == c:
            add_row(clusters.sums[c], squared[j], weights[j])
            clusters.mass[c] += weights[j]


@part()
def _spread(weights: Floats, labels: Labels, clusters: _Clusters) -> float:
    """Set spreads[c] = 1/(2 W^2) sum_{x, y in c} w_x w_y D[x, y], the mean squared distance to the mean; cost."""
    spreads, mass = clusters.spreads, clusters.mass
    spreads[:] = 0.0
    for i in range(len(labels)):
        spreads[labels[i]] += weights[i] * clusters.sums[labels[i], i]
    cost = 0.0
    for c in range(len(mass)):
        cost += spreads[c] / (2.0 * mass[c])
        spreads[c] /= 2.0 * mass[c] * mass[c]
    return cost


@part()
def _assign(clusters: _Clusters, labels: Labels, best: Floats) -> None:
    """Assign every point to its nearest mean; on a tie it keeps its label."""
    for i in range(len(labels)):
        own = labels[i]
        best[i] = clusters.sums[own, i] / clusters.mass[own] - clusters.spreads[own]
    for c in range(len(clusters.mass)):
        inverse, spread, row = 1.0 / clusters.mass[c], clusters.spreads[c], clusters.sums[c]
        for i in range(len(labels)):
            distance = row[i] * inverse - spread
            # A difference of rounding size would move the point back and forth forever.
            closer = distance < best[i] - ROUNDING * spread
            best[i] = distance if closer else best[i]
            labels[i] = c if closer else labels[i]


@compiled()
def fill_empty(weights: Floats, labels: Labels, distances: Floats, k: int) -> None:
    """Give each empty cluster the point that costs most in its present cluster.

    The point comes from a cluster of several points and costs nothing in its new one, so the cost cannot rise.
    """
    counts = np.zeros(k, dtype=np.int64)
    for i in range(len(labels)):
        counts[labels[i]] += 1
    for c in range(k):
        if counts[c] > 0:
            continue
        farthest = -1
        for i in range(len(labels)):
            if counts[labels[i]] > 1 and (
                farthest < 0 or weights[i] * distances[i] > weights[farthest] * distances[farthest]
            ):
                farthest = i
        counts[labels[farthest]] -= 1
        labels[farthest] = c
        counts[c] = 1
        distances[farthest] = 0.0


@part(makes_arrays=True)
def _follow(squared: Floats, weights: Floats, old: Labels, labels: Labels, clusters: _Clusters) -> bool:
    """Update the clusters for all points that moved, O(s) per such point; return whether any did."""
    moved = 0
    for j in range(len(labels)):
        moved += old[j] != labels[j]
    if 2 * moved >= len(labels):
        _recompute(squared, weights, labels, clusters)
    elif moved > 0:
        before = np.empty(len(clusters.mass))
        for c in range(len(before)):
            before[c] = clusters.mass[c]
        for j in range(len(labels)):
            if old[j] != labels[j]:
                _move(squared, weights, clusters, j, np.int64(old[j]), np.int64(labels[j]))
        for c in range(len(before)):
            if not clusters.mass[c] > _LEFT * before[c]:
                _recompute_one(squared, weights, labels, clusters, c)
    return moved > 0


@part()
def _move_singly(squared: Floats, weights: Floats, labels: Labels, clusters: _Clusters, cost: float) -> bool:
    """One sweep of single moves that lower the cost, with means updated at once (Hartigan); return whether any did.

    Moving x from a to b costs w W_b/(W_b + w) d2(x, b) and saves w W_a/(W_a - w) d2(x, a). A heavy point pulls its own
    mean towards itself, so Lloyd does not move it although the cost would fall.
    """
    sums, mass, counts, spreads = clusters
    moved = False
    for i in range(len(labels)):
        a, w = np.int64(labels[i]), weights[i]
        if counts[a] <= 1 or not mass[a] - w > _LEFT * mass[a]:  # nearly all of the cluster: it is where its mean is
            continue
        target = a
        least = w * mass[a] / (mass[a] - w) * (sums[a, i] / mass[a] - spreads[a]) - ROUNDING * cost
        for b in range(len(mass)):
            if b != a:
                price = w * mass[b] / (mass[b] + w) * (sums[b, i] / mass[b] - spreads[b])
                if price < least:
                    target, least = np.int64(b), price
        if target != a:
            pairs_a = spreads[a] * mass[a] ** 2 - w * sums[a, i]
            pairs_b = spreads[target] * mass[target] ** 2 + w * sums[target, i]
            _move(squared, weights, clusters, i, a, target)
            spreads[a] = max(pairs_a, 0.0) / mass[a] ** 2
            spreads[target] = pairs_b / mass[target] ** 2
            labels[i] = target
            moved = True
    return moved


@compiled()
def descend_means(
    squared: Floats, weights: Floats, labels: Labels, k: int, max_iter: int, beat: float = np.inf
) -> tuple[float, int, bool]:
    """Lloyd until nothing moves, then single moves, until neither helps; return cost, iterations, whether it converged.

    Updated sums accumulate rounding errors, so convergence is only accepted after computing them from the labels. A run
    that ends at no less than `beat` is left there, not `converged`.
    """
    s = len(labels)
    clusters = _Clusters(np.empty((k, s)), np.empty(k), np.empty(k), np.empty(k))
    distances = np.empty(s)
    distances[:] = 1.0
    fill_empty(weights, labels, distances, k)
    old = np.empty(s, dtype=np.int32)
    cost = _recompute(squared, weights, labels, clusters)
    fresh = True
    for step in range(1, max_iter + 1):
        for i in range(s):
            old[i] = labels[i]
        _assign(clusters, labels, distances)
        fill_empty(weights, labels, distances, k)
        moved = _follow(squared, weights, old, labels, clusters)
        if not moved:
            moved = _move_singly(squared, weights, labels, clusters, cost)
        if moved:
            lower = _spread(weights, labels, clusters)
            if lower < cost:
                cost, fresh = lower, False
                continue
        for i in range(s):  # a step without gain comes from rounding, or from a function that is not a kernel
            labels[i] = old[i]
        if cost > beat * (1.0 - ROUNDING):
            return cost, step, False
        cost = _recompute(squared, weights, labels, clusters)
        if fresh:
            return cost, step, True
        fresh = True
    return _recompute(squared, weights, labels, clusters), max_iter, False
