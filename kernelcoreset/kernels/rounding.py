"""How far kernel values from matrix products may be off: a proved bound on their rounding.

Let u be the unit of the precision (2^-24 or 2^-53), v = 2^-53, g(d) = d u / (1 - d u), and X = |x|, Y = max |y| of the
centred vectors. A rounded vector is off by u X, so a squared distance of two is off by (2 u + u^2) (X + Y)^2, at most
5 u (X^2 + Y^2). BLAS may add the d terms of an inner product in any order, which is off by g(d) X Y. The squared norms
are sums in float64 rounded once, off by (u + d v) X^2; putting the three together rounds twice more, at most
3 u (X^2 + Y^2). Together, a squared distance q is off by

    E = 2 g(d) X Y + (10 u + 2 d v) (X^2 + Y^2).

An inner product of the vectors as given is that of the centred ones plus <x, mean>, <y, mean> and |mean|^2, which are
summed in float64. With M = (X + |mean|) (Y + |mean|), it is off by

    T = g(d) X Y + (10 u + 2 d v) M.

From there to K: exp(-r q) has the relative error expm1(r E) + 4 u r Q, where Q = 2 (X^2 + Y^2) is the largest q; the
second part stands for rounding r and r q, also if r is multiplied into the three terms of q before these are added. It
is off by 8 u more, for the exponential itself, and by 1e-37 where the exponent was cut off. A root of q is off by
min(sqrt(E), E / sqrt(q)). The slope of Matern's K as a function of q is at most a^2 / 2 for nu = 3/2 and a^2 / 6 for
nu = 5/2, with a the factor of the distance. A power of degree p is off by (B + e)^p - B^p + 2 p u B^p if its base, at
most B, is off by e. Cosine is T / (|x| |y|) without centring: g(d) + 16 u + 4 d v. Sums and products follow from the
largest values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.kernels import program as operations

Precision = Literal["float32", "float64"]

_UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}  # largest relative rounding of one operation
_CUT_OFF = {"float32": 1e-37, "float64": 1e-300}  # more than what underflow or a cut-off exponent loses
_LARGEST = {"float32": 1e15, "float64": 1e150}  # of |x|: beyond, squares come near to the limits of the precision


class Bound(NamedTuple):
    """Bounds on the rounding, per row and for every prepared point: at most absolute + relative * |K|.

    The relative part is not 0 only for a decreasing function of the distance, whose K(x, x) is `largest`.
    """

    absolute: Floats
    relative: Floats
    largest: Floats
    """Largest possible |K|, or half of the largest squared distance."""

    @property
    def total(self) -> Floats:
        """The bound for any K."""
        return self.absolute + self.relative * self.largest


class Sizes(NamedTuple):
    """How large the vectors are that were multiplied."""

    d: int
    norms: Floats
    """|x|^2 of the rows, centred."""
    longest: Floats | float
    """Largest |y| of the prepared points, centred, or of those of each row."""
    shortest: float
    """Smallest |y| other than 0."""
    offset: float
    """|mean|."""
    nearest: Floats | None = None
    """Smallest |x - y|^2 of each row as computed, if known."""


@dataclass(frozen=True)
class Rounding:
    """What each operation of a kernel's program does to the bound.

    With `squared`, the program computes exact squared distances instead of K.
    """

    precision: Precision
    sizes: Sizes
    squared: bool

    @property
    def unit(self) -> float:
        """Largest relative rounding of one operation."""
        return _UNIT[self.precision]

    @cached_property
    def _terms(self) -> float:
        """g(d)."""
        share = self.sizes.d * self.unit
        return share / (1.0 - share) if share < 0.5 else np.inf

    @cached_property
    def _each(self) -> float:
        return 10.0 * self.unit + 2.0 * self.sizes.d * _UNIT["float64"]

    @cached_property
    def _lengths(self) -> Floats:
        return np.sqrt(self.sizes.norms)

    @cached_property
    def _squares(self) -> Floats:
        return self.sizes.norms + self.sizes.longest**2

    @cached_property
    def _lost(self) -> Floats:
        return self.sizes.d * _CUT_OFF[self.precision] * (1.0 + self._lengths + self.sizes.longest)

    @cached_property
    def _of_distances(self) -> Floats:
        """E, infinite for vectors that are too long."""
        x, y, most = self._lengths, self.sizes.longest, _LARGEST[self.precision]
        off = 2.0 * self._terms * x * y + self._each * self._squares + self._lost
        return np.where((x <= most) & (y <= most), off, np.inf)

    @cached_property
    def _largest_inner(self) -> Floats:
        return (self._lengths + self.sizes.offset) * (self.sizes.longest + self.sizes.offset)

    @cached_property
    def _of_inner(self) -> Floats:
        """T, infinite for vectors that are too long."""
        off = self._terms * self._lengths * self.sizes.longest + self._each * self._largest_inner + self._lost
        return np.where(self._largest_inner <= _LARGEST[self.precision] ** 2, off, np.inf)

    def leaf(self, code: int, own: Floats) -> Bound:
        """Return the bound of one built-in kernel with these parameters."""
        zero = np.zeros(len(self.sizes.norms))
        if code == operations.LINEAR:
            if self.squared:
                return Bound(self._of_distances, zero, self._squares)
            return Bound(self._of_inner, zero, self._largest_inner)
        if code == operations.POLYNOMIAL:
            base = self._largest_inner + own[0]
            off = self._of_inner + 2.0 * self.unit * base
            largest = base ** own[1]
            return Bound((base + off) ** own[1] - largest + 2.0 * own[1] * self.unit * largest, zero, largest)
        if code == operations.COSINE:
            # The length of a vector that underflows is not known.
            most = _LARGEST[self.precision]
            known = (self._lengths >= 1.0 / most) & (self._lengths <= most) & (self.sizes.shortest >= 1.0 / most)
            return Bound(np.where(known, self._terms + 2.0 * self._each, np.inf), zero, zero + 1.0)
        if code in (operations.MATERN32, operations.MATERN52):
            slope = own[0] ** 2 / (2.0 if code == operations.MATERN32 else 6.0)
            return Bound(slope * self._of_distances + 32.0 * self.unit, zero, zero + 1.0)
        return self._exponential(own[0], code == operations.EXPONENTIAL)

    def _exponential(self, rate: float, of_root: bool) -> Bound:
        zero = np.zeros(len(self.sizes.norms))
        off, farthest = self._of_distances, 2.0 * self._squares
        if of_root:
            nearest, farthest = self.sizes.nearest, np.sqrt(farthest)
            off = np.sqrt(off) if nearest is None else off / np.sqrt(np.maximum(nearest, off))
        relative = np.expm1(rate * off) + 4.0 * self.unit * rate * farthest
        factor = 2.0 if self.squared else 1.0
        absolute = zero + factor * (8.0 * self.unit + _CUT_OFF[self.precision])
        return Bound(absolute, factor * relative, zero + 1.0)

    def add(self, one: Bound, two: Bound) -> Bound:
        """Return the bound of a sum."""
        largest = one.largest + two.largest
        return Bound(one.total + two.total + 4.0 * self.unit * largest, np.zeros(len(largest)), largest)

    def multiply(self, one: Bound, two: Bound) -> Bound:
        """Return the bound of a product."""
        largest = one.largest * two.largest
        error = one.largest * two.total + two.largest * one.total + one.total * two.total
        return Bound(error + 4.0 * self.unit * largest, np.zeros(len(largest)), largest)

    def scale(self, one: Bound, factor: float) -> Bound:
        """Return the bound of a multiple."""
        largest = one.largest * factor
        return Bound(one.absolute * factor + 4.0 * self.unit * largest, one.relative, largest)
