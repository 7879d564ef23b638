"""A kernel as a program: operations in postfix order, which compiled loops run tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.errors import KernelError
from kernelcoreset.kernels.loops.user_tile import user_tile

# Operation codes. The first line pushes the values of a kernel onto the stack, the second changes the stack.
GAUSSIAN, EXPONENTIAL, LAPLACIAN, MATERN32, MATERN52, POLYNOMIAL, LINEAR, COSINE, USER = range(9)
ADD, MULTIPLY, SCALE, NORMALIZE = range(9, 13)


class Program(NamedTuple):
    """A kernel as the compiled loops need it."""

    operations: Ints
    """Rows of (code, argument): where the parameters start or, for USER, the address of the compiled loop."""
    parameters: Floats
    squared: bool
    """Whether the program gives exact squared distances instead of K(x, y). Then K(x, x) is not needed."""
    stack_rows: int
    extra: int
    """1 if the last coordinate of a point is its degree, which only the operation NORMALIZE reads; else 0."""
    address: int
    """Of the compiled interpreter, which the passes call."""
    near: int
    """Address of the compiled correction of distances of near points, which the passes call too."""


class ProgramBuilder:
    """Collects the operations of a kernel in postfix order."""

    def __init__(self) -> None:
        self.operations: list[tuple[int, int]] = []
        self.parameters: list[float] = []
        self.functions: list[Callable[..., Any]] = []
        self.height = 0
        self.tallest = 0
        self.extra = 0

    def push(self, code: int, *parameters: float) -> None:
        """Append: push the values of a built-in kernel."""
        self._push((code, self._keep(parameters)))

    def push_user(self, function: Callable[..., Any]) -> None:
        """Append: push the values of a user's function."""
        self.functions.append(function)
        self._push((USER, user_tile(function).address))

    def fold(self, code: int) -> None:
        """Append: combine the two top entries, by ADD or MULTIPLY."""
        self.operations.append((code, 0))
        self.height -= 1

    def scale(self, factor: float) -> None:
        """Append: multiply the top entry by a factor."""
        self.operations.append((SCALE, self._keep((factor,))))

    def normalize(self) -> None:
        """Append: divide the top entry by the degrees of both points, which are their last coordinates."""
        self.operations.append((NORMALIZE, 0))
        self.extra = 1

    def program(self, squared: bool, address: int, near: int) -> Program:
        """Return the program, to be run by compiled code at these addresses. Its stack has one more row for working."""
        if NORMALIZE in [code for code, _ in self.operations[:-1]]:
            raise KernelError(
                "A normalized kernel cannot be part of another kernel. Combine the kernels first, then normalize."
            )
        parameters = np.array([*self.parameters, 0.0])  # never empty, so a slice at any offset is valid
        codes = np.array(self.operations, dtype=np.int64)
        return Program(codes, parameters, squared, self.tallest + 1, self.extra, address, near)

    def _push(self, operation: tuple[int, int]) -> None:
        self.operations.append(operation)
        self.height += 1
        self.tallest = max(self.tallest, self.height)

    def _keep(self, parameters: tuple[float, ...]) -> int:
        """Keep the parameters of an operation and return where they start."""
        start = len(self.parameters)
        self.parameters.extend(parameters)
        return start
