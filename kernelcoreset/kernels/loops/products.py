"""Compiled loops that turn a block of inner products into kernel values, while the block is in the cache.

A block has shape (m, b): m prepared points, b rows. A tile is one row of it: one point and b rows. The loops are
compiled for float32 and for float64, each on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.tiles import FAST, FAST_SUM, expm1_of_minus
from kernelcoreset.kernels.program import (
    ADD,
    COSINE,
    EXPONENTIAL,
    GAUSSIAN,
    LINEAR,
    MATERN32,
    MATERN52,
    MULTIPLY,
    POLYNOMIAL,
    SCALE,
)

Reals = NDArray[np.floating[Any]]
"""float32 or float64."""

_LOG2E = np.float32(1.4426950408889634)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, which is then in the last bits
_FARTHEST = np.float32(-126.0)  # 2^-126 is the smallest normal number; larger distances count as this one
_BIAS, _MANTISSA = np.int32(127), np.int32(23)
_ONE = np.float32(1.0)
# 2^r = 1 + r p(r) for |r| <= 1/2: fitted for the least largest error, which is 1.4e-8, and 4e-8 relative to r p(r).
_P0, _P1, _P2 = np.float32(0.6931471824645996), np.float32(0.24022647738456726), np.float32(0.055503323674201965)
_P3, _P4, _P5 = np.float32(0.009618437848985195), np.float32(0.0013398887822404504), np.float32(0.0001535336341476068)


class Operations(NamedTuple):
    """A kernel's program for blocks of products, in the units and the precision of the block."""

    codes: Ints
    """Operation codes in postfix order."""
    parameters: Reals
    """Shape (operations, 3): what the code needs, see `tile`."""
    squared: bool
    """Whether the program gives exact squared distances instead of K(x, y)."""


class Side(NamedTuple):
    """What the formulas need of each vector, besides inner products: one array per quantity."""

    norms: Reals
    """|x|^2, of the centred vectors."""
    shifts: Reals
    """What to add to an inner product of centred vectors, on this side, to get that of the vectors as given."""
    inverses: Reals
    """1 / |x|, 0 for the zero vector; read by Cosine only."""


@compiled(fastmath=FAST, inline="always")
def _power_of_2(x: Any) -> Any:
    """2^k and 2^x - 2^k, with the integer k nearest to x, for a float32 x from -126 to 126."""
    shifted = x + _ROUND
    r = x - (shifted - _ROUND)
    p = _P5 * r + _P4
    p = p * r + _P3
    p = p * r + _P2
    p = p * r + _P1
    p = p * r + _P0
    two_to_k = np.int32((np.float32(shifted).view(np.int32) + _BIAS) << _MANTISSA).view(np.float32)
    return two_to_k, two_to_k * (r * p)


@compiled(fastmath=FAST, inline="always")
def _expm1_base_2(x: Any) -> Any:
    """2^x - 1 for a float32 x <= 0, with an error of a few units in the last place, also near 0."""
    two_to_k, rest = _power_of_2(max(x, _FARTHEST))  # with a branch, numba warns where this is inlined
    return rest + (two_to_k - _ONE)


@compiled(fastmath=FAST, inline="always")
def _exp_base_2(x: Any) -> Any:
    """2^x for a float32 x, cut off at 2^-126 and 2^126."""
    two_to_k, rest = _power_of_2(min(max(x, _FARTHEST), -_FARTHEST))
    return rest + two_to_k


def expm1_of_minus_like(t: Any) -> Any:
    """exp(-t) - 1 in the precision of t; for compiled code."""
    raise NotImplementedError("only compiled code calls this")


@overload(expm1_of_minus_like, inline="always", strict=False)
def _expm1_of_minus_like(t: Any) -> Callable[[Any], Any]:
    if t == types.float32:
        return lambda t: _expm1_base_2(-t * _LOG2E)
    return lambda t: expm1_of_minus(t)


