"""The degree of a point, its mean similarity to the data, by which the normalized kernel divides.

A degree is an inner product with one center, the mean of the sample in the feature space. So the landmark ladder that
makes labelling cheap makes degrees cheap too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_count, check_points, check_same_dimension, check_seed, check_weights
from kernelcoreset.errors import DataError, FormatError, KernelError
from kernelcoreset.files.tables import float_column, table_from_bytes, table_to_bytes, vector_column
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops import passes, tiles
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Landmarks, Rows
from kernelcoreset.labelling.landmarks import Chunk, Ladder, SparseCenters, chunks, direct_work, is_semidefinite

DEGREE_SAMPLE = 1_000
"""Default number of points that degrees are estimated from."""
ACCURACY = 1e-3
"""Largest relative error of an estimated degree against the plain mean over the sample, proved for every point.

The mean over a sample of 1,000 has a standard error of about 3 %, so this error is small in comparison."""

_NEVER_NEGATIVE = (
    operations.GAUSSIAN,
    operations.EXPONENTIAL,
    operations.LAPLACIAN,
    operations.MATERN32,
    operations.MATERN52,
)
_COMBINES = (operations.ADD, operations.MULTIPLY, operations.SCALE)


@dataclass(frozen=True, eq=False)
class Degrees:
    """Degrees of any points, estimated from a sample of the data. Immutable.

    degree(x) = max(sum_j share_j K(x, s_j), K(x, x) / total): the mean similarity of x to the sample, and at least the
    part that x itself adds to the mean. Times `total` it estimates D_ii, the sum of a row of the similarity matrix.

    Parameters
    ----------
    points : array-like of shape (m, d)
        The sample s_j.
    weights : array-like of shape (m,)
        Their weights in the data; shares are weights over their sum.
    kernel : Kernel
        A similarity: positive semidefinite, and never negative on the sample.
    total : float
        Total weight of the data.
    exact : bool
        Whether the sample is all the data. Then degrees are evaluated directly.

    Examples
    --------
    >>> from kernelcoreset import Gaussian
    >>> Degrees([[0.0], [9.0]], [3.0, 1.0], Gaussian(sigma=1.0), total=4.0, exact=True).of([[0.0], [9.0]]).round(6)
    array([0.75, 0.25])
    """

    points: Floats
    weights: Floats
    kernel: Kernel
    total: float
    exact: bool = False

    def __post_init__(self) -> None:
        kernel = check_kernel(self.kernel)
        points = np.array(check_points(self.points, "degree sample"), order="C")
        weights = np.array(check_weights(self.weights, len(points), "weights of the degree sample"))
        _refuse_if_no_similarity(kernel, points)
        for array in (points, weights):
            array.setflags(write=False)
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)

    def __reduce__(self) -> tuple[Any, ...]:
        # What was prepared is not pickled; it is prepared again on demand.
        return Degrees, (self.points, self.weights, self.kernel, self.total, self.exact)

    def __repr__(self) -> str:
        m, d = self.points.shape
        return f"Degrees({m} points in {d} dimensions, {self.kernel!r}{', exact' if self.exact else ''})"

    @staticmethod
    def estimate(
        points: ArrayLike,
        kernel: Kernel,
        *,
        weights: ArrayLike | None = None,
        sample: int | None = DEGREE_SAMPLE,
        seed: int = 0,
    ) -> Degrees:
        """Return degrees against a uniform sample of the points.

        Parameters
        ----------
        points : array-like of shape (n, d)
        kernel : Kernel
        weights : array-like of shape (n,), optional
        sample : int or None
            Points drawn without replacement among those of positive weight. With None, or if there are no more points
            than this, all are taken: then degrees are exact and cost n kernel evaluations each.
        seed : int

        Returns
        -------
        Degrees

        Examples
        --------
        >>> import numpy as np
        >>> from kernelcoreset import Gaussian
        >>> points = np.random.default_rng(0).normal(size=(5_000, 2))
        >>> Degrees.estimate(points, Gaussian(sigma=1.0), sample=200)
        Degrees(200 points in 2 dimensions, Gaussian(sigma=1.0))
        """
        points = check_points(points)
        weights = check_weights(weights, len(points))
        if sample is not None:
            check_count("degree_sample", sample, 2, "Or None, for exact degrees.")
        positive = np.flatnonzero(weights)
        exact = sample is None or sample >= len(positive)
        if not exact:
            chosen = np.random.default_rng(check_seed(seed)).choice(len(positive), size=sample, replace=False)
            positive = positive[np.sort(chosen)]
        return Degrees(points[positive], weights[positive], kernel, float(weights.sum()), exact)

    def of(self, points: ArrayLike) -> Floats:
        """Return the degree of every point, above 0, shape (n,).

        Within 1e-3 of the mean over the sample, proved for every point. Costs a few kernel evaluations per point if
        the kernel is smooth, one per point of the sample if it is sharp or degrees are `exact`.
        """
        array = check_points(points)
        check_same_dimension("points", array.shape[1], self.points.shape[1], "the degree sample")
        return self._of(array.T)

    # --- assumes validated input --------------------------------------------------------------------------------------

    def lift(self, columns: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
        """Return columns with their degree as one more row, shape (d + 1, n), and weights times degree, shape (n,).

        These are the points and weights of the normalized kernel. Assumes validated input.
        """
        d, n = columns.shape
        lifted = np.empty((d + 1, n))
        lifted[:d] = columns
        lifted[d] = self._of(columns)
        return lifted, lifted[d].copy() if weights is None else lifted[d] * weights

    def _of(self, columns: Floats) -> Floats:
        degrees = np.empty(columns.shape[1])
        for chunk in chunks(self.kernel, columns.T):
            own = degrees[chunk.some]
            self.ladder.run(chunk, (own,))
            np.maximum(own, chunk.cloud.diagonals / self.total, out=own)
        self._refuse_if_isolated(columns, degrees)
        return degrees

    def _refuse_if_isolated(self, columns: Floats, degrees: Floats) -> None:
        bad = ~((degrees > 0.0) & np.isfinite(degrees))
        if not bad.any():
            return
        first = int(np.argmax(bad))
        if np.isfinite(degrees[first]):
            raise DataError(
                f"Every point must be similar to some point, at least to itself; {self.kernel!r} gives degree "
                f"{degrees[first]:g} at {int(bad.sum())} of {len(bad)} points, the first {columns[:, first].tolist()}. "
                "Drop these points, or use a kernel that is above 0 everywhere, such as Gaussian or a polynomial "
                "with c > 0."
            )
        raise evaluator_of(self.kernel).overflow("the degree of a point", columns)

    @cached_property
    def _combinations(self) -> Combinations:
        m = len(self.points)
        shares = self.weights / self.weights.sum()
        return Combinations(
            Rows(self.points.copy(), np.empty(0)), np.arange(m + 1), np.zeros(m, dtype=np.int64), shares
        )

    @cached_property
    def ladder(self) -> Ladder[tuple[Floats]]:
        """How means over the sample are found; prepared once, from the sample alone, and never pickled."""
        method = _Mean(self.kernel, self._combinations)
        if self.exact:
            return Ladder(method)
        columns = as_columns(self.points)
        evaluator = evaluator_of(self.kernel)
        products = np.empty((1, len(self.points)))
        diagonals = evaluator.diagonal(columns)
        passes.sum_directly(evaluator.values, Cloud(columns, diagonals), self._combinations, False, products)
        shares = self._combinations.factors[np.newaxis]
        mean = SparseCenters(self.points, shares, diagonals, products)
        direct = direct_work(self._combinations, 1)
        return Ladder.choose(self.kernel, mean, method, direct, trial=len(self.points))

    # --- as a file ----------------------------------------------------------------------------------------------------

    def to_parquet(self) -> bytes:
        """Return the sample as a Parquet file with `total` and `exact` in its metadata, but without the kernel."""
        m, d = self.points.shape
        offsets = pa.array(np.arange(m + 1, dtype=np.int32) * d)
        points = pa.ListArray.from_arrays(offsets, pa.array(self.points.ravel()))
        about = {"total": repr(self.total), "exact": str(int(self.exact)), "dimension": str(d)}
        table = pa.table({"point": points, "weight": self.weights}).replace_schema_metadata(about)
        return table_to_bytes(table)

    @staticmethod
    def from_parquet(content: bytes, kernel: Kernel) -> Degrees:
        """Return the degrees that `to_parquet` wrote, or raise FormatError."""
        name = "The degree sample of the model"
        table = table_from_bytes(content, name)
        about: Mapping[bytes, bytes] = table.schema.metadata or {}
        try:
            dimension, total, exact = int(about[b"dimension"]), float(about[b"total"]), about[b"exact"] == b"1"
            if not 0.0 < total < math.inf:
                raise ValueError(f"its total weight is {total}")
            points = vector_column(table, "point", name, dimension)
            return Degrees(points, float_column(table, "weight", name), kernel, total, exact)
        except FormatError:
            raise
        except (KeyError, ValueError) as error:
            raise FormatError(f"{name} is damaged ({error}). Save the model again.") from None


@dataclass(frozen=True, eq=False)
class _Mean:
    """What a ladder computes for degrees: the mean similarity of a point to the sample."""

    kernel: Kernel
    combinations: Combinations

    def new(self, n: int) -> tuple[Floats]:
        return (np.empty(n),)

    def by_landmarks(self, landmarks: Landmarks, cloud: Cloud, out: tuple[Floats], sure: NDArray[np.bool_]) -> float:
        passes.sum_by_landmarks(evaluator_of(self.kernel).values, cloud, landmarks, ACCURACY, out[0], sure)
        return ACCURACY

    def directly(self, chunk: Chunk, out: tuple[Floats]) -> tuple[int, float]:
        program = evaluator_of(self.kernel).values
        passes.sum_directly(program, chunk.cloud, self.combinations, False, out[0][np.newaxis])
        return 0, 0.0


def is_never_negative(kernel: Kernel) -> bool:
    """Return whether the formula of a kernel is at least 0 for all points."""
    program = evaluator_of(kernel).values
    return all(
        code in _NEVER_NEGATIVE
        or code in _COMBINES
        or (code == operations.POLYNOMIAL and program.parameters[start + 1] % 2 == 0)
        for code, start in program.operations
    )


def _refuse_if_no_similarity(kernel: Kernel, points: Floats) -> None:
    """Raise KernelError unless the kernel is positive semidefinite and at least 0, by its formula or on the sample."""
    columns = as_columns(points)
    evaluator_of(kernel).check(columns)
    if not is_semidefinite(kernel, points):
        raise KernelError(
            f"Spectral clustering needs a positive semidefinite kernel; {kernel!r} has a negative eigenvalue on a "
            "sample of the points. Fix the function, or use a kernel such as Gaussian."
        )
    if is_never_negative(kernel):
        return
    for low in range(0, len(points), tiles.TILE):
        block = evaluator_of(kernel).block(columns, points[low : low + tiles.TILE])
        if block.min() < -1e-12 * np.abs(block).max():
            i, j = np.unravel_index(int(np.argmin(block)), block.shape)
            raise KernelError(
                f"Spectral clustering needs similarities of at least 0; {kernel!r} gives {block[i, j]:g} between "
                f"{points[low + i].tolist()} and {points[j].tolist()}. Use a kernel that is never negative, such as "
                "Gaussian or a polynomial of even degree, or shift the points so that no inner product is below 0."
            )
