"""Clusters of a coreset: several starts, a descent from each, then swaps; on explicit vectors or all distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from kernelcoreset.checks import check_at_least, check_count, check_seed
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.features import is_written_out
from kernelcoreset.clustering.finish import descend_exactly, partition_costs
from kernelcoreset.clustering.lloyd import ROUNDING
from kernelcoreset.clustering.means import (
    Run,
    Vectors,
    descend_rows,
    no_means,
    place_means,
    vectors_of,
    without_last_columns,
)
from kernelcoreset.clustering.problem import Labels, Problem, Solution, check_k, check_power, mean_shares, prepare
from kernelcoreset.clustering.search import search
from kernelcoreset.clustering.starts import component_starts, spectral_starts
from kernelcoreset.clustering.swaps import SWAPS, SWAPS_PER_CENTER, prices_of, propose_swap
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.seeding import seed_by_matrix
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel

# With no more points and clusters than these, the matrix of their distances is small enough for the processor's cache.
_FEW_POINTS, _FEW_CLUSTERS = 500, 32
# Up to so many points, vectors of more than an eighth as many numbers take longer than the matrix.
_MATRIX_POINTS, _NUMBERS = 4_000, 1 / 8
# Mean cost of a point, of the largest squared norm, below which rounding shows in the ninth digit of the cost.
_COARSE = 1e-4
# Share of the cost that the search does not see in the columns it leaves out; the last steps see all columns.
_UNSEEN = 1e-3


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
        Up to about 50,000 points with z = 2 if the kernel has a low rank on them (see Notes); otherwise as many as a
        matrix of all distances in half of the machine's memory allows.
    k : int
        At most the number of distinct points.
    kernel : Kernel
    z : float
        At least 1; 2 is k-means, 1 is k-median.
    n_init : int
        Number of runs from D^z seeds. Up to 32 clusters, further runs start from the leading eigenvectors. The best
        run is kept and then improved by replacing single centers with points that are far from all centers. If s * k
        is large, runs that are behind after two iterations are not continued, and fewer runs and replacements are
        tried: with many clusters, one run is about as good as another.
    max_iter : int
        Largest number of iterations per run; `converged` says whether the best run ended before.
    seed : int
        The same seed and input give the same solution.
    start : array-like of shape (s,), optional
        Labels 0..k-1 for one more run. The result costs no more than they do.

    Returns
    -------
    Solution
        Every point is in the cluster of its nearest center. For z = 2, moving any single point does not lower the cost.
        Both up to rounding, if `converged`. `cost` is that of the kernel itself, whatever the search used.

    Notes
    -----
    With z = 2 the points are written out as vectors of r numbers with the same distances: the (scaled) points
    themselves for Linear and Cosine, a pivoted Cholesky factor with r <= 512 for other kernels. That takes s * r kernel
    evaluations and s * r floats of memory, and at most O(s k r) per iteration, as a matrix product.

    If 512 numbers are not enough (a kernel that is sharp for its data), the search works on what they keep, and the
    best run goes on with the matrix of all distances, which takes s^2 kernel evaluations and s^2 floats. Above 10,000
    points, or if there is no memory for it, all distances are evaluated once, block by block; the result may then not
    be `converged`.

    Other z, and up to 32 clusters of up to 500 points (4,000, if they need more than s / 8 numbers), use the matrix
    throughout: O(s^2) for the first iteration of a run and, for z = 2, O(s) for each point that moves.

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
    check_k(problem, k)
    check_power(problem, z)
    labels = None if start is None else _check_start(start, len(coreset), k)
    return solve_problem(problem, k, z, n_init, max_iter, generator, labels)


def _check_start(start: ArrayLike, s: int, k: int) -> Labels:
    labels = np.asarray(start)
    if labels.shape != (s,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"`start` must be whole numbers of shape ({s},), one label per coreset point; "
            f"got dtype {labels.dtype}, shape {labels.shape}."
        )
    if labels.min() < 0 or labels.max() >= k:
        raise DataError(f"`start` must hold labels from 0 to k - 1 ({k - 1}); got {labels.min()} to {labels.max()}.")
    return labels.astype(np.int32)


def solve_problem(
    problem: Problem,
    k: int,
    z: float,
    n_init: int,
    max_iter: int,
    generator: np.random.Generator,
    start: Labels | None = None,
) -> Solution:
    """Return the best of all runs, improved by swaps. Assumes validated input."""
    starts = [] if start is None else [start]
    s = len(problem.weights)
    few = s <= _FEW_POINTS or (z == 2.0 and s <= _MATRIX_POINTS and not problem.has_rank(int(s * _NUMBERS)))
    if z == 2.0 and not (few and k <= _FEW_CLUSTERS):
        return solve_by_features(problem, k, n_init, max_iter, generator, starts)
    return _solve_by_matrix(problem, k, z, n_init, max_iter, generator, starts)


def _solve_by_matrix(
    problem: Problem,
    k: int,
    z: float,
    n_init: int,
    max_iter: int,
    generator: np.random.Generator,
    starts: list[Labels],
) -> Solution:
    """Return the best of all runs on the matrix of squared distances."""
    starts = [*starts, *(spectral_starts(problem, k, generator) if k > 1 else [])]
    starts.extend(seed_by_matrix(problem.squared, problem.weights, k, z, generator).nearest for _ in range(n_init))
    centers = np.zeros((k, len(problem.weights)))
    # A run from labels that another one started from would end as that one did.
    begun = {labels.tobytes(): labels for labels in starts}
    first, *others = begun.values()
    best, prices = descend(problem, first, centers, z, max_iter), None
    for labels in others:
        best = _better(best, descend(problem, labels, centers, z, max_iter, beat=best.cost))
    for _ in range(SWAPS + SWAPS_PER_CENTER * k if k > 1 else 0):
        prices = prices_of(problem, best, z) if prices is None else prices
        labels = propose_swap(problem, prices, k, z, generator)
        if labels.tobytes() in begun:
            continue
        begun[labels.tobytes()] = labels
        swapped = _better(best, descend(problem, labels, centers, z, max_iter, beat=best.cost))
        best, prices = swapped, prices if swapped is best else None
    if z == 2.0:
        return best
    polished = descend(problem, best.labels, best.coefficients, z, max_iter, polish=True)
    return replace(polished, n_iter=best.n_iter + polished.n_iter, converged=best.converged and polished.converged)


def _better(best: Solution, other: Solution) -> Solution:
    """Return the solution that costs less; the first one if the difference is rounding."""
    return other if other.cost < best.cost * (1.0 - ROUNDING) else best


def _narrowed(vectors: Vectors, starts: list[Labels], k: int) -> Vectors:
    """Return vectors without their last columns, as far as these matter little beside the cost of the starts.

    Columns are principal components, with falling variances.
    """
    means, away = no_means(k, vectors.rows.shape[1]), np.empty(len(vectors.weights))
    everywhere = np.ones(k, dtype=np.bool_)
    cost = min(place_means(vectors, labels, means, everywhere, away) for labels in starts)
    return without_last_columns(vectors, _UNSEEN * cost)


def solve_by_features(
    problem: Problem, k: int, n_init: int, max_iter: int, generator: np.random.Generator, given: list[Labels]
) -> Solution:
    """Return the best of all runs on explicit vectors of the points, for z = 2. Assumes validated input.

    If the vectors leave out a part of the kernel, the best run goes on with the kernel's own distances.
    """
    features = problem.features
    leading = np.ascontiguousarray(features.rows[:, : features.leading])
    vectors = vectors_of(leading, problem.weights)
    starts = [*given, *(component_starts(vectors, k, generator) if 1 < k <= _FEW_CLUSTERS else [])]
    if starts and not is_written_out(problem.kernel):
        vectors = _narrowed(vectors, starts, k)
    run = search(vectors, k, starts, n_init, max_iter, generator)
    if not features.exact:
        # Given labels may be better than they seem without what is left out.
        runs = [run, *(Run(labels, np.inf, 0, False) for labels in given)]
        return min((descend_exactly(problem, own, k, max_iter) for own in runs), key=lambda found: found.cost)
    if vectors.rows.shape[1] < features.rows.shape[1]:
        end = descend_rows(vectors_of(features.rows, problem.weights), run.labels, k, max_iter)
        run = end._replace(steps=run.steps + end.steps)
    cost = run.cost * features.unit**2
    if run.cost < _COARSE * problem.weights.sum() and not is_written_out(problem.kernel):
        cost = partition_costs(problem, run.labels, k).sum()  # rounding is relative to the longest vector
    cost *= problem.unit
    if not np.isfinite(cost):
        raise evaluator_of(problem.kernel).overflow("the clustering cost", problem.cloud.columns)
    shares = mean_shares(problem.weights, run.labels, k)
    return Solution(run.labels, shares, k, float(cost), run.steps, run.converged)
