"""Clusters on a coreset: weighted kernel k-means++, Lloyd and local search on the matrix of squared distances."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_at_least, check_count, check_seed
from kernelcoreset.clustering.lloyd import Labels, count_distinct, descend_means, make_symmetric
from kernelcoreset.clustering.weiszfeld import descend_centers, measure_centers, swap_center
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.seeding import seed_pivots
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.families import Linear
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops.passes import Cloud

MAX_POINTS = 20_000
"""More points than this and the matrix of squared distances would exceed 3.2 GB."""

# Swaps tried on the best run. On real data they bring k = 20 from 0.5-7 % above the best known cost to 0-0.7 %.
_SWAPS, _SWAPS_PER_CENTER = 10, 4
_EIGENVALUE_POINTS = 2_000
_LANCZOS_STEPS, _LOOKS = 40, 4  # steps at most; every so many, a look whether it is near enough
_NEAR = 1e-5  # of the largest eigenvalue
_PLAIN_RUNS = 3
_PLAIN_STEPS = 10


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver leaves behind: a cluster for every coreset point, and the k centers.

    Center c is sum_j coefficients[c, j] phi(points[j]); its coefficients sum to 1, and are 0 outside its own cluster.
    """

    labels: NDArray[np.int32]
    """Cluster of each coreset point, shape (s,)."""
    coefficients: Floats
    """Centers as combinations of the coreset points, shape (k, s)."""
    cost: float
    """sum w dist^z over the coreset."""
    n_iter: int
    """Iterations of the best run."""
    converged: bool
    """Whether the best run came to rest within `max_iter`."""

    def __post_init__(self) -> None:
        self.labels.setflags(write=False)
        self.coefficients.setflags(write=False)


class Problem(NamedTuple):
    """A coreset made ready for solving with any k and z: points, weights and all squared distances."""

    kernel: Kernel
    cloud: Cloud
    weights: Floats
    squared: Floats


def solve(
    coreset: Coreset,
    k: int,
    kernel: Kernel,
    *,
    z: float = 2.0,
    n_init: int = 10,
    max_iter: int = 300,
    seed: int = 0,
    start: ArrayLike | None = None,
) -> Solution:
    """Return the best k clusters found for a coreset: a local optimum of sum_x w_x min_c dist(x, c)^z.

    Parameters
    ----------
    coreset : Coreset
        At most 20,000 points.
    k : int
        At most the number of distinct points.
    kernel : Kernel
    z : float
        At least 1; 2 is k-means, 1 is k-median.
    n_init : int
        Runs from D^z seeds, besides one from the leading eigenvectors. The best is kept and then improved by swapping
        single centers for points that are far from all of them.
    max_iter : int
        Iterations a run may take; `converged` says whether the best one needed them all.
    seed : int
        Same seed, same input, same solution.
    start : array-like of shape (s,), optional
        Labels 0..k-1 for one more run. The result costs no more than they do.

    Returns
    -------
    Solution
        Every point is in the cluster of its nearest center, and no single point lowers the cost by moving (z = 2).

    Notes
    -----
    Costs s^2 kernel evaluations and as many floats of memory, then O(s^2) for the first iteration of a run and, for
    z = 2, O(s) for each point that moves.

    Examples
    --------
    >>> from kernelcoreset import Coreset, Linear
    >>> solution = solve(Coreset([[0.0], [1.0], [10.0]], [1.0, 1.0, 5.0]), 2, Linear())
    >>> solution.cost, bool(solution.labels[0] == solution.labels[1])
    (0.5, True)
    """
    kernel, k = check_kernel(kernel), check_count("k", k)
    z = check_at_least("z", z, 1.0, "Use z=2 for k-means, z=1 for k-median.")
    n_init, max_iter = check_count("n_init", n_init), check_count("max_iter", max_iter)
    generator = np.random.default_rng(check_seed(seed))
    problem = prepare(coreset, kernel)
    refuse_too_many(problem, k)
    own_start = None if start is None else _check_start(start, len(coreset), k)
    return _solve(problem, k, z, n_init, max_iter, generator, own_start)


def prepare(coreset: Coreset, kernel: Kernel) -> Problem:
    """Return the problem with its squared distances; warns where the kernel is none."""
    if not isinstance(coreset, Coreset):
        raise SettingError(
            f"`coreset` must be a Coreset; got {type(coreset).__name__}. Wrap points as Coreset(points, weights)."
        )
    if len(coreset) == 0:
        raise DataError("`coreset` must have at least one point; got none.")
    if len(coreset) > MAX_POINTS:
        raise DataError(
            f"`coreset` must have at most {MAX_POINTS:,} points, for a matrix of all their distances; got "
            f"{len(coreset):,}. Reduce it first with merge_coresets([coreset], ..., size=...)."
        )
    columns = as_columns(coreset.points)
    evaluator_of(kernel).check(columns)
    _warn_if_indefinite(kernel, columns)
    squared = kernel.squared_distances(coreset.points, coreset.points)
    make_symmetric(squared)
    # A read-only array is another type to the compiled loops: a copy spares compiling them twice.
    return Problem(kernel, evaluator_of(kernel).cloud(columns), coreset.weights.copy(), squared)


