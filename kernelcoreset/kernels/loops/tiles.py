"""Compiled loops for one kernel on one tile of points. They are written so that the compiler vectorises them.

A tile is `TILE` points, few enough to stay in the first-level cache. Points are columns, an array of shape (d, n), so
that each coordinate is contiguous, as vector instructions need it. The loops write `out[0 : high - low]` for the points
low..high. They assume validated input and have no random generator.
"""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.program import (
    ADD,
    COSINE,
    EXPONENTIAL,
    GAUSSIAN,
    LAPLACIAN,
    LINEAR,
    MATERN32,
    MATERN52,
    POLYNOMIAL,
    SCALE,
)

TILE = 1024

# `contract` allows fused multiply-add. Other relaxations would break the range reduction of `expm1_of_minus`.
FAST = {"contract"}
# A sum may also be reordered: without that it cannot be vectorised.
FAST_SUM = {"contract", "reassoc"}

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93145751953125e-1  # few bits, so k * _LN2_HIGH is exact
_LN2_LOW = 1.42860682030941723212e-6
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding and subtracting it rounds to an integer
_FARTHEST = 708.0  # exp(-708) is about the smallest normal number; smaller kernel values count as zero


@compiled(fastmath=FAST, inline="always")
def expm1_of_minus(t: float) -> float:
    """exp(-t) - 1 for t >= 0, accurate to the last bits also near zero. Unlike the C library's, it vectorises."""
    x = -min(t, _FARTHEST)
    k = (x * _LOG2E + _ROUND) - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW  # |r| <= ln(2) / 2
    p = 1.6059043836821613e-10  # Taylor coefficients 1/13! ... 1/2!
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = r + r * r * p
    two_to_k = np.int64((np.int64(k) + 1023) << 52).view(np.float64)
    return two_to_k * p + (two_to_k - 1.0)


# --- statistics of a pair: squared L2 distance, L1 distance, inner product -------------------------------------------
# Four coordinates per loop: a third of the loads and stores of one coordinate at a time.


@compiled(fastmath=FAST)
def _squared_l2(columns: Floats, low: int, high: int, y: Floats, out: Floats) -> None:
    """out[i] = sum_j (x_ij - y_j)^2."""
    d = columns.shape[0]
    m = high - low
    out[:m] = 0.0
    j = 0
    while j + 4 <= d:
        a, b, c, e = columns[j, low:high], columns[j + 1, low:high], columns[j + 2, low:high], columns[j + 3, low:high]
        ya, yb, yc, ye = y[j], y[j + 1], y[j + 2], y[j + 3]
        for i in range(m):
            da, db, dc, de = a[i] - ya, b[i] - yb, c[i] - yc, e[i] - ye
            out[i] += (da * da + db * db) + (dc * dc + de * de)
        j += 4
    while j + 2 <= d:
        a, b = columns[j, low:high], columns[j + 1, low:high]
        ya, yb = y[j], y[j + 1]
        for i in range(m):
            da, db = a[i] - ya, b[i] - yb
            out[i] += da * da + db * db
        j += 2
    if j < d:
        a = columns[j, low:high]
        ya = y[j]
        for i in range(m):
            da = a[i] - ya
            out[i] += da * da


@compiled(fastmath=FAST)
def _l1(columns: Floats, low: int, high: int, y: Floats, out: Floats) -> None:
    """out[i] = sum_j |x_ij - y_j|."""
    m = high - low
    out[:m] = 0.0
    for j in range(columns.shape[0]):
        a = columns[j, low:high]
        ya = y[j]
        for i in range(m):
            out[i] += abs(a[i] - ya)


@compiled(fastmath=FAST)
def _inner(columns: Floats, low: int, high: int, y: Floats, out: Floats) -> None:
    """out[i] = sum_j x_ij y_j."""
    d = columns.shape[0]
    m = high - low
    out[:m] = 0.0
    j = 0
    while j + 4 <= d:
        a, b, c, e = columns[j, low:high], columns[j + 1, low:high], columns[j + 2, low:high], columns[j + 3, low:high]
        ya, yb, yc, ye = y[j], y[j + 1], y[j + 2], y[j + 3]
        for i in range(m):
            out[i] += (a[i] * ya + b[i] * yb) + (c[i] * yc + e[i] * ye)
        j += 4
    while j < d:
        a = columns[j, low:high]
        ya = y[j]
        for i in range(m):
            out[i] += a[i] * ya
        j += 1


