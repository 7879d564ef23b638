"""Compiled loops over one tile of points. They are written so that the compiler vectorises them.

A tile is `TILE` points, few enough to stay in the first-level cache. Points are columns, an array of shape (d, n), so
that each coordinate is contiguous, as vector instructions need it. The loops write `out[0 : high - low]` for the points
low..high. They assume validated input and have no random generator.
"""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import part

TILE = 1024

# `contract` allows fused multiply-add. Other relaxations would break the range reduction of `expm1_of_minus`.
FAST = {"contract"}
# A sum may also be reordered: without that it cannot be vectorised.
FAST_SUM = {"contract", "reassoc"}

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93145751953125e-1  # few bits, so k * _LN2_HIGH is exact
_LN2_LOW = 1.42860682030941723212e-6
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding and subtracting it rounds to an integer
FARTHEST = 708.0  # exp(-708) is about the smallest normal number; smaller kernel values count as zero


@part(fastmath=FAST)
def expm1_of_minus(t: float) -> float:
    """exp(-t) - 1 for t >= 0, accurate to the last bits also near zero. Unlike the C library's, it vectorises."""
    x = -(FARTHEST if t > FARTHEST else t)  # NaN stays NaN
    shifted = x * _LOG2E + _ROUND  # the last bits of it are the integer k
    k = shifted - _ROUND
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
    two_to_k = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    return two_to_k * p + (two_to_k - 1.0)


@part(fastmath=FAST)
def copy(tile: Floats, m: int, out: Floats) -> None:
    """out = tile. A loop, because numba compiles an assignment of arrays together with its error messages: seconds."""
    for i in range(m):
        out[i] = tile[i]


# --- from kernel values to distances and running minima ---------------------------------------------------------------


@part(fastmath=FAST)
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


@part(fastmath=FAST)
def to_power(tile: Floats, m: int, z: float) -> None:
    """From squared distances to distance^z, in place."""
    if z == 1.0:
        for i in range(m):
            tile[i] = np.sqrt(tile[i])
    elif z != 2.0:
        for i in range(m):
            tile[i] = tile[i] ** (0.5 * z)


@part(fastmath=FAST)
def keep_nearest(tile: Floats, m: int, which: int, best: Floats, nearest: Ints, onward: Floats) -> None:
    """Update the minimum so far, its index, and the value that followed it; without a branch, so that it vectorises."""
    own, before = np.int32(which), np.int32(which - 1)
    for i in range(m):
        value, smallest, at = tile[i], best[i], nearest[i]
        closer = not (smallest <= value)  # written this way, NaN wins and the caller sees it
        onward[i] = 0.0 if closer else (value if at == before else onward[i])
        best[i] = value if closer else smallest
        nearest[i] = own if closer else at


@part(fastmath=FAST_SUM)
def weighted_sum(tile: Floats, weights: Floats, m: int) -> float:
    """Return sum_i tile[i] * weights[i]."""
    total = 0.0
    for i in range(m):
        total += tile[i] * weights[i]
    return total
