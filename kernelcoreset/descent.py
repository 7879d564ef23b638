"""Descent on a matrix of squared distances, compiled: from any labels to a local optimum of the clustering cost.

Only squared distances D are needed, never feature vectors: a center with coefficients a that sum to 1 has

    d2(x, c) = sum_j a_j D[x, j] - 1/2 sum_ij a_i a_j D[i, j],

which loses nothing to a common offset of all kernel values, as K(x, x) - 2 sum a K + c.c would. Everything here assumes
validated input and owns no random generator; `labels` are changed in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.kernels.tiles import Floats, compiled

Labels = NDArray[np.int32]

# A change of the cost below this share of it is rounding, not progress.
_ROUNDING = 1e-12
# Squared distances below this share of their mean are zero for every purpose.
_COINCIDE = 1e-13


@compiled()
def make_symmetric(squared: Floats) -> None:
    """Average D with its transpose and clear the diagonal, in place."""
    for i in range(squared.shape[0]):
        squared[i, i] = 0.0
        for j in range(i):
            mean = 0.5 * (squared[i, j] + squared[j, i])
            squared[i, j] = mean
            squared[j, i] = mean


@compiled()
def count_distinct(squared: Floats, enough: int) -> int:
    """Number of points that are pairwise at a distance above zero, counted up to `enough`."""
    found = np.empty(enough, dtype=np.int64)
    count = 0
    for i in range(squared.shape[0]):
        fresh = True
        for f in range(count):
            if squared[i, found[f]] <= 0.0:
                fresh = False
                break
        if fresh:
            found[count] = i
            count += 1
            if count == enough:
                break
    return count


# --- z = 2: the best center of a cluster is its mean, so a partition is all there is ---------------------------------


class _Clusters(NamedTuple):
    """What is kept of k clusters: sums[c, i] = sum_{j in c} w_j D[i, j], weight, number of points, mean spread."""

    sums: Floats
    mass: Floats
    counts: Floats
    spreads: Floats


@compiled(fastmath={"contract"})
def _add_row(total: Floats, row: Floats, factor: float) -> None:
    for i in range(len(total)):
        total[i] += factor * row[i]


@compiled()
def _move(squared: Floats, weights: Floats, clusters: _Clusters, j: int, source: int, target: int) -> None:
    """Bring the sums up to date with one point that moved."""
    _add_row(clusters.sums[source], squared[j], -weights[j])
    _add_row(clusters.sums[target], squared[j], weights[j])
    clusters.mass[source] -= weights[j]
    clusters.mass[target] += weights[j]
    clusters.counts[source] -= 1
    clusters.counts[target] += 1


@compiled()
def _sum_afresh(squared: Floats, weights: Floats, labels: Labels, clusters: _Clusters) -> float:
    """Add up all clusters; the cost."""
    clusters.sums[:] = 0.0
    clusters.mass[:] = 0.0
    clusters.counts[:] = 0.0
    for j in range(len(labels)):
        c = labels[j]
        _add_row(clusters.sums[c], squared[j], weights[j])
        clusters.mass[c] += weights[j]
        clusters.counts[c] += 1
    cost: float = _spread(weights, labels, clusters)
    return cost


@compiled()
def _spread(weights: Floats, labels: Labels, clusters: _Clusters) -> float:
    """spreads[c] = 1/(2 W^2) sum_{x, y in c} w_x w_y D[x, y], the mean squared distance to the mean; the cost."""
    spreads, mass = clusters.spreads, clusters.mass
    spreads[:] = 0.0
    for i in range(len(labels)):
        spreads[labels[i]] += weights[i] * clusters.sums[labels[i], i]
    cost = 0.0
    for c in range(len(mass)):
        cost += spreads[c] / (2.0 * mass[c])
        spreads[c] /= 2.0 * mass[c] * mass[c]
    return cost


@compiled()
def _assign(clusters: _Clusters, labels: Labels, best: Floats) -> None:
    """Give every point to its nearest mean; a tie leaves it where it is."""
    for i in range(len(labels)):
        own = labels[i]
        best[i] = clusters.sums[own, i] / clusters.mass[own] - clusters.spreads[own]
    for c in range(len(clusters.mass)):
        inverse, spread, row = 1.0 / clusters.mass[c], clusters.spreads[c], clusters.sums[c]
        for i in range(len(labels)):
            distance = row[i] * inverse - spread
            # A point level with its own mean to the last digits stays: it would come back for ever.
            closer = distance < best[i] - _ROUNDING * spread
            best[i] = distance if closer else best[i]
            labels[i] = c if closer else labels[i]


@compiled()
def fill_empty(weights: Floats, labels: Labels, distances: Floats, k: int) -> None:
    """Give each empty cluster the point that costs most where it is.

    Such a point leaves a cluster of several and costs nothing in its new one, so the cost can only fall.
    """
    counts = np.zeros(k, dtype=np.int64)
    for label in labels:
        counts[label] += 1
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


@compiled()
def _follow(squared: Floats, weights: Floats, old: Labels, labels: Labels, clusters: _Clusters) -> bool:
    """Bring the clusters up to date at the price of the points that moved; whether any did."""
    moved = 0
    for j in range(len(labels)):
        moved += old[j] != labels[j]
    if 2 * moved >= len(labels):
        _sum_afresh(squared, weights, labels, clusters)
    elif moved > 0:
        for j in range(len(labels)):
            if old[j] != labels[j]:
                _move(squared, weights, clusters, j, old[j], labels[j])
    return moved > 0


@compiled()
def _move_singly(squared: Floats, weights: Floats, labels: Labels, clusters: _Clusters, cost: float) -> bool:
    """One sweep of single moves that lower the cost, means following at once (Hartigan); whether any did.

    Moving x from a to b costs w W_b/(W_b + w) d2(x, b) and saves w W_a/(W_a - w) d2(x, a). A heavy point drags its own
    mean along, so Lloyd leaves it where it is although the cost would fall.
    """
    sums, mass, counts, spreads = clusters
    moved = False
    for i in range(len(labels)):
        a, w = labels[i], weights[i]
        if counts[a] <= 1:
            continue
        target, least = a, w * mass[a] / (mass[a] - w) * (sums[a, i] / mass[a] - spreads[a]) - _ROUNDING * cost
        for b in range(len(mass)):
            if b != a:
                price = w * mass[b] / (mass[b] + w) * (sums[b, i] / mass[b] - spreads[b])
                if price < least:
                    target, least = b, price
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
def descend_means(squared: Floats, weights: Floats, labels: Labels, k: int, max_iter: int) -> tuple[float, int, bool]:
    """Lloyd until nothing moves, then single moves, until neither helps: cost, iterations, whether it came to rest.

    Rest is only believed on sums added up afresh: those that follow the moves carry rounding along.
    """
    s = len(labels)
    clusters = _Clusters(np.empty((k, s)), np.empty(k), np.empty(k), np.empty(k))
    distances = np.ones(s)
    fill_empty(weights, labels, distances, k)
    old = labels.copy()
    cost = _sum_afresh(squared, weights, labels, clusters)
    fresh = True
    for step in range(1, max_iter + 1):
        old[:] = labels
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
        labels[:] = old  # a step that gains nothing is rounding, or the work of a function that is no kernel
        cost = _sum_afresh(squared, weights, labels, clusters)
        if fresh:
            return cost, step, True
        fresh = True
    return _sum_afresh(squared, weights, labels, clusters), max_iter, False


# --- any z >= 1: centers are combinations found by reweighting (Weiszfeld) -------------------------------------------


@compiled()
def _power_cost(squared: Floats, weights: Floats, z: float) -> float:
    """The sum of w dist^z; the square root of k-median is spelled out because `**` is many times slower."""
    total = 0.0
    if z == 1.0:
        for i in range(len(weights)):
            total += weights[i] * np.sqrt(max(squared[i], 0.0))
    else:
        for i in range(len(weights)):
            total += weights[i] * max(squared[i], 0.0) ** (0.5 * z)
    return total


@compiled()
def _times(matrix: Floats, vector: Floats, out: Floats) -> float:
    """Leave matrix @ vector in `out`, zeros skipped; vector @ out. The matrix is symmetric."""
    out[:] = 0.0
    for j in range(len(vector)):
        if vector[j] != 0.0:
            _add_row(out, matrix[j], vector[j])
    return np.sum(vector * out)


@compiled()
def _pull(squared: Floats, weights: Floats, z: float, out: Floats) -> bool:
    """The reweighted mean w d^(z - 2) / sum, whose direction lowers the cost; whether there is one.

    For z < 2 a point under the center pulls with infinite weight in no direction: it is left out, and the line search
    finds out whether the others may leave it.
    """
    tiny = _COINCIDE * np.sum(weights * squared) / np.sum(weights)
    total = 0.0
    for i in range(len(weights)):
        if squared[i] <= tiny:
            out[i] = 0.0
        elif z == 1.0:
            out[i] = weights[i] / np.sqrt(squared[i])
        else:
            out[i] = weights[i] * squared[i] ** (0.5 * z - 1.0)
        total += out[i]
    if total > 0.0:
        out /= total
    return total > 0.0


@compiled()
def best_center(block: Floats, weights: Floats, z: float, share: Floats, max_steps: int, tolerance: float) -> float:
    """Improve the coefficients `share` of one cluster's center, in place; sum w dist^z over the cluster.

    `block` are the squared distances inside the cluster. The pull at the center is a descent direction, and a
    full step is sure to lower the cost for z <= 2; beyond, steps are shortened until it falls.
    """
    m = len(weights)
    reach, pulled_reach, pulled = np.empty(m), np.empty(m), np.empty(m)
    own = _times(block, share, reach)
    cost: float = _power_cost(reach - 0.5 * own, weights, z)
    for _ in range(max_steps):
        if cost <= 0.0 or not _pull(np.maximum(reach - 0.5 * own, 0.0), weights, z, pulled):
            break
        pulled_own = _times(block, pulled, pulled_reach)
        cross = np.sum(share * pulled_reach)
        step = 1.0 if z <= 2.0 else 1.0 / (z - 1.0)
        before = cost
        for _ in range(40):
            stay = 1.0 - step
            square = stay * stay * own + 2.0 * step * stay * cross + step * step * pulled_own
            lower = _power_cost(stay * reach + step * pulled_reach - 0.5 * square, weights, z)
            if lower < cost:
                share[:] = stay * share + step * pulled
                reach[:] = stay * reach + step * pulled_reach
                own, cost = square, lower
                break
            step *= 0.5
        if cost >= before * (1.0 - tolerance):
            break
    nearest = np.argmin(reach)  # where the best center is a point itself, reweighting only creeps towards it
    at_point = _power_cost(block[nearest], weights, z)
    if at_point < cost:
        share[:] = 0.0
        share[nearest] = 1.0
        cost = at_point
    return cost


@compiled()
def _cost_at(block: Floats, weights: Floats, z: float, share: Floats) -> float:
    """The cost of one cluster with the center of coefficients `share`."""
    reach = np.empty(len(weights))
    own = _times(block, share, reach)
    reach -= 0.5 * own
    cost: float = _power_cost(reach, weights, z)
    return cost


@compiled()
def _among(squared: Floats, members: NDArray[np.int64]) -> Floats:
    """The squared distances among `members`; four times as fast as indexing twice."""
    block = np.empty((len(members), len(members)))
    for i in range(len(members)):
        row = squared[members[i]]
        for j in range(len(members)):
            block[i, j] = row[members[j]]
    return block


@compiled()
def _place_centers(
    squared: Floats, weights: Floats, labels: Labels, z: float, own: Floats, polish: bool, coefficients: Floats
) -> None:
    """A better center for every cluster, a combination of its own points only.

    Begins with the old center, cut to the points that are still there, or with the pull at it (`own` are the squared
    distances of the points to it), whichever is cheaper.
    """
    max_steps, tolerance = (1000, 1e-15) if polish else (2, 1e-6)
    for c in range(len(coefficients)):
        members = np.flatnonzero(labels == c)
        block, mass = _among(squared, members), weights[members]
        share, pulled = coefficients[c][members], np.empty(len(members))
        if np.sum(share) <= 0.0:
            share = mass.copy()
        share /= np.sum(share)
        found = _pull(own[members], mass, z, pulled)
        if found and _cost_at(block, mass, z, pulled) < _cost_at(block, mass, z, share):
            share = pulled
        best_center(block, mass, z, share, max_steps, tolerance)
        coefficients[c] = 0.0
        for m in range(len(members)):
            coefficients[c, members[m]] = share[m]


@compiled()
def measure_centers(squared: Floats, coefficients: Floats, out: Floats) -> None:
    """out[c, i] = squared distance of point i to center c, at least 0."""
    for c in range(len(coefficients)):
        own = _times(squared, coefficients[c], out[c])
        for i in range(out.shape[1]):
            out[c, i] = max(out[c, i] - 0.5 * own, 0.0)


@compiled()
def descend_centers(
    squared: Floats, weights: Floats, labels: Labels, z: float, max_iter: int, polish: bool, coefficients: Floats
) -> tuple[float, int, bool]:
    """Lloyd with reweighted centers: cost, iterations, whether labels came to rest.

    `coefficients`, shape (k, s), are the centers to begin with, or zeros for the means; the best ones are left there.
    With `polish` centers are taken to the last digits, else improved by a few steps at a time.
    """
    k, s = coefficients.shape
    to_centers, own, kept = np.empty((k, s)), np.ones(s), coefficients.copy()
    fill_empty(weights, labels, np.ones(s), k)
    old = labels.copy()
    cost = np.inf
    for step in range(1, max_iter + 1):
        _place_centers(squared, weights, labels, z, own, polish, coefficients)
        measure_centers(squared, coefficients, to_centers)
        for i in range(s):
            own[i] = to_centers[labels[i], i]
        lower = _power_cost(own, weights, z)
        if lower > cost * (1.0 + _ROUNDING):
            labels[:] = old
            coefficients[:] = kept
            measure_centers(squared, coefficients, to_centers)
        else:
            cost = lower
            old[:] = labels
            kept[:] = coefficients
            _assign_centers(weights, to_centers, labels, own, z)
        if np.array_equal(old, labels):
            return cost, step, True
    labels[:] = old
    return cost, max_iter, False


@compiled()
def _assign_centers(weights: Floats, to_centers: Floats, labels: Labels, own: Floats, z: float) -> None:
    """Give every point to its nearest center, and an empty cluster the point that costs most; `own` follows."""
    for i in range(len(labels)):
        for c in range(len(to_centers)):
            if to_centers[c, i] < own[i] * (1.0 - _ROUNDING):
                own[i] = to_centers[c, i]
                labels[i] = c
    fill_empty(weights, labels, own ** (0.5 * z), len(to_centers))


# --- out of a local optimum ------------------------------------------------------------------------------------------


@compiled()
def swap_center(squared: Floats, weights: Floats, to_centers: Floats, candidate: int, z: float, labels: Labels) -> None:
    """Labels after the center that is missed least made way for the point `candidate`.

    `to_centers` holds distance^z, shape (k, s). One pass: a point of the removed center goes to the candidate or to
    its second nearest.
    """
    k, s = to_centers.shape
    missed = np.zeros(k)
    second = np.empty(s, dtype=np.int32)
    for i in range(s):
        a, b = -1, -1
        for c in range(k):
            if a < 0 or to_centers[c, i] < to_centers[a, i]:
                a, b = c, a
            elif b < 0 or to_centers[c, i] < to_centers[b, i]:
                b = c
        labels[i], second[i] = a, b
        fresh = squared[candidate, i] ** (0.5 * z)
        missed[a] += weights[i] * (min(fresh, to_centers[b, i]) - min(fresh, to_centers[a, i]))
    leaves = np.argmin(missed)
    for i in range(s):
        stays = second[i] if labels[i] == leaves else labels[i]
        labels[i] = leaves if squared[candidate, i] ** (0.5 * z) < to_centers[stays, i] else stays
