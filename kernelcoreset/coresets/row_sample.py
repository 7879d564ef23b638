"""What a random sample of rows says about all rows: which rows to look at, and how far a cost on them can be off.

Rows are kept independently, far ones with a higher probability. The weight and the cost of each cluster of some
clustering are known on all rows: they bound the share of a row in the cost of any centers, and with it the deviation of
the cost of any fixed centers. docs/algorithms.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats

CONFIDENCE = 0.99
"""Of all that is stated about one coreset together."""
_STATEMENTS = 5  # both sides of the error of all centers, both of those from the found cost on, and the optimum
_TAIL = math.log(_STATEMENTS / (1.0 - CONFIDENCE))
_OF_COINS = 0x636F696E73  # "coins"
_ALWAYS = 1e18  # rate of a cluster that was thought to be empty
_FEWEST = 100  # rows to keep: then at least one is kept, but with probability exp(-100)
_DOUBLINGS = 60
_BISECTIONS = 60


def coins(*seed: int) -> np.random.Generator:
    """Return a generator of its own: rows are often drawn with `default_rng(0)`, and coins must not follow them."""
    return np.random.default_rng([_OF_COINS, *seed])


class Rates(NamedTuple):
    """A row is kept with probability min(1, w (by_weight[j] + by_cost f)).

    w is its weight, j its cluster and f its distance^z to the center.
    """

    by_weight: Floats
    by_cost: float

    def probabilities(self, clusters: NDArray[Any], powers: Floats, weights: Floats | None) -> Floats:
        """Return the probability of each row; `powers` are the distances^z to the centers."""
        found: Floats = self.by_weight[clusters]
        found += self.by_cost * powers
        if weights is not None:
            found *= weights
        np.minimum(found, 1.0, out=found)
        return found


def rates_for(weights: Floats, costs: Floats, z: float, rows: int) -> Rates:
    """Return rates by which about so many rows are kept, such that no row can have a large share in a cost beside them.

    Parameters
    ----------
    weights, costs : ndarray of shape (clusters,)
        About what each cluster weighs and costs: these only set the rates.
    z : float
    rows : int

    Examples
    --------
    >>> import numpy as np
    >>> rates = rates_for(np.array([900.0, 900.0]), np.array([50.0, 50.0]), 2.0, rows=200)
    >>> round(float(rates.by_weight @ [900.0, 900.0] + rates.by_cost * 100.0), 6)
    200.0
    """
    clusters = weights > 0.0
    total = float(costs.sum())
    # The centers may cost half of what the clusters cost.
    parts = np.where(clusters, (1.0 + (2.0 * costs / total if total > 0.0 else costs) ** (1.0 / z)) ** z, 0.0)
    far, near = (2.0 if total > 0.0 else 0.0) ** (1.0 / z), float(parts.sum()) ** (1.0 / z)
    by_weight = np.divide(parts * near, weights * parts.sum(), out=np.full(len(weights), _ALWAYS), where=clusters)
    scale = max(rows, _FEWEST) / (far + near)
    return Rates(scale * by_weight, scale * far / total if total > 0.0 else 0.0)


class RowSample(NamedTuple):
    """How rows were sampled, and what is known exactly: the weight and the cost of each cluster on all rows."""

    rates: Rates
    weights: Floats
    costs: Floats
    z: float

    def largest_part(self, cost: float) -> float:
        """Return what a row that may be missing adds to the cost of some centers on the sample, at the most.

        `cost` is that of these centers on all rows.
        """
        own = self.weights > 0.0
        root = 1.0 / self.z
        to_centers = (self.costs[own] ** root + cost**root) ** self.z / self.weights[own]
        with np.errstate(divide="ignore"):
            near = float((to_centers / self.rates.by_weight[own]).max(initial=0.0))
            far = float(np.divide(1.0, self.rates.by_cost)) if self.costs.any() else 0.0
        least, most = sorted((near, far))
        if self.z == 1.0 or least == 0.0 or most == math.inf:
            return most
        return float(most * (1.0 + (least / most) ** (1.0 / (self.z - 1.0))) ** (self.z - 1.0))

    def interval(self, low: float, high: float) -> tuple[float, float]:
        """Return the least and the largest cost on all rows of centers whose cost on the sample is in an interval.

        Examples
        --------
        >>> import numpy as np
        >>> weights, costs = np.array([1e6]), np.array([1e6])
        >>> sample = RowSample(rates_for(weights, costs, 2.0, 50_000), weights, costs, 2.0)
        >>> low, high = sample.interval(1e6, 1e6)
        >>> round(low / 1e6, 2), round(high / 1e6, 2)
        (0.95, 1.05)
        """
        least, _ = _border(lambda cost: cost + self._above(cost) <= low, 0.0, low)
        end = high
        for _ in range(_DOUBLINGS):
            if end - self._below(end) > high:
                return least, _border(lambda cost: cost - self._below(cost) <= high, high, end)[1]
            end *= 2.0
        return least, math.inf

    def deviations(self, cost: float) -> dict[str, float]:
        """Return by how much, relatively, a cost on the sample can be below and above this one on all rows."""
        below, above = (own(cost) / cost if cost > 0.0 else math.inf for own in (self._below, self._above))
        return {"below": below, "above": above}

    def _above(self, cost: float) -> float:
        """By how much a cost on the sample exceeds that on all rows, at the most (Bernstein)."""
        part = _TAIL * self.largest_part(cost)
        return part / 3.0 + math.sqrt((part / 3.0) ** 2 + 2.0 * part * cost)

    def _below(self, cost: float) -> float:
        """By how much it is below that, at the most."""
        return math.sqrt(2.0 * _TAIL * self.largest_part(cost) * cost)


def _border(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return two numbers, as good as equal: a condition holds from the first one down, not from the second one up."""
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
