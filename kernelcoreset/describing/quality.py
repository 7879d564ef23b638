"""How good a clustering is as a whole, judged on its coreset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.choosing_k import weighted_rand_index
from kernelcoreset.clustering.trials import Trials, structureless
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.points import distances_among
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.products import products_pay

_MOST_POINTS = 1_000
_MOST_REFERENCE_POINTS = 500
_SPLITS = 3
RESTARTS = 3
"""Of the clusterings of halves: with one, a bad start would look like clusters that are not there."""

Labeller = Callable[[Floats], NDArray[Any]]


@one_blas_thread()
def quality_of(
    coreset: Coreset,
    labels: NDArray[Any],
    fit: Callable[[Coreset], Labeller],
    kernel: Kernel | None,
    *,
    places: Floats | None = None,
    seed: int = 0,
) -> dict[str, float | None]:
    """Return what can be said of a clustering as a whole; at most 1,000 points of the coreset are used.

    Parameters
    ----------
    coreset : Coreset
    labels : ndarray of shape (s,)
    fit : function
        Clusters another coreset in the same way, and returns what labels points.
    kernel : Kernel or None
        None if there is no feature space: then nothing is said about variance and silhouette.
    places : ndarray of shape (s, d), optional
        The points whose nearest neighbors random walks follow; those of the coreset by default.
    seed : int

    Returns
    -------
    dict
        `explained`, the share of the variance in the feature space that lies between the clusters; `silhouette`, the
        weighted mean of (b - a) / b, with a and b the distances to the nearest and the next center; `stability`, the
        agreement of the clusterings of two halves (1 if they agree); `persistence`, how long random walks over nearest
        neighbors stay in their cluster, against chance; `separation`, by how much the silhouette is larger than that of
        the same fit to data without clusters of the same mean and covariance. Where clusters are not round in the
        feature space of the kernel (cuts), `separation` is by how much the persistence is larger.
    """
    chosen = np.arange(len(coreset))
    if len(coreset) > _MOST_POINTS:
        chosen = np.sort(np.random.default_rng(seed).choice(len(coreset), _MOST_POINTS, replace=False))
    points, weights, labels = coreset.points[chosen], coreset.weights[chosen], labels[chosen]
    places = points if places is None else places[chosen]
    if kernel is not None and places.shape == points.shape:
        points = places = _in_their_span(points, kernel)
    k = len(np.unique(labels))
    explained, silhouette = (None, None) if kernel is None else _in_feature_space(points, weights, labels, kernel)
    if k == 1:
        return {"explained": explained, **dict.fromkeys(("silhouette", "stability", "persistence", "separation"))}
    trials = Trials.of(places, weights, seed=seed)
    persistence = trials.walks.persistence(labels, int(labels.max()) + 1)
    if (
        kernel is None or silhouette is None or places.shape != points.shape
    ):  # a cut: its points have their degree beside them
        separation = persistence - trials.reference(k) if k < len(trials) else None
    else:
        separation = _above_chance(silhouette, Coreset(points, weights), fit, kernel, seed)
    return {
        "explained": explained,
        "silhouette": silhouette,
        "stability": _stability(Coreset(points, weights), fit, k, seed),
        "persistence": persistence,
        "separation": separation,
    }


def _in_their_span(points: Floats, kernel: Kernel) -> Floats:
    """Points of more coordinates than there are points in as many coordinates, which changes no inner product."""
    if points.shape[1] <= len(points) or not products_pay(kernel, points.shape[1]):
        return points
    triangle: Floats = np.asarray(np.linalg.qr(points.T, mode="r"))
    return np.ascontiguousarray(triangle.T)


def _in_feature_space(
    points: Floats, weights: Floats, labels: NDArray[Any], kernel: Kernel
) -> tuple[float | None, float | None]:
    """Share of the variance between the clusters, and the silhouette by centers."""
    squared = distances_among(kernel, points)
    total = float(weights @ squared @ weights / (2.0 * weights.sum()))
    clusters = np.unique(labels)
    shares = np.where(labels == clusters[:, np.newaxis], weights, 0.0)
    shares /= shares.sum(axis=1, keepdims=True)
    # |x - c|^2 = sum_j a_j |x - s_j|^2 - 1/2 sum_jl a_j a_l |s_j - s_l|^2 for a center c = sum_j a_j s_j.
    to_points = shares @ squared
    to_centers = np.maximum(to_points - 0.5 * np.sum(to_points * shares, axis=1, keepdims=True), 0.0)
    own = to_centers[np.searchsorted(clusters, labels), np.arange(len(labels))]
    explained = 1.0 - float(weights @ own) / total if total > 0.0 else None
    if len(clusters) == 1:
        return explained, None
    nearest, second = np.sqrt(np.partition(to_centers, 1, axis=0)[:2])
    gaps = np.divide(second - nearest, second, out=np.zeros_like(second), where=second > 0)
    return explained, float(np.average(gaps, weights=weights))


def _above_chance(
    silhouette: float, coreset: Coreset, fit: Callable[[Coreset], Labeller], kernel: Kernel, seed: int
) -> float | None:
    """The silhouette minus the larger one that the same fit reaches in a Gaussian and in a box of the same spread."""
    count = min(len(coreset), _MOST_REFERENCE_POINTS)
    some = np.linspace(0, len(coreset) - 1, count).astype(np.int64)
    found = []
    for cloud in structureless(coreset.points[some], coreset.weights[some], count, seed):
        even = Coreset(cloud, np.ones(count))
        try:
            labels = fit(even)(even.points)
        except DataError:  # the kernel does not tell k points of such data apart, so there is nothing to compare with
            return None
        _, reached = _in_feature_space(even.points, even.weights, labels, kernel)
        found.append(0.0 if reached is None else reached)
    return silhouette - max(found)


def _stability(coreset: Coreset, fit: Callable[[Coreset], Labeller], k: int, seed: int) -> float | None:
    """How well the clusterings of two random halves agree on all points, on average."""
    generator = np.random.default_rng(seed)
    agreements = []
    for _ in range(_SPLITS):
        order = generator.permutation(len(coreset))
        halves = [np.sort(order[part::2]) for part in (0, 1)]
        if min(len(np.unique(coreset.points[half], axis=0)) for half in halves) < k:
            return None
        found = [fit(Coreset(coreset.points[half], coreset.weights[half]))(coreset.points) for half in halves]
        agreements.append(weighted_rand_index(found[0], found[1], coreset.weights))
    return float(np.mean(agreements))
