"""The quality of a coreset: the largest relative error of its cost over many center sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import (
    Floats,
    Ints,
    as_numeric,
    check_at_least,
    check_choice,
    check_count,
    check_points,
    check_same_dimension,
    check_seed,
    check_weights,
)
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.points import distances_among
from kernelcoreset.coresets.seeding import Seeding, seed_by_matrix, seed_pivots
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.products import products_of, products_pay

KINDS = ("uniform", "spread", "crowded")
_MATRIX_POINTS = 4_096  # up to so many points of many columns, all distances between them are computed once


def empirical_error(
    points: ArrayLike,
    coreset: Coreset,
    k: int,
    kernel: Kernel,
    *,
    z: float = 2.0,
    n_center_sets: int = 500,
    weights: ArrayLike | None = None,
    seed: int = 0,
    center_sets: ArrayLike | None = None,
) -> float:
    """Return the largest relative error of the coreset's cost over random center sets, as the paper measures it.

    max over C of |cost(S, C) - cost(X, C)| / cost(X, C), each C of k points drawn uniformly from the data.

    Parameters
    ----------
    points : array-like of shape (n, d)
        The data the coreset was built from.
    coreset : Coreset
    k : int
        Centers in a set.
    kernel : Kernel
    z : float
    n_center_sets : int
    weights : array-like of shape (n,), optional
    seed : int
    center_sets : array-like of shape (m, k, d), optional
        Center sets to use instead of random ones, such as those of `draw_center_sets`.

    Returns
    -------
    float
        For a set whose cost on the data is 0, the error is 0 if the coreset's cost is 0 too, else infinity.

    Notes
    -----
    Takes (n + s) * k * n_center_sets kernel evaluations and a bounded amount of memory; s is the coreset's size.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Gaussian, build_coreset, empirical_error
    >>> points = np.random.default_rng(0).normal(size=(5_000, 2))
    >>> coreset = build_coreset(points, k=5, kernel=Gaussian(sigma=1.0), size=500, seed=0)
    >>> empirical_error(points, coreset, k=5, kernel=Gaussian(sigma=1.0), n_center_sets=50) < 0.05
    True
    """
    points = check_points(points)
    weights = check_weights(weights, len(points))
    if center_sets is None:
        center_sets = draw_center_sets(points, k, kernel, n_center_sets=n_center_sets, seed=seed)
    truth = center_set_costs(points, center_sets, kernel, z=z, weights=weights)
    estimate = center_set_costs(coreset.points, center_sets, kernel, z=z, weights=coreset.weights)
    return float(relative_errors(truth, estimate).max())


def relative_errors(truth: Floats, estimate: Floats) -> Floats:
    """Return |estimate - truth| / truth, 0 where both are 0."""
    gap = np.abs(estimate - truth)
    with np.errstate(divide="ignore"):
        return np.divide(gap, truth, out=np.zeros_like(gap), where=gap > 0)


def center_set_costs(
    points: ArrayLike,
    center_sets: ArrayLike,
    kernel: Kernel,
    *,
    z: float = 2.0,
    weights: ArrayLike | None = None,
) -> Floats:
    """Return the clustering cost of many center sets: sum_x w_x min over the set of distance^z.

    Parameters
    ----------
    points : array-like of shape (n, d)
    center_sets : array-like of shape (m, k, d)
    kernel : Kernel
    z : float
    weights : array-like of shape (n,), optional

    Returns
    -------
    ndarray of shape (m,)

    Examples
    --------
    >>> from kernelcoreset import Linear, center_set_costs
    >>> center_set_costs([[0.0], [1.0], [5.0]], [[[0.0], [5.0]], [[1.0], [1.0]]], Linear())
    array([ 1., 17.])
    """
    kernel = check_kernel(kernel)
    z = check_at_least("z", z, 1.0)
    points = check_points(points)
    weights = check_weights(weights, len(points))
    sets = as_numeric(center_sets, "center_sets")
    if sets.ndim != 3 or 0 in sets.shape:
        raise DataError(f"`center_sets` must have shape (m, k, d) with no dimension 0; got {sets.shape}.")
    check_same_dimension("center_sets", sets.shape[2], points.shape[1], "`points`")
    centers = check_points(sets.reshape(-1, sets.shape[2]), "center_sets")
    if products_pay(kernel, points.shape[1]):
        # Sets that are drawn from few points, such as a coreset, have many centers in common: each is compared once.
        distinct, places = np.unique(centers, axis=0, return_inverse=True)
        costs: Floats = chosen_costs(points, weights[:, None], distinct, places.reshape(len(sets), -1), kernel, z)[0]
        return costs
    evaluator = evaluator_of(kernel)
    costs = np.zeros(len(sets))
    cloud, rows = evaluator.cloud(as_columns(points)), evaluator.rows(centers)
    passes.center_set_costs(evaluator.distances, cloud, weights, rows, sets.shape[1], z, costs)
    if not np.isfinite(costs).all():
        raise evaluator.overflow("the clustering cost", points.T)
    return costs


def chosen_costs(
    points: NDArray[Any], weights: Floats, among: Floats, chosen: Ints, kernel: Kernel, z: float
) -> Floats:
    """Return the costs of center sets that are chosen among few points, by matrix products. Assumes validated input.

    Each point that centers are chosen among is compared with the points once, in however many sets it is.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Of any real type.
    weights : ndarray of shape (n, g)
        g weights per point, for g costs of each set: of parts of the points, for example.
    among : ndarray of shape (p, d)
    chosen : ndarray of shape (m, k)
        Rows of `among`.
    kernel : Kernel
        One with `has_products`.
    z : float

    Returns
    -------
    ndarray of shape (g, m)
    """
    products = products_of(kernel, among)
    costs = np.zeros((len(chosen), weights.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for low in range(0, len(points), products.block_rows):
            part = slice(low, low + products.block_rows)
            squared = products.squared_distances(points[part])
            for i, place in enumerate(chosen):
                costs[i] += (squared[place].min(axis=0) ** (0.5 * z)) @ weights[part]
    if not np.isfinite(costs).all():
        raise evaluator_of(kernel).overflow("the clustering cost", points.T.astype(np.float64))
    return costs.T


def draw_center_sets(
    points: ArrayLike,
    k: int,
    kernel: Kernel,
    *,
    kind: str = "uniform",
    n_center_sets: int = 500,
    z: float = 2.0,
    weights: ArrayLike | None = None,
    seed: int = 0,
) -> Floats:
    """Return center sets to measure a coreset with, each of k points of the data.

    Parameters
    ----------
    points : array-like of shape (n, d)
    k : int
    kernel : Kernel
    kind : {"uniform", "spread", "crowded"}
        "uniform": drawn uniformly, as in the paper. "spread": drawn by D^z sampling, so close to an optimal solution.
        "crowded": drawn from a single cluster of a seeding with k pivots, so far from an optimal solution.
    n_center_sets : int
    z : float
    weights : array-like of shape (n,), optional
        Used by "spread" and "crowded".
    seed : int

    Returns
    -------
    ndarray of shape (n_center_sets, k, d)

    Examples
    --------
    >>> from kernelcoreset import Linear, draw_center_sets
    >>> draw_center_sets([[0.0], [1.0], [5.0]], 2, Linear(), n_center_sets=7).shape
    (7, 2, 1)
    """
    kernel = check_kernel(kernel)
    k = check_count("k", k)
    kind = check_choice("kind", kind, KINDS)
    count = check_count("n_center_sets", n_center_sets)
    z = check_at_least("z", z, 1.0)
    points = check_points(points)
    weights = check_weights(weights, len(points))
    generator = np.random.default_rng(check_seed(seed))
    if kind == "uniform":
        return points[generator.integers(len(points), size=(count, k))]
    return points[_draw_by_seedings(points, weights, k, kernel, z, kind, count, generator)]


def _draw_by_seedings(
    points: Floats,
    weights: Floats,
    k: int,
    kernel: Kernel,
    z: float,
    kind: str,
    count: int,
    generator: np.random.Generator,
) -> Ints:
    """The points of "spread" or "crowded" center sets, shape (count, k)."""
    seed = _seeding_of(points, weights, k, kernel, z)
    sets = np.empty((count, k), dtype=np.int64)
    for centers in sets:
        seeding = seed(generator)
        if kind == "spread":  # there are fewer pivots than k if the data has fewer distinct points
            centers[:] = np.resize(seeding.pivots, k)
        else:
            cluster = seeding.nearest[generator.choice(len(points), p=weights / weights.sum())]
            centers[:] = generator.choice(np.flatnonzero(seeding.nearest == cluster), size=k)
    return sets


def _seeding_of(
    points: Floats, weights: Floats, k: int, kernel: Kernel, z: float
) -> Callable[[np.random.Generator], Seeding]:
    """What draws k pivots by D^z sampling, again and again."""
    if products_pay(kernel, points.shape[1]) and len(points) <= _MATRIX_POINTS:
        squared = distances_among(kernel, points)
        if np.isfinite(squared).all():
            return lambda generator: seed_by_matrix(squared, weights, k, z, generator)
    cloud = evaluator_of(kernel).cloud(as_columns(points))
    return lambda generator: seed_pivots(kernel, cloud, weights, k, z, generator)


class CenterSets(NamedTuple):
    """Center sets that are chosen among few points."""

    among: Floats
    """Shape (p, d)."""
    chosen: Ints
    """Rows of `among`, shape (m, k)."""
    kinds: tuple[str, ...]
    """The kind of each set, one of `KINDS`."""


def draw_mixed_center_sets(
    points: Floats,
    weights: Floats,
    k: int,
    kernel: Kernel,
    z: float,
    count: int,
    seed: int,
    most: int | None = None,
) -> CenterSets:
    """Return center sets of all kinds, drawn from a coreset. Assumes validated input.

    "uniform" sets are coreset points drawn by weight, which are distributed like random rows. If the coreset has more
    than `most` points, so many of them are drawn by weight first, and all sets are drawn from these.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Linear
    >>> found = draw_mixed_center_sets(np.arange(9.0)[:, None], np.ones(9), 2, Linear(), 2.0, 5, seed=0)
    >>> found.chosen.shape, found.kinds
    ((5, 2), ('uniform', 'uniform', 'spread', 'spread', 'crowded'))
    """
    kinds = tuple(KINDS[i * len(KINDS) // count] for i in range(count))
    generator = np.random.default_rng(seed)
    if most is not None and len(points) > most:
        drawn = generator.choice(len(weights), size=most, p=weights / weights.sum())
        points, weights = points[drawn], np.ones(most)
    chosen = generator.choice(len(weights), size=(count, k), p=weights / weights.sum())
    for kind in KINDS[1:]:
        own = np.flatnonzero(np.array(kinds) == kind)
        if len(own):
            draws = np.random.default_rng(seed)
            chosen[own] = _draw_by_seedings(points, weights, k, kernel, z, kind, len(own), draws)
    return CenterSets(points, chosen, kinds)
