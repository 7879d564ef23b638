"""The optimal clusters of a small coreset by branch and bound: the last step of the paper's FPT-PTAS."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_at_least, check_count
from kernelcoreset.clustering.problem import Labels, Problem, Solution, check_k, mean_shares, prepare
from kernelcoreset.clustering.solve import solve_problem
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.kernel import Kernel, check_kernel

MAX_EXACT_POINTS = 150
"""Most distinct points; with more, no search ends within a practical number of nodes."""

# A partition must be cheaper by more than this share of the cost to count as better.
_ROUNDING = 1e-12


def solve_exact(
    coreset: Coreset,
    k: int,
    kernel: Kernel,
    *,
    z: float = 2.0,
    max_nodes: int = 20_000_000,
) -> Solution:
    """Return the k clusters of least cost, proven optimal, for a small coreset and z = 2.

    The cost of a cluster of weight W is 1/(2W) sum_{x, y} w_x w_y d2(x, y). No other partition costs less, up to
    rounding.

    Parameters
    ----------
    coreset : Coreset
        About 30 distinct points; more if they are well clustered, fewer if not.
    k : int
        At most the number of distinct points.
    kernel : Kernel
    z : float
        Only 2: the best center of a cluster has no closed form for other powers.
    max_nodes : int
        Largest number of partial partitions to visit before raising an error; a few million take a second.

    Returns
    -------
    Solution
        `n_iter` is the number of partial partitions visited.

    Notes
    -----
    Points are assigned one by one. A partial partition is discarded if its cost plus a lower bound for the remaining
    points exceeds the best known cost, at first that of `solve`. Exponential in the worst case.

    Examples
    --------
    >>> from kernelcoreset import Coreset, Linear
    >>> solve_exact(Coreset([[0.0], [1.0], [10.0], [13.0]], [1.0, 1.0, 2.0, 1.0]), 2, Linear()).cost
    6.5
    """
    kernel, k = check_kernel(kernel), check_count("k", k)
    max_nodes = check_count("max_nodes", max_nodes)
    if check_at_least("z", z, 1.0) != 2.0:
        raise SettingError(
            f"`z` must be 2 for an exact solution; got {z:g}. Use solve(..., z={z:g}) with a large `n_init`."
        )
    problem = prepare(coreset, kernel)
    check_k(problem, k)
    known = solve_problem(problem, k, 2.0, 10, 300, np.random.default_rng(0))
    return _search(problem, k, known, max_nodes)


def _search(problem: Problem, k: int, known: Solution, max_nodes: int) -> Solution:
    """Return the optimal solution, starting from `known`. Assumes validated input."""
    first, group = _merge_equal(problem.squared)
    weights: Floats = np.bincount(group, problem.weights).astype(np.float64)
    squared = np.ascontiguousarray(problem.squared[np.ix_(first, first)])
    s = len(first)
    if s > MAX_EXACT_POINTS:
        raise SettingError(_too_many(s, k, f"at most {MAX_EXACT_POINTS} distinct points can be solved exactly"))
    order = _interleave(squared, weights, known.labels[first])
    squared, weights = np.ascontiguousarray(squared[np.ix_(order, order)]), weights[order]
    best = known.labels[first][order]
    cost, nodes = _branch_and_bound(squared, weights, k, best, known.cost / problem.unit, max_nodes)
    if nodes > max_nodes:
        raise SettingError(_too_many(s, k, f"the search did not end within max_nodes={max_nodes:,} partial partitions"))
    on_first = np.empty(s, dtype=np.int32)
    on_first[order] = best
    labels = on_first[group]
    shares = mean_shares(problem.weights, labels, k)
    return Solution(labels, shares, k, float(cost * problem.unit), int(nodes), True)


def _merge_equal(squared: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first point of each group of equal points, and the group of every point.

    Some optimal partition has equal points in one cluster, so each group is solved as one point.
    """
    first: list[int] = []
    group = np.empty(len(squared), dtype=np.int64)
    for i in range(len(squared)):
        same = np.flatnonzero(squared[i, first] <= 0.0)
        group[i] = same[0] if len(same) else len(first)
        if not len(same):
            first.append(i)
    return np.array(first, dtype=np.int64), group


