"""Starting labels from the leading kernel principal components."""

from __future__ import annotations

from inspect import signature

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.features import principal_axes
from kernelcoreset.clustering.means import Vectors
from kernelcoreset.clustering.problem import Labels, Problem
from kernelcoreset.coresets.seeding import draw_point
from kernelcoreset.kernels.jit import compiled

_SPARE_COMPONENTS = 4
# Shares of the largest eigenvalue: how near an eigenvector must be, and what is rounding.
_NEAR, _ROUNDING = 1e-5, 1e-12
_PLAIN_RUNS = 3
_PLAIN_STEPS = 10
_MANY_COLUMNS, _SUBSPACE_STEPS = 512, 6


def spectral_starts(problem: Problem, k: int, generator: np.random.Generator) -> list[Labels]:
    """Return starting labels by k-means in the leading kernel principal components: in all of them, and in each alone.

    Sharp kernels have many poor local optima. Seeds are single points, while components depend on all points. One
    component alone may separate the clusters: two rings differ in one component, and vary more in two others.
    """
    components = principal_components(problem, k, generator)
    return _starts_in(components, problem.weights, k, generator)


def component_starts(vectors: Vectors, k: int, generator: np.random.Generator) -> list[Labels]:
    """Return the same as `spectral_starts` for explicit vectors, whose components are a product of matrices."""
    rows, weights = vectors.rows, vectors.weights
    count = k + _SPARE_COMPONENTS
    if rows.shape[1] > _MANY_COLUMNS:  # all axes would take O(r^3)
        axes = _leading_axes(rows, weights, count, generator)
    else:
        axes = principal_axes(rows, weights)[0][:, :count]
    components = rows @ axes
    return _starts_in(components, weights, k, generator)


def _starts_in(components: Floats, weights: Floats, k: int, generator: np.random.Generator) -> list[Labels]:
    """Return labels in all of the components, and in each alone; one column has few poor optima, so one run will do."""
    several = [(view, _PLAIN_RUNS) for view in (components[:, :k], components[:, : k - 1])]
    single = [(view, 1) for view in np.split(components, components.shape[1], axis=1)]
    return [
        plain_k_means(np.ascontiguousarray(view), weights, k, generator, runs) for view, runs in [*several, *single]
    ]


def _leading_axes(rows: Floats, weights: Floats, count: int, generator: np.random.Generator) -> Floats:
    """Return nearly the axes of the leading principal components, by a few steps of subspace iteration."""
    share = (weights / weights.sum())[:, np.newaxis]
    axes = generator.normal(size=(rows.shape[1], count))
    for _ in range(_SUBSPACE_STEPS):
        axes, _ = np.linalg.qr(rows.T @ (share * (rows @ axes)))
    inside, _ = principal_axes(rows @ axes, weights)
    leading: Floats = axes @ inside
    return leading


def plain_k_means(
    points: Floats,
    weights: Floats,
    k: int,
    generator: np.random.Generator,
    runs: int = _PLAIN_RUNS,
    start: Labels | None = None,
) -> Labels:
    """Return labels of the best of a few short runs of k-means on explicit vectors, O(s k d) per step.

    `start` replaces the D^2 seeds of the first run.
    """
    # Copies of what is read-only: loops are compiled once for each kind of array.
    points, weights = (np.require(array, requirements=["C", "W"]) for array in (points, weights))
    best, least = np.zeros(len(points), dtype=np.int32), np.inf
    for run in range(runs):
        if start is not None and run == 0:
            labels = start.astype(np.int32)
        else:
            labels = np.zeros(len(points), dtype=np.int32)
            seed_points(points, weights, generator.random(k), labels)
        cost = _lloyd(points, weights, labels, np.empty((k, points.shape[1])))
        if cost < least:
            best, least = labels, cost
    return best


