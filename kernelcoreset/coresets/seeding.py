"""D^z sampling: pivots spread over the data, and the distance of every point to its nearest pivot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.points import ColumnPoints, Indices, Points
from kernelcoreset.kernels.evaluator import LEAST
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.passes import Cloud, NearestPivots
from kernelcoreset.kernels.loops.tiles import TILE


class Seeding(NamedTuple):
    """Pivots, and the distances of all points to them."""

    pivots: Indices
    """Indices of the pivots."""
    distances: Floats
    """min over the pivots of distance^z, shape (n,)."""
    nearest: NDArray[np.int32]
    """Position in `pivots` of the nearest pivot, shape (n,)."""
    onward: Floats
    """distance^z to the pivot that follows the nearest one in `pivots` (0 if there is none), shape (n,)."""
    cost: float
    """Weighted sum of `distances`."""


def seed_pivots(
    kernel: Kernel,
    cloud: Cloud,
    weights: Floats,
    count: int,
    z: float,
    generator: np.random.Generator,
    *,
    batched: bool = False,
) -> Seeding:
    """Draw pivots, the first by weight, the others by weight times distance^z to the pivots so far (Algorithm 3).

    Stops early, with fewer pivots, if every point of positive weight is at distance 0. Assumes validated input.

    Parameters
    ----------
    kernel : Kernel
    cloud : Cloud
        All points, columns of shape (d, n).
    weights : ndarray of shape (n,)
    count : int
        Pivots wanted, at least 1.
    z : float
    generator : numpy Generator
    batched : bool
        Whether each step doubles the number of pivots, so that the points are read from memory log2(count) times.
        By default each step draws one pivot, as in the paper.

    Returns
    -------
    Seeding
    """
    return draw_pivots(ColumnPoints(kernel, cloud), weights, count, z, generator, batched=batched)


def draw_pivots(
    points: Points, weights: Floats, count: int, z: float, generator: np.random.Generator, *, batched: bool = True
) -> Seeding:
    """As `seed_pivots`, for points in any form."""
    n = len(weights)
    nearest = np.zeros(n, dtype=np.int32)
    onward = np.zeros(n)
    best = np.ones(n)  # so that the first draw is by weight alone
    tile_costs = np.add.reduceat(weights, np.arange(0, n, TILE))
    pivots = fresh = pick(best, weights, tile_costs, generator.random(1))
    best.fill(np.inf)
    found = NearestPivots(best, nearest, onward, tile_costs)
    while True:
        points.compare(weights, fresh, None, len(pivots) - len(fresh), z, found)
        cost = float(tile_costs.sum())
        if len(pivots) == 1 and 0.0 < cost < LEAST:
            raise points.evaluator.underflow("the clustering cost", points.columns)
        if len(pivots) >= count or cost <= 0.0:
            return Seeding(pivots, best, nearest, onward, cost)
        wanted = min(len(pivots), count - len(pivots)) if batched else 1
        fresh = pick(best, weights, tile_costs, generator.random(wanted))
        if wanted > 1:
            fresh = np.unique(fresh)
        pivots = np.concatenate([pivots, fresh])


def seed_by_matrix(squared: Floats, weights: Floats, count: int, z: float, generator: np.random.Generator) -> Seeding:
    """As `seed_pivots` from the squared distances between all points, for many seedings of the same points."""
    n = len(weights)
    nearest, onward, best = np.zeros(n, dtype=np.int32), np.zeros(n), np.full(n, np.inf)
    pivots = np.zeros(count, dtype=np.int64)
    found, cost = draw_by_matrix(squared, weights, 0.5 * z, generator.random(count), pivots, best, nearest, onward)
    return Seeding(pivots[:found], best, nearest, onward, cost)


@compiled()
def draw_by_matrix(
    squared: Floats,
    weights: Floats,
    power: float,
    uniforms: Floats,
    pivots: Indices,
    best: Floats,
    nearest: NDArray[np.int32],
    onward: Floats,
) -> tuple[int, float]:
    """Fill in a seeding with a pivot for each uniform number; return how many there are, and their cost."""
    mass, cost = weights.copy(), 0.0
    for count in range(len(uniforms)):
        pivots[count] = draw_point(mass, uniforms[count])
        own = squared[pivots[count]]
        cost = 0.0
        for i in range(len(weights)):
            away = own[i] if power == 1.0 else own[i] ** power
            if count > 0 and nearest[i] == count - 1:
                onward[i] = away
            if away < best[i]:
                nearest[i], onward[i], best[i] = count, 0.0, away
            mass[i] = weights[i] * best[i]
            cost += mass[i]
        if cost <= 0.0:
            return count + 1, cost
    return len(uniforms), cost


@compiled()
def draw_point(mass: Floats, uniform: float) -> int:
    """Return the point where the running sum of `mass` passes `uniform` times the total; its mass is above 0."""
    total = 0.0
    for i in range(len(mass)):
        total += mass[i]
    running, last = 0.0, 0
    for i in range(len(mass)):
        if mass[i] > 0.0:
            running, last = running + mass[i], i  # rounding may move the number past the end
            if running > uniform * total:
                break
    return last


@compiled()
def pick(best: Floats, weights: Floats, tile_costs: Floats, uniforms: Floats) -> Indices:
    """Return, for each uniform number u, the point where the running sum of weight * best passes u times the total.

    Only the tile that holds the answer is searched point by point. A point with weight * best = 0 is never picked.
    """
    picked = np.empty(len(uniforms), dtype=np.int64)
    total = 0.0
    for t in range(len(tile_costs)):
        total += tile_costs[t]
    for u in range(len(uniforms)):
        left = uniforms[u] * total
        tile = 0  # rounding may move `left` past the end: then the last tile with a positive cost is used
        for t in range(len(tile_costs)):
            if tile_costs[t] > 0.0:
                tile = t
                if left < tile_costs[t]:
                    break
                left -= tile_costs[t]
        chosen = -1
        for i in range(tile * TILE, min((tile + 1) * TILE, len(best))):
            mass = best[i] * weights[i]
            if mass > 0.0:
                chosen = i
                if left < mass:
                    break
                left -= mass
        picked[u] = chosen
    return picked