@compiled(fastmath=FAST)
def _squared_norms(columns: Floats, low: int, high: int, out: Floats) -> None:
    """out[i] = sum_j x_ij^2."""
    m = high - low
    out[:m] = 0.0
    for j in range(columns.shape[0]):
        a = columns[j, low:high]
        for i in range(m):
            out[i] += a[i] * a[i]


# --- one operation: from a statistic to K, or to the squared feature distance if the program is exact --------------


@compiled(fastmath=FAST)
def _decay(out: Floats, m: int, rate: float, squared: bool) -> None:
    """exp(-rate t), or the squared distance 2 - 2 exp(-rate t), computed without cancellation for small t."""
    if squared:
        for i in range(m):
            out[i] = -2.0 * expm1_of_minus(out[i] * rate)
    else:
        for i in range(m):
            out[i] = 1.0 + expm1_of_minus(out[i] * rate)


@compiled(fastmath=FAST)
def _square_roots(out: Floats, m: int) -> None:
    for i in range(m):
        out[i] = np.sqrt(out[i])


@compiled(fastmath=FAST)
def _matern(out: Floats, m: int, rate: float, cubic: float) -> None:
    """(1 + a) exp(-a) or (1 + a + a^2/3) exp(-a), a = rate * distance."""
    for i in range(m):
        a = min(out[i] * rate, _FARTHEST)
        factor = 1.0 + a + cubic * (a * a)
        out[i] = factor * (1.0 + expm1_of_minus(a))


@compiled(fastmath=FAST)
def _large_powers(out: Floats, m: int, offset: float, degree: int) -> None:
    """(t + offset)^degree by repeated squaring, in place."""
    for i in range(m):
        base = out[i] + offset
        value = 1.0
        exponent = degree
        while exponent > 0:
            if exponent & 1:
                value *= base
            base *= base
            exponent >>= 1
        out[i] = value


@compiled(fastmath=FAST)
def _small_powers(out: Floats, m: int, offset: float, degree: int) -> None:
    """(t + offset)^degree for degrees 1 to 4, without a branch inside the loop, so that it vectorises."""
    if degree == 1:
        for i in range(m):
            out[i] += offset
    elif degree == 2:
        for i in range(m):
            t = out[i] + offset
            out[i] = t * t
    elif degree == 3:
        for i in range(m):
            t = out[i] + offset
            out[i] = t * t * t
    else:
        for i in range(m):
            t = out[i] + offset
            t *= t
            out[i] = t * t


@compiled(fastmath=FAST)
def _powers(out: Floats, m: int, offset: float, degree: int) -> None:
    """(t + offset)^degree, in place."""
    if degree <= 4:
        _small_powers(out, m, offset, degree)
    else:
        _large_powers(out, m, offset, degree)


@compiled(fastmath=FAST)
def _cosine(columns: Floats, low: int, high: int, y: Floats, out: Floats, norms: Floats) -> None:
    """<x, y> / (|x| |y|), zero if either is the zero vector."""
    m = high - low
    _inner(columns, low, high, y, out)
    _squared_norms(columns, low, high, norms)
    y_norm = np.sqrt(np.sum(y * y))
    for i in range(m):
        norm = np.sqrt(norms[i]) * y_norm
        out[i] = out[i] / norm if norm > 0.0 else 0.0


