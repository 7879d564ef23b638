"""A fit of many rows per cluster with Linear or Cosine: centers are found on a sample, then all rows are labelled once.

The clusters of all rows then take the place of a coreset's pivots, so the coreset of the model costs no distances.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.problem import Solution, count_distinct, mean_shares, prepare
from kernelcoreset.coresets.build import build_rough_coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_by_clusters
from kernelcoreset.labelling.centers import Labels
from kernelcoreset.labelling.exchanges import exchange_centers
from kernelcoreset.labelling.in_threads import label_in_threads
from kernelcoreset.labelling.written_out import (
    centers_of,
    lloyd_over_chosen,
    lloyd_over_rows,
    written_out,
)
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel

_PER_CLUSTER, _LEAST_SAMPLE = 256, 16_384
_LAST_SHARE = 4  # the last iteration sees so many times the sample: its means have little error left
_FEW_ROWS = 16  # up to so many times the sample, the last iteration sees all rows
# Iterations of Lloyd over half of the sample; over all of it, before and after centers are exchanged.
_HALF_STEPS, _STEPS = 3, (1, 2)
_LARGE = 1 << 25  # coreset points x clusters x columns: above, iterations over the sample gain more for their time
_LARGE_STEPS = 4
_MORE_COST = 1.03  # of a row among all, relative to one of the sample: above, the sample has missed something


class SampledFit(NamedTuple):
    """A model, and the labels of all rows."""

    model: KernelKMeansModel
    labels: Labels


def sample_pays(n: int, recipe: Recipe) -> bool:
    """Return whether a sample of n rows is so much smaller, and so much larger than the coreset, that it pays."""
    count = _sample_size(recipe.k)
    return n > 2 * count and recipe.size <= count // 2


def _sample_size(k: int) -> int:
    return max(_PER_CLUSTER * k, _LEAST_SAMPLE)


def fit_by_sample(
    points: NDArray[Any], weights: Floats, recipe: Recipe, n_init: int, max_iter: int
) -> SampledFit | None:
    """Return a fit of written-out centers (Linear or Cosine, z = 2) by a sample. Assumes validated input.

    A sample of 256 rows per cluster, and at least 16,384, is solved through the coreset of a half of it. Six iterations
    of Lloyd over that half and over the sample follow, between which centers leave clusters that hardly need them
    (`exchange_centers`). One more goes over all rows, or over four times the sample if there are many more.

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
    counted = np.flatnonzero(weights)
    count = _sample_size(k)
    generator = np.random.default_rng(recipe.seed)
    drawn = counted[generator.choice(len(counted), min(_LAST_SHARE * count, len(counted)), replace=False)]
    # Rows in the order of the memory are copied faster.
    half, rest = np.sort(drawn[: count // 2]), np.sort(drawn[count // 2 : count])
    sample = np.concatenate([half, rest])
    rows, own = points[sample], weights[sample]
    coreset = build_rough_coreset(rows[: len(half)], k, kernel, recipe.size, weights=own[: len(half)], seed=recipe.seed)
    if count_distinct(prepare(coreset, kernel), k) < k:
        return None
    is_large = len(coreset) * k * points.shape[1] > _LARGE
    steps = min(max_iter, _LARGE_STEPS) if is_large else max_iter
    solution = KernelKMeansModel.fit_coreset(
        coreset, k, kernel, n_init=n_init, max_iter=steps, seed=recipe.seed
    ).solution
    means = written_out(coreset.points, solution.shares, solution.labels, k, kernel)
    means = lloyd_over_rows(means, rows[: len(half)], own[: len(half)], kernel, _HALF_STEPS)
    means = lloyd_over_rows(means, rows, own, kernel, _STEPS[0])
    means = exchange_centers(means, rows, own, kernel)
    means = lloyd_over_rows(means, rows, own, kernel, _STEPS[1])
    last = None if len(counted) <= _FEW_ROWS * count else np.sort(drawn)
    means = lloyd_over_chosen(means, points, weights, last, kernel)
    radius = float(np.sqrt(solution.cost / coreset.weights.sum()))
    return _checked(means, points, weights, sample, recipe, radius, solution)


def _checked(
    means: Floats,
    points: NDArray[Any],
    weights: Floats,
    sample: NDArray[np.int64],
    recipe: Recipe,
    radius: float,
    solution: Solution,
) -> SampledFit | None:
    """Label all rows and return the fit, or None if the sample has missed something."""
    k, kernel = recipe.k, recipe.kernel
    if not np.isfinite(means).all():
        return None
    found = label_in_threads(centers_of(means, kernel, radius), points)
    with np.errstate(over="ignore"):
        costs = found.distances**2
        cost, expected = np.average(costs, weights=weights), np.average(costs[sample], weights=weights[sample])
    if not cost <= _MORE_COST * expected:  # also if it is no number
        return None
    coreset, picks = reduce_by_clusters(points, weights, found.labels, costs, recipe)
    labels = found.labels[picks]
    if len(np.unique(labels)) < k:
        return None
    solution = replace(
        solution,
        labels=labels,
        shares=mean_shares(coreset.weights, labels, k),
        cost=float(coreset.weights @ costs[picks]),
    )
    return SampledFit(KernelKMeansModel(coreset, kernel, solution, 2.0, means), found)