@compiled()
def seed_points(points: Floats, weights: Floats, uniforms: Floats, labels: Labels) -> None:
    """Write the nearest of a few points, drawn by weight times squared distance to those drawn before (k-means++).

    There are as many as uniform numbers, or fewer if all points are at distance 0 of one. `labels` begin with 0.
    """
    away, mass = np.empty(len(points)), weights.copy()
    for c in range(len(uniforms)):
        seed = draw_point(mass, uniforms[c])
        left = 0.0
        for i in range(len(points)):
            squared = 0.0
            for j in range(points.shape[1]):
                squared += (points[i, j] - points[seed, j]) ** 2
            if c == 0 or squared < away[i]:
                away[i], labels[i] = squared, c
            mass[i] = weights[i] * away[i]
            left += mass[i]
        if left <= 0.0:
            break


def _lloyd(points: Floats, weights: Floats, labels: Labels, centers: Floats) -> float:
    """Improve labels in place by a few steps of k-means; return their cost, less a constant."""
    for _ in range(_PLAIN_STEPS):
        place_centers(points, weights, labels, centers)
        moved, cost = label_nearest(points @ centers.T, centers, weights, labels)
        if not moved:
            break
    return float(cost)


@compiled()
def place_centers(points: Floats, weights: Floats, labels: Labels, centers: Floats) -> None:
    """Write the means of the clusters; that of an empty one is the origin."""
    k, d = centers.shape
    mass = np.zeros(k)
    for c in range(k):
        for j in range(d):
            centers[c, j] = 0.0
    for i in range(len(labels)):
        mass[labels[i]] += weights[i]
        for j in range(d):
            centers[labels[i], j] += weights[i] * points[i, j]
    for c in range(k):
        if mass[c] > 0.0:
            for j in range(d):
                centers[c, j] /= mass[c]


@compiled()
def label_nearest(products: Floats, centers: Floats, weights: Floats, labels: Labels) -> tuple[int, float]:
    """Write the nearest center of every point; return how many points moved, and the cost less sum_x w_x |x|^2.

    products[i, c] = <point, center>.
    """
    k, d = centers.shape
    norms = np.zeros(k)
    for c in range(k):
        for j in range(d):
            norms[c] += centers[c, j] * centers[c, j]
    moved, cost = 0, 0.0
    for i in range(len(labels)):
        nearest, least = 0, np.inf
        for c in range(k):
            away = norms[c] - 2.0 * products[i, c]
            if away < least:
                nearest, least = c, away
        cost += weights[i] * least
        if labels[i] != nearest:
            labels[i] = nearest
            moved += 1
    return moved, cost


def principal_components(problem: Problem, k: int, generator: np.random.Generator) -> Floats:
    """Return the leading kernel principal components, shape (s, at most k + 4), up to a common factor.

    They are eigenvectors of M = sqrt(w) G sqrt(w), with G the centered Gram matrix, which is -1/2 D centered on both
    sides. Components that are zero up to rounding are left out: a linear kernel has as many as there are columns.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh  # slow to import, and executors never solve

    share = problem.weights / problem.weights.sum()
    root = np.sqrt(share)
    factor = -0.5 / problem.squared.max()  # clusters do not depend on the scale, and products stay within range

    def multiply(vector: Floats) -> Floats:
        """Return M @ vector."""
        inner = root * vector
        inner -= share * inner.sum()
        outer = factor * (problem.squared @ inner)
        outer -= share @ outer
        product: Floats = root * outer
        return product

    s = len(share)
    start = multiply(generator.normal(size=s))
    # ARPACK's tolerance is relative to each eigenvalue, and one that is zero never meets it. With about the largest
    # eigenvalue added to all of them, it is relative to that.
    shift = np.linalg.norm(multiply(start)) / np.linalg.norm(start)
    shifted = LinearOperator((s, s), matvec=lambda v: multiply(v.ravel()) + shift * v.ravel(), dtype=np.float64)
    # Since SciPy 1.17 eigsh draws from fresh entropy where the matrix has low rank, unless it gets a generator.
    seeded = {"rng": generator} if "rng" in signature(eigsh).parameters else {}
    count = min(k + _SPARE_COMPONENTS, s - 1)  # a centered matrix has rank s - 1 at most
    values, vectors = eigsh(shifted, count, which="LA", v0=start, tol=_NEAR, **seeded)
    values, vectors = values[::-1] - shift, vectors[:, ::-1]
    kept = values > _ROUNDING * values[0]
    components: Floats = vectors[:, kept] * np.sqrt(values[kept]) / root[:, np.newaxis]
    return components
