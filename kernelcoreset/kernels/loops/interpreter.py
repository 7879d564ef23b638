"""The compiled interpreter: runs the program of a kernel on one tile of points.

The passes call it by its address, once per tile. So they are compiled without it, each in tenths of a second instead of
one or two seconds. Its own functions are long: numba takes a tenth of a second for even the shortest.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.jit import address_of, calling, part
from kernelcoreset.kernels.loops.tiles import FARTHEST, FAST, expm1_of_minus
from kernelcoreset.kernels.loops.user_tile import call_user_tile
from kernelcoreset.kernels.program import (
    ADD,
    COSINE,
    EXPONENTIAL,
    LAPLACIAN,
    LINEAR,
    MATERN32,
    MATERN52,
    NORMALIZE,
    POLYNOMIAL,
    SCALE,
    USER,
    Program,
)

# What a kernel is a function of. NOTHING is that of a point and itself, if the kernel is a function of distances.
_SQUARED_L2, _L1, _INNER, _NORMS, _NOTHING = range(5)


@part(fastmath=FAST)
def _measure(kind: int, columns: Floats, d: int, low: int, high: int, y: Floats, out: Floats) -> None:
    """out[i] = sum_j (x_ij - y_j)^2, sum_j |x_ij - y_j|, sum_j x_ij y_j, sum_j x_ij^2 or 0, over d coordinates.

    Four coordinates per loop: a third of the loads and stores of one coordinate at a time.
    """
    if kind == _NOTHING:
        d = 0
    m = high - low
    out[:m] = 0.0
    j = 0
    while j + 4 <= d and (kind == _SQUARED_L2 or kind == _INNER):
        a, b, c, e = columns[j, low:high], columns[j + 1, low:high], columns[j + 2, low:high], columns[j + 3, low:high]
        ya, yb, yc, ye = y[j], y[j + 1], y[j + 2], y[j + 3]
        if kind == _INNER:
            for i in range(m):
                out[i] += (a[i] * ya + b[i] * yb) + (c[i] * yc + e[i] * ye)
        else:
            for i in range(m):
                da, db, dc, de = a[i] - ya, b[i] - yb, c[i] - yc, e[i] - ye
                out[i] += (da * da + db * db) + (dc * dc + de * de)
        j += 4
    while j + 2 <= d and kind == _SQUARED_L2:
        a, b = columns[j, low:high], columns[j + 1, low:high]
        ya, yb = y[j], y[j + 1]
        for i in range(m):
            da, db = a[i] - ya, b[i] - yb
            out[i] += da * da + db * db
        j += 2
    while j < d:
        a = columns[j, low:high]
        ya = 0.0 if kind == _NORMS else y[j]
        if kind == _SQUARED_L2:
            for i in range(m):
                da = a[i] - ya
                out[i] += da * da
        elif kind == _L1:
            for i in range(m):
                out[i] += abs(a[i] - ya)
        elif kind == _INNER:
            for i in range(m):
                out[i] += a[i] * ya
        else:
            for i in range(m):
                out[i] += a[i] * a[i]
        j += 1


@part(fastmath=FAST)
def _decay(code: int, rate: float, m: int, squared: bool, out: Floats) -> None:
    """From distances to a kernel that falls with them, in place.

    With a = rate * distance, or rate * squared distance for Gaussian: exp(-a), or the squared feature distance
    2 - 2 exp(-a) without cancellation for small a; (1 + a) exp(-a) and (1 + a + a^2/3) exp(-a) for Matern.
    """
    if code == EXPONENTIAL or code == MATERN32 or code == MATERN52:
        for i in range(m):
            out[i] = np.sqrt(out[i])
    if code == MATERN32 or code == MATERN52:
        cubic = 0.0 if code == MATERN32 else 1.0 / 3.0
        for i in range(m):
            a = out[i] * rate
            a = FARTHEST if a > FARTHEST else a
            out[i] = (1.0 + a + cubic * (a * a)) * (1.0 + expm1_of_minus(a))
    else:
        offset, factor = (0.0, -2.0) if squared else (1.0, 1.0)
        for i in range(m):
            out[i] = offset + factor * expm1_of_minus(out[i] * rate)


@part(fastmath=FAST)
def _powers(offset: float, degree: int, m: int, out: Floats) -> None:
    """(t + offset)^degree, in place. Up to degree 4 without a branch inside the loop, so that it vectorises."""
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
    elif degree == 4:
        for i in range(m):
            t = out[i] + offset
            t *= t
            out[i] = t * t
    else:
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


@part(fastmath=FAST, error_model="numpy")  # a division that may raise, or is not always made, would not vectorise
def _cosine(m: int, y: Floats, d: int, norms: Floats, on_itself: bool, out: Floats) -> None:
    """From <x, y> and |x|^2 to <x, y> / (|x| |y|), zero if either is the zero vector; in place."""
    square = 0.0
    for j in range(d):
        square += y[j] * y[j]
    y_norm = np.sqrt(square)
    if on_itself:
        for i in range(m):
            out[i] = 1.0 if out[i] > 0.0 else 0.0
    else:
        for i in range(m):
            norm = np.sqrt(norms[i]) * y_norm
            cosine = out[i] / norm
            out[i] = cosine if norm > 0.0 else 0.0


@part(fastmath=FAST)
def _combine(code: int, factor: float, m: int, below: Floats, above: Floats) -> None:
    """Add or multiply two entries of the stack, or scale the upper one, in place."""
    if code == SCALE:
        for i in range(m):
            above[i] *= factor
    elif code == ADD:
        for i in range(m):
            below[i] += above[i]
    else:
        for i in range(m):
            below[i] *= above[i]


@part(kept=True, fastmath=FAST)
def run(program: Program, columns: Floats, low: int, high: int, y: Floats, on_itself: bool, stack: Floats) -> None:
    """Write K(x, y), or the exact squared distance, of points low..high to stack[0]; K(x, x) with `on_itself`.

    The last row of the stack is working space. Parts of arrays are made where they are used only: each takes as long as
    a dozen kernel values, and few points may be asked for.
    """
    m = high - low
    d = columns.shape[0] - program.extra
    top = -1
    for step in range(program.operations.shape[0]):
        code, argument = program.operations[step, 0], program.operations[step, 1]
        if code == USER:
            top += 1
            call_user_tile(argument, columns, columns.shape[1], low, m, d, y, on_itself, stack[top])
        elif code < USER:
            top += 1
            out, first = stack[top], program.parameters[argument]
            of_products = code == POLYNOMIAL or code == COSINE or (code == LINEAR and not program.squared)
            if on_itself:
                kind = _NORMS if of_products else _NOTHING
            else:
                kind = _INNER if of_products else (_L1 if code == LAPLACIAN else _SQUARED_L2)
            _measure(kind, columns, d, low, high, y, out)
            if code == POLYNOMIAL:
                _powers(first, np.int64(program.parameters[argument + 1]), m, out)
            elif code == COSINE:
                scratch = stack[stack.shape[0] - 1]
                _measure(np.int64(_NORMS), columns, d, low, high, y, scratch)
                _cosine(m, y, d, scratch, on_itself, out)
            elif code != LINEAR:
                _decay(code, first, m, program.squared, out)
        elif code == NORMALIZE:
            out, degrees = stack[top], columns[d, low:high]
            other = 1.0 if on_itself else y[d]
            for i in range(m):
                out[i] /= degrees[i] * other
            if on_itself:
                for i in range(m):
                    out[i] /= degrees[i]
        else:
            _combine(code, program.parameters[argument], m, stack[top - 1 if top > 0 else 0], stack[top])
            if code != SCALE:
                top -= 1


_typeof: Any = numba.typeof
_SIGNATURE = (
    _typeof(Program(np.zeros((1, 2), dtype=np.int64), np.zeros(1), False, 1, 0, 0, 0)),
    *(_typeof(value) for value in (np.zeros((1, 1)), 0, 0, np.zeros(1), False, np.zeros((1, 1)))),
)

call_run: Any = calling(*_SIGNATURE)
"""call_run(program.address, (program, columns, ...)) in compiled code is `run(program, columns, ...)`."""


@cache
def run_address() -> int:
    """Return the address of `run`, compiled on the first call."""
    return address_of(run, _SIGNATURE)
