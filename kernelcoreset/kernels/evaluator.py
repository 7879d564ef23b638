"""Fast evaluation of a kernel on many points, prepared once per kernel.

Points are columns, arrays of shape (d, n). Everything assumes validated input.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.errors import KernelError
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.interpreter import run_address
from kernelcoreset.kernels.loops.near import near_address
from kernelcoreset.kernels.loops.passes import Cloud, Rows
from kernelcoreset.kernels.program import Program, ProgramBuilder

if TYPE_CHECKING:
    from kernelcoreset.kernels.kernel import Kernel

LEAST = 1e-305
"""Costs and largest squared distances below this are not used: float64 has no digits left for their parts."""

_CHECKED_POINTS = 48


class Evaluator:
    """A kernel ready to be evaluated: its programs for K and for distances. Created by `evaluator_of`.

    Attributes
    ----------
    kernel : Kernel
    values : Program
        Gives K(x, y).
    distances : Program
        Gives exact squared distances if the kernel has a closed form for them, else K(x, y).
    is_user : bool
        Whether a user's function is part of the kernel. Such a kernel is checked; built-in ones need no check.
    moves : bool
        Whether distances, but not K, stay the same if all points move together: Linear, and its sums with kernels of
        x - y.
    """

    def __init__(self, kernel: Kernel) -> None:
        builder = ProgramBuilder()
        kernel.emit(builder)
        self.kernel = kernel
        # Exact programs need no correction of near points: then it is not compiled either.
        near = 0 if kernel.exact else near_address()
        self.values: Program = builder.program(False, run_address(), near)
        self.distances: Program = builder.program(kernel.exact, run_address(), near)
        self.is_user = bool(builder.functions)
        codes = {code for code, _ in builder.operations}
        self.moves = kernel.exact and operations.LINEAR in codes

    def block(self, columns: Floats, rows: Floats) -> Floats:
        """Return K of shape (rows, columns)."""
        out = np.empty((rows.shape[0], columns.shape[1]))
        passes.block(self.values, columns, np.require(rows, requirements=["C", "W"]), out)
        return self._finite(out, columns, rows)

    def squared_distances(self, columns: Floats, rows: Floats) -> Floats:
        """Return squared feature distances of shape (rows, columns), at least 0."""
        out = np.empty((rows.shape[0], columns.shape[1]))
        passes.distance_block(self.distances, self.cloud(columns), self.rows(rows), out)
        return self._finite(out, columns, rows)

    def _finite(self, out: Floats, columns: Floats, rows: Floats) -> Floats:
        if not np.isfinite(out).all():
            raise self.overflow("K(x, y)", np.concatenate([columns.T, rows]).T)
        return out

    def diagonal(self, columns: Floats) -> Floats:
        """Return K(x, x) of every point."""
        out = np.empty(columns.shape[1])
        passes.diagonal(self.values, columns, out)
        if not np.isfinite(out).all():
            raise self.overflow("K(x, x)", columns)
        if (out < 0).any():
            row = int(np.argmin(out))
            raise KernelError(
                f"K(x, x) must be at least 0; {self.kernel!r} gives {out[row]:g} at row {row}. "
                "It is not a kernel: fix the function."
            )
        return out

    def cloud(self, columns: Floats) -> Cloud:
        """Return many points as the passes need them, with K(x, x) only if it is used."""
        return Cloud(columns, np.empty(0) if self.distances.squared else self.diagonal(columns))

    def rows(self, rows: Floats) -> Rows:
        """Return a few points as the passes need them, with K(y, y) only if it is used."""
        rows = np.require(rows, requirements=["C", "W"])
        return Rows(rows, np.empty(0) if self.distances.squared else self.diagonal(as_columns(rows)))

    def check(self, columns: Floats) -> None:
        """Raise KernelError if a user's function is not finite, not symmetric, or has K(x, x) < 0, on a few points.

        Built-in kernels are kernels by proof and are not checked.
        """
        if not self.is_user:
            return
        some = np.unique(np.linspace(0, columns.shape[1] - 1, _CHECKED_POINTS).astype(np.int64))
        few = np.ascontiguousarray(columns[:, some])
        gram = self.block(few, few.T)
        self.diagonal(few)
        gap = np.abs(gram - gram.T)
        if gap.max() > 1e-8 * np.abs(gram).max():
            i, j = np.unravel_index(int(np.argmax(gap)), gap.shape)
            raise KernelError(
                f"A kernel must be symmetric; {self.kernel!r} gives K(x, y) = {gram[i, j]:g} and K(y, x) = "
                f"{gram[j, i]:g} for x = row {some[i]}, y = row {some[j]}. Use (f(x, y) + f(y, x)) / 2, or fix the "
                "function."
            )

    def overflow(self, what: str, columns: Floats) -> KernelError:
        """Return the error to raise if values of `what` at points (columns) are not finite."""
        if self.is_user:
            return KernelError(
                f"A kernel must be finite; {self.kernel!r} gives NaN or infinity, or raises an exception, for {what}. "
                "Fix the function."
            )
        return KernelError(
            f"Kernel values must fit in float64; {self.kernel!r} overflows for {what}. Scale the points (divide each "
            f"column by its standard deviation) or use a smaller degree. {_largest_column(columns)}"
        )

    def underflow(self, what: str, columns: Floats) -> KernelError:
        """Return the error to raise if values of `what` are so small that float64 loses their digits."""
        return KernelError(
            f"Kernel values must fit in float64; {self.kernel!r} underflows for {what}. Multiply the points by a "
            "constant (or divide each column by its standard deviation), or use a smaller z. "
            f"{_largest_column(columns)}"
        )


def _largest_column(columns: Floats) -> str:
    largest = np.abs(columns).max(axis=1)
    column = int(np.argmax(largest))
    return f"Column {column} holds the largest values (up to {largest[column]:g})."


@lru_cache(maxsize=128)
def evaluator_of(kernel: Kernel) -> Evaluator:
    """Return the evaluator of a kernel. Equal kernels share one."""
    return Evaluator(kernel)


def as_columns(points: Floats) -> Floats:
    """Return points (n, d) as contiguous, writable columns (d, n): no copy for Fortran order, one copy otherwise.

    Read-only input is copied too: numba would compile every pass again for read-only arrays.
    """
    return np.require(points.T, requirements=["C", "W"])