def _interleave(squared: Floats, weights: Floats, labels: Labels) -> NDArray[np.int64]:
    """Return an order that takes one point of each known cluster in turn, heavy and far ones first.

    Every tail of the order then contains all clusters, and begins with heavy points that are far apart. All clusters
    are opened early, and a wrong choice costs much early. Without the weights the search visits up to a thousand times
    as many nodes.
    """
    turn = np.empty(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        importance = weights[members] * (squared[members] @ weights)
        turn[members[np.argsort(-importance, kind="stable")]] = np.arange(len(members))
    return np.lexsort((labels, turn))


def _too_many(s: int, k: int, why: str) -> str:
    digits = _log10_partitions(s, k)
    return (
        f"An exact solution of {s} distinct points in {k} clusters takes too long: {why}, and there are about "
        f"10^{digits:.0f} partitions. Use solve(), a coreset of fewer points, fewer clusters or more `max_nodes`."
    )


def _log10_partitions(s: int, k: int) -> float:
    """Return log10 of the Stirling number S(s, k), the number of partitions of s points into k clusters."""
    row = [1] + [0] * k
    for _ in range(s):
        row = [0] + [row[j - 1] + j * row[j] for j in range(1, k + 1)]
    return math.log10(row[k])


@compiled()
def _branch_and_bound(
    squared: Floats, weights: Floats, k: int, best: Labels, known_cost: float, max_nodes: int
) -> tuple[float, int]:
    """Write optimal labels into `best`, which holds labels of cost `known_cost`; return the cost and the nodes visited.

    Solves the tails of the order one after the other, the shortest first; shorter tails give bounds for longer ones.
    More nodes than `max_nodes` mean that the search was stopped.
    """
    s = len(weights)
    tails = np.zeros(s + 1)  # least cost of the points t, t + 1, ...
    labels = best.copy()
    nodes = 0
    for t in range(s - 1, -1, -1):
        if t == 0:
            labels[:] = best
            tails[0] = known_cost
        else:
            _insert_cheapest(squared, weights, k, t, labels)
            tails[t] = _partition_cost(squared, weights, k, t, labels)
            own = _partition_cost(squared, weights, k, t, best)
            if own < tails[t]:
                tails[t] = own
                labels[t:] = best[t:]
        if tails[t] > tails[t + 1] * (1.0 + _ROUNDING):
            nodes += _solve_tail(squared, weights, k, t, tails, labels, max_nodes - nodes)
            if nodes > max_nodes:
                break
    best[:] = labels
    return tails[0], nodes


@part(makes_arrays=True)
def _partition_cost(squared: Floats, weights: Floats, k: int, t: int, labels: Labels) -> float:
    """Return the cost of the points t, t + 1, ... with these labels."""
    mass, pairs = np.zeros(k), np.zeros(k)
    for i in range(t, len(weights)):
        for j in range(t, i):
            if labels[j] == labels[i]:
                pairs[labels[i]] += weights[i] * weights[j] * squared[i, j]
        mass[labels[i]] += weights[i]
    cost = 0.0
    for c in range(k):
        if mass[c] > 0.0:
            cost += pairs[c] / mass[c]
    return cost


@part()
def _insert_cheapest(squared: Floats, weights: Floats, k: int, t: int, labels: Labels) -> None:
    """Give point t the label with which the tail costs least; the labels after it stay."""
    least, choice = np.inf, 0
    for c in range(k):
        labels[t] = c
        cost = _partition_cost(squared, weights, k, t, labels)
        if cost < least:
            least, choice = cost, c
    labels[t] = choice


class _Path(NamedTuple):
    """The clusters of the points assigned so far, one row per depth, so that going back is free.

    sums[t, c, i] is the sum of w d2 from cluster c to the unassigned point i; `mass` the weight of a cluster, `pairs`
    its sum of w w d2 over pairs, `cost` the cost, and `opened` the number of clusters in use.
    """

    sums: Floats
    mass: Floats
    pairs: Floats
    cost: Floats
    opened: NDArray[np.int64]


@part(makes_arrays=True)
def _grow(path: _Path, squared: Floats, weights: Floats, t: int, c: int) -> None:
    """Fill depth t + 1: point t joins cluster c."""
    path.mass[t + 1] = path.mass[t]
    path.pairs[t + 1] = path.pairs[t]
    path.sums[t + 1, :, t + 1 :] = path.sums[t, :, t + 1 :]
    path.mass[t + 1, c] += weights[t]
    path.pairs[t + 1, c] += weights[t] * path.sums[t, c, t]
    for i in range(t + 1, len(weights)):
        path.sums[t + 1, c, i] += weights[t] * squared[t, i]
    path.opened[t + 1] = max(path.opened[t], c + 1)


@part()
def _cost_with(path: _Path, weights: Floats, t: int, c: int) -> float:
    """Return the cost at depth t + 1 if point t joins cluster c."""
    mass, pairs = path.mass[t, c], path.pairs[t, c]
    before = pairs / mass if mass > 0.0 else 0.0
    cost: float = path.cost[t] - before + (pairs + weights[t] * path.sums[t, c, t]) / (mass + weights[t])
    return cost


@part()
def _bound(weights: Floats, path: _Path, depth: int, rest: float, tail: float) -> float:
    """Return a lower bound of what the points from `depth` on add to the cost, once all k clusters are in use.

    Points B that join a cluster C add (1 - r) cost(B) + r sum_{x in B} w_x d2(x, mean of C), r = W_C / (W_C + W_B). The
    sum is at least cost(B), so a smaller r gives a lower bound. W_B is at most `rest`, the weight of all remaining
    points, and the costs of all B together are at least `tail`.
    """
    sums, mass, pairs = path.sums[depth], path.mass[depth], path.pairs[depth]
    smallest = np.inf
    for c in range(len(mass)):
        smallest = min(smallest, mass[c])
    total = 0.0
    for i in range(depth, len(weights)):
        nearest = np.inf
        for c in range(len(mass)):
            nearest = min(nearest, (sums[c, i] - pairs[c] / mass[c]) / mass[c])
        total += weights[i] * max(nearest, 0.0)
    r = smallest / (smallest + rest)
    return max(tail, (1.0 - r) * tail + r * total)


@part(makes_arrays=True)
def _solve_tail(
    squared: Floats, weights: Floats, k: int, start: int, tails: Floats, best: Labels, max_nodes: int
) -> int:
    """Write the least cost of the points start, start + 1, ... and their labels into tails[start] and `best`.

    Returns the nodes visited. Depth first; a new cluster always gets the next number, as the numbers do not matter.
    """
    s = len(weights)
    path = _Path(
        np.zeros((s + 1, k, s)),
        np.zeros((s + 1, k)),
        np.zeros((s + 1, k)),
        np.zeros(s + 1),
        np.zeros(s + 1, dtype=np.int64),
    )
    choice = np.full(s, -1, dtype=np.int64)
    rest = np.sum(weights) - np.cumsum(weights)  # weight of the points after t
    nodes, t = 0, start
    while t >= start and nodes <= max_nodes:
        choice[t] += 1
        c = choice[t]
        if c > min(path.opened[t], k - 1):
            choice[t] = -1
            t -= 1
            continue
        nodes += 1
        limit = tails[start] * (1.0 - _ROUNDING)
        cost = _cost_with(path, weights, t, c)
        if cost + tails[t + 1] >= limit:
            continue
        if t == s - 1:
            tails[start] = cost
            best[start:] = choice[start:]
            continue
        _grow(path, squared, weights, t, c)
        path.cost[t + 1] = cost
        if path.opened[t + 1] < k or cost + _bound(weights, path, t + 1, rest[t], tails[t + 1]) < limit:
            t += 1
    return nodes
