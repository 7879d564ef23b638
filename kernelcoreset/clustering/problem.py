"""A coreset made ready for solving, and what a solver returns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_spread, coarse_columns, describe_coarse_columns, scaled_weights
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.evaluator import LEAST, as_columns, evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.passes import Cloud

Labels = NDArray[np.int32]

MAX_POINTS = 20_000
"""Most points of a coreset that can be solved; the matrix of their squared distances takes 3.2 GB."""

_EIGENVALUE_POINTS = 2_000
_COARSE = 1e-10  # of kernel values: distances computed from them have an error of about 1e-14


class Problem(NamedTuple):
    """A coreset prepared for solving with any k and z: points, weights and all squared distances."""

    kernel: Kernel
    cloud: Cloud
    weights: Floats
    squared: Floats
    unit: float = 1.0
    """What the weights were divided by: 1 unless they are very small or very large. Costs are multiplied by it."""


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
    check_spread(coreset.points, "coreset points")
    columns = as_columns(coreset.points)
    evaluator_of(kernel).check(columns)
    _warn_if_indefinite(kernel, columns)
    squared = kernel.squared_distances(coreset.points, coreset.points)
    make_symmetric(squared)
    if 0.0 < squared.max() < LEAST:
        raise evaluator_of(kernel).underflow("squared distances", columns)
    cloud = evaluator_of(kernel).cloud(columns)
    _warn_if_coarse(kernel, coreset.points, cloud, squared)
    # numba would compile the loops again for read-only weights: copy them.
    weights, unit = scaled_weights(coreset.weights.copy())
    return Problem(kernel, cloud, weights, squared, unit)


def check_k(problem: Problem, k: int) -> None:
    """Raise DataError if k is larger than the number of distinct points."""
    distinct = count_distinct(problem.squared, k)
    if distinct < k:
        points = problem.cloud.columns.T
        coarse = coarse_columns(points)
        hint = f" {describe_coarse_columns(points, coarse)}" if coarse else ""
        if not coarse and distinct == 1 and np.ptp(points, axis=0).any():
            hint = (
                f" The points differ, but the kernel distances of all of them are 0 in float64: {problem.kernel!r} "
                "does not tell them apart. Scale the points, or use a kernel of another width."
            )
        raise DataError(
            f"`k` must be at most the number of distinct coreset points ({distinct}, counting points at kernel "
            f"distance 0 once); got {k}. Ask for fewer clusters or a larger coreset.{hint}"
        )


def check_power(problem: Problem, z: float) -> None:
    """Raise KernelError if distances^z do not fit in float64."""
    largest = float(problem.squared.max())
    with np.errstate(over="ignore"):
        power = np.float64(largest) ** (0.5 * z)
    if not np.isfinite(power):
        raise evaluator_of(problem.kernel).overflow(f"distance^z, z = {z:g}", problem.cloud.columns)
    if largest > 0.0 and power < LEAST:
        raise evaluator_of(problem.kernel).underflow(f"distance^z, z = {z:g}", problem.cloud.columns)


def _warn_if_coarse(kernel: Kernel, points: Floats, cloud: Cloud, squared: Floats) -> None:
    """Warn if float64 cannot tell the points apart well: in a column, or in the values of a user's function."""
    coarse = coarse_columns(points)
    if coarse:
        warnings.warn(describe_coarse_columns(points, coarse), UserWarning, stacklevel=4)
    norms = 2.0 * float(cloud.diagonals.max()) if evaluator_of(kernel).is_user else 0.0
    if 0.0 < squared.max() < _COARSE * norms:
        column = int(np.argmax(np.abs(points).max(axis=0)))
        warnings.warn(
            f"Kernel values of up to {0.5 * norms:g} are too large for squared distances of at most {squared.max():g}: "
            f"{kernel!r} leaves them fewer than 4 digits. Subtract its mean from column {column} (and from others with "
            "a large offset), or use a kernel of x - y such as Gaussian.",
            UserWarning,
            stacklevel=4,
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
