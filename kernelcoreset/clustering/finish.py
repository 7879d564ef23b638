"""The last steps of a run with the kernel's own distances, where explicit vectors leave out a part of the kernel."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.distances import distances_from
from kernelcoreset.clustering.lloyd import fill_empty
from kernelcoreset.clustering.means import Run
from kernelcoreset.clustering.problem import Labels, Problem, Solution, mean_shares, most_points
from kernelcoreset.kernels.loops.tiles import TILE

_MATRIX_POINTS = 10_000  # a matrix of 0.8 GB; above, it takes longer to fill than the rest of the search
# Without a matrix every pass evaluates all distances again.
_PASSES = 1


def descend_exactly(problem: Problem, run: Run, k: int, max_iter: int) -> Solution:
    """Return the local optimum of the kernel's own cost near a run on explicit vectors, z = 2.

    If a matrix of all distances would be large or does not fit in memory, a pass of Lloyd evaluates them block by
    block: then single moves may still lower the cost, and `converged` says whether every point is in the cluster of its
    nearest center.
    """
    s = len(problem.weights)
    if s <= min(_MATRIX_POINTS, most_points()):
        end = descend(problem, run.labels, np.zeros((k, 0)), 2.0, max_iter)
        return Solution(end.labels, end.shares, k, end.cost, run.steps + end.n_iter, end.converged)
    labels, costs, converged = run.labels, partition_costs(problem, run.labels, k), False
    for _ in range(_PASSES):
        moved = _nearest(problem, labels, costs, k)
        converged = bool(np.array_equal(moved, labels))
        lower = partition_costs(problem, moved, k)
        if converged or lower.sum() >= costs.sum():
            break
        labels, costs = moved, lower
    cost = float(costs.sum() * problem.unit)
    return Solution(labels, mean_shares(problem.weights, labels, k), k, cost, run.steps, converged)


def partition_costs(problem: Problem, labels: Labels, k: int) -> Floats:
    """Return the cost of each cluster, shape (k,): 1/(2W) sum w_x w_y d2(x, y), from the kernel's own distances.

    Costs a kernel evaluation per pair of points of the same cluster.
    """
    weights, columns = problem.weights, problem.cloud.columns
    costs = np.zeros(k)
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.searchsorted(labels[order], np.arange(1, k))):
        own = np.ascontiguousarray(columns[:, members])
        pairs = 0.0
        for low in range(0, len(members), TILE):
            some = np.arange(low, min(low + TILE, len(members)))
            pairs += float(weights[members[some]] @ distances_from(problem.kernel, own, some) @ weights[members])
        if len(members):
            costs[labels[members[0]]] = 0.5 * pairs / weights[members].sum()
    return costs


def _nearest(problem: Problem, labels: Labels, costs: Floats, k: int) -> Labels:
    """Return the nearest mean of every point, with s^2 kernel evaluations and little memory."""
    s, columns = len(labels), problem.cloud.columns
    order = np.argsort(labels, kind="stable")
    sorted_columns = np.ascontiguousarray(columns[:, order])
    filled, starts = np.unique(labels[order], return_index=True)
    shares = mean_shares(problem.weights, labels, k)[order]
    spreads = (costs / np.maximum(np.bincount(labels, problem.weights, minlength=k), np.finfo(float).tiny))[filled]
    nearest, away = np.empty(s, dtype=np.int32), np.empty(s)
    for low in range(0, s, TILE):
        some = np.arange(low, min(low + TILE, s))
        squared = distances_from(problem.kernel, sorted_columns, some) * shares
        to_means = np.add.reduceat(squared, starts, axis=1) - spreads
        best = to_means.argmin(axis=1)
        nearest[order[some]] = filled[best]
        away[order[some]] = to_means[np.arange(len(some)), best]
    fill_empty(problem.weights, nearest, away, k)
    return nearest
