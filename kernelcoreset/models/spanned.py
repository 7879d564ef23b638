"""A fit of many clusters with a kernel whose centers cannot be written out: in the span of a few points.

A coreset of 20 points per cluster gives each center from these points alone. Here a center is a combination of some
hundred points that all centers share, near to the mean of all rows of its cluster, and labels take fewer kernel values.
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
from kernelcoreset.models.sampled import SampledFit, checked_fit, draw_rows, sample_pays, search_vectors
from kernelcoreset.models.shared_points import SharedPoints

_LEAST_CLUSTERS = 50  # with fewer, a coreset has more points per cluster
_LEAST_POINTS, _POINTS_PER_CLUSTER = 256, 5  # with 3 the cost of embeddings was 0.6 % higher
_LEAST_LEADING = 192  # coordinates for the search, or one per cluster if that is more
_PAIRED = 64  # rows per cluster whose distances show what the span leaves out
_MOST_PAIRED = 1024  # rows of one cluster, so that a cluster of most rows needs no matrix of all their pairs
_MORE_COST = 1.1  # of a row to its center in the span, relative to that to the mean of its cluster


def span_pays(n: int, d: int, recipe: Recipe) -> bool:
    """Return whether a fit of n rows of d columns in the span of a few points is faster than one by a coreset."""
    return (
        recipe.k >= _LEAST_CLUSTERS
        and products_pay(recipe.kernel, d)
        and not is_written_out(recipe.kernel)
        and sample_pays(n, recipe)
    )


def fit_by_span(points: NDArray[Any], weights: Floats, recipe: Recipe) -> SampledFit | None:
    """Return a fit whose centers are in the span of 5k points, and of at least 256, for z = 2. Assumes validated input.

    The points are those of a rough coreset of a sample, so that every cluster has some. The sample is clustered in
    coordinates of the span, as in `fit_by_sample`, then all rows are labelled.

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
    half, size = len(rows) // 2, max(_LEAST_POINTS, _POINTS_PER_CLUSTER * k)
    chosen = build_rough_coreset(rows[:half], k, kernel, size, weights=own[:half], seed=recipe.seed)
    span = span_of(kernel, chosen.points)
    if span is None:
        return None
    vectors = span.coordinates(rows)
    if not np.isfinite(vectors).all():
        return None
    leading = np.ascontiguousarray(vectors[:, : max(k, _LEAST_LEADING)])
    found = search_vectors(leading, own, k, generator)
    coefficients = span.coefficients(means_of(found.labels, k, vectors, own, Linear()))
    centers = Centers(span.points, coefficients, kernel)
    some = slice(None, None, max(1, len(rows) // (_PAIRED * k)))
    if not _holds(centers, rows[some], own[some]):
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
