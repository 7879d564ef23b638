"""Blocks of kernel values from matrix products, with a proved bound on their rounding.

A kernel whose value depends on <x, y>, |x| and |y| alone is evaluated for many rows and m prepared points by one BLAS
product and one compiled loop over it. From about a dozen dimensions on that is faster than the loops over columns.

All vectors are first centred by the mean of the prepared points, in float64, and rounded to the precision of the
product. Centring makes |x| |y| small, to which the rounding of the product is relative.
The rounding of these values is bounded in `rounding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import products as loops
from kernelcoreset.kernels.loops.products import Operations, Reals, Side
from kernelcoreset.kernels.rounding import Bound, Precision, Rounding, Sizes

LEAST_DIMENSION = 12
"""From so many columns on, products are faster than the loops over columns; measured, see `products_pay`."""

_DIFFERENCES = (operations.GAUSSIAN, operations.EXPONENTIAL, operations.MATERN32, operations.MATERN52)
_INNER = (operations.POLYNOMIAL, operations.LINEAR, operations.COSINE)
_FOLDS = (operations.ADD, operations.MULTIPLY, operations.SCALE)
_BLOCK = 1 << 18  # numbers in a block: what the second-level cache holds
_ROWS = 1 << 20  # numbers in the rows of a block


def has_products(kernel: Kernel) -> bool:
    """Return whether blocks of a kernel can be computed from matrix products.

    So for every built-in kernel and combination, except with Laplacian, a user's function or normalization by degrees.

    Examples
    --------
    >>> from kernelcoreset import Gaussian, Laplacian, Linear
    >>> has_products(Gaussian(1.0) + 2 * Linear()), has_products(Laplacian(1.0))
    (True, False)
    """
    known = (*_DIFFERENCES, *_INNER, *_FOLDS)
    return all(code in known for code, _ in evaluator_of(kernel).values.operations)


def products_pay(kernel: Kernel, d: int) -> bool:
    """Return whether products of d-dimensional points are faster than the loops over columns."""
    return d >= LEAST_DIMENSION and has_products(kernel)


def products_of(
    kernel: Kernel, points: Floats, precision: Precision = "float64", *, mean: Floats | None = None
) -> Products:
    """Prepare m points for products with many rows.

    Parameters
    ----------
    kernel : Kernel
        One with `has_products`.
    points : ndarray of shape (m, d)
    precision : {"float32", "float64"}
        Of the product and of what is computed from it.
    mean : ndarray of shape (d,), optional
        What vectors are centred by; the mean of `points` by default. Objects with the same mean and precision can
        share prepared rows. It is not used for kernels with Cosine.

    Returns
    -------
    Products

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Linear
    >>> products_of(Linear(), np.array([[1.0, 0.0], [0.0, 2.0]])).values(np.array([[3.0, 4.0]]))
    array([[3.],
           [8.]])
    """
    evaluator = evaluator_of(kernel)
    codes = {int(code) for code, _ in evaluator.values.operations}
    if operations.COSINE in codes:  # a zero vector must stay zero, and lengths must not cancel
        mean = np.zeros(points.shape[1])
    frame = frame_of(points, precision, mean)
    prepared = frame.prepare(points.copy())  # rows may be used where they are, and the caller may change these
    with np.errstate(over="ignore"):
        shifts = (prepared.inner + frame.mean @ frame.mean).astype(frame.dtype)
    prepared = prepared._replace(side=prepared.side._replace(shifts=shifts))
    is_zero = ~points.any(axis=1)
    shortest = float(np.sqrt(prepared.norms[~is_zero].min(initial=np.inf)))
    codes_and_parameters = _operations(evaluator.values, frame.dtype)
    values = Operations(*codes_and_parameters, False)
    exact = Operations(*codes_and_parameters, evaluator.distances.squared)
    return Products(kernel, frame, prepared, shortest, values, exact)


def frame_of(points: Floats, precision: Precision, mean: Floats | None = None) -> Frame:
    """Return what vectors are centred by, about the mean of the points or what is given, and rounded to."""
    return Frame(_short(points.mean(axis=0) if mean is None else mean, points), np.dtype(precision))


def _short(mean: Floats, points: Floats) -> Floats:
    """The mean in few digits, if it still centres the points: then float32 rows need no float64."""
    with np.errstate(over="ignore"):
        rounded = mean.astype(np.float32).astype(np.float64)
    spread = np.abs(points - mean).max()
    return rounded if np.abs(rounded - mean).max() <= 1e-3 * spread else mean


def _operations(program: operations.Program, dtype: np.dtype[Any]) -> tuple[Ints, Reals]:
    """Codes, and per code the three parameters that `loops.tile` reads."""
    codes = np.ascontiguousarray(program.operations[:, 0])
    table = np.zeros((len(codes), 3))
    for row, (code, start) in zip(table, program.operations, strict=True):
        first = program.parameters[start]
        if code in _INNER:
            row[0] = 1.0
            if code == operations.POLYNOMIAL:
                row[1:] = program.parameters[start : start + 2]
        elif code in (operations.MATERN32, operations.MATERN52):
            row[:2] = first, 0.0 if code == operations.MATERN32 else 1.0 / 3.0
        elif code not in (operations.ADD, operations.MULTIPLY):
            row[0] = first
            if code == operations.GAUSSIAN:  # see `loops.expm1_of_scaled`
                row[2] = first / np.log(2.0) if dtype == np.float32 else first
    with np.errstate(over="ignore"):  # an infinite parameter gives an infinite bound
        parameters: Reals = table.astype(dtype)
    return codes, parameters


class Lengths(NamedTuple):
    """What bounds and K(x, x) need of prepared rows: `norms` and `inner` of `Rows`."""

    norms: Floats
    inner: Floats

    def part(self, which: slice | Ints) -> Lengths:
        """Return those of some rows: views by a slice, copies by indices."""
        return Lengths(self.norms[which], self.inner[which])


class Rows(NamedTuple):
    """Vectors ready for products."""

    vectors: Reals
    """Centred, shape (b, d), in the precision of the product."""
    side: Side
    norms: Floats
    """|x|^2 of the centred vectors, in float64, shape (b,)."""
    inner: Floats
    """<x, mean> of the centred vectors, in float64, shape (b,)."""


@dataclass(frozen=True, eq=False)
class Frame:
    """What vectors are centred by, and the precision they are rounded to."""

    mean: Floats
    dtype: np.dtype[Any]

    @cached_property
    def _is_zero(self) -> bool:
        return not self.mean.any()

    @cached_property
    def _short_mean(self) -> Reals:
        """The mean as float32 if that is exact and rows are rounded to float32, else as it is."""
        if self.dtype != np.float32:
            return self.mean
        with np.errstate(over="ignore"):
            short = self.mean.astype(np.float32)
        return short if np.array_equal(short, self.mean) else self.mean

    def prepare(self, rows: NDArray[Any], out: Reals | None = None, lengths: Lengths | None = None) -> Rows:
        """Return rows (b, d) of any real type, centred and rounded; into `out` if they must be copied.

        Their lengths are written to `lengths` if given.
        """
        out = self.round(rows, out)
        norms, inner = lengths or Lengths(np.empty(len(rows)), np.empty(len(rows)))
        loops.row_sums(out, self.mean, norms, inner)
        side = Side(*np.empty((3, len(rows)), dtype=self.dtype))
        loops.rounded_sums(norms, inner, side)
        return Rows(out, side, norms, inner)

    def round(self, rows: NDArray[Any], out: Reals | None = None) -> Reals:
        """Return rows (b, d) of any real type, centred and rounded, without their norms; into `out` if given.

        Rows that are so already are returned themselves, which saves a pass over them.
        """
        # Loops are compiled for arrays that can be written to.
        if self._is_zero and rows.dtype == self.dtype and rows.flags.c_contiguous and rows.flags.writeable:
            return rows
        if out is None:
            out = np.empty(rows.shape, dtype=self.dtype)
        # With both in float32 the difference is rounded once, as it is from float64, and takes half the time.
        mean = self._short_mean if np.can_cast(rows.dtype, np.float32) else self.mean
        with np.errstate(over="ignore"):  # a vector beyond float32 becomes infinite, and its bound too
            if np.can_cast(np.result_type(rows, mean), out.dtype):
                np.subtract(rows, mean, out=out)
            else:  # numpy would subtract in small pieces, which takes four times as long
                out[...] = np.subtract(rows, mean)
        return out


@dataclass(frozen=True, eq=False)
class Products:
    """m prepared points, ready for products with any rows. Created by `products_of`; immutable.

    Attributes
    ----------
    kernel : Kernel
    frame : Frame
        Prepares rows; these can be used with every object of the same mean and precision.
    points : Rows
        The prepared points.
    shortest : float
        Length of the shortest point that is not zero.
    """

    kernel: Kernel
    frame: Frame
    points: Rows
    shortest: float
    _values: Operations
    _distances: Operations

    def __len__(self) -> int:
        return len(self.points.vectors)

    @property
    def exact(self) -> bool:
        """Whether squared distances have a closed form that stays exact for points close together."""
        return self._distances.squared

    @property
    def block_rows(self) -> int:
        """How many rows to process at a time, so that vectors and block stay in the cache."""
        m, d = self.points.vectors.shape
        # With many columns the product itself takes the time. It copies the points each time, so it needs more rows.
        most = int(np.clip(_ROWS // d, 1024, 4096))
        return int(np.clip((_BLOCK if d < 256 else 4 * _BLOCK) // m, 128, most))

    def inner(self, rows: Rows, out: Reals | None = None) -> Reals:
        """Return the inner products of the centred vectors, shape (m, b)."""
        return np.matmul(self.points.vectors, rows.vectors.T, out=out)

    def values(self, rows: NDArray[Any] | Rows, out: Reals | None = None) -> Reals:
        """Return K between the prepared points and rows (b, d).

        Parameters
        ----------
        rows : ndarray of shape (b, d) or Rows
        out : ndarray of shape (m, b), optional
            Contiguous, of the precision.

        Returns
        -------
        ndarray of shape (m, b)
            Off by at most `value_bound`.
        """
        return self._transformed(self._values, rows, out)

    def squared_distances(self, rows: NDArray[Any] | Rows, out: Reals | None = None) -> Reals:
        """Return squared feature distances, at least 0, shape (m, b); parameters as in `values`.

        Off by at most `distance_bound`. If the kernel has a closed form for distances, they are exact for near points
        up to the rounding of |x - y|^2, which is relative to |x|^2 + |y|^2 of the centred points.
        """
        rows = self._prepared(rows)
        block = self._transformed(self._distances, rows, out)
        if not self.exact:
            block *= -2.0
            block += self.diagonals(rows).astype(block.dtype)
            block += self.diagonals(self.points).astype(block.dtype)[:, np.newaxis]
            np.maximum(block, 0.0, out=block)
        return block

    def distances_of_squares(self, squares: Reals) -> Reals:
        """Return squared feature distances from |x - y|^2, in place; only if they are `exact`, as they grow with it.

        `squares` has the precision and any shape (r, b).
        """
        squares *= -0.5  # inner products of vectors whose length counts as 0
        zeros = (np.zeros(length, dtype=squares.dtype) for length in squares.shape)
        points, rows = (Side(part, part, part) for part in zeros)
        self._transform(self._distances, squares, points, rows)
        return squares

    def diagonals(self, rows: Rows | Lengths, *, centred: bool = False) -> Floats:
        """Return K(x, x) of prepared rows, or of the centred ones, in float64, shape (b,)."""
        given = rows.norms
        if not centred:
            given = given + 2.0 * rows.inner + self.frame.mean @ self.frame.mean

        def leaf(code: int, own: Floats) -> Floats:
            if code == operations.COSINE:
                return np.asarray(given > 0.0, dtype=np.float64)
            if code == operations.LINEAR:
                return np.maximum(given, 0.0)
            if code == operations.POLYNOMIAL:
                return np.asarray((given + own[0]) ** own[1])
            return np.ones(len(given))

        with np.errstate(over="ignore"):
            found: Floats = self._run(leaf, np.add, np.multiply, lambda value, factor: value * factor)
        return found

    def value_bound(self, rows: Rows | Lengths, nearest: Floats | None = None) -> Bound:
        """Return the bound on the rounding of `values`, per row.

        `nearest` is the smallest |x - y|^2 of each row as computed, if it is known. It makes the bound of Exponential
        smaller.
        """
        return self._bound(rows, False, nearest)

    def diagonal_errors(self, rows: Rows | Lengths) -> Floats:
        """Return the largest error of `diagonals`: those of values K(x, y) with y = x."""
        return self._bound(rows, False, None, np.sqrt(rows.norms)).total

    def distance_bound(self, rows: Rows | Lengths, nearest: Floats | None = None) -> Bound:
        """Return the bound on the rounding of `squared_distances`, per row."""
        if self.exact:
            return self._bound(rows, True, nearest)
        bound = self._bound(rows, False, nearest)
        u = np.finfo(self.frame.dtype).eps / 2.0
        # K(x, x) and K(y, y) are rounded like K or better, and three terms are added up.
        whole = bound.largest + self.diagonals(rows) + self.diagonals(self.points).max()
        return Bound(4.0 * bound.total + 4.0 * u * whole, np.zeros(len(whole)), whole)

    def _bound(
        self, rows: Rows | Lengths, squared: bool, nearest: Floats | None, longest: Floats | float | None = None
    ) -> Bound:
        if longest is None:
            longest = float(np.sqrt(self.points.norms.max()))
        offset = float(np.linalg.norm(self.frame.mean))
        sizes = Sizes(len(self.frame.mean), rows.norms, longest, self.shortest, offset, nearest)
        precision: Precision = "float32" if self.frame.dtype == np.float32 else "float64"
        rounding = Rounding(precision, sizes, squared)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Bound = self._run(rounding.leaf, rounding.add, rounding.multiply, rounding.scale)
            known = np.isfinite(found.total)
        unknown = (np.inf, 0.0, 0.0)
        return Bound(*(np.where(known, part, other) for part, other in zip(found, unknown, strict=True)))

    def _run(self, leaf: Callable[..., Any], add: Callable[..., Any], multiply: Callable[..., Any], scale: Any) -> Any:
        """Run the kernel's program with other meanings of its operations."""
        program = evaluator_of(self.kernel).values
        stack: list[Any] = []
        for code, start in program.operations:
            if code in (operations.ADD, operations.MULTIPLY):
                above = stack.pop()
                stack[-1] = (add if code == operations.ADD else multiply)(stack[-1], above)
            elif code == operations.SCALE:
                stack[-1] = scale(stack[-1], program.parameters[start])
            else:
                stack.append(leaf(int(code), program.parameters[start:]))
        return stack[0]

    def _prepared(self, rows: NDArray[Any] | Rows) -> Rows:
        return rows if isinstance(rows, Rows) else self.frame.prepare(rows)

    def center_sums(self, rows: Rows, starts: Ints, factors: Reals, space: Reals, out: Floats) -> None:
        """Write sums of squared distances, if the kernel is `exact`, else of K, over consecutive points to `out`.

        out[c, i] is the sum of factors[j] times the value of point j and row i, over starts[c] <= j < starts[c + 1].
        `space` is working space of shape (m, b).
        """
        block = self.inner(rows, space)
        stack = np.empty((evaluator_of(self.kernel).values.stack_rows, block.shape[1]), dtype=block.dtype)
        loops.center_sums(self._distances, block, self.points.side, rows.side, starts, factors, stack, out)

    def _transformed(self, program: Operations, rows: NDArray[Any] | Rows, out: Reals | None) -> Reals:
        rows = self._prepared(rows)
        block = self.inner(rows, out)
        self._transform(program, block, self.points.side, rows.side)
        return block

    def _transform(self, program: Operations, block: Reals, points: Side, rows: Side) -> None:
        stack = np.empty((evaluator_of(self.kernel).values.stack_rows, block.shape[1]), dtype=block.dtype)
        loops.transform(program, block, points, rows, stack)
