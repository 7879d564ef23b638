"""D^z sampling for the ordered draw: few passes over the points, and work per point that grows more slowly than k.

Many pivots are drawn on two levels. A few coarse pivots divide the points into cells. Further pivots are drawn from
the whole data, but a point is only compared with those in its own cell. So a point's pivot is near, but not always the
nearest. Any assignment of points to pivots gives valid sensitivities, and the measured error of a coreset does not
change.

If a pass over the points takes longer than its evaluations, as it does with many columns, pivots are drawn from a
sample of the points, and all points are compared with all of these pivots in one pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.coresets.points import Indices, Points, distances_between
from kernelcoreset.coresets.seeding import Seeding, draw_pivots, pick
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.loops.passes import NearestPivots
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.kernels.products import LEAST_DIMENSION

_ONE_LEVEL = 64  # up to so many pivots, every point is compared with each
_PER_CELL = 512  # pivots of a cell if there are many columns: small cells cut clusters of many dimensions apart
_CANDIDATES = 16  # points of a sample per pivot that is drawn from it
_LEAST_SAMPLE = 4_096
_MORE_COST = 2.0  # if all points cost so many times what their sample does, it has missed something
_MOST_STEPS = 4


def seed_cells(points: Points, weights: Floats, count: int, z: float, generator: np.random.Generator) -> Seeding:
    """Draw pivots by D^z sampling in steps, and find a near pivot for every point. Assumes validated input.

    Parameters
    ----------
    points : Points
    weights : ndarray of shape (n,)
    count : int
        Pivots wanted. Up to 64 of them, or 512 if there are 12 columns or more, are drawn on one level.
    z : float
    generator : numpy Generator

    Returns
    -------
    Seeding
        If there are more, neighbours in `pivots` are near each other, and `nearest` is the nearest pivot of those in
        the same cell.

    Notes
    -----
    Takes O(sqrt(count)) kernel evaluations per point, or O(512 + count / 512) with many columns.
    """
    n_cells = _number_of_cells(count, points.shape[1])
    draw = _draw_from_sample if points.passes_are_slow else draw_pivots
    coarse = draw(points, weights, count if n_cells == 1 else n_cells, z, generator)
    if n_cells == 1 or coarse.cost <= 0.0:
        return coarse
    place = np.empty(len(coarse.pivots), dtype=np.int32)
    place[_tour(points, coarse.pivots)] = np.arange(len(place))
    cells = place[coarse.nearest]
    order = sort_by_cell(cells, len(place))
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    points, weights, cells = points.take(order), weights[order], cells[order]
    drawn = _draw_in_cells(points, weights, coarse.distances[order], cells, count - len(place), z, generator)
    pivots = np.union1d(where[coarse.pivots], drawn)
    of_cell = np.split(pivots, np.searchsorted(cells[pivots], np.arange(1, len(place))))
    pivots = np.concatenate([own[_tour(points, own)] for own in of_cell])
    found = _nothing_found(len(order))
    points.compare(weights, pivots, _ranges(cells, cells[pivots]), 0, z, found)
    cost = float(found.tile_costs.sum())
    return Seeding(order[pivots], found.distances[where], found.nearest[where], found.onward[where], cost)


def _number_of_cells(count: int, d: int) -> int:
    if d < LEAST_DIMENSION:
        return math.isqrt(count) if count > _ONE_LEVEL else 1
    return -(-count // _PER_CELL)


def _nothing_found(n: int) -> NearestPivots:
    return NearestPivots(np.full(n, np.inf), np.zeros(n, dtype=np.int32), np.zeros(n), np.empty(-(-n // TILE)))


class _Sample(NamedTuple):
    """Some points, ascending, with weights so that weighted sums are those of all points in expectation."""

    indices: Indices
    weights: Floats


def _sample(weights: Floats, mass: Floats, count: int, generator: np.random.Generator) -> _Sample:
    """Draw at most `count` points evenly spaced along the sum of `mass`; all points if there are no more."""
    if count >= len(weights):
        return _Sample(np.arange(len(weights)), weights)
    sums = np.cumsum(mass)
    shares = (np.arange(count) + generator.random()) * (sums[-1] / count)
    # Rounding may move the last share past the end. A point of mass 0 there has the weight 0.
    picks = np.minimum(np.searchsorted(sums, shares, side="right"), len(sums) - 1)
    indices, times = np.unique(picks, return_counts=True)
    drawn = np.divide(weights[indices] * times, mass[indices], out=np.zeros(len(indices)), where=mass[indices] > 0.0)
    return _Sample(indices, drawn * (sums[-1] / count))


def _draw_from_sample(points: Points, weights: Floats, count: int, z: float, generator: np.random.Generator) -> Seeding:
    """Draw `count` pivots from a sample of the points by weight, and compare all points with them in one pass.

    A few points far from all others can be missed by the sample. Then the points cost more than the sample does, and
    more pivots are drawn from all points.
    """
    sample = _sample(weights, weights, max(_LEAST_SAMPLE, _CANDIDATES * count), generator)
    if len(sample.indices) == len(weights):
        return draw_pivots(points, sample.weights, count, z, generator)
    drawn = draw_pivots(points.take(sample.indices), sample.weights, count, z, generator)
    found = _nothing_found(len(weights))
    pivots = fresh = sample.indices[drawn.pivots]
    for step in range(_MOST_STEPS):
        points.compare(weights, fresh, None, len(pivots) - len(fresh), z, found)
        cost = float(found.tile_costs.sum())
        if cost <= _MORE_COST * drawn.cost or step == _MOST_STEPS - 1:
            break
        fresh = np.unique(pick(found.distances, weights, found.tile_costs, generator.random(count)))
        pivots = np.concatenate([pivots, fresh])
    return Seeding(pivots, found.distances, found.nearest, found.onward, cost)


def _draw_in_cells(
    points: Points,
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
    mass = weights * (distances / float(weights @ distances) + 1.0 / float(weights.sum()))
    indices, weights = _sample(weights, mass, _CANDIDATES * count, generator)
    points, best, cells = points.take(indices), distances[indices], cells[indices]
    tile_costs = np.add.reduceat(weights * best, np.arange(0, len(best), TILE))
    found = _nothing_found(len(best))._replace(distances=best, tile_costs=tile_costs)
    pivots = np.empty(0, dtype=np.int64)
    while len(pivots) < count and tile_costs.sum() > 0.0:
        wanted = min(int(cells[-1]) + 1 + len(pivots), count - len(pivots))
        fresh = np.unique(pick(best, weights, tile_costs, generator.random(wanted)))
        points.compare(weights, fresh, _ranges(cells, cells[fresh]), 0, z, found)
        pivots = np.concatenate([pivots, fresh])
    return indices[pivots]


def _ranges(cells: Ints, pivot_cells: Ints) -> Indices:
    """The pivots in the cells of each tile, as a range of `pivot_cells`; both arrays are sorted. Shape (tiles, 2)."""
    first = cells[::TILE]
    last = cells[np.minimum(np.arange(TILE - 1, len(cells) + TILE - 1, TILE), len(cells) - 1)]
    return np.stack([np.searchsorted(pivot_cells, first), np.searchsorted(pivot_cells, last, side="right")], axis=1)


def _tour(points: Points, pivots: Indices) -> Indices:
    """An order of some points in which each is followed by the nearest one that is left."""
    if len(pivots) < 3:
        return np.arange(len(pivots))
    rows = points.rows(pivots)
    distances = distances_between(points.kernel, rows, rows)
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
