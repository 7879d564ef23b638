"""A coreset made ready for solving, and what a solver returns."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_spread, coarse_columns, describe_coarse_columns, scaled_weights
from kernelcoreset.clustering.distances import all_distances, distances_from
from kernelcoreset.clustering.features import Features, explicit_features
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.evaluator import LEAST, as_columns, evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.passes import Cloud

Labels = NDArray[np.int32]

_MEMORY_SHARE = 0.5
_RANK = 512  # of explicit vectors; an exact factor of this rank costs less than a matrix of all distances
_LARGEST_POINTS = 16
_DISTINCT_BLOCK = 512
_EIGENVALUE_POINTS = 2_000
_COARSE = 1e-10  # of kernel values: distances computed from them have an error of about 1e-14


@dataclass(frozen=True, eq=False)
class Problem:
    """A coreset prepared for solving with any k and z."""

    kernel: Kernel
    cloud: Cloud
    weights: Floats
    largest: float
    """Largest squared distance between points, or at least a quarter of it."""
    unit: float = 1.0
    """What the weights were divided by: 1 unless they are very small or very large. Costs are multiplied by it."""

    @cached_property
    def squared(self) -> Floats:
        """All squared distances, shape (s, s); computed when first used. A DataError if they do not fit in memory."""
        s, most = len(self.weights), most_points()
        if s > most:
            raise DataError(
                f"`coreset` must have at most {most:,} points for a matrix of all their distances, which may take half "
                f"of this machine's memory; got {s:,}. Reduce it first with merge_coresets([coreset], ..., size=...). "
                "With z = 2, a kernel of low rank (Linear, Cosine, a polynomial, a wide Gaussian) needs no such matrix."
            )
        return all_distances(self.kernel, self.cloud.columns)

    @cached_property
    def features(self) -> Features:
        """The points as explicit vectors, exact if the kernel has a low rank; computed when first used."""
        return explicit_features(self.kernel, self.cloud, self.weights, _RANK, np.random.default_rng(0))

    def has_rank(self, most: int) -> bool:
        """Return whether explicit vectors of at most `most` numbers, or those of a formula, are exact: the features."""
        if "features" not in vars(self):
            found = explicit_features(self.kernel, self.cloud, self.weights, most, np.random.default_rng(0))
            if not found.exact:
                return False
            vars(self)["features"] = found
        return self.features.exact

    def part(self, rows: NDArray[np.int64]) -> Problem:
        """Return the problem of some of the points. It takes its distances from the matrix of all, if that is there."""
        diagonals = self.cloud.diagonals
        cloud = Cloud(
            np.ascontiguousarray(self.cloud.columns[:, rows]), diagonals[rows] if len(diagonals) else diagonals
        )
        some = replace(self, cloud=cloud, weights=self.weights[rows])
        if "squared" in vars(self):
            vars(some)["squared"] = np.ascontiguousarray(self.squared[np.ix_(rows, rows)])
        return some


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solver: a cluster for every coreset point, and the k centers.

    The center of a cluster is the sum of shares[j] phi(points[j]) over its own points. Immutable.
    """

    labels: NDArray[np.int32]
    """Cluster of each coreset point, shape (s,)."""
    shares: Floats
    """Coefficient of each point in the center of its cluster, shape (s,). Those of a cluster sum to 1."""
    k: int
    """Number of clusters."""
    cost: float
    """sum w dist^z over the coreset."""
    n_iter: int
    """Iterations of the best run."""
    converged: bool
    """Whether the best run converged within `max_iter` iterations."""

    def __post_init__(self) -> None:
        self.labels.setflags(write=False)
        self.shares.setflags(write=False)

    @property
    def coefficients(self) -> Floats:
        """Centers as combinations of all coreset points, shape (k, s), 0 for points of other clusters.

        Made of `labels` and `shares` whenever it is asked for: for k = 5,000 and s = 50,000 it takes 2 GB.
        """
        dense = np.zeros((self.k, len(self.labels)))
        dense[self.labels, np.arange(len(self.labels))] = self.shares
        return dense


def mean_shares(weights: Floats, labels: Labels, k: int) -> Floats:
    """Return the coefficients of the points in the means of their clusters, shape (s,)."""
    shares: Floats = weights / np.bincount(labels, weights, minlength=k)[labels]
    return shares


