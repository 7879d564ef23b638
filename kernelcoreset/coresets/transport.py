"""How far the weight of rows must be moved to become a coreset: this bounds the error for every set of centers.

A plan moves rows, each with its weight times a factor, onto coreset points. The cost of moving, the range of the
factors and the weight that the plan leaves wrong bound the cost of every set of centers on the rows by its cost on the
coreset. docs/algorithms.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel

Indices = NDArray[np.int64]

_NEAR = 12  # coreset points that a row may be moved to
_ROWS_AT_ONCE = 1024
_ROUNDS = (30, 70, 200)  # of scaling; after each of them the plan is looked at
_WIDTH = 0.3  # of the shares of a row, in mean distances^z to the nearest coreset point
_TOLERANCES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
_LARGEST_EXPONENT = 60.0
_LEAST_RECEIVED = 1e-12  # by the weight of a point: one that receives nothing has no share to scale


class Transport(NamedTuple):
    """A plan from rows to a coreset, as far as the bounds need it."""

    moved: float
    """Sum of moved weight times distance^z."""
    least: float
    """Smallest factor of a row's weight."""
    most: float
    """Largest factor of a row's weight."""
    wrong: float
    """Largest share of the coreset's cost that is on weight the plan leaves wrong."""
    at_cost: float
    """The bounds hold for centers that cost at least this much on the coreset."""
    z: float

    def interval(self, coreset_cost: float) -> tuple[float, float]:
        """Return the least and the largest cost on the rows of centers that cost this much on the coreset.

        Examples
        --------
        >>> plan = Transport(moved=1.0, least=1.0, most=1.0, wrong=0.0, at_cost=9.0, z=2.0)
        >>> plan.interval(100.0)
        (81.0, 121.0)
        """
        way = self.moved ** (1.0 / self.z)
        low = (max(0.0, 1.0 - self.wrong) * coreset_cost) ** (1.0 / self.z) - way
        high = ((1.0 + self.wrong) * coreset_cost) ** (1.0 / self.z) + way
        return max(0.0, low) ** self.z / self.most, high**self.z / self.least

    @property
    def error(self) -> float:
        """A bound on |cost(S, C) / cost(X, C) - 1| for all centers C that cost at least `at_cost` on the coreset S."""
        return relative_error(self.at_cost, *self.interval(self.at_cost))


def relative_error(coreset_cost: float, low: float, high: float) -> float:
    """Return the largest relative error of a cost on the coreset, if that on all rows is in the interval.

    Examples
    --------
    >>> relative_error(100.0, 80.0, 125.0)
    0.25
    """
    return max(coreset_cost / low - 1.0, 1.0 - coreset_cost / high) if low > 0.0 else math.inf


class Edges(NamedTuple):
    """Where each row may go: row i has the entries starts[i] to starts[i + 1] of the other arrays."""

    starts: Indices
    targets: Indices
    powers: Floats


def plan_transport(
    edges: Edges, row_weights: Floats, weights: Floats, shares_of_cost: Floats, at_cost: float, z: float
) -> Transport:
    """Return the plan with the smallest error of those tried.

    Every plan gives a valid bound. A row is shared among its nearest coreset points, more to nearer ones, and the
    shares are scaled until the coreset points get about their weights (Sinkhorn). What is missing then is made up by
    factors of the rows' weights within a tolerance, and beyond that counts as wrong. Assumes validated input.

    Parameters
    ----------
    edges : Edges
        Of the rows, from `nearest_points`.
    row_weights : ndarray of shape (n,)
    weights : ndarray of shape (s,)
    shares_of_cost : ndarray of shape (s,)
        Of `largest_shares`.
    at_cost, z : float
    """
    shares = near_shares(edges, row_weights)
    plans: list[tuple[float, int, Transport]] = []
    for rounds in _ROUNDS:
        scale_shares(edges.starts, edges.targets, shares, row_weights, weights, rounds)
        received = received_weights(edges.starts, edges.targets, shares, row_weights, len(weights))
        for tolerance in _TOLERANCES:
            factors = np.clip(weights / received, 1.0 - tolerance, 1.0 + tolerance)
            gaps = np.abs(weights - factors * received)
            wrong = float((gaps[gaps > 0.0] * shares_of_cost[gaps > 0.0]).sum())
            moved, own = _moved_and_factors(*edges, shares * factors[edges.targets], row_weights)
            found = Transport(moved, float(own.min()), float(own.max()), wrong, at_cost, z)
            plans.append((found.error, len(plans), found))
    return min(plans)[-1]


def nearest_points(blocks: Iterator[Floats], z: float) -> Edges:
    """Return each row's nearest coreset points, and for a coreset point that is near to none the row nearest to it.

    Parameters
    ----------
    blocks : iterator of ndarray of shape (some rows, s)
        Squared distances, for all rows in their order.
    z : float
    """
    targets, powers = [], []
    closest, closest_row, n = np.empty(0), np.empty(0, dtype=np.int64), 0
    for squared in blocks:
        if n == 0:
            closest, closest_row = np.full(squared.shape[1], np.inf), np.zeros(squared.shape[1], dtype=np.int64)
        near, power = _nearest(squared, min(_NEAR, squared.shape[1]), n, closest, closest_row)
        targets.append(near)
        powers.append(power)
        n += len(squared)
    target, power = np.concatenate(targets), np.concatenate(powers)
    alone = np.setdiff1d(np.arange(len(closest)), target)
    sources = np.concatenate([np.repeat(np.arange(n), target.shape[1]), closest_row[alone]])
    target, power = np.concatenate([target.ravel(), alone]), np.concatenate([power.ravel(), closest[alone]])
    by_row = np.argsort(sources, kind="stable")
    starts = np.searchsorted(sources[by_row], np.arange(n + 1))
    return Edges(starts, target[by_row], power[by_row] ** (0.5 * z) if z != 2.0 else power[by_row])


