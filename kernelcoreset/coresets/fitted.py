"""Costs of points for center sets that are means of clusters, from distances to a few landmarks alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.recipe import Recipe

Singles = NDArray[np.float32]
Indices = NDArray[np.int64]

_MOST_LANDMARKS = 64
_AXES = 16
_SAMPLE = 256  # points in a sample, or four per cluster if that is more
_PER_CLUSTER = 4
_STEPS = 6
_SMALLEST = 1e-6  # eigenvalue, by the largest one: single precision knows no smaller ones


def fitted_costs(
    squared: Singles,
    places: Indices,
    weights: Floats,
    recipe: Recipe,
    count: int,
    generator: np.random.Generator,
) -> Singles:
    """Return distance^z of points to the nearest center of sets that are near those of good clusterings.

    Each set has the means of k clusters of a small random sample of the points, found by Lloyd's algorithm. Points are
    embedded in the span of the landmarks (Nystroem's method); what a point has outside of it adds to its distance to
    all means alike.

    Parameters
    ----------
    squared : ndarray of shape (landmarks, m)
        Squared distances to the landmarks.
    places : ndarray of shape (landmarks,)
        Which columns are the landmarks themselves.
    weights : ndarray of shape (m,)
    recipe : Recipe
        Its k and z.
    count : int
        Center sets.
    generator : numpy Generator

    Returns
    -------
    ndarray of shape (count, m)
    """
    chosen = slice(None, None, -(-len(places) // _MOST_LANDMARKS))
    squared, places = squared[chosen], places[chosen]
    axes, norms = _embedded(squared[:, places].astype(np.float64), squared)
    size = max(_SAMPLE, _PER_CLUSTER * recipe.k)
    whole = np.cumsum(weights)
    drawn = np.searchsorted(whole, generator.random((count, size)) * whole[-1], side="right")
    drawn = np.minimum(drawn, len(weights) - 1)
    means = _cluster_means(np.ascontiguousarray(axes.T)[drawn], norms[drawn], recipe.k, generator)
    costs = np.empty((count, len(weights)), dtype=np.float32)
    for own, some in zip(costs, means, strict=True):
        own[:] = _inner(some, axes).min(axis=0)
    costs += norms
    np.maximum(costs, 0.0, out=costs)
    return costs if recipe.z == 2.0 else costs ** np.float32(0.5 * recipe.z)


def _embedded(between: Floats, squared: Singles) -> tuple[Singles, Singles]:
    """Coordinates of the points around the mean of the landmarks, shape (axes, points), and squared distances to it."""
    between = 0.5 * (between + between.T)
    means = between.mean(axis=0)
    gram = 0.5 * (means[:, None] + means - between - means.mean())
    values, vectors = np.linalg.eigh(gram)
    kept = np.flatnonzero(values > _SMALLEST * max(values[-1], 0.0))[-_AXES:]
    onto = 0.5 * (vectors[:, kept] / np.sqrt(values[kept])).T
    axes: Singles = (onto @ means).astype(np.float32)[:, None] - onto.astype(np.float32) @ squared
    norms = squared.mean(axis=0) - np.float32(0.5 * means.mean())
    return axes, norms


def _inner(means: Singles, axes: Singles) -> Singles:
    """|mean|^2 - 2 <mean, point>: shape (..., means, points)."""
    found: Singles = np.multiply(means, -2.0, dtype=np.float32) @ axes
    found += np.einsum("...a,...a->...", means, means)[..., None]
    return found


def _cluster_means(points: Singles, norms: Singles, k: int, generator: np.random.Generator) -> Singles:
    """Means of k clusters of each sample: points of shape (samples, size, axes), D^2 seeding, a few Lloyd steps."""
    samples, size, _ = points.shape
    every = np.arange(samples)
    across = np.ascontiguousarray(points.transpose(0, 2, 1))
    means = np.empty((samples, k, points.shape[2]), dtype=np.float32)
    nearest = np.full((samples, size), np.inf, dtype=np.float32)
    drawn = generator.random((samples, k))
    seeds = np.zeros(samples, dtype=np.int64)  # the first of a random sample is random
    for c in range(k):
        means[:, c] = points[every, seeds]
        np.minimum(nearest, _inner(means[:, c : c + 1], across)[:, 0] + norms, out=nearest)
        whole = np.cumsum(np.maximum(nearest, 0.0), axis=1, dtype=np.float64)
        seeds = np.minimum((whole <= (drawn[:, c] * whole[:, -1])[:, None]).sum(axis=1), size - 1)
    for _ in range(_STEPS):
        squared = _inner(means, across)
        # A point is in the clusters of all means that are nearest. These are equal, and stay so.
        members = np.equal(squared, squared.min(axis=1, keepdims=True)).astype(np.float32)
        sizes = members.sum(axis=2, keepdims=True)
        np.copyto(means, (members @ points) / np.maximum(sizes, 1.0), where=sizes > 0)
    return means
