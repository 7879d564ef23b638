"""A fit of many rows per cluster with Linear or Cosine: centers are found on a sample, then all rows are labelled once.

The clusters of all rows then take the place of a coreset's pivots, so the coreset of the model costs no distances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread, own_threads
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.means import vectors_of
from kernelcoreset.clustering.problem import Solution, count_distinct, mean_shares, prepare
from kernelcoreset.clustering.search import seed_rows
from kernelcoreset.coresets.build import build_rough_coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_by_clusters
from kernelcoreset.kernels.families import Linear
from kernelcoreset.kernels.products import products_pay
from kernelcoreset.labelling.centers import Centers, Labels
from kernelcoreset.labelling.exchanges import exchange_centers, prune_centers
from kernelcoreset.labelling.in_threads import label_in_threads
from kernelcoreset.labelling.leading_columns import leading_columns
from kernelcoreset.labelling.written_out import (
    centers_of,
    lloyd_over_chosen,
    lloyd_over_rows,
    lloyd_with_labels,
    means_of,
    written_out,
)
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel

_PER_CLUSTER, _LEAST_SAMPLE = 256, 16_384
_LEAST_PER_CLUSTER = 96  # with 64 the means are off by more than the check of the labels allows
_LAST_SHARE = 4  # the last iteration sees so many times the sample: its means have little error left
# The search is that of vectors with so many clusters or columns. It then finds lower costs in less time than restarts
# on a coreset do, and with few of both it does not.
MANY_CLUSTERS, _MANY_COLUMNS = 50, 384
# Of vectors: seeds per center, candidates for each seed, iterations before and after centers are exchanged.
_SEEDS, _TRIALS, _VECTOR_STEPS = 2, 2, (2, 3)
# By a coreset: iterations over half of the sample; over all of it, before and after centers are exchanged.
_HALF_STEPS, _STEPS = 3, (1, 2)
_LARGE = 1 << 25  # coreset points x clusters x columns: above, iterations over the sample gain more for their time
_LARGE_STEPS = 4
_MORE_COST = 1.03  # of a row among all, relative to one of the sample: above, the sample has missed something


class SampledFit(NamedTuple):
    """A model, and the labels of all rows."""

    model: KernelKMeansModel
    labels: Labels


def sample_pays(n: int, d: int, recipe: Recipe) -> bool:
    """Return whether n rows are enough for a sample that is so much larger than the coreset that it pays."""
    least = recipe.k * (_LEAST_PER_CLUSTER if _searches_vectors(d, recipe) else 2 * _PER_CLUSTER)
    return n > max(least, 2 * _LEAST_SAMPLE) and recipe.size <= _sample_size(n, recipe.k) // 2


def _sample_size(n: int, k: int) -> int:
    """Half of the rows, but no more than 256 per cluster and, with many clusters, no fewer than 96."""
    return max(min(n // 2, _PER_CLUSTER * k), _LEAST_PER_CLUSTER * k, _LEAST_SAMPLE)


def _searches_vectors(d: int, recipe: Recipe) -> bool:
    return d >= _MANY_COLUMNS or (recipe.k >= MANY_CLUSTERS and products_pay(recipe.kernel, d))


def fit_by_sample(
    points: NDArray[Any], weights: Floats, recipe: Recipe, n_init: int, max_iter: int
) -> SampledFit | None:
    """Return a fit of written-out centers (Linear or Cosine, z = 2) by a sample. Assumes validated input.

    A sample has at most 256 rows per cluster, and at least 16,384. With many clusters or columns the search begins with
    twice as many seeds on a half of it, of which half are removed one after another (`prune_centers`); else the coreset
    of that half is solved. Iterations of Lloyd over the sample follow, between which centers leave clusters that hardly
    need them (`exchange_centers`). Many columns are first projected onto fewer (`leading_columns`). One more iteration
    goes over four times the sample, or over all rows if there are fewer.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Of any real type.
    weights : ndarray of shape (n,)
        So many of them positive that `sample_pays`.
    recipe : Recipe
        Of the model's coreset: k, kernel, size, seed.
    n_init, max_iter
        As in `solve`.

    Returns
    -------
    SampledFit or None
        None if the sample has missed something: rows cost more than those of the sample, or a cluster has none.
    """
    k, kernel = recipe.k, recipe.kernel
    generator = np.random.default_rng(recipe.seed)
    sample = draw_rows(weights, k, generator)
    rows, own = points[sample.rows], weights[sample.rows]
    by_vectors = _searches_vectors(rows.shape[1], recipe)
    fewer = leading_columns(rows, own, k, kernel, generator) if by_vectors else None
    if fewer is None:
        found = _search_by_coreset(rows, own, recipe, n_init, max_iter)
    else:
        found = search_vectors(fewer.rows, own, k, generator)
    if found is None:
        return None
    means, radius = found.means, found.radius
    with own_threads():
        if fewer is not None:
            means, radius = means_of(found.labels, k, rows, own, kernel), radius + fewer.left_out
        means = lloyd_over_chosen(means, points, weights, sample.last, kernel)
        if not np.isfinite(means).all():
            return None
        centers = centers_of(means, kernel, float(np.sqrt(radius)))
        return checked_fit(centers, points, weights, sample, recipe, found, means=means)


class Sample(NamedTuple):
    """Rows of positive weight, drawn at random."""

    rows: NDArray[np.int64]
    """Both halves are random, and ascending: rows in the order of the memory are copied faster."""
    last: NDArray[np.int64] | None
    """More rows, which the last iteration sees; None for all."""


def draw_rows(weights: Floats, k: int, generator: np.random.Generator) -> Sample:
    """Draw the rows that centers are found on."""
    counted = np.flatnonzero(weights)
    count = _sample_size(len(counted), k)
    drawn = counted[generator.choice(len(counted), min(_LAST_SHARE * count, len(counted)), replace=False)]
    halves = np.sort(drawn[: count // 2]), np.sort(drawn[count // 2 : count])
    return Sample(np.concatenate(halves), None if len(drawn) == len(weights) else np.sort(drawn))


class Found(NamedTuple):
    """Centers that were found on a sample."""

    means: Floats
    labels: NDArray[np.int32]
    """Of the sample."""
    radius: float
    """Mean squared distance to a center."""
    n_iter: int
    converged: bool


def _search_by_coreset(rows: NDArray[Any], weights: Floats, recipe: Recipe, n_init: int, max_iter: int) -> Found | None:
    """Find centers of a sample through the coreset of its first half; None if there are too few distinct rows."""
    k, kernel, half = recipe.k, recipe.kernel, len(rows) // 2
    coreset = build_rough_coreset(rows[:half], k, kernel, recipe.size, weights=weights[:half], seed=recipe.seed)
    if count_distinct(prepare(coreset, kernel), k) < k:
        return None
    is_large = len(coreset) * k * rows.shape[1] > _LARGE
    steps = min(max_iter, _LARGE_STEPS) if is_large else max_iter
    solution = KernelKMeansModel.fit_coreset(
        coreset, k, kernel, n_init=n_init, max_iter=steps, seed=recipe.seed
    ).solution
    means = written_out(coreset.points, solution.shares, solution.labels, k, kernel)
    means = lloyd_over_rows(means, rows[:half], weights[:half], kernel, _HALF_STEPS)
    means = lloyd_over_rows(means, rows, weights, kernel, _STEPS[0])
    means = exchange_centers(means, rows, weights, kernel)
    means, labels = lloyd_with_labels(means, rows, weights, kernel, _STEPS[1])
    return Found(means, labels, solution.cost / coreset.weights.sum(), solution.n_iter, solution.converged)


@own_threads()
def search_vectors(rows: NDArray[np.float32], weights: Floats, k: int, generator: np.random.Generator) -> Found:
    """Find k centers of a sample of vectors: from twice as many seeds on its first half, then by all of it.

    Centers are numbered by falling weight. A cluster may be empty if there are fewer distinct rows.
    """
    half, linear = len(rows) // 2, Linear()
    vectors, own = vectors_of(rows[:half].astype(np.float64), weights[:half]), weights[:half]
    with one_blas_thread() as threads:
        seeds = seed_rows(vectors, _SEEDS * k, generator, _TRIALS, precise=False, threads=threads)
    means = means_of(seeds, _SEEDS * k, rows[:half], own, linear)
    means = prune_centers(means, rows[:half], own, linear, k)
    means = lloyd_over_rows(means, rows, weights, linear, _VECTOR_STEPS[0])
    means = exchange_centers(means, rows, weights, linear)
    means, labels = lloyd_with_labels(means, rows, weights, linear, _VECTOR_STEPS[1])
    order = np.argsort(-np.bincount(labels, weights, minlength=k), kind="stable")
    place = np.empty(k, dtype=np.int32)
    place[order] = np.arange(k, dtype=np.int32)
    means, labels = means[order], place[labels]
    # Centers are the means of their rows: sum w |x - c|^2 = sum w |x|^2 - sum w |c|^2.
    squares = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", means, means)[labels]
    radius = max(float(np.average(squares, weights=weights)), 0.0)
    return Found(means, labels, radius, sum(_VECTOR_STEPS), False)


def checked_fit(
    centers: Centers,
    points: NDArray[Any],
    weights: Floats,
    sample: Sample,
    recipe: Recipe,
    search: Found,
    **form: Any,
) -> SampledFit | None:
    """Label all rows and return the fit, or None if the sample has missed something.

    `form` is the argument of the model that its centers are kept in.
    """
    k = recipe.k
    found = label_in_threads(centers, points)
    with np.errstate(over="ignore"):
        costs = found.distances**2
        cost = np.average(costs, weights=weights)
        expected = np.average(costs[sample.rows], weights=weights[sample.rows])
    if not cost <= _MORE_COST * expected:  # also if it is no number
        return None
    coreset, picks = reduce_by_clusters(points, weights, found.labels, costs, recipe)
    labels = found.labels[picks]
    if len(np.unique(labels)) < k:
        return None
    shares, estimate = mean_shares(coreset.weights, labels, k), float(coreset.weights @ costs[picks])
    solution = Solution(labels, shares, k, estimate, search.n_iter, search.converged)
    return SampledFit(KernelKMeansModel(coreset, recipe.kernel, solution, 2.0, **form), found)
