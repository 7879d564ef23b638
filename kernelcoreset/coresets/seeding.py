"""D^z sampling: pivots that are spread over the data, and every point's distance to the nearest of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.passes import Cloud
from kernelcoreset.kernels.loops.tiles import TILE


class Seeding(NamedTuple):
    """Pivots, and where every point stands to them."""

    pivots: NDArray[np.int64]
    """Indices of the pivots, in the order they were drawn."""
    distances: Floats
    """min over the pivots of distance^z, shape (n,)."""
    nearest: NDArray[np.int32]
    """Position in `pivots` of the nearest pivot, shape (n,)."""
    onward: Floats
    """distance^z to the pivot drawn after the nearest one (0 where there is none), shape (n,)."""
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

    Stops early, with fewer pivots, when every point of positive weight is at distance zero. Assumes validated input.

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
        Whether to draw as many pivots at once as there are already, so that the points are read from memory a few
        times instead of once a pivot. One by one, as the paper has it, by default.

    Returns
    -------
    Seeding
    """
    n = cloud.columns.shape[1]
    evaluator = evaluator_of(kernel)
    nearest = np.zeros(n, dtype=np.int32)
    onward = np.zeros(n)
    tile_costs = np.add.reduceat(weights, np.arange(0, n, TILE))
    best = np.ones(n)  # so that the first draw is by weight alone
    pivots = fresh = pick(best, weights, tile_costs, generator.random(1))
    best.fill(np.inf)
    while True:
        rows = evaluator_of(kernel).rows(cloud.columns[:, fresh].T)
        first = len(pivots) - len(fresh)
        passes.update_nearest(evaluator.distances, cloud, rows, first, z, weights, best, nearest, onward, tile_costs)
        cost = float(tile_costs.sum())
        if not np.isfinite(cost):
            raise evaluator_of(kernel).overflow("the clustering cost")
        if len(pivots) >= count or cost <= 0.0:
            return Seeding(pivots, best, nearest, onward, cost)
        wanted = min(len(pivots), count - len(pivots)) if batched else 1
        fresh = np.unique(pick(best, weights, tile_costs, generator.random(wanted)))
        pivots = np.concatenate([pivots, fresh])


@compiled()
def pick(best: Floats, weights: Floats, tile_costs: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """For each uniform number, the point where the running sum of weight * best first passes that share of all.

    Only the tile that holds the answer is walked point by point. A point without mass is never picked.
    """
    picked = np.empty(len(uniforms), dtype=np.int64)
    total = tile_costs.sum()
    for u in range(len(uniforms)):
        left = uniforms[u] * total
        tile = 0  # rounding may carry `left` past the end: then the last tile with mass serves
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
