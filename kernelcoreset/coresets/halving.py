"""Balanced halving: of each pair of neighbours one point is kept, chosen so that clustering costs hardly change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.kernels.jit import compiled

Indices = NDArray[np.int64]

_LANDMARKS = 64
_CENTER_SETS = 256
_MOST_SWEEPS = 10


def halve(recipe: Recipe, points: Floats, weights: Floats, halvings: int, generator: np.random.Generator) -> Indices:
    """Return the indices of the points that are kept after `halvings` halvings. Each halving doubles their weights.

    Neighbours in the order of the points should be similar. Keeping one of a pair (a, b) at double weight changes the
    cost of centers C by +-(w_a f_C(a) - w_b f_C(b)), where f_C is the cost of a point. The signs of all pairs are
    chosen together, so that these changes cancel for many random center sets at once. Turning the coin of the first
    pair turns every sign, so each point is kept with probability exactly 1/2 and every cost is right in expectation.
    Assumes validated input.

    Parameters
    ----------
    recipe : Recipe
        Its kernel, z, and k, the number of centers in a set.
    points : ndarray of shape (m, d)
        m divisible by 2^halvings.
    weights : ndarray of shape (m,)
    halvings : int
    generator : numpy Generator

    Returns
    -------
    ndarray of shape (m / 2^halvings,)
        Ascending.
    """
    costs = _sampled_costs(recipe, points, weights, generator)
    kept = np.arange(len(points))
    for _ in range(halvings):
        kept = _keep_one_of_each_pair(kept, costs, generator.random(len(kept) // 2))
    return kept


def _sampled_costs(recipe: Recipe, points: Floats, weights: Floats, generator: np.random.Generator) -> Floats:
    """Each point's share of the cost of random center sets: shape (m, sets). Every column sums to 1, or to 0.

    The sets are drawn from a few landmarks, evenly spaced along the order, so m * landmarks kernel values are enough.
    """
    count = max(_LANDMARKS, 4 * recipe.k)
    landmarks = points[(2 * np.arange(count) + 1) * len(points) // (2 * count)]
    distances = recipe.kernel.squared_distances(points, landmarks)
    if recipe.z != 2.0:
        distances **= 0.5 * recipe.z
    costs = np.empty((len(points), _CENTER_SETS))
    _set_costs(distances, weights, generator.integers(count, size=(_CENTER_SETS, recipe.k)), costs)
    totals = costs.sum(axis=0)
    costs *= np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > np.finfo(np.float64).tiny)
    return costs


@compiled()
def _set_costs(distances: Floats, weights: Floats, sets: Indices, out: Floats) -> None:
    """out[i, s] = w_i times the smallest distance of point i to the landmarks of set s."""
    for i in range(out.shape[0]):
        for s in range(out.shape[1]):
            best = distances[i, sets[s, 0]]
            for c in range(1, sets.shape[1]):
                best = min(best, distances[i, sets[s, c]])
            out[i, s] = best * weights[i]


@compiled(fastmath={"contract", "reassoc"})
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@compiled(fastmath={"contract"})
def _add_multiple(a: Floats, factor: float, b: Floats) -> None:
    for j in range(len(a)):
        a[j] += factor * b[j]


def _keep_one_of_each_pair(kept: Indices, costs: Floats, coins: Floats) -> Indices:
    """Choose signs that make the sum over pairs (a, b) of sign * (costs[a] - costs[b]) small; keep a for +, b for -."""
    pairs = len(kept) // 2
    differences = costs[kept[0::2]] - costs[kept[1::2]]
    norms, signs = np.empty(pairs), np.empty(pairs)
    _squared_norms(differences, norms)
    _choose_signs(differences, norms, np.argsort(-norms, kind="stable"), coins, _MOST_SWEEPS, signs)
    return np.where(signs > 0.0, kept[0::2], kept[1::2])


@compiled()
def _squared_norms(rows: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = _dot(rows[i], rows[i])


@compiled()
def _choose_signs(
    differences: Floats, norms: Floats, order: Indices, coins: Floats, most_sweeps: int, signs: Floats
) -> None:
    """Choose signs that make the sum of sign * difference small.

    Greedy, starting with the largest difference; then single signs are turned as long as that helps. A coin decides
    only if the sum so far favours neither sign, as for the first pair.
    """
    pairs = len(order)
    total = np.zeros(differences.shape[1])
    for place in range(pairs):
        i = order[place]
        lean = _dot(total, differences[i])
        signs[i] = 1.0 if (lean < 0.0 or (lean == 0.0 and coins[i] < 0.5)) else -1.0
        _add_multiple(total, signs[i], differences[i])
    for _ in range(most_sweeps):
        turned = 0
        for i in range(pairs):
            # Turning sign i changes |total|^2 by -4 sign <total, d> + 4 |d|^2.
            # The margin for rounding makes sure that the sweeps end.
            if signs[i] * _dot(total, differences[i]) > norms[i] * (1.0 + 1e-12):
                _add_multiple(total, -2.0 * signs[i], differences[i])
                signs[i] = -signs[i]
                turned += 1
        if turned == 0:
            break