def near_shares(edges: Edges, row_weights: Floats) -> Floats:
    """Return shares of each row that sum to 1, more for nearer coreset points."""
    nearest = np.minimum.reduceat(edges.powers, edges.starts[:-1])
    shares: Floats = _exponential_shares(*edges, _WIDTH * float(np.average(nearest, weights=row_weights)))
    return shares


def distance_blocks(rows: Floats, points: Floats, kernel: Kernel) -> Iterator[Floats]:
    """Return the squared distances of rows and coreset points, for some rows at a time."""
    for low in range(0, len(rows), _ROWS_AT_ONCE):
        yield kernel.squared_distances(rows[low : low + _ROWS_AT_ONCE], points)


def largest_shares(squared: Floats, weights: Floats, at_cost: float, z: float) -> Floats:
    """Return, per unit of weight of each coreset point, the largest share it can have in a cost of at least `at_cost`.

    For any centers and any set B of points, f(s) <= (f(y)^(1/z) + d(s, y))^z for each y of B. With Minkowski's
    inequality the weight of B times f(s) is at most (cost^(1/z) + V^(1/z))^z, V the sum over B of weight times
    d(s, y)^z. The best of all balls around s is taken.

    Parameters
    ----------
    squared : ndarray of shape (s, s)
        Squared distances between the coreset points.
    weights : ndarray of shape (s,)
    at_cost, z : float
    """
    if at_cost <= 0.0:
        return np.full(len(weights), np.inf)
    order = np.argsort(squared, axis=1)
    inside = weights[order]
    moments = np.cumsum(inside * np.take_along_axis(squared, order, axis=1) ** (0.5 * z), axis=1)
    shares: Floats = ((1.0 + (moments / at_cost) ** (1.0 / z)) ** z / np.cumsum(inside, axis=1)).min(axis=1)
    return shares


@compiled()
def _exponential_shares(starts: Indices, targets: Indices, powers: Floats, width: float) -> Floats:
    """Shares of each row that fall exponentially with the power of the distance."""
    shares = np.empty(len(powers))
    for i in range(len(starts) - 1):
        nearest = powers[starts[i] : starts[i + 1]].min()
        total = 0.0
        for e in range(starts[i], starts[i + 1]):
            exponent = (powers[e] - nearest) / width if width > 0.0 else _LARGEST_EXPONENT * (powers[e] > nearest)
            shares[e] = np.exp(-min(exponent, _LARGEST_EXPONENT))
            total += shares[e]
        shares[starts[i] : starts[i + 1]] /= total
    return shares


@compiled()
def received_weights(starts: Indices, targets: Indices, shares: Floats, row_weights: Floats, count: int) -> Floats:
    """Return what each coreset point receives if the rows are shared like this."""
    received = np.zeros(count)
    for i in range(len(starts) - 1):
        for e in range(starts[i], starts[i + 1]):
            received[targets[e]] += row_weights[i] * shares[e]
    return received


@compiled()
def scale_shares(
    starts: Indices, targets: Indices, shares: Floats, row_weights: Floats, weights: Floats, rounds: int
) -> None:
    """Scale the shares towards the coreset points' weights, then back to one whole per row, again and again."""
    factors, received = np.empty(len(weights)), np.zeros(len(weights))
    if rounds > 0:
        received[:] = received_weights(starts, targets, shares, row_weights, len(weights))
    for _ in range(rounds):
        for j in range(len(weights)):
            factors[j] = weights[j] / max(received[j], _LEAST_RECEIVED * weights[j])
            received[j] = 0.0
        for i in range(len(starts) - 1):  # what the next round needs is summed in the same pass
            total = 0.0
            for e in range(starts[i], starts[i + 1]):
                shares[e] *= factors[targets[e]]
                total += shares[e]
            whole = 1.0 / total
            for e in range(starts[i], starts[i + 1]):
                shares[e] *= whole
                received[targets[e]] += row_weights[i] * shares[e]


@compiled()
def _nearest(squared: Floats, count: int, first: int, closest: Floats, closest_row: Indices) -> tuple[Indices, Floats]:
    """The `count` smallest entries of each row, ascending, and their columns.

    `closest` becomes the smallest entry of each column so far, and `closest_row` its row; the first one is `first`.
    """
    near = np.empty((len(squared), count), dtype=np.int64)
    values = np.full((len(squared), count), np.inf)
    for i in range(len(squared)):
        own, columns = values[i], near[i]
        for j in range(squared.shape[1]):
            value = squared[i, j]
            if value < closest[j]:
                closest[j], closest_row[j] = value, first + i
            if value < own[count - 1] or j < count:
                place = min(j, count - 1)
                while place > 0 and own[place - 1] > value:
                    own[place], columns[place] = own[place - 1], columns[place - 1]
                    place -= 1
                own[place], columns[place] = value, j
    return near, values


@compiled()
def _moved_and_factors(
    starts: Indices, targets: Indices, powers: Floats, parts: Floats, row_weights: Floats
) -> tuple[float, Floats]:
    """The cost of the plan, and the factor of the weight of each row."""
    moved, factors = 0.0, np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        for e in range(starts[i], starts[i + 1]):
            factors[i] += parts[e]
            moved += row_weights[i] * parts[e] * powers[e]
    return moved, factors
