"""Labels by matrix products: two more rungs of the ladder, in float32 and in float64, each with a proof per point.

With rows x of a block and the points s_j of the centers, a product gives all <x, s_j>, and one compiled loop over it
gives the squared distances to the centers (`BySums`). If K is linear in x, as it is for Linear and, up to the length of
x, for Cosine, a center is one vector, and k products take the place of s (`ByVectors`).

A score of center c is its squared distance less K(x, x), or the squared distance itself if the kernel has a closed form
for distances. It is compared with the direct evaluation, so its bound is that of the product (`kernels.rounding`), of
adding up, and of the direct evaluation itself. A label is sure if the two smallest scores differ by twice the bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import products as loops
from kernelcoreset.kernels.loops.center_tiles import two_nearest
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.kernels.loops.products import Reals
from kernelcoreset.kernels.products import Frame, Lengths, Products, products_of
from kernelcoreset.kernels.rounding import Precision

_UNIT = 2.0**-53
LABELS_ONLY = 1e30
"""An accuracy that every distance meets, for callers that use the labels alone."""
MOST_ENTRIES = 2
"""Centers per point: a point that counts in several centers is multiplied once for each."""
_SMALL_OFFSET = 4.0  # an offset up to so many times the spread of the points costs only a few digits


class Entries(NamedTuple):
    """The coefficients that are not 0, center by center."""

    which: Ints
    """The center i."""
    point: Ints
    """The point j."""
    factors: Floats
    """a_ij."""

    @property
    def total(self) -> float:
        """Largest sum of |a_ij| of a center."""
        return float(np.bincount(self.which, np.abs(self.factors)).max())


class ManyCenters(NamedTuple):
    """Centers c_i = sum_j a_ij phi(s_j), and what scores and their bounds need."""

    kernel: Kernel
    points: Floats
    """s_j, shape (s, d)."""
    coefficients: Floats
    """a, shape (k, s)."""
    entries: Entries
    """The same without zeros."""
    spreads: Floats
    """1/2 sum_jl a_ij a_il d2(s_j, s_l), shape (k,)."""
    origin: Floats | None
    """What K(x, x) is relative to, for kernels whose distances do not change if all points move; None for others."""
    diagonals: Floats
    """K(s_j, s_j), relative to `origin`, shape (s,)."""
    rounding: tuple[float, float]
    """Rounding of the direct evaluation: relative to K(x, x), and the rest."""
    typical: float
    """Median squared distance of the points to their nearest centers."""


class Scores(NamedTuple):
    """What a level found out about some rows, besides their scores."""

    diagonals: Floats
    """K(x, x), relative to the origin."""
    errors: Floats
    """Largest difference of a score from its exact value."""
    diagonal_errors: Floats
    """Largest difference of what is added to a score to get the squared distance."""


@dataclass(frozen=True, eq=False)
class ByProducts(ABC):
    """A rung of the ladder that compares rows with all centers by matrix products.

    Parameters
    ----------
    centers : ManyCenters
    offsets : ndarray of shape (k,)
        A score is this plus a multiple of a sum of products.
    accuracy : float
        As for `Centers.label_rows`.
    """

    centers: ManyCenters
    offsets: Floats
    accuracy: float

    @property
    @abstractmethod
    def work(self) -> float:
        """Cost per row, in kernel values of the loops over columns."""

    @property
    @abstractmethod
    def is_squared(self) -> bool:
        """Whether a score is the whole squared distance."""

    @abstractmethod
    def score(self, rows: NDArray[Any], out: Nearest) -> Scores:
        """Write the two smallest scores of every row and the center of the smallest to `out`."""

    def run(self, rows: NDArray[Any], out: Nearest, sure: NDArray[np.bool_]) -> float:
        """Label rows (n, d); set sure[i] if the result is proved, and return the largest error among those."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.score(rows, out)
            relative, rest = self.centers.rounding
            slack = relative * found.diagonals + rest + found.errors
            errors = slack + found.diagonal_errors
            np.greater(out.second - out.first, 2.0 * slack, out=sure)
            if not self.is_squared:
                np.add(out.first, found.diagonals, out=out.first)
                np.add(out.second, found.diagonals, out=out.second)
            least = np.maximum(out.first - errors, 0.0)
            sure &= errors <= self.accuracy * (least + self.centers.typical)
        return float(errors[sure].max(initial=0.0))


