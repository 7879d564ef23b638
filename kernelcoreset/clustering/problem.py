"""A coreset made ready for solving, and what a solver returns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.passes import Cloud

Labels = NDArray[np.int32]

MAX_POINTS = 20_000
"""Most points of a coreset that can be solved; the matrix of their squared distances takes 3.2 GB."""

_EIGENVALUE_POINTS = 2_000


class Problem(NamedTuple):
    """A coreset prepared for solving with any k and z: points, weights and all squared distances."""

    kernel: Kernel
    cloud: Cloud
    weights: Floats
    squared: Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solver: a cluster for every coreset point, and the k centers.

    Center c is sum_j coefficients[c, j] phi(points[j]). Its coefficients sum to 1, and are 0 for points of other
    clusters.
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
    """Whether the best run converged within `max_iter` iterations."""

    def __post_init__(self) -> None:
        self.labels.setflags(write=False)
        self.coefficients.setflags(write=False)


def prepare(coreset: Coreset, kernel: Kernel) -> Problem:
    """Return the problem of a coreset; warn if a user's function is not positive semidefinite."""
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
    # numba would compile the loops again for read-only weights: copy them.
    return Problem(kernel, evaluator_of(kernel).cloud(columns), coreset.weights.copy(), squared)


def check_k(problem: Problem, k: int) -> None:
    """Raise DataError if k is larger than the number of distinct points."""
    distinct = count_distinct(problem.squared, k)
    if distinct < k:
        raise DataError(
            f"`k` must be at most the number of distinct coreset points ({distinct}, counting points at kernel "
            f"distance 0 once); got {k}. Ask for fewer clusters or a larger coreset."
        )


def _warn_if_indefinite(kernel: Kernel, columns: Floats) -> None:
    """Warn if a user's function is not positive semidefinite; built-in kernels are, by proof."""
    if not evaluator_of(kernel).is_user:
        return
    some = np.unique(np.linspace(0, columns.shape[1] - 1, _EIGENVALUE_POINTS).astype(np.int64))
    few = np.ascontiguousarray(columns[:, some])
    eigenvalues = np.linalg.eigvalsh(evaluator_of(kernel).block(few, np.ascontiguousarray(few.T)))
    if eigenvalues[0] < -1e-10 * len(some) * np.abs(eigenvalues).max():
        warnings.warn(
            f"{kernel!r} is not positive semidefinite: the most negative eigenvalue of the Gram matrix of "
            f"{len(some)} points is {eigenvalues[0]:g} (the largest {eigenvalues[-1]:g}). "
            "Distances to centers have no meaning then; fix the function.",
            UserWarning,
            stacklevel=4,
        )


@compiled()
def make_symmetric(squared: Floats) -> None:
    """Average D with its transpose and set the diagonal to 0, in place."""
    for i in range(squared.shape[0]):
        squared[i, i] = 0.0
        for j in range(i):
            mean = 0.5 * (squared[i, j] + squared[j, i])
            squared[i, j] = mean
            squared[j, i] = mean


@compiled()
def count_distinct(squared: Floats, enough: int) -> int:
    """Number of distinct points, those at distance 0 counted once; counting stops at `enough`."""
    found = np.empty(enough, dtype=np.int64)
    count = 0
    for i in range(squared.shape[0]):
        fresh = True
        for f in range(count):
            if squared[i, found[f]] <= 0.0:
                fresh = False
                break
        if fresh:
            found[count] = i
            count += 1
            if count == enough:
                break
    return count