def expm1_of_scaled(x: Any) -> Any:
    """2^x - 1 of a float32 x <= 0, exp(x) - 1 of a float64 one; for compiled code."""
    raise NotImplementedError("only compiled code calls this")


@overload(expm1_of_scaled, inline="always", strict=False)
def _expm1_of_scaled(x: Any) -> Callable[[Any], Any]:
    if x == types.float32:
        return lambda x: _expm1_base_2(x)
    return lambda x: expm1_of_minus(-x)


@compiled(fastmath=FAST_SUM, nogil=True)
def row_sums(vectors: Reals, other: Floats, norms: Floats, inner: Floats) -> None:
    """norms[i] = |x_i|^2 and inner[i] = <x_i, other>, summed in float64."""
    for i in range(vectors.shape[0]):
        own = vectors[i]
        squares, products = 0.0, 0.0
        for j in range(own.shape[0]):
            value = np.float64(own[j])
            squares += value * value
            products += value * other[j]
        norms[i] = squares
        inner[i] = products


@compiled(nogil=True)
def rounded_sums(norms: Floats, inner: Floats, side: Side) -> None:
    """Fill in a side from the sums of `row_sums`, which take the place of the shifts too."""
    for i in range(len(norms)):
        side.norms[i] = norms[i]
        side.shifts[i] = inner[i]
        side.inverses[i] = 1.0 / np.sqrt(norms[i]) if norms[i] > 0.0 else 0.0


@part(fastmath=FAST)
def _powers(values: Reals, base: Reals, degree: int) -> None:
    """values^degree in place, by repeated squaring of the whole tile."""
    b = values.shape[0]
    for i in range(b):
        base[i] = values[i]
    degree -= 1
    while degree > 0:
        if degree & 1:
            for i in range(b):
                values[i] *= base[i]
        degree >>= 1
        if degree > 0:
            for i in range(b):
                base[i] *= base[i]


@part(fastmath=FAST)
def _fold(code: int, factor: float, stack: Reals, top: int) -> int:
    """Apply ADD or MULTIPLY to the two top entries of the stack, or SCALE to the top one; return the new top."""
    above = stack[top]
    b = above.shape[0]
    if code == SCALE:
        for i in range(b):
            above[i] *= factor
        return top
    below = stack[top - 1]
    if code == ADD:
        for i in range(b):
            below[i] += above[i]
    else:
        for i in range(b):
            below[i] *= above[i]
    return top - 1


@part(fastmath=FAST)
def _of_inner(code: int, own: Reals, products: Reals, rows: Side, shift: float, inverse: float, out: Reals) -> None:
    """Polynomial and Linear of the vectors as given; Cosine before it is multiplied by the lengths."""
    first, second = own[0], own[1]
    shifts, inverses = rows.shifts, rows.inverses
    b = products.shape[0]
    if code == COSINE:
        for i in range(b):
            out[i] = (products[i] + (shifts[i] + shift)) * (inverses[i] * inverse)
    else:
        for i in range(b):
            out[i] = (products[i] + (shifts[i] + shift)) * first + second


@part(fastmath=FAST)
def _of_distances(code: int, own: Reals, products: Reals, rows: Side, norm: float, squared: bool, out: Reals) -> None:
    """Kernels of |x - y|, and |x - y|^2 itself."""
    kind = products.dtype.type
    zero, one, far = kind(0.0), kind(1.0), kind(700.0)
    rate, cubic = own[0], own[1]
    norms = rows.norms
    b = products.shape[0]
    for i in range(b):
        value = (norms[i] + norm) - (products[i] + products[i])
        out[i] = value if value > zero else zero
    if code in (EXPONENTIAL, MATERN32, MATERN52):
        for i in range(b):
            out[i] = np.sqrt(out[i])
    if code in (MATERN32, MATERN52):
        for i in range(b):
            a = min(out[i] * rate, far)
            out[i] = (one + a + cubic * (a * a)) * (one + expm1_of_minus_like(a))
    elif code != LINEAR:
        # -2 expm1(-t), or 1 + expm1(-t)
        first, second = (zero, -(one + one)) if squared else (one, one)
        for i in range(b):
            out[i] = first + second * expm1_of_minus_like(out[i] * rate)


