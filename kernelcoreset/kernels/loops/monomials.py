"""One compiled loop for labels by a polynomial kernel with few monomials, whose centers are written out.

<x, c> is a polynomial in the coordinates of x. Its monomials, K(x, x), the scores of all centers, the two smallest and
the certificate are computed for a tile of points before the next one is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.kernels.loops.tiles import FAST

TILE = 256  # so that all monomials of a tile stay in the first-level cache
TERMS = 5
"""Terms of a score that are added up in one loop: as many as there are monomials of degree 4 in the plane."""


class Monomials(NamedTuple):
    """Scores c.c - 2 <x, c> as polynomials in the coordinates of x."""

    parents: Ints
    """Monomial m is monomial parents[m] times coordinate coordinates[m]; the first d are the coordinates themselves."""
    coordinates: Ints
    terms: Ints
    """The monomials that scores use; as many as a multiple of `TERMS`."""
    factors: Floats
    """Shape (k, terms)."""
    offsets: Floats
    """Shape (k,)."""
    offset: float
    """K(x, x) = scale * (|x|^2 + offset)^degree."""
    degree: int
    scale: float


class Limits(NamedTuple):
    """When a label and a distance count as proved."""

    rounding: float
    """Rounding of a squared distance, relative to K(x, x)."""
    norms: float
    """Rounding that does not depend on K(x, x)."""
    accuracy: float
    typical: float


@part(fastmath=FAST)
def _fill(plan: Monomials, columns: Floats, low: int, m: int, tiles: Floats, own: Floats) -> None:
    """Write the monomials of points low..low + m to `tiles`, and K(x, x) to `own`."""
    d = columns.shape[0]
    own[:m] = plan.offset
    for j in range(d):
        given, tile = columns[j, low : low + m], tiles[j]
        for i in range(m):
            tile[i] = given[i]
            own[i] += given[i] * given[i]
    for t in range(d, len(plan.parents)):
        one, two, tile = tiles[plan.parents[t]], tiles[plan.coordinates[t]], tiles[t]
        for i in range(m):
            tile[i] = one[i] * two[i]
    base = tiles[-1]
    for i in range(m):
        base[i] = own[i]
        own[i] *= plan.scale
    for _ in range(plan.degree - 1):
        for i in range(m):
            own[i] *= base[i]


@part(fastmath=FAST)
def _score(
    plan: Monomials, tiles: Floats, c: int, m: int, score: Floats, nearest: Ints, first: Floats, second: Floats
) -> None:
    """Compute the scores of center c, the last terms together with the two smallest scores so far."""
    own, terms = plan.factors[c], plan.terms
    score[:m] = plan.offsets[c]
    last = len(terms) - TERMS
    for t in range(0, len(terms), TERMS):
        v, w, x = tiles[terms[t]], tiles[terms[t + 1]], tiles[terms[t + 2]]
        y, z = tiles[terms[t + 3]], tiles[terms[t + 4]]
        fv, fw, fx, fy, fz = own[t], own[t + 1], own[t + 2], own[t + 3], own[t + 4]
        if t < last:
            for i in range(m):
                score[i] += ((fv * v[i] + fw * w[i]) + (fx * x[i] + fy * y[i])) + fz * z[i]
        else:
            for i in range(m):
                value = score[i] + (((fv * v[i] + fw * w[i]) + (fx * x[i] + fy * y[i])) + fz * z[i])
                before = first[i]
                closer = value < before
                middle = before if closer else value
                first[i] = value if closer else before
                nearest[i] = c if closer else nearest[i]
                second[i] = middle if middle < second[i] else second[i]


@part(fastmath=FAST)
def _certify(own: Floats, m: int, limits: Limits, first: Floats, second: Floats, sure: NDArray[np.bool_]) -> float:
    """Turn scores into squared distances and set sure[i] if they are proved; return the largest error among those."""
    worst = 0.0
    for i in range(m):
        slack = limits.rounding * own[i] + limits.norms
        gap = second[i] - first[i]
        first[i] += own[i]
        second[i] += own[i]
        least = max(first[i] - slack, 0.0)
        good = (gap > 2.0 * slack) & (slack <= limits.accuracy * (least + limits.typical))
        sure[i] = good
        error = slack if good else 0.0
        worst = error if error > worst else worst
    return worst


@compiled()
def label_by_monomials(
    plan: Monomials, columns: Floats, limits: Limits, out: Nearest, sure: NDArray[np.bool_]
) -> float:
    """The nearest and the second nearest center of every point; set sure[i] if proved, return the largest error.

    A score that is not finite is never smaller than another one, and a point with such scores is never sure.
    """
    n = columns.shape[1]
    tiles = np.empty((len(plan.parents) + 1, TILE))
    own, score = np.empty(TILE), np.empty(TILE)
    worst = 0.0
    for low in range(0, n, TILE):
        m = min(TILE, n - low)
        labels, first, second = out.labels[low : low + m], out.first[low : low + m], out.second[low : low + m]
        _fill(plan, columns, low, m, tiles, own)
        labels[:] = 0
        first[:] = np.inf
        second[:] = np.inf
        for c in range(len(plan.offsets)):
            _score(plan, tiles, c, m, score, labels, first, second)
        worst = max(worst, _certify(own, m, limits, first, second, sure[low : low + m]))
    return worst
