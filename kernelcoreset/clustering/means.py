"""Descent for z = 2 on explicit vectors: single moves that lower the cost, found by matrix products.

A block of points is multiplied with all centers in float32. Only centers that may win, by a bound on the rounding of
that product, are evaluated again in float64. A move is made only if it lowers the cost in float64, and the two means
change at once. So every step of `lloyd` holds here too: the cost never rises, and at the end no single move lowers it.

After the first sweeps few clusters still change. A point whose own cluster did not change since it was looked at is
compared only with the clusters that did.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.lloyd import ROUNDING, fill_empty
from kernelcoreset.clustering.problem import Labels
from kernelcoreset.kernels.jit import compiled, part

Narrow = NDArray[np.float32]

_BLOCK_VALUES = 2**18  # products of one block: they stay in the cache
_BLOCK_POINTS = (64, 2048)
_PATIENCE = 3.0  # sweeps like the last one: with more to go, a run that must beat another one is given up
_RESTRICT = 0.5  # share of changed clusters below which it pays to compare with those alone


class Vectors(NamedTuple):
    """Weighted points as rows, in float64 and in float32, with their squared norms."""

    rows: Floats
    narrow: Narrow
    norms: Floats
    weights: Floats


class Means(NamedTuple):
    """State of k clusters of vectors; every array is changed in place."""

    centers: Floats
    """Means, shape (k, r)."""
    narrow: Narrow
    """The same in float32."""
    halves: Narrow
    """Half their squared norms, shape (k,)."""
    mass: Floats
    """Weights of the clusters."""
    counts: Floats
    """Numbers of points."""
    changed: NDArray[np.bool_]
    """Clusters that changed in this sweep."""


class Run(NamedTuple):
    """Labels that one run reached, their cost, the number of sweeps, and whether nothing moves any more."""

    labels: Labels
    cost: float
    steps: int
    converged: bool


def vectors_of(rows: Floats, weights: Floats) -> Vectors:
    """Return rows with what the descent needs of them."""
    return Vectors(rows, rows.astype(np.float32), np.einsum("ij,ij->i", rows, rows), weights)


def without_last_columns(vectors: Vectors, most: float) -> Vectors:
    """Return the vectors without as many last columns as together have at most `most` of the weighted squares."""
    left_out = np.cumsum((vectors.weights @ np.square(vectors.rows))[::-1])[::-1]
    count = max(1, int(np.count_nonzero(left_out > most)))
    return vectors_of(np.ascontiguousarray(vectors.rows[:, :count]), vectors.weights)


def no_means(k: int, r: int) -> Means:
    """Return arrays for k clusters of vectors of r numbers."""
    return Means(
        np.empty((k, r)),
        np.empty((k, r), dtype=np.float32),
        np.empty(k, dtype=np.float32),
        np.empty(k),
        np.empty(k),
        np.ones(k, dtype=np.bool_),
    )


def descend_rows(
    vectors: Vectors,
    labels: Labels,
    k: int,
    max_iter: int,
    changed: NDArray[np.bool_] | None = None,
    beat: float = np.inf,
) -> Run:
    """Return what single moves reach from given labels in at most `max_iter` sweeps. Assumes validated input.

    `changed`, shape (k,), are the clusters that differ from labels where no single move helps; by default all. The run
    is given up when it falls too slowly to reach a cost below `beat`.
    """
    labels, means = labels.copy(), no_means(k, vectors.rows.shape[1])
    away, stale = np.empty(len(labels)), np.ones(k, dtype=np.bool_)
    cost = place_means(vectors, labels, means, stale, away)
    if means.counts.min() == 0:
        fill_empty(vectors.weights, labels, away, k)
        cost = place_means(vectors, labels, means, stale, away)
    elif changed is not None:
        stale = changed
    for step in range(1, max_iter + 1):
        before = labels.copy()
        means.changed[:] = False
        moved = _sweep(vectors, labels, means, stale, cost)
        if not moved:
            return Run(labels, cost, step, True)
        stale = means.changed.copy()
        lower = place_means(vectors, labels, means, stale, away)
        if lower >= cost:  # moves of rounding size
            return Run(before, cost, step, True)
        if lower - beat > _PATIENCE * (cost - lower):
            return Run(labels, lower, step, False)
        cost = lower
    return Run(labels, cost, max_iter, False)


def blocks(s: int, k: int) -> list[slice]:
    """Return blocks of points whose products with k centers stay in the cache."""
    size = min(max(_BLOCK_VALUES // k, _BLOCK_POINTS[0]), _BLOCK_POINTS[1])
    return [slice(low, min(low + size, s)) for low in range(0, s, size)]


def _sweep(vectors: Vectors, labels: Labels, means: Means, stale: NDArray[np.bool_], cost: float) -> int:
    """Look at every point once and return how many moved. `stale` are the clusters that changed in the last sweep."""
    k, everyone, moved = len(means.mass), np.arange(len(labels)), 0
    for block in blocks(len(labels), k):
        points = everyone[block]
        different = stale | means.changed
        if np.count_nonzero(different) > _RESTRICT * k:
            parts = [(points, np.arange(k), vectors.narrow[block], means.narrow)]
        else:
            some, own = np.flatnonzero(different), different[labels[block]]
            inside, outside = points[own], points[~own]
            parts = [
                (inside, np.arange(k), vectors.narrow[inside], means.narrow),
                (outside, some, vectors.narrow[outside], means.narrow[some]),
            ]
        for chosen, others, left, right in parts:
            if len(chosen) and len(others):
                moved += move_some(left @ right.T, chosen, others, vectors, labels, means, cost)
    return moved


@part(fastmath={"contract", "reassoc", "nsz"})
def _squared(x: Floats, y: Floats) -> float:
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) * (x[j] - y[j])
    return total


@compiled()
def place_means(vectors: Vectors, labels: Labels, means: Means, which: NDArray[np.bool_], away: Floats) -> float:
    """Compute the means of the clusters `which` from the labels, update `away`, and return the cost of all.

    `away` are the squared distances of the points to their means. An empty cluster has weight 0, at the origin.
    """
    rows, weights = vectors.rows, vectors.weights
    centers, mass, counts = means.centers, means.mass, means.counts
    for c in range(len(mass)):
        if which[c]:
            mass[c] = 0.0
            counts[c] = 0.0
            for j in range(rows.shape[1]):
                centers[c, j] = 0.0
    for i in range(len(labels)):
        c = labels[i]
        if which[c]:
            for j in range(rows.shape[1]):
                centers[c, j] += weights[i] * rows[i, j]
            mass[c] += weights[i]
            counts[c] += 1
    for c in range(len(mass)):
        if which[c]:
            _narrow(means, c, 1.0 / mass[c] if counts[c] > 0 else 0.0)
    cost: float = _measure(vectors, labels, means, which, away)
    return cost


@part()
def _measure(vectors: Vectors, labels: Labels, means: Means, which: NDArray[np.bool_], away: Floats) -> float:
    cost = 0.0
    for i in range(len(labels)):
        if which[labels[i]]:
            away[i] = _squared(vectors.rows[i], means.centers[labels[i]])
        cost += vectors.weights[i] * away[i]
    return cost


@part()
def _narrow(means: Means, c: int, factor: float) -> None:
    """Multiply center c by a factor, and update what is derived from it."""
    norm = 0.0
    for j in range(means.centers.shape[1]):
        means.centers[c, j] *= factor
        norm += means.centers[c, j] * means.centers[c, j]
        means.narrow[c, j] = means.centers[c, j]
    means.halves[c] = 0.5 * norm


@part()
def _shift(means: Means, c: int, x: Floats, w: float) -> None:
    """Add weight w (or take it away, if negative) at x to cluster c."""
    means.mass[c] += w
    means.counts[c] += 1.0 if w > 0.0 else -1.0
    share = w / means.mass[c]
    for j in range(len(x)):
        means.centers[c, j] += share * (x[j] - means.centers[c, j])
    _narrow(means, c, 1.0)
    means.changed[c] = True


@compiled()
def move_some(
    products: Narrow,
    points: NDArray[np.int64],
    others: NDArray[np.int64],
    vectors: Vectors,
    labels: Labels,
    means: Means,
    cost: float,
) -> int:
    """Move each of `points` to the cluster among `others` that lowers the cost most, if one does; return their number.

    products[p, o] = <point, center> in float32, taken before the first of these moves. Moving x from a to b costs
    w W_b/(W_b + w) d2(x, b) and saves w W_a/(W_a - w) d2(x, a).
    """
    rows, norms, weights, mass = vectors.rows, vectors.norms, vectors.weights, means.mass
    longest = 0.0
    for c in range(len(mass)):
        longest = max(longest, np.sqrt(2.0 * means.halves[c]))
    # Worst rounding of a product of r terms in float32, with that of its factors, for vectors of length 1.
    rounding = 2.0 * (rows.shape[1] + 8) * 2.0**-24 * longest
    moved = 0
    for p in range(len(points)):
        i = points[p]
        a, w = np.int64(labels[i]), weights[i]  # like `target`: one type of index compiles once
        rest = mass[a] - w
        if means.counts[a] <= 1 or rest <= 0.0:
            continue
        least = mass[a] / rest * _squared(rows[i], means.centers[a]) - ROUNDING * cost / w
        target = a
        nearest = norms[i] - rounding * (np.sqrt(norms[i]) + longest)
        for o in range(len(others)):
            b = others[o]
            distance = nearest + 2.0 * (means.halves[b] - products[p, o])  # at most the true one
            if mass[b] * (distance - least) < least * w and b != a:
                price = mass[b] / (mass[b] + w) * _squared(rows[i], means.centers[b])
                if price < least:
                    target, least = b, price
        if target != a:
            _shift(means, a, rows[i], -w)
            _shift(means, target, rows[i], w)
            labels[i] = target
            moved += 1
    return moved