@compiled(fastmath=FAST)
def leaf_values(
    code: int,
    parameters: Floats,
    columns: Floats,
    low: int,
    high: int,
    y: Floats,
    squared: bool,
    out: Floats,
    scratch: Floats,
) -> None:
    """One built-in kernel on one tile."""
    m = high - low
    if code in (GAUSSIAN, EXPONENTIAL):
        _squared_l2(columns, low, high, y, out)
        if code == EXPONENTIAL:
            _square_roots(out, m)
        _decay(out, m, parameters[0], squared)
    elif code == LAPLACIAN:
        _l1(columns, low, high, y, out)
        _decay(out, m, parameters[0], squared)
    elif code in (MATERN32, MATERN52):
        _squared_l2(columns, low, high, y, out)
        _square_roots(out, m)
        _matern(out, m, parameters[0], 0.0 if code == MATERN32 else 1.0 / 3.0)
    elif code == POLYNOMIAL:
        _inner(columns, low, high, y, out)
        _powers(out, m, parameters[0], np.int64(parameters[1]))
    elif code == LINEAR:
        if squared:
            _squared_l2(columns, low, high, y, out)
        else:
            _inner(columns, low, high, y, out)
    elif code == COSINE:
        _cosine(columns, low, high, y, out, scratch)


@compiled(fastmath=FAST)
def leaf_diagonal(code: int, parameters: Floats, columns: Floats, low: int, high: int, out: Floats) -> None:
    """K(x, x) of one built-in kernel on one tile."""
    m = high - low
    if code in (POLYNOMIAL, LINEAR, COSINE):
        _squared_norms(columns, low, high, out)
        if code == POLYNOMIAL:
            _powers(out, m, parameters[0], np.int64(parameters[1]))
        elif code == COSINE:
            for i in range(m):
                out[i] = 1.0 if out[i] > 0.0 else 0.0
    else:
        out[:m] = 1.0


@compiled(fastmath=FAST)
def combine(code: int, parameters: Floats, m: int, stack: Floats, top: int) -> int:
    """Apply ADD or MULTIPLY to the two top entries of the stack, or SCALE to the top one; return the new top."""
    if code == SCALE:
        factor = parameters[0]
        for i in range(m):
            stack[top, i] *= factor
        return top
    below = stack[top - 1]
    above = stack[top]
    if code == ADD:
        for i in range(m):
            below[i] += above[i]
    else:
        for i in range(m):
            below[i] *= above[i]
    return top - 1


@compiled(fastmath=FAST)
def normalize(tile: Floats, m: int, degrees: Floats, other: float) -> None:
    """From K(x, y) to K(x, y) / (degree of x * degree of y), in place."""
    for i in range(m):
        tile[i] /= degrees[i] * other


# --- from kernel values to distances and running minima ---------------------------------------------------------------


@compiled(fastmath=FAST)
def subtract_values(tile: Floats, diagonal_tile: Floats, y_diagonal: float, share: float) -> int:
    """From K(x, y) to K(x, x) + K(y, y) - 2 K(x, y), in place; return how many are small beside the first two terms.

    These are at most that share of them. NaN stays NaN and the caller sees it.
    """
    near = 0
    for i in range(len(tile)):
        norms = diagonal_tile[i] + y_diagonal
        value = norms - 2.0 * tile[i]
        near += value <= share * norms
        tile[i] = value
    return near


@compiled(fastmath=FAST)
def to_power(tile: Floats, m: int, z: float) -> None:
    """From squared distances to distance^z, in place."""
    if z == 1.0:
        _square_roots(tile, m)
    elif z != 2.0:
        for i in range(m):
            tile[i] = tile[i] ** (0.5 * z)


@compiled(fastmath=FAST)
def keep_nearest(tile: Floats, m: int, which: int, best: Floats, nearest: Ints, onward: Floats) -> None:
    """Update the minimum so far, its index, and the value that followed it; without a branch, so that it vectorises."""
    own, before = np.int32(which), np.int32(which - 1)
    for i in range(m):
        value, smallest, at = tile[i], best[i], nearest[i]
        closer = not (smallest <= value)  # written this way, NaN wins and the caller sees it
        onward[i] = 0.0 if closer else (value if at == before else onward[i])
        best[i] = value if closer else smallest
        nearest[i] = own if closer else at


@compiled(fastmath=FAST_SUM)
def weighted_sum(tile: Floats, weights: Floats, m: int) -> float:
    """Return sum_i tile[i] * weights[i]."""
    total = 0.0
    for i in range(m):
        total += tile[i] * weights[i]
    return total
