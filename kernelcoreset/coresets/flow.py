"""A second bound for every set of centers: rows move to near coreset points, then weight flows between these.

A transport plan must give each coreset point its own weight, so some rows travel far. Here rows stay near, and each
coreset point passes what it has too much on to others. A long way costs little if it is a small share of the weight of
the points at both ends. docs/algorithms.md has the proof.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.transport import (
    Edges,
    Indices,
    near_shares,
    received_weights,
    relative_error,
    scale_shares,
)
from kernelcoreset.kernels.jit import compiled

_SHORT = 3  # flows to choose the rounds by
_NEARNESS = 0.1  # what a distance counts beside the distance of a row to the mean of its shares
_STEPS = 60  # between two points each, towards the best shares of a row
_PRECISION = 1e-9  # of these shares
_SHORTEST = 1e-2  # in median distances: no resistance is that of a shorter way, so that the equations stay well posed
_LEAST = 1e-12  # of conductances and slopes, by the largest one
_EPSILON = float(np.finfo(np.float64).eps)


class Search(NamedTuple):
    """How long to look for a good flow: every one proves something."""

    rounds: tuple[int, ...]
    """Of scaling. After each of them a short look shows which one is best."""
    flows: int
    """To try then, each with the resistances of the one before."""
    hubs: int
    """Points that all flows between, at the most. It takes the cube of their number."""


THOROUGH = Search(rounds=(0, 1, 3, 10), flows=15, hubs=2_000)
QUICK = Search(rounds=(1,), flows=10, hubs=1_000)


class Flow(NamedTuple):
    """Shares of rows and a flow between coreset points, as far as the bounds need them."""

    scale: float
    """The weight of the coreset by that of the rows; all weights of rows are multiplied by it."""
    moved: float
    """Sum of moved weight times distance^z, from rows to coreset points."""
    pull: float
    """Sum of weight times the squared distance of a row to the mean of its shares. Only used if z = 2."""
    effort: float
    """(sum_s h_s^z w_s^(1-z))^(1/z), h_s the sum of flow times distance over what flows to or from s."""
    z: float

    def interval(self, coreset_cost: float) -> tuple[float, float]:
        """Return the least and the largest cost on the rows of centers that cost this much on the coreset.

        Examples
        --------
        >>> plan = Flow(scale=1.0, moved=1.0, pull=1.0, effort=0.0, z=2.0)
        >>> plan.interval(100.0)
        (81.0, 121.0)
        """
        root = 1.0 / self.z
        change = max(1.0, 0.5 * self.z) * self.effort * coreset_cost ** (1.0 - root)
        way = self.moved**root
        if self.z == 2.0:
            inside = self.pull + coreset_cost - change - self.moved
            low = math.sqrt(max(0.0, inside)) - math.sqrt(self.pull)
        else:
            low = max(0.0, coreset_cost - change) ** root - way
        high = (coreset_cost + change) ** root + way
        return max(0.0, low) ** self.z / self.scale, high**self.z / self.scale


def plan_flow(
    edges: Edges,
    squared: Floats,
    row_weights: Floats,
    weights: Floats,
    costs: tuple[float, float],
    z: float,
    search: Search = THOROUGH,
) -> Flow:
    """Return the flow with the smallest error of those tried. Every one gives a valid bound. Assumes validated input.

    Parameters
    ----------
    edges : Edges
        Of the rows, from `nearest_points`.
    squared : ndarray of shape (s, s)
        Squared distances between the coreset points, not all 0.
    row_weights : ndarray of shape (n,)
    weights : ndarray of shape (s,)
    costs : tuple of float
        The error at the first of these costs is to be small; if it is as large for two of them, that at the second.
    z : float
    search : Search
    """
    shares = surrounding_shares(edges, squared) if z == 2.0 else near_shares(edges, row_weights)
    scaled = weights.sum() / row_weights.sum() * row_weights
    tried: list[Floats] = []

    def plan_of(number: int, flows: int) -> tuple[list[float], int, Flow]:
        own = search._replace(flows=flows)
        plan = flow_of_shares(edges, tried[number], squared, row_weights, weights, z, own)
        return [relative_error(cost, *plan.interval(cost)) for cost in costs], number, plan

    done = 0
    for rounds in search.rounds:
        scale_shares(edges.starts, edges.targets, shares, scaled, weights, rounds - done)
        done = rounds
        tried.append(shares.copy())
    best = min(plan_of(number, _SHORT) for number in range(len(tried)))[1] if len(tried) > 1 else 0
    return plan_of(best, search.flows)[-1]


def flow_of_shares(
    edges: Edges,
    shares: Floats,
    squared: Floats,
    row_weights: Floats,
    weights: Floats,
    z: float,
    search: Search = THOROUGH,
) -> Flow:
    """Return what holds if rows are shared like this, with the best of some flows. Arguments as of `plan_flow`."""
    scale = float(weights.sum() / row_weights.sum())
    scaled = scale * row_weights
    received = received_weights(edges.starts, edges.targets, shares, scaled, len(weights))
    moved, pull = _moved_and_pull(*edges, squared, shares, scaled)
    return Flow(scale, moved, pull, _least_effort(squared, weights, received - weights, z, search), z)


def _least_effort(squared: Floats, weights: Floats, surplus: Floats, z: float, search: Search) -> float:
    """The effort of the best of some flows. If there are many points, they send their surplus to the nearest hub."""
    hubs = choose_hubs(squared, weights, search.hubs)
    to_hubs = squared[:, hubs]
    hub_of = to_hubs.argmin(axis=1)
    hub_of[hubs] = np.arange(len(hubs))  # of two points in one place both may be hubs
    at_points = np.abs(surplus) * np.sqrt(to_hubs[np.arange(len(weights)), hub_of])
    at_points[hubs] = np.bincount(hub_of, at_points)
    between = to_hubs[hubs]
    at_hubs = np.bincount(hub_of, surplus).astype(np.float64, copy=False)
    flow = balancing_flow(between, weights[hubs], at_hubs, z, search.flows)
    at_points[hubs] += _at_points(flow, np.sqrt(between))
    return _effort(at_points, weights, z)


def choose_hubs(squared: Floats, weights: Floats, most: int) -> Indices:
    """Return the indices of at most `most` points, ascending: each next one has the most weight times distance^2.

    Parameters
    ----------
    squared : ndarray of shape (s, s)
    weights : ndarray of shape (s,)
    most : int
    """
    if len(weights) <= most:
        return np.arange(len(weights))
    hubs = np.zeros(most, dtype=np.int64)
    hubs[0] = np.argmax(weights)
    nearest = squared[hubs[0]].copy()
    for place in range(1, most):
        hubs[place] = np.argmax(weights * nearest)
        np.minimum(nearest, squared[hubs[place]], out=nearest)
    return np.unique(hubs)


def surrounding_shares(edges: Edges, squared: Floats) -> Floats:
    """Return shares of each row whose mean is near to the row, and that are not far away themselves.

    Parameters
    ----------
    edges : Edges
        With squared distances.
    squared : ndarray of shape (s, s)
        Squared distances between the coreset points.
    """
    shares: Floats = _surround(*edges, squared)
    return shares


def balancing_flow(squared: Floats, weights: Floats, surplus: Floats, z: float, flows: int) -> Floats:
    """Return a flow between the points that carries their surplus to where weight is missing.

    Entry (i, j) of the flow is what flows from i to j, and minus that from j to i. It is an electric flow, whose
    resistances are then set, again and again, to those at which it would be the flow of least effort (Lawson's method).

    Parameters
    ----------
    squared : ndarray of shape (s, s)
    weights, surplus : ndarray of shape (s,)
        The surplus has the sum 0.
    z : float
    flows : int
        How many to try.
    """
    distances = np.sqrt(squared)
    lengths = np.maximum(distances, _SHORTEST * float(np.median(distances[distances > 0.0])))
    conductances = 1.0 / (lengths**2 * (1.0 / weights[:, None] + 1.0 / weights))
    best, least = np.empty(0), np.inf
    for _ in range(flows):
        flow = _electric_flow(conductances, surplus)
        effort = _effort(_at_points(flow, distances), weights, z)
        if effort < least:
            best, least = flow, effort
        if effort == 0.0:
            break
        slopes = (_at_points(flow, lengths) / weights) ** (z - 1.0)
        slopes = np.maximum(slopes, _LEAST * slopes.max())
        conductances = np.abs(flow) / (lengths * (slopes[:, None] + slopes))
    return best


def _electric_flow(conductances: Floats, surplus: Floats) -> Floats:
    from scipy.linalg import cho_factor, cho_solve  # slow to import, and executors prove no bounds

    conductances = np.maximum(conductances, _LEAST * conductances.max())
    np.fill_diagonal(conductances, 0.0)
    matrix = -conductances
    # With this little more on the diagonal, rounding cannot make the matrix indefinite.
    np.fill_diagonal(matrix, (1.0 + 4.0 * len(surplus) * _EPSILON) * conductances.sum(axis=1))
    potentials = np.zeros(len(surplus))
    factor = cho_factor(matrix[1:, 1:], overwrite_a=True, check_finite=False)
    potentials[1:] = cho_solve(factor, surplus[1:], check_finite=False)
    flow: Floats = conductances * (potentials[:, None] - potentials)
    # What this and rounding leave over goes through the first point.
    rest = surplus - flow.sum(axis=1)
    flow[:, 0] += rest
    flow[0] -= rest
    return flow


def _at_points(flow: Floats, distances: Floats) -> Floats:
    """Sum of flow times distance at each point."""
    sums: Floats = np.einsum("ij,ij->i", np.abs(flow), distances)
    return sums


def _effort(at_points: Floats, weights: Floats, z: float) -> float:
    return float((weights * (at_points / weights) ** z).sum() ** (1.0 / z))


@compiled()
def _surround(starts: Indices, targets: Indices, powers: Floats, squared: Floats) -> Floats:
    """Shares t of each row x that minimise |mean of t - x|^2 + _NEARNESS * (mean squared distance).

    From the nearest point on, some share moves from the point with the largest slope to that with the smallest.
    """
    shares = np.zeros(len(powers))
    for i in range(len(starts) - 1):
        low, count = starts[i], starts[i + 1] - starts[i]
        own = shares[low : low + count]
        first = int(np.argmin(powers[low : low + count]))
        own[first] = 1.0
        slopes = np.empty(count)
        for a in range(count):
            slopes[a] = (1.0 + _NEARNESS) * powers[low + a] - squared[targets[low + a], targets[low + first]]
        for _ in range(_STEPS):
            to, source = int(np.argmin(slopes)), first
            for a in range(count):
                if own[a] > 0.0 and (own[source] == 0.0 or slopes[a] > slopes[source]):
                    source = a
            apart = squared[targets[low + to], targets[low + source]]
            gain = slopes[source] - slopes[to]
            if gain <= _PRECISION * powers[low + first] or apart <= 0.0:
                break
            part = min(own[source], gain / (2.0 * apart))
            own[to] += part
            own[source] = own[source] - part if part < own[source] else 0.0
            for a in range(count):
                to_them = squared[targets[low + a], targets[low + to]]
                slopes[a] -= part * (to_them - squared[targets[low + a], targets[low + source]])
        own /= own.sum()
    return shares


@compiled()
def _moved_and_pull(
    starts: Indices, targets: Indices, powers: Floats, squared: Floats, shares: Floats, row_weights: Floats
) -> tuple[float, float]:
    """The cost of moving, and, if the powers are squared distances, the weighted squares of what moves the means."""
    moved = pull = 0.0
    for i in range(len(starts) - 1):
        way = spread = 0.0
        for a in range(starts[i], starts[i + 1]):
            way += shares[a] * powers[a]
            for b in range(starts[i], a):
                spread += shares[a] * shares[b] * squared[targets[a], targets[b]]
        moved += row_weights[i] * way
        pull += row_weights[i] * max(0.0, way - spread)
    return moved, pull
