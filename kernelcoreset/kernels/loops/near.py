"""Squared feature distances of points that are near, without the cancellation of K(x, x) + K(y, y) - 2 K(x, y).

A pair of points is described by three numbers of a kernel: the squared distance, K(x, y), and half the difference
K(x, x) - K(y, y). For sums and products of kernels they follow from those of the parts, without a difference of large
numbers; a power is a product, and a normalized kernel is a product with f(x) f(y). So an offset of the points, which
makes K much larger than the distances, costs no digits. These are scalar loops: only pairs that need them come here.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numba
import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.jit import address_of, calling, part
from kernelcoreset.kernels.program import (
    ADD,
    COSINE,
    EXPONENTIAL,
    GAUSSIAN,
    LAPLACIAN,
    LINEAR,
    MATERN52,
    MULTIPLY,
    POLYNOMIAL,
    SCALE,
    USER,
    Program,
)

NEAR = 1e-6
"""Squared distances below this share of K(x, x) + K(y, y) are computed here; larger ones keep about 9 digits."""
BLOCK = 64
"""Points that are looked through together for near ones."""
NOISE = 1e-14  # a difference of values of a user's function below this share of them is rounding

_SERIES_END = 1.0  # of the argument of a Matern kernel
_SERIES_TERMS = 21


@part()
def _multiply(pair: Floats, other: Floats) -> None:
    """From the numbers of two kernels to those of their product, in place."""
    distance, value, half = pair[0], pair[1], pair[2]
    mean, other_mean = value + 0.5 * distance, other[1] + 0.5 * other[0]  # of K(x, x) and K(y, y)
    pair[0] = distance * other_mean + value * other[0] + 2.0 * half * other[2]
    pair[1] = value * other[1]
    pair[2] = half * other_mean + mean * other[2]


@part(makes_arrays=True)
def _power(pair: Floats, degree: int) -> None:
    """From the numbers of a kernel to those of its power, in place, by repeated squaring."""
    base, same = np.empty(3), np.empty(3)
    for j in range(3):
        base[j] = pair[j]
        pair[j] = 0.0
    pair[1] = 1.0
    while degree > 0:
        if degree & 1:
            _multiply(pair, base)
        degree >>= 1
        if degree > 0:
            for j in range(3):
                same[j] = base[j]
            _multiply(base, same)


@part()
def _inner(columns: Floats, i: int, y: Floats, sign: float, pair: Floats) -> None:
    """The numbers of the linear kernel at x and sign * y; sign is 1 or -1."""
    pair[:] = 0.0
    for j in range(len(y)):
        x, other = columns[j, i], sign * y[j]
        difference = x - other
        pair[0] += difference * difference
        pair[1] += x * other
        pair[2] += 0.5 * difference * (x + other)


@part()
def _cosine(columns: Floats, i: int, y: Floats, pair: Floats) -> None:
    """The numbers of the cosine: with e = x - y and m = x + y, the part of e that is orthogonal to m decides."""
    _inner(columns, i, y, 1.0, pair)
    e2, inner, half = pair[0], pair[1], pair[2]
    m2 = e2 + 4.0 * inner
    x2, y2 = 0.0, 0.0
    for j in range(len(y)):
        x2 += columns[j, i] * columns[j, i]
        y2 += y[j] * y[j]
    pair[0], pair[1], pair[2] = 0.0, 0.0, 0.0
    if not (x2 > 0.0 and y2 > 0.0):  # K = 0 at the zero vector
        own, other = 1.0 if x2 > 0.0 else 0.0, 1.0 if y2 > 0.0 else 0.0
        pair[0], pair[2] = own + other, 0.5 * (own - other)
        return
    x_norm, y_norm = math.sqrt(x2), math.sqrt(y2)
    if not (m2 > 0.0 and 0.5 * x_norm < y_norm < 2.0 * x_norm):  # e or m would lose y: compare directions themselves
        for j in range(len(y)):
            part = columns[j, i] / x_norm - y[j] / y_norm
            pair[0] += part * part
        pair[1] = 1.0 - 0.5 * pair[0]
        return
    along = 2.0 * half / m2
    orthogonal = 0.0
    for j in range(len(y)):
        part = (columns[j, i] - y[j]) - along * (columns[j, i] + y[j])
        orthogonal += part * part
    lengths = 2.0 * half / (x_norm + y_norm)  # |x| - |y|
    pair[0] = orthogonal / (x_norm * y_norm * (1.0 - lengths * lengths / m2))
    pair[1] = 1.0 - 0.5 * pair[0]


@part()
def _matern(a: float, cubic: float) -> float:
    """2 - 2 (1 + a + cubic a^2) exp(-a); a series for small a."""
    if a > _SERIES_END:
        return 2.0 - 2.0 * (1.0 + a + cubic * a * a) * math.exp(-a)
    total, term = 0.0, -a
    for n in range(2, _SERIES_TERMS):
        term *= -a / n  # (-a)^n / n!
        total -= term * (1.0 - n + cubic * n * (n - 1))
    return 2.0 * total


@part()
def _leaf(code: int, parameters: Floats, columns: Floats, i: int, y: Floats, pair: Floats) -> None:
    """The three numbers of a built-in kernel."""
    if code == COSINE:
        _cosine(columns, i, y, pair)
        return
    _inner(columns, i, y, 1.0, pair)
    if code == LINEAR:
        return
    if code == POLYNOMIAL:
        c, degree = parameters[0], np.int64(parameters[1])
        if pair[1] < 0.0 and c == 0.0 and degree % 2 == 0:  # x and -x have the same features
            _inner(columns, i, y, -1.0, pair)
        pair[1] += c
        _power(pair, degree)
        return
    rate, t = parameters[0], pair[0]
    if code == LAPLACIAN:
        t = 0.0
        for j in range(len(y)):
            t += abs(columns[j, i] - y[j])
    elif code != GAUSSIAN:
        t = math.sqrt(t)
    if code in (GAUSSIAN, EXPONENTIAL, LAPLACIAN):
        pair[0] = -2.0 * math.expm1(-rate * t)
    else:
        pair[0] = _matern(rate * t, 1.0 / 3.0 if code == MATERN52 else 0.0)
    pair[1], pair[2] = 1.0 - 0.5 * pair[0], 0.0


@part()
def pair_distance(program: Program, columns: Floats, i: int, y: Floats, work: Floats) -> float:
    """The squared feature distance of point i to y, at least 0; `work` has the shape (program.stack_rows, 3).

    The program must not have a user's function.
    """
    d = columns.shape[0] - program.extra
    top = -1
    for step in range(program.operations.shape[0]):
        code, argument = program.operations[step]
        if code < USER:
            top += 1
            _leaf(code, program.parameters[argument:], columns, i, y[:d], work[top])
        elif code == SCALE:
            for j in range(3):
                work[top, j] *= program.parameters[argument]
        elif code == ADD:
            top -= 1
            for j in range(3):
                work[top, j] += work[top + 1, j]
        elif code == MULTIPLY:
            top -= 1
            _multiply(work[top], work[top + 1])
        else:  # NORMALIZE: a product with f(x) f(y), f = 1 / degree
            own, other = columns[d, i], y[d]
            difference, total = (other - own) / (own * other), (other + own) / (own * other)
            factor = work[top + 1]
            factor[0], factor[1], factor[2] = difference * difference, 1.0 / (own * other), 0.5 * difference * total
            _multiply(work[top], factor)
    squared: float = max(work[0, 0], 0.0)
    return squared


@part(kept=True, makes_arrays=True)
def correct_near(
    program: Program, columns: Floats, low: int, y: Floats, diagonal_tile: Floats, y_diagonal: float, tile: Floats
) -> None:
    """Replace the squared distances of points from `low` on that are small beside their norms, in place.

    Those of a user's function that are below the rounding error of its values become 0, so equal points are at
    distance 0. NaN stays NaN.
    """
    has_user = False
    for step in range(program.operations.shape[0]):
        has_user |= program.operations[step, 0] == USER
    work = np.empty((program.stack_rows, 3))
    for i in range(len(tile)):
        norms = diagonal_tile[i] + y_diagonal
        if has_user:
            if tile[i] <= NOISE * norms:
                tile[i] = 0.0
        elif tile[i] <= NEAR * norms:
            tile[i] = pair_distance(program, columns, low + i, y, work)


_typeof: Any = numba.typeof
_SIGNATURE = (
    _typeof(Program(np.zeros((1, 2), dtype=np.int64), np.zeros(1), False, 1, 0, 0, 0)),
    *(_typeof(value) for value in (np.zeros((1, 1)), 0, np.zeros(1), np.zeros(1), 0.0, np.zeros(1))),
)

call_correct_near: Any = calling(*_SIGNATURE)
"""call_correct_near(program.near, (program, ...)) in compiled code is `correct_near(program, ...)`."""


@cache
def near_address() -> int:
    """Return the address of `correct_near`, compiled on the first call."""
    return address_of(correct_near, _SIGNATURE)
