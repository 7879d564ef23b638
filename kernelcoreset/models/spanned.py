"""A fit of many clusters with a kernel whose centers cannot be written out: in the span of a few points.

A coreset of 20 points per cluster gives each center from these points alone. Here a center is a combination of points
that all centers share, about one per cluster, near to the mean of all rows of its cluster, and labels take fewer kernel
values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.features import is_written_out
from kernelcoreset.coresets.build import build_rough_coreset
from kernelcoreset.coresets.points import distances_between
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.kernels.families import Linear
from kernelcoreset.kernels.products import products_pay
from kernelcoreset.labelling.centers import Centers
from kernelcoreset.labelling.in_threads import label_in_threads
from kernelcoreset.labelling.span import span_of
from kernelcoreset.labelling.written_out import means_of
from kernelcoreset.models.sampled import (
    MANY_CLUSTERS,
    SampledFit,
    checked_fit,
    draw_rows,
    sample_pays,
    search_vectors,
)
from kernelcoreset.models.shared_points import SharedPoints

_LEAST_POINTS, _POINTS_PER_CLUSTER = 256, 5  # with 3 the cost of embeddings was 0.6 % higher
_MOST_POINTS = 1024  # with 2,048 and k = 1,000 it was 0.9 to 2 % lower, in 1.5 times the time
_LEAST_LEADING, _MOST_LEADING = 192, 384  # coordinates for the search: one per cluster, within these limits
_PAIRED, _ALL_PAIRED = 64, 16_384  # rows per cluster, and at most of all, whose distances show what the span leaves out
_MOST_PAIRED = 1024  # rows of one cluster, so that a cluster of most rows needs no matrix of all their pairs
_MORE_COST = 1.1  # of a row to its center in the span, relative to that to the mean of its cluster


def span_pays(n: int, d: int, recipe: Recipe) -> bool:
    """Return whether a fit of n rows of d columns in the span of a few points is faster than one by a coreset."""
    return (
        recipe.k >= MANY_CLUSTERS
        and products_pay(recipe.kernel, d)
        and not is_written_out(recipe.kernel)
        and sample_pays(n, d, recipe)
    )


def fit_by_span(points: NDArray[Any], weights: Floats, recipe: Recipe) -> SampledFit | None:
    """Return a fit whose centers are in the span of a few points, for z = 2. Assumes validated input.

    A sample is clustered as in `fit_by_sample`, in the leading coordinates of the span of 5k points, at least 256 and
    at most 1,024. They are those of a rough coreset, so that every cluster has some. The centers then are in the span
    of the means of the clusters as vectors: what is particular to a row has averaged out of them, so k of them leave
    out less than thousands of rows do. If k is below 256, points of the rough coreset are added.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Of any real type.
    weights : ndarray of shape (n,)
        So many of them positive that `span_pays`.
    recipe : Recipe
        Of the model's coreset: k, kernel, size, seed.

    Returns
    -------
    SampledFit or None
        None if the sample has missed something, as in `fit_by_sample`, or if rows are farther from centers in the span
        than from the means of their clusters.
    """
    k, kernel = recipe.k, recipe.kernel
    generator = np.random.default_rng(recipe.seed)
    sample = draw_rows(weights, k, generator)
    rows, own = points[sample.rows], weights[sample.rows]
    half, size = len(rows) // 2, min(max(_LEAST_POINTS, _POINTS_PER_CLUSTER * k), _MOST_POINTS)
    chosen = build_rough_coreset(rows[:half], k, kernel, size, weights=own[:half], seed=recipe.seed)
    span = span_of(kernel, chosen.points)
    if span is None:
        return None
    vectors = span.coordinates(rows, max(_LEAST_LEADING, min(k, _MOST_LEADING)))
    if not np.isfinite(vectors).all():
        return None
    found = search_vectors(vectors, own, k, generator)
    means = means_of(found.labels, k, rows, own, Linear())
    some = np.linspace(0, len(chosen) - 1, min(max(0, _LEAST_POINTS - k), len(chosen)), dtype=np.int64)
    span = span_of(kernel, np.concatenate([means, chosen.points[some]])) if np.isfinite(means).all() else None
    if span is None:
        return None
    coefficients = span.coefficients(span.means(rows, own, found.labels, k))
    if not np.isfinite(coefficients).all():
        return None
    centers = Centers(span.points, coefficients, kernel)
    paired = slice(None, None, max(1, len(rows) // min(_PAIRED * k, _ALL_PAIRED)))
    if not _holds(centers, rows[paired], own[paired]):
        return None
    return checked_fit(centers, points, weights, sample, recipe, found, shared=SharedPoints(span.points, coefficients))


def _holds(centers: Centers, rows: NDArray[Any], weights: Floats) -> bool:
    """Return whether rows are about as near to their centers as to the means of their clusters.

    The mean squared distance to the mean of a cluster is half of that between two of its rows.
    """
    found = label_in_threads(centers, rows)
    shares = weights / weights.max()  # products of two weights may be too small for float64
    to_centers = to_means = 0.0
    for c in np.unique(found.labels):
        members = np.flatnonzero(found.labels == c)
        if len(members) > 1:
            some = members[:: -(-len(members) // _MOST_PAIRED)]
            pairs = np.outer(shares[some], shares[some])
            np.fill_diagonal(pairs, 0.0)
            squared = distances_between(centers.kernel, rows[some], rows[some])
            to_means += float(shares[members].sum() * 0.5 * (pairs * squared).sum() / pairs.sum())
            to_centers += float(shares[members] @ found.distances[members] ** 2)
    return to_centers <= _MORE_COST * to_means
