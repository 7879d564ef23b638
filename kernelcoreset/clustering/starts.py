"""Starting labels from the leading kernel principal components."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.problem import Labels, Problem
from kernelcoreset.coresets.seeding import seed_pivots
from kernelcoreset.kernels.evaluator import as_columns
from kernelcoreset.kernels.families import Linear
from kernelcoreset.kernels.loops.passes import Cloud

_LANCZOS_STEPS, _LOOKS = 40, 4  # steps at most; every so many, a look whether it is near enough
_NEAR = 1e-5  # of the largest eigenvalue
_PLAIN_RUNS = 3
_PLAIN_STEPS = 10


def spectral_starts(problem: Problem, k: int, generator: np.random.Generator) -> list[Labels]:
    """Labels by k-means in the leading kernel principal components: all of them, and each alone.

    Sharp kernels have many poor local optima, and seeds see single points only; the components see the whole. One alone
    may hold the clusters (two rings differ in one component, and vary more in two others).
    """
    components = _principal_components(problem, k, generator)
    views = [components[:, :k], components[:, : k - 1], *np.split(components, components.shape[1], axis=1)]
    return [plain_k_means(np.ascontiguousarray(view), problem.weights, k, generator) for view in views]


def plain_k_means(
    points: Floats,
    weights: Floats,
    k: int,
    generator: np.random.Generator,
    runs: int = _PLAIN_RUNS,
    start: Labels | None = None,
) -> Labels:
    """Labels from the best of a few short runs of Lloyd on points that are written out, O(s k) a step."""
    cloud = Cloud(as_columns(points), np.empty(0))
    best, least = np.zeros(len(points), dtype=np.int32), np.inf
    for run in range(runs):
        if start is not None and run == 0:
            labels = start
        else:
            labels = seed_pivots(Linear(), cloud, weights, k, 2.0, generator).nearest
        for _ in range(_PLAIN_STEPS):
            masses = np.zeros((k, len(labels)))
            masses[labels, np.arange(len(labels))] = weights
            centers = masses @ points / np.maximum(masses.sum(axis=1, keepdims=True), np.finfo(float).tiny)
            away = np.square(centers).sum(axis=1) - 2.0 * points @ centers.T
            labels = away.argmin(axis=1).astype(np.int32)
        cost = float(weights @ away.min(axis=1))
        if cost < least:
            best, least = labels, cost
    return best


def _principal_components(problem: Problem, k: int, generator: np.random.Generator) -> Floats:
    """The k + 4 leading kernel principal components, shape (s, k + 4), by block Lanczos: near enough to start.

    Where clusters are chains of neighbours, as in a sharp normalized kernel, leading eigenvalues differ in the fourth
    digit only: powers of the matrix alone would take thousands of steps, the space they span takes some tens.
    """
    share = problem.weights / problem.weights.sum()
    root = np.sqrt(share)[:, np.newaxis]

    def times(block: Floats) -> Floats:
        """sqrt(w) (centered Gram matrix) sqrt(w) @ block, the Gram matrix being -1/2 of D centered on both sides."""
        inner = root * block
        inner -= share[:, np.newaxis] * inner.sum(axis=0)
        outer = -0.5 * (problem.squared @ inner)
        outer -= share @ outer
        product: Floats = root * outer
        return product

    s = len(share)
    width = min(k + 4, s)
    block = np.linalg.qr(generator.normal(size=(s, width)))[0]
    basis = images = np.empty((s, 0))
    for step in range(_LANCZOS_STEPS):
        basis, images = np.hstack([basis, block]), np.hstack([images, times(block)])
        is_last = step == _LANCZOS_STEPS - 1 or basis.shape[1] + width > s
        if is_last or step % _LOOKS == _LOOKS - 1:
            values, vectors = np.linalg.eigh(basis.T @ images)
            vectors = vectors[:, -width:]
            off = images @ vectors[:, -k:] - basis @ vectors[:, -k:] * values[-k:]
            if is_last or np.linalg.norm(off, axis=0).max() < _NEAR * values[-1]:
                break
        block = images[:, -width:]
        for _ in range(2):  # once leaves rounding behind that would bring the same vectors again
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
    scores = basis @ vectors * np.sqrt(np.maximum(values[-width:], 0.0))
    components: Floats = (scores / root)[:, ::-1]
    return components
