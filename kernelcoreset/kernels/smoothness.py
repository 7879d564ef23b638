"""How smooth a kernel is: bounds of its derivatives, which bound the error of a polynomial in its place."""

from __future__ import annotations

import math

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.program import Program

_CRAMER = 1.0865  # |H(t)| exp(-t^2 / 2) <= this sqrt(n!) for the n-th Hermite polynomial H, by Cramer's inequality


def derivative_bounds(program: Program, most: int) -> Floats | None:
    """Return b of shape (most + 1,): every derivative of order n of x -> K(x, y), in any direction, is at most b[n].

    This holds for all x and y. K(x, x) is the same for all x, so derivatives of a squared distance are at most twice as
    large. None for kernels that are not sums, products and multiples of Gaussians.

    Along a line a Gaussian is a factor of at most 1 times a Gaussian of one variable, exp(-t^2 / 2) with
    t = |x - y| / sigma, whose n-th derivative is a Hermite polynomial times itself. Products follow Leibniz.
    """
    stack: list[Floats] = []
    for code, start in program.operations:
        if code == operations.GAUSSIAN:
            sigma = math.sqrt(0.5 / program.parameters[start])
            bounds = [_CRAMER * math.sqrt(math.factorial(n)) / sigma**n for n in range(1, most + 1)]
            stack.append(np.array([1.0, *bounds]))
        elif code == operations.SCALE and stack:
            stack[-1] = abs(program.parameters[start]) * stack[-1]
        elif code == operations.ADD and len(stack) > 1:
            stack[-2:] = [stack[-2] + stack[-1]]
        elif code == operations.MULTIPLY and len(stack) > 1:
            stack[-2:] = [_product(stack[-2], stack[-1])]
        else:
            return None
    return stack[0]


def _product(one: Floats, two: Floats) -> Floats:
    return np.array([sum(math.comb(n, i) * one[i] * two[n - i] for i in range(n + 1)) for n in range(len(one))])
