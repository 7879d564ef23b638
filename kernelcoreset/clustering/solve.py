"""Clusters of a coreset: several starts, a descent from each, then swaps, on the matrix of squared distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from kernelcoreset.checks import check_at_least, check_count, check_seed
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.problem import Labels, Problem, Solution, check_k, check_power, prepare
from kernelcoreset.clustering.starts import spectral_starts
from kernelcoreset.clustering.swaps import propose_swap
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.seeding import seed_pivots
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.kernel import Kernel, check_kernel

# Swaps tried on the best run. On real data with k = 20 they reduce the distance to the best known cost from 0.5-7 % to
# 0-0.7 %.
_SWAPS, _SWAPS_PER_CENTER = 10, 4


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
        Number of runs from D^z seeds. Further runs start from the leading eigenvectors. The best run is kept and then
        improved by replacing single centers with points that are far from all centers.
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

    Notes
    -----
    Takes s^2 kernel evaluations and s^2 floats of memory, then O(s^2) for the first iteration of a run and, for z = 2,
    O(s) for each point that moves.

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
    starts.extend(spectral_starts(problem, k, generator) if k > 1 else [])
    starts.extend(
        seed_pivots(problem.kernel, problem.cloud, problem.weights, k, z, generator).nearest for _ in range(n_init)
    )
    centers = np.zeros((k, len(problem.weights)))
    best = min((descend(problem, labels, centers, z, max_iter) for labels in starts), key=lambda run: run.cost)
    for _ in range(_SWAPS + _SWAPS_PER_CENTER * k if k > 1 else 0):
        swapped = descend(problem, propose_swap(problem, best, z, generator), centers, z, max_iter)
        best = min(best, swapped, key=lambda run: run.cost)
    if z == 2.0:
        return best
    polished = descend(problem, best.labels, best.coefficients, z, max_iter, polish=True)
    return replace(polished, n_iter=best.n_iter + polished.n_iter, converged=best.converged and polished.converged)