def refuse_too_many(problem: Problem, k: int) -> None:
    """Refuse more clusters than there are distinct points."""
    distinct = count_distinct(problem.squared, k)
    if distinct < k:
        raise DataError(
            f"`k` must be at most the number of distinct coreset points ({distinct}, counting points at kernel "
            f"distance 0 once); got {k}. Ask for fewer clusters or a larger coreset."
        )


def _check_start(start: ArrayLike, s: int, k: int) -> Labels:
    labels = np.asarray(start)
    if labels.shape != (s,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"`start` must be whole numbers of shape ({s},), a label for every coreset point; "
            f"got dtype {labels.dtype}, shape {labels.shape}."
        )
    if labels.min() < 0 or labels.max() >= k:
        raise DataError(f"`start` must hold labels from 0 to k - 1 ({k - 1}); got {labels.min()} to {labels.max()}.")
    return labels.astype(np.int32)


def _warn_if_indefinite(kernel: Kernel, columns: Floats) -> None:
    """Built-in kernels are positive semidefinite by proof; a user's function may only look like one."""
    if not evaluator_of(kernel).is_user:
        return
    some = np.unique(np.linspace(0, columns.shape[1] - 1, _EIGENVALUE_POINTS).astype(np.int64))
    few = np.ascontiguousarray(columns[:, some])
    eigenvalues = np.linalg.eigvalsh(evaluator_of(kernel).block(few, np.ascontiguousarray(few.T)))
    if eigenvalues[0] < -1e-10 * len(some) * np.abs(eigenvalues).max():
        warnings.warn(
            f"{kernel!r} is not positive semidefinite: the most negative eigenvalue of the Gram matrix of "
            f"{len(some)} points is {eigenvalues[0]:g} (the largest {eigenvalues[-1]:g}). "
            "Distances to centers lose their meaning; mend the function.",
            UserWarning,
            stacklevel=4,
        )


def _solve(
    problem: Problem, k: int, z: float, n_init: int, max_iter: int, generator: np.random.Generator, start: Labels | None
) -> Solution:
    """Best of all starts, then local search. Assumes validated input."""
    starts = [] if start is None else [start]
    starts.extend(_spectral_starts(problem, k, generator) if k > 1 else [])
    starts.extend(
        seed_pivots(problem.kernel, problem.cloud, problem.weights, k, z, generator).nearest for _ in range(n_init)
    )
    centers = np.zeros((k, len(problem.weights)))
    best = min((descend(problem, labels, centers, z, max_iter) for labels in starts), key=lambda run: run.cost)
    for _ in range(_SWAPS + _SWAPS_PER_CENTER * k if k > 1 else 0):
        swapped = descend(problem, _swap(problem, best, z, generator), centers, z, max_iter)
        best = min(best, swapped, key=lambda run: run.cost)
    if z == 2.0:
        return best
    polished = descend(problem, best.labels, best.coefficients, z, max_iter, polish=True)
    return replace(polished, n_iter=best.n_iter + polished.n_iter, converged=best.converged and polished.converged)


def descend(
    problem: Problem, labels: Labels, coefficients: Floats, z: float, max_iter: int, *, polish: bool = False
) -> Solution:
    """One run from the given labels to a local optimum; the coefficients to begin with matter for z != 2 only."""
    squared, weights = problem.squared, problem.weights
    labels, coefficients = labels.copy(), coefficients.copy()
    if z == 2.0:
        cost, steps, converged = descend_means(squared, weights, labels, len(coefficients), max_iter)
        coefficients[:] = 0.0
        coefficients[labels, np.arange(len(labels))] = weights
        coefficients /= coefficients.sum(axis=1, keepdims=True)
    else:
        cost, steps, converged = descend_centers(squared, weights, labels, z, max_iter, polish, coefficients)
    if not np.isfinite(cost):
        raise evaluator_of(problem.kernel).overflow("the clustering cost")
    return Solution(labels, coefficients, float(cost), int(steps), bool(converged))


def _swap(problem: Problem, solution: Solution, z: float, generator: np.random.Generator) -> Labels:
    """Labels with one center replaced by a point drawn by D^z from the centers."""
    to_centers = np.empty_like(solution.coefficients)
    measure_centers(problem.squared, solution.coefficients.copy(), to_centers)
    to_centers **= 0.5 * z
    mass = np.cumsum(problem.weights * to_centers.min(axis=0))
    candidate = min(int(np.searchsorted(mass, generator.random() * mass[-1], side="right")), len(mass) - 1)
    labels = np.empty_like(solution.labels)
    swap_center(problem.squared, problem.weights, to_centers, candidate, z, labels)
    return labels


def _spectral_starts(problem: Problem, k: int, generator: np.random.Generator) -> list[Labels]:
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
