"""Compiled loops for centers that are combinations of points, on one tile of points.

As in `tiles`, the loops are written to vectorise, work on the first m entries of a tile, assume validated input and
have no random generator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.tiles import FAST


@part(fastmath=FAST)
def add_scaled(tile: Floats, m: int, factor: float, out: Floats) -> None:
    """out += factor * tile."""
    for i in range(m):
        out[i] += factor * tile[i]


@part(fastmath=FAST)
def add_combination(tiles: Floats, count: int, m: int, factors: Floats, out: Floats) -> None:
    """out += sum over t < count of factors[t] * tiles[t]. Four tiles per loop save loads and stores."""
    t = 0
    while t + 4 <= count:
        a, b, c, e = tiles[t], tiles[t + 1], tiles[t + 2], tiles[t + 3]
        fa, fb, fc, fe = factors[t], factors[t + 1], factors[t + 2], factors[t + 3]
        for i in range(m):
            out[i] += (fa * a[i] + fb * b[i]) + (fc * c[i] + fe * e[i])
        t += 4
    while t < count:
        add_scaled(tiles[t], m, factors[t], out)
        t += 1


@part(fastmath=FAST)
def subtract_projection(tiles: Floats, basis: Floats, m: int, coordinate: Floats, out: Floats) -> None:
    """out -= |projection|^2, the sum of the squared coordinates basis @ tiles, for a lower triangular `basis`."""
    p = basis.shape[0]
    for t in range(p):
        own = basis[t]
        if t < 4 <= p:  # the rest of the row is 0, so one loop of four terms is enough
            a, b, c, e = tiles[0], tiles[1], tiles[2], tiles[3]
            fa, fb, fc, fe = own[0], own[1], own[2], own[3]
            for i in range(m):
                value = (fa * a[i] + fb * b[i]) + (fc * c[i] + fe * e[i])
                out[i] -= value * value
        else:
            coordinate[:m] = 0.0
            add_combination(tiles, t + 1, m, own, coordinate)
            for i in range(m):
                out[i] -= coordinate[i] * coordinate[i]


@compiled(fastmath=FAST, nogil=True)
def two_nearest(
    sums: Floats, factor: float, offsets: Floats, m: int, nearest: Ints, first: Floats, second: Floats
) -> None:
    """The two smallest of factor * sums[c] + offsets[c] over the centers c, and the center of the smallest.

    These are c.c - 2 <x, c>, or squared distances. The lowest index wins a tie, NaN stays NaN.
    """
    first[:m] = np.inf
    second[:m] = np.inf
    nearest[:m] = 0
    for c in range(sums.shape[0]):
        own, offset = sums[c], offsets[c]
        for i in range(m):
            value = offset + factor * own[i]
            before = first[i]
            closer = not (before <= value)
            middle = before if closer else value
            first[i] = value if closer and before == before else before
            nearest[i] = c if closer else nearest[i]
            second[i] = middle if not (second[i] <= middle) else second[i]


@compiled(fastmath=FAST)
def to_distances(values: Floats) -> None:
    """From squared distances to distances, in place, never below zero. NaN stays NaN and the caller sees it."""
    for i in range(len(values)):
        values[i] = 0.0 if values[i] <= 0.0 else np.sqrt(values[i])


@part(fastmath={"nnan", "nsz"})
def largest(tile: Floats, m: int) -> float:
    """The largest of numbers that are at least 0. They must not be NaN: only then can the loop be vectorised."""
    most = 0.0
    for i in range(m):
        most = tile[i] if tile[i] > most else most
    return most


class Bounds(NamedTuple):
    """Bounds on the error if landmarks approximate a center c by chat; derived in `labelling.landmarks`."""

    span: float
    """Rounding of `residual`, relative to K(x, x)."""
    center: float
    """max |c - chat|."""
    pair: float
    """max |(c_i - c_j) - (chat_i - chat_j)|."""
    rounding: float
    """Rounding of the squared distance, relative to K(x, x)."""
    norms: float
    """Rounding of the squared distance that does not depend on K(x, x)."""


@part(fastmath=FAST)
def certify(
    diagonal_tile: Floats,
    residual: Floats,
    first: Floats,
    second: Floats,
    m: int,
    bounds: Bounds,
    accuracy: float,
    scale: float,
    sure: NDArray[np.bool_],
) -> float:
    """Set sure[i] if no other center can be nearer and the squared distance is accurate; return the largest error.

    `residual` is the squared norm of the part of phi(x) outside the span of the first landmarks; it is overwritten.
    The largest error is over the points with sure[i]. A point with NaN is never sure.
    """
    for i in range(m):
        own = diagonal_tile[i]
        outside = np.sqrt(max(residual[i], 0.0) + bounds.span * own)
        slack = bounds.rounding * own + bounds.norms
        error = 2.0 * outside * bounds.center + slack
        least = max(own + first[i] - error, 0.0)
        gap = second[i] - first[i] - 2.0 * (outside * bounds.pair + slack)
        good = (gap > 0.0) & (error <= accuracy * (least + scale))
        residual[i] = error if good else 0.0
        sure[i] = good
    return float(largest(residual, m))


@part(fastmath=FAST)
def certify_sums(
    diagonal_tile: Floats,
    residual: Floats,
    sums: Floats,
    m: int,
    bounds: Bounds,
    accuracy: float,
    sure: NDArray[np.bool_],
) -> None:
    """Set sure[i] if <x, chat> is within accuracy * <x, c> of <x, c>. The bounds are those of 2 <x, c>."""
    for i in range(m):
        own = diagonal_tile[i]
        outside = np.sqrt(max(residual[i], 0.0) + bounds.span * own)
        error = outside * bounds.center + 0.5 * (bounds.rounding * own + bounds.norms)
        sure[i] = error <= accuracy * (sums[i] - error)
