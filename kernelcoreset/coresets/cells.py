"""D^z sampling of many pivots on two levels, so that the work per point grows more slowly than their number.

A few coarse pivots divide the points into cells. Further pivots are drawn from the whole data, but a point is only
compared with those in its own cell. So a point's pivot is near, but not always the nearest. Any assignment of points to
pivots gives valid sensitivities, and the measured error of a coreset does not change.
"""

from __future__ import annotations

import math

import numpy as np

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.coresets.seeding import Indices, Seeding, compare, pick, seed_pivots
from kernelcoreset.kernels.evaluator import Evaluator, evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.passes import Cloud, NearestPivots
from kernelcoreset.kernels.loops.tiles import TILE

_ONE_LEVEL = 64  # up to so many pivots, every point is compared with each
_FEW_COLUMNS = 12
_PER_CELL = 256  # pivots of a cell if there are more columns: small cells cut clusters of many dimensions apart
_CANDIDATES = 16  # points, per pivot wanted, among which the pivots of the cells are drawn


def seed_cells(
    kernel: Kernel, cloud: Cloud, weights: Floats, count: int, z: float, generator: np.random.Generator
) -> Seeding:
    """Draw pivots by D^z sampling in steps, and find a near pivot for every point. Assumes validated input.

    Parameters
    ----------
    kernel : Kernel
    cloud : Cloud
        All points, columns of shape (d, n).
    weights : ndarray of shape (n,)
    count : int
        Pivots wanted. Up to 64 of them, or 256 if there are 12 columns or more, are those of `seed_pivots`.
    z : float
    generator : numpy Generator

    Returns
    -------
    Seeding
        If there are more, neighbours in `pivots` are near each other, and `nearest` is the nearest pivot of those in
        the same cell.

    Notes
    -----
    Takes O(sqrt(count)) kernel evaluations per point, or O(256 + count / 256) with many columns.
    """
    n_cells = _number_of_cells(count, cloud.columns.shape[0])
    coarse = seed_pivots(kernel, cloud, weights, count if n_cells == 1 else n_cells, z, generator, batched=True)
    if n_cells == 1 or coarse.cost <= 0.0:
        return coarse
    evaluator = evaluator_of(kernel)
    place = np.empty(len(coarse.pivots), dtype=np.int32)
    place[_tour(evaluator, cloud, coarse.pivots)] = np.arange(len(place))
    cells = place[coarse.nearest]
    order = sort_by_cell(cells, len(place))
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    sorted_cloud, cells, weights = _taken(cloud, order), cells[order], weights[order]
    drawn = _draw_in_cells(
        evaluator, sorted_cloud, weights, coarse.distances[order], cells, count - len(place), z, generator
    )
    pivots = np.union1d(where[coarse.pivots], drawn)
    of_cell = np.split(pivots, np.searchsorted(cells[pivots], np.arange(1, len(place))))
    pivots = np.concatenate([own[_tour(evaluator, sorted_cloud, own)] for own in of_cell])
    ranges = _ranges(cells, cells[pivots])
    n = len(order)
    found = NearestPivots(np.full(n, np.inf), np.zeros(n, dtype=np.int32), np.zeros(n), np.empty(len(ranges)))
    compare(evaluator, sorted_cloud, weights, pivots, ranges, 0, z, found)
    cost = float(found.tile_costs.sum())
    return Seeding(order[pivots], found.distances[where], found.nearest[where], found.onward[where], cost)


def _number_of_cells(count: int, d: int) -> int:
    if d < _FEW_COLUMNS:
        return math.isqrt(count) if count > _ONE_LEVEL else 1
    return -(-count // _PER_CELL)


def _draw_in_cells(
    evaluator: Evaluator,
    cloud: Cloud,
    weights: Floats,
    distances: Floats,
    cells: Ints,
    count: int,
    z: float,
    generator: np.random.Generator,
) -> Indices:
    """Draw `count` more pivots by D^z sampling from a sample of the points, which are sorted by cell.

    `distances` are those to the coarse pivots. Fewer are drawn if every point of the sample is at distance 0.
    """
    sample = np.arange(len(cells))
    if _CANDIDATES * count < len(cells):
        mass = weights * (distances / float(weights @ distances) + 1.0 / float(weights.sum()))
        sums = np.cumsum(mass)
        shares = (np.arange(_CANDIDATES * count) + generator.random()) * (sums[-1] / (_CANDIDATES * count))
        sample, times = np.unique(
            np.searchsorted(sums, shares, side="right").clip(max=len(cells) - 1), return_counts=True
        )
        weights = weights[sample] * times / np.where(mass > 0.0, mass, 1.0)[sample]
    cloud, best, cells = _taken(cloud, sample), distances[sample], cells[sample]
    n = len(sample)
    tile_costs = np.add.reduceat(weights * best, np.arange(0, n, TILE))
    found = NearestPivots(best, np.zeros(n, dtype=np.int32), np.zeros(n), tile_costs)
    pivots = np.empty(0, dtype=np.int64)
    while len(pivots) < count and tile_costs.sum() > 0.0:
        wanted = min(int(cells[-1]) + 1 + len(pivots), count - len(pivots))
        fresh = np.unique(pick(best, weights, tile_costs, generator.random(wanted)))
        compare(evaluator, cloud, weights, fresh, _ranges(cells, cells[fresh]), 0, z, found)
        pivots = np.concatenate([pivots, fresh])
    return sample[pivots]


def _ranges(cells: Ints, pivot_cells: Ints) -> Indices:
    """The pivots in the cells of each tile, as a range of `pivot_cells`; both arrays are sorted. Shape (tiles, 2)."""
    first = cells[::TILE]
    last = cells[np.minimum(np.arange(TILE - 1, len(cells) + TILE - 1, TILE), len(cells) - 1)]
    return np.stack([np.searchsorted(pivot_cells, first), np.searchsorted(pivot_cells, last, side="right")], axis=1)


def _taken(cloud: Cloud, indices: Indices) -> Cloud:
    """The points with the given indices. K(x, x) is empty if it is not used."""
    return Cloud(
        np.take(cloud.columns, indices, axis=1), cloud.diagonals[indices] if len(cloud.diagonals) else cloud.diagonals
    )


def _tour(evaluator: Evaluator, cloud: Cloud, pivots: Indices) -> Indices:
    """An order of some points in which each is followed by the nearest one that is left."""
    columns = np.take(cloud.columns, pivots, axis=1)
    distances = evaluator.squared_distances(columns, columns.T)
    tour = np.zeros(len(pivots), dtype=np.int64)
    for step in range(1, len(pivots)):
        distances[:, tour[step - 1]] = np.inf
        tour[step] = np.argmin(distances[tour[step - 1]])
    return tour


@compiled()
def sort_by_cell(cells: Ints, count: int) -> Indices:
    """Return the indices of the points sorted by their cell, 0 to count - 1, those of one cell ascending."""
    starts = np.zeros(count + 1, dtype=np.int64)
    for i in range(len(cells)):
        starts[cells[i] + 1] += 1
    for c in range(count):
        starts[c + 1] += starts[c]
    order = np.empty(len(cells), dtype=np.int64)
    for i in range(len(cells)):
        order[starts[cells[i]]] = i
        starts[cells[i]] += 1
    return order
