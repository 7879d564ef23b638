"""Importance sampling: from distances to probabilities, and from probabilities to a weighted sample.

There are three draws. All are unbiased: a point drawn with probability p has the weight w / (p N).

- `iid`: independent draws with the paper's sensitivities as probabilities.
- `uniform`: independent draws with probabilities by weight alone, the paper's baseline.
- `ordered`: one draw from each of N equal parts of an order that keeps neighbours in the feature space together. More
  points are drawn than wanted, then balanced halving (`halving`) reduces them to the wanted size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, scaled_weights
from kernelcoreset.coresets.cells import seed_cells
from kernelcoreset.coresets.halving import (
    IN_FEW_DIMENSIONS,
    IN_MANY_DIMENSIONS,
    IN_VERY_MANY_DIMENSIONS,
    OF_MANY_DRAWS,
    Effort,
    halve,
)
from kernelcoreset.coresets.points import Indices, Points
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.seeding import Seeding, seed_pivots
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.jit import compiled, part

PIVOTS_PER_CLUSTER = 4
"""Pivots of the ordered draw per cluster."""
# Shares of cost, cell weight and weight in the probabilities of the ordered draw. p is at least a constant times the
# sensitivity with 4k pivots, so the worst case is worse by a constant factor only. Best mixture of those measured.
_SHARES = (0.1, 0.6, 0.3)
_SHARES_IN_MANY_DIMENSIONS = (0.1, 0.3, 0.6)  # distances differ less there, and equal weights balance better
_BUCKETS_PER_CELL = 256
_MOST_BUCKETS = 65_536
# Points whose keys set the limits between buckets: so many, or so many per cell if that is more.
_LIMITS_FROM = 8_192
_LIMITS_PER_CELL = 64
_SEARCHED_TOGETHER = 256
_MOST_BALANCED = 32_768  # largest number of draws to halve: bounds the memory and the time of halving
MOST_NUMBERS = 1 << 24
"""Coordinates of all draws to halve: bounds their memory to 128 MiB (64 MiB in float32) if there are many columns."""
_MANY_DIMENSIONS = 16
_VERY_MANY_DIMENSIONS = 48  # from here on more balancing gains less
# One draw in this many points is balanced, at least so many for each point wanted, with this effort: in few and in many
# dimensions.
_SHARES_BALANCED = ((64, 16, IN_FEW_DIMENSIONS), (16, 8, IN_VERY_MANY_DIMENSIONS))
# In many dimensions, but not very many, so many draws are balanced, or 32 per point if that is more. The last halvings,
# of at most so many draws, take more effort: that bounds their memory to 100 MB.
_BALANCED = 16_384
_BALANCED_PER_ROW = 4  # more draws of a row change its share of them little
_LAST = 3


def draw_sample(
    points: Points,
    weights: Floats,
    recipe: Recipe,
    *,
    refine: bool = True,
    pivots: int = PIVOTS_PER_CLUSTER,
    of_coresets: bool = False,
) -> tuple[Indices, Floats]:
    """Draw at most `recipe.size` points. Assumes validated input with more points of positive weight than that.

    Parameters
    ----------
    points : Points
    weights : ndarray of shape (n,)
    recipe : Recipe
    refine : bool
        Whether the ordered draw takes more points first and halves them. This is worth its time in the last reduction,
        not in every chunk of a stream.
    pivots : int
        Pivots of the ordered draw per cluster. More give a smaller error, and take that many evaluations per point.
    of_coresets : bool
        Whether the points are those of coresets. Each then stands for many rows, whose passes took more time than any
        halving: as many draws as there are points may be halved.

    Returns
    -------
    indices : ndarray of shape (m,), m <= recipe.size
        Ascending and distinct.
    weights : ndarray of shape (m,)
        Above 0. A point drawn several times is kept once, with the sum of its weights.
    """
    weights, unit = scaled_weights(weights)
    indices, drawn = _draw(points, weights, recipe, refine, pivots, of_coresets)
    return indices, drawn if unit == 1.0 else drawn * unit


def _draw(
    points: Points, weights: Floats, recipe: Recipe, refine: bool, pivots: int, of_coresets: bool
) -> tuple[Indices, Floats]:
    generator = np.random.default_rng(recipe.seed)
    kernel, size = recipe.kernel, recipe.size
    if recipe.draw == "uniform":
        return merge_picks(*_draw_independently(weights / weights.sum(), weights, size, generator))
    if recipe.draw == "iid":
        cloud = evaluator_of(kernel).cloud(points.columns)
        seeding = seed_pivots(kernel, cloud, weights, recipe.k, recipe.z, generator)
        probabilities = sensitivities(seeding, weights, 1.0, float(len(seeding.pivots)), 0.0)
        return merge_picks(*_draw_independently(probabilities, weights, size, generator))
    plan = _plan(recipe, points, of_coresets) if refine else []
    draws = size << sum(halvings for halvings, _ in plan)
    picks, pick_weights = _draw_along_order(recipe, points, weights, draws, pivots, generator)
    for halvings, effort in plan:
        kept = halve(recipe, points.given(picks), pick_weights, halvings, generator, effort)
        picks, pick_weights = picks[kept], pick_weights[kept] * (1 << halvings)
    return merge_picks(picks, pick_weights)


def _plan(recipe: Recipe, points: Points, of_coresets: bool) -> list[tuple[int, Effort]]:
    """How often to halve, with which effort: more if n is so large that it hardly adds to the time of a build.

    Four times (three in many dimensions), up to five if there are many points or those of coresets, or fewer if that
    would be too many draws.
    In 16 to 47 dimensions five times and up to `_BALANCED` draws, if matrix products are fast.
    """
    n, d = points.shape
    size = recipe.size
    if points.passes_are_slow and _has_many_dimensions(d):
        halvings = _most_halvings(size, min(max(32 * size, _BALANCED), max(8 * size, _BALANCED_PER_ROW * n)))
        last = min(halvings, _LAST, max(1, _most_halvings(size, _BALANCED)))
        effort = IN_MANY_DIMENSIONS if size << last <= _BALANCED else IN_VERY_MANY_DIMENSIONS
        return [own for own in ((halvings - last, OF_MANY_DRAWS), (last, effort)) if own[0]]
    share, least, effort = _SHARES_BALANCED[d >= _MANY_DIMENSIONS]
    drawn = n if of_coresets else n // share
    halvings = _most_halvings(size, min(max(least * size, drawn), 32 * size, MOST_NUMBERS // d))
    evaluations = (size << halvings) * effort.landmarks
    # Matrix products make all else dearer beside them, but it takes a fraction of a second in all.
    is_cheap = evaluations * (8 if points.passes_are_slow else 1) <= PIVOTS_PER_CLUSTER * recipe.k * n
    return [(halvings, effort if is_cheap else IN_FEW_DIMENSIONS)] if halvings else []


def _has_many_dimensions(d: int) -> bool:
    """Whether more balancing is worth its time."""
    return _MANY_DIMENSIONS <= d < _VERY_MANY_DIMENSIONS


def _most_halvings(size: int, draws: int) -> int:
    """How often so many draws, or the most that are balanced, can be halved without getting below `size`."""
    return max(0, (min(draws, _MOST_BALANCED) // size).bit_length() - 1)


def merge_picks(picks: Indices, pick_weights: Floats) -> tuple[Indices, Floats]:
    """Return distinct picks in ascending order, each with the sum of its weights."""
    indices, place = np.unique(picks, return_inverse=True)
    return indices, np.bincount(place, pick_weights).astype(np.float64, copy=False)


def theory_sample(points: Points, weights: Floats, recipe: Recipe) -> tuple[Indices, Floats]:
    """Draw `recipe.size` points independently, with the scores of the theorem on sensitivity sampling for k-means.

    Parameters and result as in `draw_sample`. The probability of a point is the mean of its share of the cost, of its
    cell's weight, of its cell's cost and of the cell's share of the cost, so at least a quarter of each.
    """
    weights, unit = scaled_weights(weights)
    generator = np.random.default_rng(recipe.seed)
    cloud = evaluator_of(recipe.kernel).cloud(points.columns)
    seeding = seed_pivots(recipe.kernel, cloud, weights, recipe.k, recipe.z, generator)
    cells, costs = len(seeding.pivots), weights * seeding.distances
    cell_weights = np.bincount(seeding.nearest, weights, cells)
    cell_costs = np.bincount(seeding.nearest, costs, cells)
    with np.errstate(divide="ignore", invalid="ignore"):  # a cell, or all, may cost nothing: then that score is 0
        scores = [
            costs / seeding.cost,
            weights / (cells * cell_weights)[seeding.nearest],
            costs / (cells * cell_costs)[seeding.nearest],
            weights * (cell_costs / cell_weights)[seeding.nearest] / seeding.cost,
        ]
    probabilities = np.sum(np.nan_to_num(scores, posinf=0.0), axis=0)
    picks, drawn = _draw_independently(probabilities / probabilities.sum(), weights, recipe.size, generator)
    indices, drawn = merge_picks(picks, drawn)
    return indices, drawn * unit


# --- probabilities ---------------------------------------------------------------------------------------------------


def sensitivities(
    seeding: Seeding, weights: Floats, cost_share: float, cell_share: float, weight_share: float
) -> Floats:
    """Return cost_share w d^z / cost + cell_share w / (P W(cell)) + weight_share w / W, scaled to sum 1.

    P is the number of pivots. With shares 1, P and 0 these are the paper's sensitivities. Overwrites
    `seeding.distances` to save memory.
    """
    cells = len(seeding.pivots)
    cell_weights = np.bincount(seeding.nearest, weights, cells)
    by_cell = np.divide(cell_share / cells, cell_weights, out=np.zeros(cells), where=cell_weights > 0)
    by_cell += weight_share / cell_weights.sum()
    by_cost = cost_share / seeding.cost if seeding.cost > 0 else 0.0
    # Summed over all points, the cost term gives 1, and so does the term of each cell before the division by P.
    scale = 1.0 / (cost_share * (seeding.cost > 0) + cell_share * np.count_nonzero(cell_weights) / cells + weight_share)
    _mix(seeding.distances, seeding.nearest, weights, scale * by_cost, scale * by_cell)
    return seeding.distances


@compiled(fastmath={"contract"})
def _mix(distances: Floats, nearest: NDArray[np.int32], weights: Floats, by_cost: float, by_cell: Floats) -> None:
    """Replace each distance d by w (by_cost d + by_cell[cell])."""
    for i in range(len(distances)):
        distances[i] = weights[i] * (by_cost * distances[i] + by_cell[nearest[i]])


# --- draws -----------------------------------------------------------------------------------------------------------


def _draw_independently(
    probabilities: Floats, weights: Floats, size: int, generator: np.random.Generator
) -> tuple[Indices, Floats]:
    cumulative = np.cumsum(probabilities)
    # A point of probability 0 has an empty interval, which `side="right"` skips.
    picks = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    picks = np.minimum(picks, int(np.flatnonzero(probabilities)[-1]))
    return picks, weights[picks] / (probabilities[picks] * size)


def _draw_along_order(
    recipe: Recipe, points: Points, weights: Floats, size: int, pivots: int, generator: np.random.Generator
) -> tuple[Indices, Floats]:
    """Draw one point from each of `size` parts of an order, equal in probability; return them in that order.

    The order goes through the cells of `pivots` pivots per cluster, and inside a cell by the distance to the pivot that
    follows. It is represented by a few thousand buckets, so nothing is sorted.
    """
    seeding = seed_cells(points, weights, pivots * recipe.k, recipe.z, generator)
    shares = _SHARES_IN_MANY_DIMENSIONS if _has_many_dimensions(points.shape[1]) else _SHARES
    return draw_along_cells(seeding, weights, size, generator, shares)


def draw_along_cells(
    seeding: Seeding,
    weights: Floats,
    size: int,
    generator: np.random.Generator,
    shares: tuple[float, float, float] = _SHARES,
) -> tuple[Indices, Floats]:
    """Draw one point from each of `size` parts of the order of given cells. Overwrites the arrays of `seeding`.

    `shares` are those of cost, cell weight and weight in the probabilities.
    """
    probabilities = sensitivities(seeding, weights, *shares)
    limits = _bucket_limits(seeding)
    _place_in_order(seeding.nearest, seeding.onward, limits.ravel(), limits.shape[1])
    picks = pick_evenly(probabilities, seeding.nearest, limits.size, generator.random(size))
    return picks, weights[picks] / (probabilities[picks] * size)


def _bucket_limits(seeding: Seeding) -> Floats:
    """Lower limits of the buckets of each cell, quantiles of a sample of its points: shape (cells, buckets)."""
    cells = len(seeding.pivots)
    buckets = _BUCKETS_PER_CELL
    while buckets > 2 and cells * buckets > _MOST_BUCKETS:
        buckets //= 2
    stride = -(-len(seeding.nearest) // max(_LIMITS_FROM, _LIMITS_PER_CELL * cells))
    nearest, keys = seeding.nearest[::stride], seeding.onward[::stride]
    by_cell = np.lexsort((keys, nearest))
    keys, ends = keys[by_cell], np.searchsorted(nearest[by_cell], np.arange(cells + 1))
    limits = np.full((cells, buckets), np.inf)
    for c in range(cells):
        cell_keys = keys[ends[c] : ends[c + 1]]
        if len(cell_keys):
            limits[c] = cell_keys[np.arange(buckets) * len(cell_keys) // buckets]
    return limits


@compiled()
def _place_in_order(nearest: NDArray[np.int32], keys: Floats, limits: Floats, buckets: int) -> None:
    """Replace the cell c of every point by its place in the order, c * buckets + bucket.

    Odd cells number their buckets backwards, so that the end of one cell is next to the similar end of the next.
    """
    places = np.empty(_SEARCHED_TOGETHER, dtype=np.uint32)
    for low in range(0, len(nearest), _SEARCHED_TOGETHER):
        cells = nearest[low : low + _SEARCHED_TOGETHER]
        chunk_keys = keys[low : low + _SEARCHED_TOGETHER]
        for i in range(len(cells)):
            places[i] = cells[i] * buckets
        step = np.uint32(buckets >> 1)
        while step > 0:  # binary search for many points at once, without a branch, so that it vectorises
            for i in range(len(cells)):
                further = places[i] + step
                places[i] = further if limits[further] <= chunk_keys[i] else places[i]
            step >>= np.uint32(1)
        for i in range(len(cells)):
            forward = np.int64(places[i])
            cells[i] = forward if cells[i] % 2 == 0 else (2 * cells[i] + 1) * buckets - 1 - forward


@compiled()
def pick_evenly(probabilities: Floats, places: NDArray[np.int32], n_places: int, offsets: Floats) -> Indices:
    """Return the points where the running sum of p along the places passes (j + offsets[j]) / N, j = 0 .. N - 1.

    With N independent uniform offsets this is one draw by p from each of N strata of probability 1 / N. Two passes in
    the order of the rows: the first sums p per place, the second keeps what is left per place up to its next pick.
    """
    size = len(offsets)
    left = np.empty(n_places)
    last_of = np.empty(n_places, dtype=np.int64)  # 1 + point, 0 for none; `picks` too
    left[:], last_of[:] = 0.0, 0
    for i in range(len(places)):
        left[places[i]] += probabilities[i]
        if probabilities[i] > 0.0:
            last_of[places[i]] = i + 1
    step = _sum(left) / size
    following = np.empty(n_places, dtype=np.int64)  # the next pick of each place
    start = 0.0
    last = 0
    j = 0
    for place in range(n_places):
        while j < size and (j + offsets[j]) * step < start:
            j += 1
        following[place] = j
        end = start + left[place]
        left[place] = (j + offsets[j]) * step - start if j < size else np.inf
        start = end
        if last_of[place] > 0:
            last = last_of[place]
    picks = np.empty(size, dtype=np.int64)
    picks[:] = 0
    for i in range(len(places)):
        place = places[i]
        left[place] -= probabilities[i]
        while left[place] < 0.0:
            j = following[place]
            picks[j] = i + 1
            following[place] = j + 1
            left[place] += (1.0 + offsets[j + 1] - offsets[j]) * step if j + 1 < size else np.inf
    # Rounding may hide a crossing between two places: then the next pick is used, or at the end the last point.
    for j in range(size - 1, -1, -1):
        last = picks[j] if picks[j] > 0 else last
        picks[j] = last - 1
    return picks


@part()
def _sum(values: Floats) -> float:
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total