@part(fastmath=FAST)
def tile(program: Operations, products: Reals, j: int, points: Side, rows: Side, stack: Reals) -> None:
    """From the inner products of point j with all rows to K or exact squared distances, in stack[0]."""
    top = -1
    for step in range(program.codes.shape[0]):
        code, own = program.codes[step], program.parameters[step]
        if code in (ADD, MULTIPLY, SCALE):
            top = _fold(code, own[0], stack, top)
            continue
        top += 1
        if code in (POLYNOMIAL, COSINE) or (code == LINEAR and not program.squared):
            _of_inner(code, own, products, rows, points.shifts[j], points.inverses[j], stack[top])
            if code == POLYNOMIAL:
                _powers(stack[top], stack[-1], np.int64(own[2]))
        else:
            _of_distances(code, own, products, rows, points.norms[j], program.squared, stack[top])


@compiled(fastmath=FAST, nogil=True)
def transform(program: Operations, block: Reals, points: Side, rows: Side, stack: Reals) -> None:
    """Turn a block of inner products into K or exact squared distances, in place."""
    for j in range(block.shape[0]):
        own = block[j]
        tile(program, own, j, points, rows, stack)
        for i in range(own.shape[0]):
            own[i] = stack[0, i]


# --- labels -----------------------------------------------------------------------------------------------------------

GROUP = 16
"""Terms that are added up in the precision of the block before they are added in float64."""


@part(fastmath=FAST)
def _add_gaussian(products: Reals, exponents: Reals, exponent: float, rate: float, factor: float, out: Reals) -> None:
    """out += factor * (exp(-|x - y|^2 / (2 sigma^2)) - 1), from -|x|^2 and -|y|^2 times half of `rate`.

    `tile` and the sum in one loop with fewer operations, for the kernel used most.
    """
    zero = products.dtype.type(0.0)
    for i in range(products.shape[0]):
        x = (exponents[i] + exponent) + rate * products[i]
        out[i] += factor * expm1_of_scaled(x if x < zero else zero)


@part(fastmath=FAST)
def _add_tile(tile_values: Reals, factor: float, out: Reals) -> None:
    for i in range(out.shape[0]):
        out[i] += factor * tile_values[i]


@part(fastmath=FAST)
def _flush(tile_values: Reals, out: Floats) -> None:
    """out += tile_values, which become 0."""
    for i in range(tile_values.shape[0]):
        out[i] += tile_values[i]
        tile_values[i] = 0.0


@compiled(fastmath=FAST, nogil=True)
def center_sums(
    program: Operations,
    block: Reals,
    points: Side,
    rows: Side,
    starts: Ints,
    factors: Reals,
    stack: Reals,
    out: Floats,
) -> None:
    """out[c, i] = sum over the points j of center c of factors[j] * K(x_i, y_j), or of exact squared distances.

    The points of center c are starts[c] <= j < starts[c + 1].
    """
    only_gaussian = program.squared and program.codes.shape[0] == 1 and program.codes[0] == GAUSSIAN
    partial = np.zeros(block.shape[1], block.dtype)
    two = block.dtype.type(2.0)
    rate = program.parameters[0, 2]  # of a Gaussian, in the units of `expm1_of_scaled`
    exponents = rows.norms * -rate
    for c in range(out.shape[0]):
        own = out[c]
        own[:] = 0.0
        for j in range(starts[c], starts[c + 1]):
            if only_gaussian:
                _add_gaussian(block[j], exponents, -rate * points.norms[j], two * rate, -two * factors[j], partial)
            else:
                tile(program, block[j], j, points, rows, stack)
                _add_tile(stack[0], factors[j], partial)
            if (j - starts[c]) % GROUP == GROUP - 1 or j == starts[c + 1] - 1:
                _flush(partial, own)


