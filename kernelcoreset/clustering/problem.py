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
"""More points than this and the matrix of squared distances would exceed 3.2 GB."""

_EIGENVALUE_POINTS = 2_000


class Problem(NamedTuple):
    """A coreset made ready for solving with any k and z: points, weights and all squared distances."""

    kernel: Kernel
    cloud: Cloud
    weights: Floats
    squared: Floats


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


def check_k(problem: Problem, k: int) -> None:
    """Refuse more clusters than there are distinct points."""
    distinct = count_distinct(problem.squared, k)
    if distinct < k:
        raise DataError(
            f"`k` must be at most the number of distinct coreset points ({distinct}, counting points at kernel "
            f"distance 0 once); got {k}. Ask for fewer clusters or a larger coreset."
        )


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


@compiled()
def make_symmetric(squared: Floats) -> None:
    """Average D with its transpose and clear the diagonal, in place."""
    for i in range(squared.shape[0]):
        squared[i, i] = 0.0
        for j in range(i):
            mean = 0.5 * (squared[i, j] + squared[j, i])
            squared[i, j] = mean
            squared[j, i] = mean


@compiled()
def count_distinct(squared: Floats, enough: int) -> int:
    """Number of points that are pairwise at a distance above zero, counted up to `enough`."""
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
