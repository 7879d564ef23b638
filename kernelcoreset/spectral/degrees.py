"""The degree of a point, its mean similarity to the data: what turns a kernel into a normalized one.

The degree function is itself an inner product with one center, the mean of the sample in the feature space, so the
landmarks that make labelling cheap (`compression`) make degrees cheap too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from kernelcoreset.checks import Floats, check_count, check_points, check_same_dimension, check_seed, check_weights
from kernelcoreset.errors import DataError, FormatError, KernelError
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops import passes, tiles
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Landmarks
from kernelcoreset.labelling import landmarks as compression
from kernelcoreset.labelling.landmarks import SparseCenters

DEGREE_SAMPLE = 1_000
"""Points a degree is estimated from by default."""
ACCURACY = 1e-3
"""Largest relative error of an estimated degree against the plain mean over the sample, proved for every point.

The mean itself, over a sample of 1,000, has a standard error of some 3 %: the landmarks add nothing to speak of."""

_CHUNK = 32 * tiles.TILE  # points worked on at a time, so that what they need stays in the cache
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
    """Degrees of any points against a kept sample of the data. Immutable.

    degree(x) = max(sum_j share_j K(x, s_j), K(x, x) / total): the mean similarity of x to the sample, and at least what
    x adds to its own mean. Times `total` it estimates D_ii, the sum of a row of the similarity matrix.

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
        Whether the sample is all the data: then degrees are evaluated directly, to the last bits.

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
        # What was prepared is left behind and made again where it is needed.
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
            Points drawn, without replacement, among those of positive weight; None takes them all, and so do fewer
            points than that: then degrees are exact and cost n kernel evaluations each.
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

        Within 1e-3 of the mean over the sample, proved for every point; costs a few kernel evaluations a point where
        the kernel is smooth, one for each point of the sample where it is sharp or `exact`.
        """
        array = check_points(points)
        check_same_dimension("points", array.shape[1], self.points.shape[1], "the degree sample")
        return self._of(as_columns(array))

    # --- inside: assumes validated input ------------------------------------------------------------------------------

    def _lift(self, columns: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
        """Columns (d, n) with the degree as one more, and the weights times it: what the normalized kernel wants."""
        d, n = columns.shape
        lifted = np.empty((d + 1, n))
        lifted[:d] = columns
        lifted[d] = self._of(columns)
        return lifted, lifted[d].copy() if weights is None else lifted[d] * weights

    def _of(self, columns: Floats) -> Floats:
        n = columns.shape[1]
        degrees = np.empty(n)
        levels = self._levels
        for low in range(0, n, _CHUNK):
            some = np.ascontiguousarray(columns[:, low : low + _CHUNK])
            cloud = Cloud(some, evaluator_of(self.kernel).diagonal(some))
            own = degrees[low : low + _CHUNK]
            self._sum(cloud, levels, own)
            np.maximum(own, cloud.diagonals / self.total, out=own)
        self._refuse_if_isolated(columns, degrees)
        return degrees

    def _sum(self, cloud: Cloud, levels: list[Landmarks], out: Floats) -> None:
        """By the first level, what it cannot prove by the next, the rest directly."""
        evaluator = evaluator_of(self.kernel)
        if not levels:
            passes.sum_directly(evaluator.values, cloud.columns, self._combinations, out[np.newaxis])
            return
        sure = np.empty(len(out), dtype=np.bool_)
        passes.sum_by_landmarks(evaluator.values, cloud, levels[0], ACCURACY, out, sure)
        rest = np.flatnonzero(~sure)
        if len(rest):
            left = Cloud(np.ascontiguousarray(cloud.columns[:, rest]), cloud.diagonals[rest])
            found = np.empty(len(rest))
            self._sum(left, levels[1:], found)
            out[rest] = found

    def _refuse_if_isolated(self, columns: Floats, degrees: Floats) -> None:
        bad = ~((degrees > 0.0) & np.isfinite(degrees))
        if not bad.any():
            return
        first = int(np.argmax(bad))
        if np.isfinite(degrees[first]):
            raise DataError(
                f"Every point must be similar to some point, itself at least; {self.kernel!r} gives degree "
                f"{degrees[first]:g} at {int(bad.sum())} of {len(bad)} points, the first {columns[:, first].tolist()}. "
                "Drop these points, or use a kernel that is above 0 everywhere, such as Gaussian or a polynomial "
                "with c > 0."
            )
        raise evaluator_of(self.kernel).overflow("the degree of a point")

    @cached_property
    def _combinations(self) -> Combinations:
        m = len(self.points)
        shares = self.weights / self.weights.sum()
        return Combinations(self.points.copy(), np.arange(m + 1), np.zeros(m, dtype=np.int64), shares)

    @cached_property
    def _levels(self) -> list[Landmarks]:
        """Landmarks worth trying, found on the sample alone, so that a degree does not hang on what is asked first."""
        if self.exact:
            return []
        columns = as_columns(self.points)
        evaluator = evaluator_of(self.kernel)
        products = np.empty((1, len(self.points)))
        passes.sum_directly(evaluator.values, columns, self._combinations, products)
        diagonals = evaluator_of(self.kernel).diagonal(columns)
        sparse = SparseCenters(self.points, self._combinations.factors[np.newaxis], diagonals, products)
        tried, works, left = [], [], []
        for span in compression.pick_landmarks(self.kernel, sparse):
            landmarks = compression.compress(self.kernel, sparse, span)
            # A landmark knows itself without error, and says nothing of other points.
            others = np.delete(np.arange(len(self.points)), span.pivots)
            cloud = Cloud(np.ascontiguousarray(columns[:, others]), diagonals[others])
            share = self._share_proved(landmarks, cloud)
            bare = compression.without_basis(landmarks)
            if self._share_proved(bare, cloud) >= share:
                landmarks = bare
            tried.append(landmarks)
            works.append(compression.work(landmarks, len(columns)))
            left.append(1.0 - share)
            if left[-1] < 1e-3:
                break
        direct = compression.direct_work(self._combinations, 1)
        return [tried[i] for i in compression.cheapest(works, left, direct)]

    def _share_proved(self, landmarks: Landmarks, cloud: Cloud) -> float:
        evaluator = evaluator_of(self.kernel)
        sure = np.empty(cloud.columns.shape[1], dtype=np.bool_)
        out = np.empty(len(sure))
        passes.sum_by_landmarks(evaluator.values, cloud, landmarks, ACCURACY, out, sure)
        return float(sure.mean()) if len(sure) else 1.0

    # --- as a file ----------------------------------------------------------------------------------------------------

    def to_parquet(self) -> bytes:
        """Return the sample as a Parquet file, `total` and `exact` in its metadata; the kernel is kept elsewhere."""
        m, d = self.points.shape
        offsets = pa.array(np.arange(m + 1, dtype=np.int32) * d)
        points = pa.ListArray.from_arrays(offsets, pa.array(self.points.ravel()))
        about = {"total": repr(self.total), "exact": str(int(self.exact)), "dimension": str(d)}
        table = pa.table({"point": points, "weight": self.weights}).replace_schema_metadata(about)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_page_checksum=True)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def from_parquet(content: bytes, kernel: Kernel) -> Degrees:
        """Return what `to_parquet` gave, or raise FormatError."""
        try:
            table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
            about: Mapping[bytes, bytes] = table.schema.metadata
            points = table["point"].combine_chunks().flatten().to_numpy().reshape(-1, int(about[b"dimension"]))
            weights = table["weight"].to_numpy()
            return Degrees(points, weights, kernel, float(about[b"total"]), about[b"exact"] == b"1")
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"The degree sample of the model is damaged ({error}). Save the model again.") from None


def is_never_negative(kernel: Kernel) -> bool:
    """Whether a kernel is at least 0 by its formula, whatever the points."""
    program = evaluator_of(kernel).values
    return all(
        code in _NEVER_NEGATIVE
        or code in _COMBINES
        or (code == operations.POLYNOMIAL and program.parameters[start + 1] % 2 == 0)
        for code, start in program.operations
    )


def _refuse_if_no_similarity(kernel: Kernel, points: Floats) -> None:
    """A similarity is positive semidefinite and at least 0; where the formula does not show it, the sample has to."""
    columns = as_columns(points)
    evaluator_of(kernel).check(columns)
    if not compression.is_semidefinite(kernel, points):
        raise KernelError(
            f"Spectral clustering needs a positive semidefinite kernel; {kernel!r} has a negative eigenvalue on a "
            "sample of the points. Mend the function, or use a kernel such as Gaussian."
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
