"""Balanced halving: of each pair of neighbours one point is kept, chosen so that clustering costs hardly change."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.fitted import fitted_costs
from kernelcoreset.coresets.points import Indices, distances_between
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.products import Reals

Singles = NDArray[np.float32]

_OF_FITTED = 2.5  # what a set of means counts beside another set
_KICKS = 32
_KICKED = 3
_TILE = 512
_MOST_PARTS = 128  # halves of halves that wait at once: one more with each halving of a count of 64 bits
_GROUPS_PER_SET = 64  # sets of more centers than this are unions of random groups of landmarks
_ROWS = 1024  # points compared at once with groups of landmarks: bounds the memory


class Effort(NamedTuple):
    """How much is balanced."""

    landmarks: int
    """Points from which centers are drawn. A halving takes one kernel value per point and landmark."""
    center_sets: int
    """Sets of k centers. If 0, single centers are balanced in every halving."""
    groups: int
    """Groups of coins that may be turned: decisions that look at the data. More balance better and prove less."""
    axes: int = 16
    """Landmarks whose distances put neighbours together."""
    fitted: int = 0
    """Sets of means of clusters, balanced in every halving."""
    last: int = 4
    """Halvings that balance the sets of k centers. Those before, between nearer points, balance single centers."""


IN_FEW_DIMENSIONS = Effort(landmarks=64, center_sets=256, groups=64, fitted=32, last=3)
# In many dimensions the costs of center sets have more in them that is not determined by few others. Of very many draws
# the first halvings, between nearer points, have less to balance.
IN_MANY_DIMENSIONS = Effort(landmarks=384, center_sets=1536, groups=512, axes=64)
OF_MANY_DRAWS = Effort(landmarks=192, center_sets=0, groups=256, axes=64)
IN_VERY_MANY_DIMENSIONS = Effort(landmarks=192, center_sets=768, groups=256, axes=64)


def halve(
    recipe: Recipe,
    points: NDArray[Any],
    weights: Floats,
    halvings: int,
    generator: np.random.Generator,
    effort: Effort = IN_FEW_DIMENSIONS,
) -> Indices:
    """Return the indices of the points that are kept after `halvings` halvings. Each halving doubles their weights.

    The points are paired with near ones. Keeping one of a pair (a, b) at double weight changes the cost of centers C by
    +-(w_a f_C(a) - w_b f_C(b)), where f_C is the cost of a point. A fair coin decides for each pair. The pairs are then
    dealt to groups, and all coins of a group are turned, or none, so that the changes cancel for many random center
    sets at once. `tail_factor` bounds the change for every other center set. Turning all coins turns every choice, so
    each point is kept with probability exactly 1/2 and every cost is right in expectation. Assumes validated input.

    Parameters
    ----------
    recipe : Recipe
        Its kernel, z, and k, the number of centers in a set.
    points : ndarray of shape (m, d)
        m divisible by 2^halvings. Of any real type.
    weights : ndarray of shape (m,)
    halvings : int
    generator : numpy Generator
    effort : Effort

    Returns
    -------
    ndarray of shape (m / 2^halvings,)
    """
    size = max(1, recipe.k // _GROUPS_PER_SET)
    count = max(effort.landmarks, -(-4 * recipe.k // size))
    distances = _single(_group_distances(recipe, points, count, size, generator), recipe.z)
    shares = (weights / weights.mean()).astype(np.float32)
    fitted = None
    if effort.fitted and size == 1:
        squared = distances if recipe.z == 2.0 else distances ** np.float32(2.0 / recipe.z)
        fitted = fitted_costs(squared, _landmarks(count, len(points)), weights, recipe, effort.fitted, generator)
    order: Indices = neighbours_together(np.ascontiguousarray(distances[:: count // effort.axes].T), 1 << halvings)
    single = np.arange(count)[:, None]
    sets = generator.integers(count, size=(effort.center_sets, recipe.k // size))
    last = min(effort.last, halvings) if effort.center_sets else 0
    for left in range(halvings, 0, -1):
        if left in (halvings, last):
            room = 0 if fitted is None else len(fitted)
            costs, scales = set_costs(distances, shares, order, sets if left <= last else single, room)
            if fitted is not None:
                _add_fitted(fitted, shares, order, costs[-room:], scales[-room:])
        pairs = len(order) // 2
        signs = np.where(generator.random(pairs) < 0.5, np.float32(1.0), np.float32(-1.0))
        sums = _group_sums(costs, signs, min(effort.groups, pairs)) * scales
        kicks = generator.random((_KICKS * 64 // effort.groups, _KICKED))
        turns = balanced_turns(sums @ sums.T, kicks)
        chosen = 2 * np.arange(pairs) + (signs * np.resize(turns, pairs) < 0.0)
        order, costs = order[chosen], _columns(costs, chosen)
    return order


def tail_factor(failure: float, groups: int = IN_FEW_DIMENSIONS.groups) -> float:
    """Return t such that a halving changes the cost of centers C by at most t times the norm of its differences.

    The differences are w_a f_C(a) - w_b f_C(b), one per pair (a, b). For any fixed C this holds with probability
    1 - failure: by Hoeffding's inequality for each of the 2^groups ways to turn groups of fair coins, so for the one
    that is taken.

    Examples
    --------
    >>> round(tail_factor(0.01), 2)
    9.9
    """
    return math.sqrt(2.0 * (groups * math.log(2.0) + math.log(1.0 / failure)))


def _group_distances(
    recipe: Recipe, points: NDArray[Any], groups: int, size: int, generator: np.random.Generator
) -> Reals:
    """Squared distance of every point to the nearest landmark of each group of `size` landmarks: shape (groups, m).

    Landmarks are evenly spaced along the order of the points. Groups are random, so that the number of centers in a set
    hardly matters for the time.
    """
    count = groups * size
    landmarks = points[_landmarks(count, len(points))].astype(np.float64)
    if size == 1:
        return distances_between(recipe.kernel, landmarks, points)
    landmarks = generator.permutation(landmarks)
    distances = np.empty((groups, len(points)))
    for low in range(0, len(points), _ROWS):
        block = distances_between(recipe.kernel, landmarks, points[low : low + _ROWS])
        block.reshape(size, groups, -1).min(axis=0, out=distances[:, low : low + _ROWS])
    return distances


def _landmarks(count: int, points: int) -> Indices:
    return (2 * np.arange(count) + 1) * points // (2 * count)


def _add_fitted(fitted: Singles, weights: Singles, order: Indices, costs: Singles, scales: Floats) -> None:
    """Write the costs of point order[i] for more sets, and their scales."""
    np.multiply(fitted[:, order], weights[order], out=costs)
    sums = costs.sum(axis=1, dtype=np.float64)
    np.divide(_OF_FITTED, sums, out=scales, where=sums > 0.0)


def _single(squared: Reals, z: float) -> Singles:
    """distance^z relative to its mean, in single precision: it only guides choices. Overwrites `squared`."""
    if z != 2.0:
        squared = squared.astype(np.float64, copy=False)
        squared **= 0.5 * z
    mean = float(squared.mean(dtype=np.float64))
    if mean > np.finfo(squared.dtype).tiny:
        squared /= mean
    return squared.astype(np.float32, copy=False)


@compiled()
def neighbours_together(rows: Singles, block: int) -> Indices:
    """Return an order of the rows in which neighbours are similar: halves of halves, each cut across its longest axis.

    Every aligned block of `block` rows, a power of two that divides their number, is a part, and so are its halves.
    """
    order = np.empty(len(rows), dtype=np.int64)
    for i in range(len(rows)):
        order[i] = i
    keys = np.empty(len(rows), dtype=np.float32)
    lows, highs = np.empty(np.int64(_MOST_PARTS), dtype=np.int64), np.empty(np.int64(_MOST_PARTS), dtype=np.int64)
    lows[0], highs[0] = 0, len(rows)
    left = 1  # parts that wait; the last one is next
    while left > 0:
        left -= 1
        low, high = lows[left], highs[left]
        if high - low <= 2:
            continue
        one = _farthest(rows, order, low, high, order[low], keys)
        other = _farthest(rows, order, low, high, one, keys)
        for i in range(low, high):
            keys[i] -= _squared_distance(rows[order[i]], rows[other])
        size = high - low
        middle = low + (size // 2 if size <= block else size // (2 * block) * block)
        _select(keys, order, low, high, middle)
        lows[left], highs[left] = low, middle
        lows[left + 1], highs[left + 1] = middle, high
        left += 2
    return order


@part(fastmath={"contract", "reassoc"})
def _squared_distance(a: Singles, b: Singles) -> np.float32:
    total = np.float32(0.0)
    for j in range(len(a)):
        total += (a[j] - b[j]) * (a[j] - b[j])
    return total


@part()
def _farthest(rows: Singles, order: Indices, low: int, high: int, start: int, keys: Singles) -> int:
    """Return the row of a part that is farthest from the row `start`; `keys` become the squared distances to it."""
    farthest, largest = start, np.float32(-1.0)
    for i in range(low, high):
        keys[i] = _squared_distance(rows[order[i]], rows[start])
        if keys[i] > largest:
            farthest, largest = order[i], keys[i]
    return farthest


@part()
def _select(keys: Singles, order: Indices, low: int, high: int, middle: int) -> None:
    """Move the smallest keys of a part, with their rows, in front of `middle` (Hoare's selection)."""
    high -= 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            break


@part(fastmath={"reassoc"})
def _sum(values: Singles) -> np.float32:
    total = np.float32(0.0)
    for i in range(len(values)):
        total += values[i]
    return total


_FINITE = {"contract", "nnan", "nsz"}  # distances are finite, and without this `min` does not vectorise


@part(fastmath=_FINITE)
def _lower(best: Singles, a: Singles, b: Singles, c: Singles, d: Singles) -> None:
    """Replace `best` by the minimum of all five. One minimum per loop would store only some lanes, which is slow."""
    for i in range(len(best)):
        best[i] = min(min(min(best[i], a[i]), min(b[i], c[i])), d[i])


@compiled(fastmath=_FINITE)
def set_costs(distances: Singles, weights: Singles, order: Indices, sets: Indices, room: int) -> tuple[Singles, Floats]:
    """The cost of point order[i] for the landmarks of set s, shape (sets, points), and 1 / cost of each set (or 0).

    There is room for so many more sets: their costs are not filled in, and their scales are 0.
    """
    out, scales = np.empty((len(sets) + room, len(order)), dtype=np.float32), np.empty(len(sets) + room)
    scales[:] = 0.0
    near = np.empty((len(distances), np.int64(_TILE)), dtype=np.float32)
    own = np.empty(np.int64(_TILE), dtype=np.float32)
    for low in range(0, len(order), _TILE):
        size = min(_TILE, len(order) - low)
        for i in range(size):
            own[i] = weights[order[low + i]]
        for landmark in range(len(distances)):
            for i in range(size):
                near[landmark, i] = distances[landmark, order[low + i]]
        for s in range(len(sets)):
            best = out[s, low : low + size]
            best[:] = np.inf
            own_set, last = sets[s], sets.shape[1] - 1
            for c in range(0, last + 1, 4):  # the last center may count more than once
                b, d, e = own_set[min(c + 1, last)], own_set[min(c + 2, last)], own_set[min(c + 3, last)]
                _lower(best, near[own_set[c]], near[b], near[d], near[e])
            for i in range(size):
                best[i] *= own[i]
            scales[s] += _sum(best)
    for s in range(len(sets)):
        scales[s] = 1.0 / scales[s] if scales[s] > 0.0 else 0.0
    return out, scales


@compiled(fastmath={"contract"})
def _group_sums(costs: Singles, signs: Singles, groups: int) -> Floats:
    """sums[g, s] = sum over pairs (a, b) of group g of sign (costs[s, a] - costs[s, b]); pair i is in i mod groups."""
    pairs = len(signs)
    sums = np.empty((groups, len(costs)))
    own = np.empty(groups, dtype=np.float32)
    for s in range(len(costs)):
        own[:] = 0.0
        row = costs[s]
        for low in range(0, pairs, groups):
            for g in range(min(groups, pairs - low)):
                own[g] += signs[low + g] * (row[2 * (low + g)] - row[2 * (low + g) + 1])
        for g in range(groups):
            sums[g, s] = own[g]
    return sums


@compiled()
def _columns(costs: Singles, chosen: Indices) -> Singles:
    kept = np.empty((len(costs), len(chosen)), dtype=np.float32)
    for s in range(len(costs)):
        for i in range(len(chosen)):
            kept[s, i] = costs[s, chosen[i]]
    return kept


def balanced_turns(gram: Floats, kicks: Floats) -> Floats:
    """Return signs h that make h G h small: greedy, then single and double turns that help, again after a few kicks.

    Depends on the Gram matrix G alone, so turning all coins, which leaves G as it is, turns every choice.
    """
    best = np.empty(len(gram))
    margin = 1e-9 * float(np.trace(gram))  # so that rounding cannot turn a sign forever
    _turn(gram, np.argsort(-np.diag(gram), kind="stable"), kicks, margin, best)
    return best


@compiled()
def _turn(gram: Floats, order: Indices, kicks: Floats, margin: float, best: Floats) -> None:
    """Write the signs of `balanced_turns` to `best`: greedy in the given order, then turns that lower h G h by more."""
    groups = len(gram)
    signs, work, lean = np.empty(groups), np.empty(groups), np.empty(groups)  # the last is G h
    lean[:] = 0.0
    for place in range(groups):
        i = order[place]
        signs[i] = -1.0 if lean[i] > 0.0 else 1.0
        _lean_more(lean, signs[i], gram[i])
    least = _descend(gram, signs, lean, work, margin)
    for i in range(groups):
        best[i] = signs[i]
    for kick in range(len(kicks)):
        for i in range(groups):
            signs[i], lean[i] = best[i], 0.0
        for j in range(kicks.shape[1]):
            signs[int(kicks[kick, j] * groups)] *= -1.0
        for i in range(groups):
            _lean_more(lean, signs[i], gram[i])
        value = _descend(gram, signs, lean, work, margin)
        if value < least:
            least = value
            for i in range(groups):
                best[i] = signs[i]


@part()
def _lean_more(lean: Floats, factor: float, row: Floats) -> None:
    """Add factor * row to `lean`."""
    for j in range(len(lean)):
        lean[j] += factor * row[j]


@part()
def _product(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@part()
def _descend(gram: Floats, signs: Floats, lean: Floats, change: Floats, margin: float) -> float:
    """Turn one sign or two, whichever lowers h G h most, until none does; return h G h. `change` is working space."""
    groups = len(gram)
    while True:
        # Turning sign i changes h G h by 4 (G_ii - h_i lean_i); two of them meet in 8 h_i h_j G_ij.
        first, second, lowest = 0, -1, np.inf
        for i in range(groups):
            change[i] = 4.0 * (gram[i, i] - signs[i] * lean[i])
            if change[i] < lowest:
                first, lowest = i, change[i]
        for i in range(groups):
            for j in range(i):
                both = change[i] + change[j] + 8.0 * signs[i] * signs[j] * gram[i, j]
                if both < lowest:
                    first, second, lowest = i, j, both
        if lowest >= -margin:
            return float(_product(signs, lean))
        for one in range(2):
            turned = first if one == 0 else second
            if turned >= 0:
                _lean_more(lean, -2.0 * signs[turned], gram[turned])
                signs[turned] = -signs[turned]