# --- one vector per center --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ByVectors(ByProducts):
    """Linear and Cosine, and their multiples: <x, c> is one inner product with a vector.

    With rows as given (no mean) float32 rows are multiplied where they are. |x| is then larger than that of centred
    rows, and so is the bound: 2 f ((g(d) + 10 u + 2 d v) |x| |c| + (s + 8) v |x| reach), where f is the factor of the
    kernel and reach = sum_j |a_j| |s_j| stands for the rounding of c itself.
    """

    frame: Frame
    vectors: Reals
    lengths: tuple[float, float]
    """Largest |c|, and largest reach."""
    factor: float
    is_cosine: bool

    @property
    def work(self) -> float:
        k, d = self.vectors.shape
        return float((k * (4.0 + 0.1 * d) + 5.0 * d) / (20.0 + d))

    @property
    def is_squared(self) -> bool:
        return False

    def score(self, rows: NDArray[Any], out: Nearest) -> Scores:
        k, d = self.vectors.shape
        n = len(rows)
        lengths = Lengths(np.empty(n), np.empty(n))
        step = int(np.clip((1 << 19) // max(k, d), 64, 2048))
        space, sums = np.empty((k, step), dtype=self.frame.dtype), np.empty((k, step))
        for low in range(0, n, step):
            some = slice(low, min(low + step, n))
            vectors = self.frame.round(rows[some])
            m = len(vectors)
            norms, inner = lengths.norms[some], lengths.inner[some]
            loops.row_sums(vectors, self._towards, norms, inner)
            block = np.matmul(self.vectors, vectors.T, out=space.reshape(-1)[: k * m].reshape(k, m))
            if self.is_cosine:
                scales = np.where(norms > 0.0, 1.0 / np.sqrt(np.where(norms > 0.0, norms, 1.0)), 0.0)
            else:
                scales = np.ones(m)
            loops.widen(block, scales, sums)
            two_nearest(sums, -2.0 * self.factor, self.offsets, m, out.labels[some], out.first[some], out.second[some])
        return self._scores(lengths)

    @property
    def _towards(self) -> Floats:
        """What K(x, x) is relative to, seen from the mean of the rows."""
        origin = self.centers.origin
        return self.frame.mean if origin is None else origin - self.frame.mean

    def _scores(self, rows: Lengths) -> Scores:
        s, d = self.centers.points.shape
        unit = float(np.finfo(self.frame.dtype).eps) / 2.0
        share = d * unit
        terms = share / (1.0 - share) + 10.0 * unit + 2.0 * d * _UNIT if share < 0.5 else np.inf
        length, reach = self.lengths
        # Squares near the limits of the precision may have underflowed.
        least, most = (1e-15, 1e15) if self.frame.dtype == np.float32 else (1e-140, 1e140)
        x = np.sqrt(rows.norms)
        x = np.where((x < most) & (length < most), x, np.inf)
        if self.is_cosine:
            known = np.where((x > least) & np.isfinite(x), 1.0, np.inf)
            errors = 2.0 * self.factor * known * ((terms + 6.0 * unit) * length + (s + 8) * _UNIT * reach)
            diagonals = np.where(rows.norms > 0.0, self.factor, 0.0)
            return Scores(diagonals, errors, np.zeros(len(x)))
        each = terms * length + (s + 8) * _UNIT * reach
        errors = 2.0 * self.factor * (x * each + d * least**2 * (1.0 + x + length))
        away = float(np.linalg.norm(self._towards))
        diagonals = self.factor * np.maximum(rows.norms - 2.0 * rows.inner + away**2, 0.0)
        return Scores(diagonals, errors, self.factor * (6.0 * unit + 4.0 * d * _UNIT) * (x + away) ** 2)


def by_vectors(centers: ManyCenters, precision: Precision, accuracy: float) -> ByVectors | None:
    """Return the level of centers as vectors, or None if the kernel is not Linear, Cosine or a multiple of one."""
    program = evaluator_of(centers.kernel).values
    codes = [int(code) for code, _ in program.operations]
    if codes[0] not in (operations.LINEAR, operations.COSINE) or any(code != operations.SCALE for code in codes[1:]):
        return None
    factor = float(np.prod([program.parameters[start] for code, start in program.operations[1:]]))
    is_cosine = codes[0] == operations.COSINE
    d = centers.points.shape[1]
    origin = np.zeros(d) if centers.origin is None else centers.origin
    points = centers.points - origin
    if is_cosine:
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        points = np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0.0)
    vectors = centers.coefficients @ points
    offsets = centers.coefficients @ centers.diagonals - centers.spreads
    spread = np.sqrt(np.square(points).sum(axis=1).mean())
    as_given = is_cosine or np.linalg.norm(origin) <= _SMALL_OFFSET * spread
    if as_given:
        offsets = offsets + 2.0 * factor * (vectors @ origin)
    reach = float((np.abs(centers.coefficients) @ np.linalg.norm(points, axis=1)).max())
    with np.errstate(over="ignore"):
        rounded = vectors.astype(precision)
    frame = Frame(np.zeros(d) if as_given else origin, np.dtype(precision))
    largest = float(np.linalg.norm(vectors, axis=1).max())
    return ByVectors(centers, offsets, accuracy, frame, rounded, (largest, reach), factor, is_cosine)


# --- sums over the points of a center ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BySums(ByProducts):
    """Any kernel with products: sums over the points of each center, which are consecutive.

    A sum of up to 16 terms is rounded in the precision of the block, then added in float64: 20 u times the largest
    value covers that and the rounding of the coefficients. If no coefficient is negative, the part of the bound that is
    relative to K is relative to sum_j a_j K(x, s_j) = K(x, x) - D / 2, where D is the sum of squared distances.
    """

    products: Products
    starts: Ints
    factors: Reals

    @property
    def frame(self) -> Frame:
        """Precision and mean of the rows."""
        return self.products.frame

    @property
    def work(self) -> float:
        m, d = self.products.points.vectors.shape
        each = 3.0 + 0.1 * d if self.frame.dtype == np.float32 else 10.0 + 0.28 * d
        return float((m * each + 5.0 * d) / (20.0 + d))

    @property
    def is_squared(self) -> bool:
        return self.products.exact

    def score(self, rows: NDArray[Any], out: Nearest) -> Scores:
        m, d = self.products.points.vectors.shape
        n, k, dtype = len(rows), len(self.offsets), self.frame.dtype
        step = _even(n, self.products.block_rows)
        lengths = Lengths(np.empty(n), np.empty(n))
        nearest = np.empty(n) if self._has_root else None
        space, vectors, sums = np.empty(m * step, dtype=dtype), np.empty((step, d), dtype=dtype), np.empty((k, step))
        for low in range(0, n, step):
            some = slice(low, min(low + step, n))
            size = some.stop - low
            part = self.frame.prepare(rows[some], vectors[:size])
            lengths.norms[some], lengths.inner[some] = part.norms, part.inner
            block = space[: m * size].reshape(m, size)
            self.products.center_sums(part, self.starts, self.factors, block, sums)
            if nearest is not None:
                loops.nearest_of(block, self.products.points.side, part.side, nearest[some])
            factor = 1.0 if self.is_squared else -2.0
            two_nearest(sums, factor, self.offsets, size, out.labels[some], out.first[some], out.second[some])
        return self._scores(lengths, nearest, out.first)

    @property
    def _has_root(self) -> bool:
        return bool((evaluator_of(self.centers.kernel).values.operations[:, 0] == operations.EXPONENTIAL).any())

    def _scores(self, rows: Lengths, nearest: Floats | None, first: Floats) -> Scores:
        unit = float(np.finfo(self.frame.dtype).eps) / 2.0
        sizes = self.centers.entries.total
        diagonals = self.products.diagonals(rows, centred=self.centers.origin is not None)
        if not self.is_squared:
            bound = self.products.value_bound(rows, nearest)
            errors = 2.0 * sizes * (bound.total + 20.0 * unit * bound.largest)
            return Scores(diagonals, errors, self.products.diagonal_errors(rows))
        bound = self.products.distance_bound(rows, nearest)
        value = bound.largest
        if (self.factors >= 0.0).all():
            smallest = first - self.offsets.max()  # the smallest sum of squared distances
            value = np.clip(bound.largest - 0.5 * smallest + bound.total, 0.0, bound.largest)
        errors = sizes * (bound.absolute + bound.relative * value + 40.0 * unit * bound.largest)
        return Scores(diagonals, errors, np.zeros(len(errors)))


def _even(n: int, most: int) -> int:
    """The size of the fewest blocks of at most `most` rows that are all about equally large."""
    return -(-n // max(1, -(-n // most)))


def by_sums(centers: ManyCenters, precision: Precision, accuracy: float) -> BySums | None:
    """Return the level of sums, or None if the centers share so many points that it would not pay."""
    which, point, factors = centers.entries
    k, s = centers.coefficients.shape
    if len(point) > MOST_ENTRIES * s:
        return None
    mean = None if centers.origin is None else centers.origin
    products = products_of(centers.kernel, centers.points[point], precision, mean=mean)
    starts = np.searchsorted(which, np.arange(k + 1))
    offsets = -centers.spreads
    if not products.exact:
        offsets = offsets + centers.coefficients @ centers.diagonals
    return BySums(centers, offsets, accuracy, products, starts, factors.astype(precision))
