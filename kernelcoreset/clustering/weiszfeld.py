"""Descent for any z >= 1, compiled: centers are weighted means found by reweighting (Weiszfeld).

As in `lloyd`, only squared distances are needed, everything assumes validated input and owns no random generator, and
`labels` are changed in place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.lloyd import COINCIDE, ROUNDING, add_row, fill_empty
from kernelcoreset.clustering.problem import Labels
from kernelcoreset.kernels.jit import compiled, part


@part()
def _power_cost(squared: Floats, weights: Floats, z: float) -> float:
    """Return sum w dist^z; z = 1 has its own loop because `**` is many times slower than a square root."""
    total = 0.0
    if z == 1.0:
        for i in range(len(weights)):
            total += weights[i] * np.sqrt(max(squared[i], 0.0))
    else:
        for i in range(len(weights)):
            total += weights[i] * max(squared[i], 0.0) ** (0.5 * z)
    return total


@part()
def _times(matrix: Floats, vector: Floats, out: Floats) -> float:
    """Write matrix @ vector into `out`, skipping zeros, and return vector @ out. The matrix is symmetric."""
    out[:] = 0.0
    for j in range(len(vector)):
        if vector[j] != 0.0:
            add_row(out, matrix[j], vector[j])
    product = 0.0
    for j in range(len(vector)):
        product += vector[j] * out[j]
    return product


@part(makes_arrays=True)
def _pull(squared: Floats, weights: Floats, z: float, out: Floats) -> bool:
    """Write the coefficients of the reweighted mean, w d^(z - 2) / sum, and return whether it exists.

    The cost falls in its direction. For z < 2 a point at the center has infinite weight and no direction: it is left
    out, and the line search finds whether leaving it lowers the cost.
    """
    tiny = COINCIDE * np.sum(weights * squared) / np.sum(weights)
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
    """Improve the coefficients `share` of one cluster's center, in place; return sum w dist^z over the cluster.

    `block` holds the squared distances inside the cluster. Each step goes towards the reweighted mean. A full step
    lowers the cost for z <= 2; for larger z, steps are halved until it falls.
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
    nearest = np.argmin(reach)  # if the best center is a point itself, reweighting converges to it very slowly
    at_point = _power_cost(block[nearest], weights, z)
    if at_point < cost:
        share[:] = 0.0
        share[nearest] = 1.0
        cost = at_point
    return cost


@part(makes_arrays=True)
def _cost_at(block: Floats, weights: Floats, z: float, share: Floats) -> float:
    """Return the cost of one cluster with the center of coefficients `share`."""
    reach = np.empty(len(weights))
    own = _times(block, share, reach)
    reach -= 0.5 * own
    cost: float = _power_cost(reach, weights, z)
    return cost


@part(makes_arrays=True)
def _among(squared: Floats, members: NDArray[np.int64]) -> Floats:
    """Return the squared distances among `members`; four times as fast as indexing twice."""
    block = np.empty((len(members), len(members)))
    for i in range(len(members)):
        row = squared[members[i]]
        for j in range(len(members)):
            block[i, j] = row[members[j]]
    return block


@part(makes_arrays=True)
def _place_centers(
    squared: Floats, weights: Floats, labels: Labels, z: float, own: Floats, polish: bool, coefficients: Floats
) -> None:
    """Find a better center for every cluster, a weighted mean of its own points.

    Starts from the old center, restricted to points still in the cluster, or from the reweighted mean at it (`own`
    holds the squared distances to it), whichever costs less.
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
    """Lloyd with reweighted centers; return cost, iterations, and whether the labels converged.

    `coefficients`, shape (k, s), holds the first centers, or zeros for the means, and receives the best ones. With
    `polish` centers are computed to the last digits, otherwise improved by a few steps per iteration.
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
        if lower > cost * (1.0 + ROUNDING):
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


@part(makes_arrays=True)
def _assign_centers(weights: Floats, to_centers: Floats, labels: Labels, own: Floats, z: float) -> None:
    """Assign every point to its nearest center, and to an empty cluster the point that costs most; update `own`."""
    for i in range(len(labels)):
        for c in range(len(to_centers)):
            if to_centers[c, i] < own[i] * (1.0 - ROUNDING):
                own[i] = to_centers[c, i]
                labels[i] = c
    fill_empty(weights, labels, own ** (0.5 * z), len(to_centers))