def most_points() -> int:
    """Return the largest number of points whose squared distances take at most half of the memory of this machine.

    A limit of a container counts as its memory.
    """
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        memory = min(memory, float(text))
    return int(np.sqrt(_MEMORY_SHARE * memory / 8.0))


def prepare(coreset: Coreset, kernel: Kernel) -> Problem:
    """Return the problem of a coreset; warn if a user's function is not positive semidefinite."""
    if not isinstance(coreset, Coreset):
        raise SettingError(
            f"`coreset` must be a Coreset; got {type(coreset).__name__}. Wrap points as Coreset(points, weights)."
        )
    if len(coreset) == 0:
        raise DataError("`coreset` must have at least one point; got none.")
    check_spread(coreset.points, "coreset points")
    columns = as_columns(coreset.points)
    evaluator_of(kernel).check(columns)
    _warn_if_indefinite(kernel, columns)
    cloud = evaluator_of(kernel).cloud(columns)
    some = np.unique(np.linspace(0, len(coreset) - 1, _LARGEST_POINTS).astype(np.int64))
    # By the triangle inequality no distance is more than twice the largest one to a fixed point.
    largest = float(distances_from(kernel, columns, some).max())
    if 0.0 < largest < LEAST:
        raise evaluator_of(kernel).underflow("squared distances", columns)
    _warn_if_coarse(kernel, coreset.points, cloud, largest)
    # numba would compile the loops again for read-only weights: copy them.
    weights, unit = scaled_weights(coreset.weights.copy())
    return Problem(kernel, cloud, weights, largest, unit)


def check_k(problem: Problem, k: int) -> None:
    """Raise DataError if k is larger than the number of distinct points."""
    distinct = count_distinct(problem, k)
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
    largest = problem.largest if z == 2.0 else float(problem.squared.max())
    with np.errstate(over="ignore"):
        power = np.float64(largest) ** (0.5 * z)
    if not np.isfinite(power):
        raise evaluator_of(problem.kernel).overflow(f"distance^z, z = {z:g}", problem.cloud.columns)
    if largest > 0.0 and power < LEAST:
        raise evaluator_of(problem.kernel).underflow(f"distance^z, z = {z:g}", problem.cloud.columns)


def _warn_if_coarse(kernel: Kernel, points: Floats, cloud: Cloud, largest: float) -> None:
    """Warn if float64 cannot tell the points apart well: in a column, or in the values of a user's function."""
    coarse = coarse_columns(points)
    if coarse:
        warnings.warn(describe_coarse_columns(points, coarse), UserWarning, stacklevel=4)
    norms = 2.0 * float(cloud.diagonals.max()) if evaluator_of(kernel).is_user else 0.0
    if 0.0 < largest < _COARSE * norms:
        column = int(np.argmax(np.abs(points).max(axis=0)))
        warnings.warn(
            f"Kernel values of up to {0.5 * norms:g} are too large for squared distances of at most {largest:g}: "
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


def count_distinct(problem: Problem, enough: int) -> int:
    """Return the number of distinct points, those at distance 0 counted once; counting stops at `enough`."""
    columns, found = problem.cloud.columns, np.empty(0, dtype=np.int64)
    # Mostly the first few points are enough.
    ends = [*range(min(8 * enough, _DISTINCT_BLOCK), columns.shape[1], _DISTINCT_BLOCK), columns.shape[1]]
    for low, high in pairwise([0, *ends]):
        block = np.arange(low, high)
        known = np.ascontiguousarray(columns[:, np.concatenate([found, block])])
        squared = distances_from(problem.kernel, known, len(found) + np.arange(len(block)))
        fresh = np.zeros(len(block), dtype=np.bool_)
        mark_distinct(squared, len(found), fresh)
        found = np.concatenate([found, block[fresh]])
        if len(found) >= enough:
            return enough
    return len(found)


@compiled()
def mark_distinct(squared: Floats, known: int, fresh: NDArray[np.bool_]) -> None:
    """Mark the points of a block that are at distance 0 from no known point and from no marked one before.

    Columns of `squared` are the known points, then the block itself.
    """
    for i in range(len(fresh)):
        fresh[i] = True
        for j in range(known + i):
            if squared[i, j] <= 0.0 and (j < known or fresh[j - known]):
                fresh[i] = False
                break