class RowErrors(NamedTuple):
    """What the bounds of `labelling.directions` need of each row; arrays of shape (b,)."""

    left: Floats
    """Length of what directions leave of the row."""
    across: Floats
    """Rounding of the t_j."""
    skews: Floats
    """How far the mean of the t_j of a center may be from 0."""
    grows: Floats
    """exp(T)."""
    relative: Floats
    """Rounding of K_j."""


class Moments(NamedTuple):
    """Of the kernel values of each center's points, weighted by their factors; shape (k, b)."""

    sums: Floats
    squares: Floats
    """Sums of squared values."""
    largest: Reals


@part(fastmath=FAST)
def _add_moments(
    products: Reals, exponents: Reals, exponent: Any, factor: Any, sums: Reals, squares: Reals, largest: Reals
) -> None:
    for i in range(products.shape[0]):
        value = _exp_base_2((exponents[i] + exponent) + products[i])
        part_of_sum = factor * value
        sums[i] += part_of_sum
        squares[i] += part_of_sum * value
        largest[i] = value if value > largest[i] else largest[i]


@compiled(fastmath=FAST, nogil=True)
def center_moments(block: Reals, exponents: Reals, own: Reals, starts: Ints, factors: Reals, out: Moments) -> None:
    """Moments of 2^(block[j, i] + exponents[c, i] + own[j]) over the points j of each center c; all in float32."""
    sums, squares = np.zeros(block.shape[1], block.dtype), np.zeros(block.shape[1], block.dtype)
    for c in range(exponents.shape[0]):
        out.sums[c, :] = 0.0
        out.squares[c, :] = 0.0
        out.largest[c, :] = 0.0
        for j in range(starts[c], starts[c + 1]):
            _add_moments(block[j], exponents[c], own[j], factors[j], sums, squares, out.largest[c])
            if (j - starts[c]) % GROUP == GROUP - 1 or j == starts[c + 1] - 1:
                _flush(sums, out.sums[c])
                _flush(squares, out.squares[c])


_SUM = 20.0 * 2.0**-24  # rounding of a sum of up to 16 terms and their factors, relative to the largest value
_SQUARES = 80.0 * 2.0**-24  # that of a variance, a difference of two such sums
_CUT_OFF = 1e-37


@compiled(fastmath=FAST, nogil=True)
def largest_sums(moments: Moments, roots: Floats, rows: RowErrors) -> None:
    """Replace sums by the largest they may be, and squares by half of the range; see `labelling.directions`."""
    for c in range(moments.sums.shape[0]):
        sums, squares, largest = moments.sums[c], moments.squares[c], moments.largest[c]
        for i in range(sums.shape[0]):
            most = np.float64(largest[i])
            spread = np.sqrt(max(squares[i] - sums[i] * sums[i], 0.0) + _SQUARES * (most * most))
            size = roots[c] * rows.left[i] + rows.across[i]
            grown = most * rows.grows[i]
            middle = 0.25 * grown * (size * size)
            half = spread * size + rows.skews[i] * sums[i] + middle
            half += rows.relative[i] * grown + _SUM * most + _CUT_OFF * rows.grows[i]
            sums[i] += middle + half
            squares[i] = half


@compiled(fastmath=FAST, nogil=True)
def widen(block: Reals, factors: Floats, out: Floats) -> None:
    """out[c, i] = block[c, i] * factors[i], in float64."""
    for c in range(block.shape[0]):
        for i in range(block.shape[1]):
            out[c, i] = block[c, i] * factors[i]


@compiled(fastmath=FAST, nogil=True)
def nearest_of(block: Reals, points: Side, rows: Side, out: Floats) -> None:
    """out[i] = the smallest |x_i - y_j|^2 over the points."""
    out[:] = np.inf
    for j in range(block.shape[0]):
        own, norm = block[j], points.norms[j]
        for i in range(own.shape[0]):
            value = np.float64((rows.norms[i] + norm) - (own[i] + own[i]))
            out[i] = value if value < out[i] else out[i]
