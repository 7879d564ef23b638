"""A lower bound on the cost of every set of k centers on a coreset."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.jit import compiled, part

_STEPS = 300
_PATIENCE = 15  # steps without a better bound before the steps get smaller


def least_cost(squared: Floats, weights: Floats, k: int, z: float) -> float:
    """Return a lower bound on the cost of every set of k centers, anywhere in the feature space, on a coreset.

    The larger of two bounds:

    - For z = 2, no k clusters cost less than the sum of all eigenvalues but the k - 1 largest of the weighted Gram
      matrix around the mean. For z > 2 the power mean is at least the quadratic one. For z < 2 optimal centers are in
      the convex hull of the points, so no distance exceeds the largest one between points.
    - Centers anywhere cost at least 1/2 (z = 2) or 2^-z (other z) of the best centers among the points, and these are
      bounded by Lagrange multipliers of the points.

    Assumes validated input with positive weights.

    Parameters
    ----------
    squared : ndarray of shape (s, s)
        Squared distances between the coreset points.
    weights : ndarray of shape (s,)
    k : int
    z : float

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0.0], [1.0], [8.0], [10.0]])  # the best two clusters cost 1/2 + 2
    >>> round(least_cost((points - points.T) ** 2, np.ones(4), 2, 2.0), 6)
    2.5
    """
    if k >= len(weights):
        return 0.0
    costs = weights[:, None] * (squared if z == 2.0 else squared ** (0.5 * z))
    by_components, share = _by_components(squared, weights, k, z), 0.5 if z == 2.0 else 2.0**-z
    found = _greedy_cost(costs, k)
    if by_components >= share * found:  # prices bound what k points cost, so they cannot prove more than this
        return by_components
    return max(0.0, share * _by_prices(costs, k, found), by_components)


def _by_components(squared: Floats, weights: Floats, k: int, z: float) -> float:
    total, s = float(weights.sum()), len(weights)
    means = squared @ weights / total
    centered = 0.5 * (means[:, None] + means - squared) - 0.5 * (weights @ means) / total
    roots = np.sqrt(weights)
    gram = roots[:, None] * centered * roots
    trace = float(np.trace(gram))
    top = float(np.linalg.eigvalsh(gram)[s - k + 1 :].sum()) if k > 1 else 0.0
    # Rounding of an eigenvalue is a few units in the last place of the largest one, here with room to spare.
    quadratic = max(0.0, trace - top - 1e-14 * s * trace)
    if z >= 2.0:
        return float(total * (quadratic / total) ** (0.5 * z))
    largest = float(squared.max())
    return quadratic * largest ** (0.5 * z - 1.0) if largest > 0.0 else 0.0


def least_cost_of_points(costs: Floats, k: int) -> float:
    """Return a lower bound on the sum over rows of the least of k columns, for every choice of k columns.

    If every row i pays v_i for being served, a column c saves r_c = sum_i max(0, v_i - costs[i, c]). So k columns cost
    at least sum v - (the k largest r), for any v. Subgradient steps look for the best v.
    """
    return _by_prices(costs, k, _greedy_cost(costs, k))


def _by_prices(costs: Floats, k: int, found: float) -> float:
    """The same. `found` is what some k columns cost: the bound cannot exceed it, and steps aim at it."""
    # The price of a row lies between its nearest and its next columns.
    prices = np.partition(costs, min(k, costs.shape[1] - 1), axis=1)[:, min(k, costs.shape[1] - 1)].copy()
    return float(_ascend(costs, prices, k, found)) if prices.any() else 0.0


_FINITE = {"contract", "nnan", "nsz"}  # without this `min` and `max` do not vectorise


@part(fastmath=_FINITE)
def _add_savings(saved: Floats, price: float, costs: Floats) -> None:
    for c in range(len(saved)):
        saved[c] += max(0.0, price - costs[c])


@part(fastmath=_FINITE)
def _add_least(sums: Floats, most: float, costs: Floats) -> None:
    for c in range(len(sums)):
        sums[c] += min(most, costs[c])


@compiled()
def _greedy_cost(costs: Floats, k: int) -> float:
    """The cost of k columns, each the one that helps most after those before."""
    best = np.full(len(costs), np.inf)
    for _ in range(k):
        least, chosen = np.inf, 0
        sums = np.zeros(costs.shape[1])
        for i in range(len(costs)):
            _add_least(sums, best[i], costs[i])
        for c in range(costs.shape[1]):
            if sums[c] < least:
                least, chosen = sums[c], c
        for i in range(len(costs)):
            best[i] = min(best[i], costs[i, chosen])
    return float(best.sum())


@compiled()
def _ascend(costs: Floats, prices: Floats, k: int, target: float) -> float:
    """The best bound of some subgradient steps on the prices."""
    best, length, waited = -np.inf, 2.0, 0
    kept = prices.copy()
    for _ in range(_STEPS):
        saved = np.zeros(costs.shape[1])
        for i in range(len(costs)):
            _add_savings(saved, prices[i], costs[i])
        chosen = np.argsort(-saved)[:k]
        bound = prices.sum() - saved[chosen].sum()
        if bound > best:
            best, waited = bound, 0
            kept[:] = prices
        else:
            waited += 1
            if waited >= _PATIENCE:
                length, waited = 0.5 * length, 0
                prices[:] = kept
                continue
        served = np.zeros(len(costs))
        for i in range(len(costs)):
            for c in chosen:
                served[i] += costs[i, c] < prices[i]
        norm = ((1.0 - served) ** 2).sum()
        if norm == 0.0:
            break
        step = length * max(target - bound, 1e-6 * target) / norm
        for i in range(len(costs)):
            prices[i] = max(0.0, prices[i] + step * (1.0 - served[i]))
    return best
