"""Other ways to cluster many points with a kernel: from points to labels, with scikit-learn where it has the method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.problem import prepare
from kernelcoreset.clustering.solve import solve
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.seeding import seed_pivots
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.families import Gaussian, Polynomial
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.labelling.centers import Centers

Labels = NDArray[np.int32]
Method = Callable[[Floats, int, Kernel, int, int], Labels]
"""points, k, kernel, size (coreset points, landmarks, features or support), seed -> labels of all points."""

_RESTARTS = 10  # for every method, so that none depends on one unlucky seed
_MOST_STEPS = 100


def by_coreset(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """Ours: a coreset, clusters on it, a label for every point."""
    return _on_sample(build_coreset(points, k, kernel, size, seed=seed), points, k, kernel, seed)


def by_uniform_sample(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """The same from a uniform sample."""
    return _on_sample(build_coreset(points, k, kernel, size, seed=seed, draw="uniform"), points, k, kernel, seed)


def _on_sample(sample: Coreset, points: Floats, k: int, kernel: Kernel, seed: int) -> Labels:
    solution = solve(sample, k, kernel, seed=seed, n_init=_RESTARTS)
    return Centers(sample.points, solution.coefficients, kernel).label(points).labels


def on_all_points(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """Kernel k-means++ and Lloyd on all points, the best of as many restarts; `size` is not used."""
    problem = prepare(Coreset(points, np.ones(len(points))), kernel)
    generator = np.random.default_rng(seed)
    centers = np.zeros((k, len(points)))
    seedings = (seed_pivots(kernel, problem.cloud, problem.weights, k, 2.0, generator) for _ in range(_RESTARTS))
    found = (descend(problem, seeding.nearest, centers, 2.0, _MOST_STEPS) for seeding in seedings)
    return min(found, key=lambda run: run.cost).labels


def by_random_features(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """k-means on random Fourier features (scikit-learn's RBFSampler)."""
    from sklearn.kernel_approximation import RBFSampler

    if not isinstance(kernel, Gaussian):
        raise TypeError("Random Fourier features are for the Gaussian kernel.")
    sampler = RBFSampler(gamma=0.5 / kernel.sigma**2, n_components=size, random_state=seed)
    return _k_means(sampler.fit_transform(points), k, seed)


def by_nystroem(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """k-means on Nystroem features with uniform landmarks (scikit-learn's Nystroem)."""
    from sklearn.kernel_approximation import Nystroem

    options: dict[str, Any]
    if isinstance(kernel, Gaussian):
        options = {"kernel": "rbf", "gamma": 0.5 / kernel.sigma**2}
    elif isinstance(kernel, Polynomial):
        options = {"kernel": "poly", "gamma": 1.0, "coef0": kernel.c, "degree": kernel.degree}
    else:
        raise TypeError("scikit-learn knows the Gaussian and the polynomial kernel.")
    return _k_means(Nystroem(n_components=size, random_state=seed, **options).fit_transform(points), k, seed)


def by_leverage_nystroem(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """k-means on Nystroem features whose landmarks are drawn by ridge leverage scores."""
    generator = np.random.default_rng(seed)
    scores = leverage_scores(points, kernel, size, generator)
    drawn = generator.choice(len(points), size=size, replace=False, p=scores / scores.sum())
    return _k_means(landmark_features(points, points[drawn], kernel), k, seed)


def leverage_scores(points: Floats, kernel: Kernel, size: int, generator: np.random.Generator) -> Floats:
    """Return approximate ridge leverage scores, from a uniform sample of as many points as landmarks are wanted.

    With sample S and ridge r: score(x) = (K(x,x) - K(x,S) (K(S,S) + r I)^-1 K(S,x)) / r, what is
    outside the span of S. The ridge is the mean of the smaller half of the eigenvalues of K(S,S).
    """
    sample = points[generator.choice(len(points), size=size, replace=False)]
    among = kernel.block(sample, sample)
    values, vectors = np.linalg.eigh(among)
    ridge = max(float(values[: size // 2].clip(min=0.0).mean()), 1e-10 * float(values[-1]))
    across = kernel.block(points, sample) @ vectors
    known = (across**2 / (values.clip(min=0.0) + ridge)).sum(axis=1)
    scores: Floats = np.maximum(kernel.diagonal(points) - known, 0.0) / ridge
    scores += 1e-12 * scores.max() + np.finfo(float).tiny  # every point can be drawn
    return scores


def landmark_features(points: Floats, landmarks: Floats, kernel: Kernel) -> Floats:
    """Return K(X,S) K(S,S)^-1/2, the points' coordinates in the span of the landmarks, shape (n, m)."""
    values, vectors = np.linalg.eigh(kernel.block(landmarks, landmarks))
    kept = values > 1e-10 * values[-1]
    features: Floats = kernel.block(points, landmarks) @ (vectors[:, kept] / np.sqrt(values[kept]))
    return features


def by_sampled_centers(points: Floats, k: int, kernel: Kernel, size: int, seed: int) -> Labels:
    """Approximate kernel k-means (Chitta, Jin, Havens, Jain): centers in the span of a uniform sample, all points move.

    Center c is sum_j a_cj phi(s_j) with a = U K(X,S) K(S,S)^-1, U the normalised indicators of the clusters: a step
    costs O(n m k), and the n x m matrix is kept.
    """
    generator = np.random.default_rng(seed)
    sample = points[generator.choice(len(points), size=size, replace=False)]
    across = kernel.block(points, sample)
    inverse = np.linalg.pinv(kernel.block(sample, sample), rcond=1e-10, hermitian=True)
    best, least = np.zeros(len(points), dtype=np.int32), np.inf
    cloud = evaluator_of(kernel).cloud(as_columns(points))
    for _ in range(_RESTARTS):
        labels = seed_pivots(kernel, cloud, np.ones(len(points)), k, 2.0, generator).nearest
        for _ in range(_MOST_STEPS):
            counts = np.bincount(labels, minlength=k)[:, np.newaxis]
            means = (np.eye(k)[labels].T @ across) / np.maximum(counts, 1)
            coefficients = means @ inverse
            away = np.einsum("cj,cj->c", coefficients, means) - 2.0 * across @ coefficients.T
            away[:, counts[:, 0] == 0] = np.inf
            moved = away.argmin(axis=1).astype(np.int32)
            if np.array_equal(moved, labels):
                break
            labels = moved
        cost = float(away.min(axis=1).sum())
        if cost < least:
            best, least = labels, cost
    return best


def by_mini_batches(points: Floats, k: int, kernel: Kernel, size: int, seed: int, *, steps: int = 100) -> Labels:
    """Mini-batch kernel k-means: centers follow the means of small batches, and remember their last `size` points.

    Batches have size / 2 points, at least 2 k. Cluster c, which b_c of b points fall to, moves by sqrt(b_c / b) towards
    their mean; what is older than its last `size` points is forgotten and the rest scaled to a sum of 1.
    """
    generator = np.random.default_rng(seed)
    batch_size = min(len(points), max(2 * k, size // 2))
    start = points[generator.choice(len(points), size=min(len(points), max(size, k)), replace=False)]
    seeds = seed_pivots(
        kernel, evaluator_of(kernel).cloud(as_columns(start)), np.ones(len(start)), k, 2.0, generator
    ).pivots
    supports = [start[[own]] for own in np.resize(seeds, k)]
    shares = [np.ones(1) for _ in range(k)]
    for _ in range(steps):
        batch = points[generator.choice(len(points), size=batch_size, replace=False)]
        labels = _nearest(batch, supports, shares, kernel)
        for c in range(k):
            own = batch[labels == c]
            if len(own):
                rate = np.sqrt(len(own) / batch_size)
                supports[c] = np.concatenate([own, supports[c]])[:size]
                share = np.concatenate([np.full(len(own), rate / len(own)), (1.0 - rate) * shares[c]])[:size]
                shares[c] = share / share.sum()
    return _nearest(points, supports, shares, kernel)


def _nearest(points: Floats, supports: list[Floats], shares: list[Floats], kernel: Kernel) -> Labels:
    offsets = np.cumsum([0, *map(len, supports)])
    coefficients = np.zeros((len(supports), offsets[-1]))
    for c, share in enumerate(shares):
        coefficients[c, offsets[c] : offsets[c + 1]] = share
    all_support = np.concatenate(supports)
    own = [float(share @ kernel.block(s, s) @ share) for s, share in zip(supports, shares, strict=True)]
    labels = np.empty(len(points), dtype=np.int32)
    for first in range(0, len(points), 4_096):
        part = points[first : first + 4_096]
        labels[first : first + 4_096] = (own - 2.0 * kernel.block(part, all_support) @ coefficients.T).argmin(axis=1)
    return labels


def _k_means(features: Floats, k: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(k, n_init=_RESTARTS, random_state=seed).fit(features).labels_, dtype=np.int32)


def partition_cost(points: Floats, labels: NDArray[Any], kernel: Kernel) -> float:
    """Return the exact cost of a partition: sum over clusters of 1/(2 n_c) sum of all squared distances inside."""
    cost = 0.0
    for c in np.unique(labels):
        own = points[labels == c]
        inside = sum(
            float(kernel.squared_distances(own[first : first + 4_096], own).sum())
            for first in range(0, len(own), 4_096)
        )
        cost += inside / (2.0 * len(own))
    return cost
