"""Centers of a polynomial kernel written out in the monomials of the coordinates, if these are few.

    <phi(x), c> = sum_j a_j f (<x, s_j> + o)^p = sum over the monomials x^e of degree at most p of w_e x^e,
    w_e = f multinomial(p; e) o^(p - |e|) sum_j a_j s_j^e,

where only the degree p counts if the offset o is 0. In the plane and with p = 4 that is 5 monomials in place of a
thousand coreset points, and nothing is approximated.

Rounding
--------
w_e and x^e are products of at most p + 2 factors each, w_e is a sum of s terms, the score a sum of m: together
(s + m + 2 p + 8) units, relative to the sum of all |terms|. That sum is at most sum_j |a_j| f (<|x|, |s_j|> + o)^p, and
so at most sqrt(K(x, x)) reach with reach = sum_j |a_j| sqrt(K(s_j, s_j)). As in `landmarks`,
sqrt(K(x, x)) <= K(x, x) / (2 t) + t / 2 for any t saves a root per point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.loops.monomials import TERMS, Limits, Monomials, label_by_monomials
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.labelling.products import ManyCenters

_UNIT = 2.0**-53
_MOST = 64  # monomials of a tile: more do not stay in the first-level cache


@dataclass(frozen=True, eq=False)
class ByMonomials:
    """A rung of the ladder for polynomials: scores written out, proved unless two centers are nearly equally near."""

    plan: Monomials
    limits: Limits
    d: int

    @property
    def work(self) -> float:
        """Cost per row, in kernel values of the loops over columns."""
        k, terms = self.plan.factors.shape
        return float((len(self.plan.parents) + k * (terms + 8) + 20) / (20 + self.d))

    def run(self, rows: NDArray[Any], out: Nearest, sure: NDArray[np.bool_]) -> float:
        """Label rows (n, d); set sure[i] if the result is proved, and return the largest error among those."""
        columns = as_columns(np.asarray(rows, dtype=np.float64))
        return float(label_by_monomials(self.plan, columns, self.limits, out, sure))


def by_monomials(centers: ManyCenters, accuracy: float) -> ByMonomials | None:
    """Return the rung of a polynomial, or a multiple of one, with few monomials; None for other kernels."""
    program = evaluator_of(centers.kernel).values
    codes = [int(code) for code, _ in program.operations]
    if codes[0] != operations.POLYNOMIAL or any(code != operations.SCALE for code in codes[1:]):
        return None
    offset, degree = float(program.parameters[0]), int(program.parameters[1])
    d = centers.points.shape[1]
    if math.comb(d + degree, min(d, degree)) - 1 > _MOST:
        return None
    scale = float(np.prod([program.parameters[start] for _, start in program.operations[1:]]))
    exponents, parents, coordinates = _all_monomials(d, degree)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = _weights(centers, exponents, offset, degree) * scale
        constant = scale * offset**degree * centers.coefficients.sum(axis=1)
        offsets = centers.coefficients @ centers.diagonals - centers.spreads - 2.0 * constant
    if not (np.isfinite(weights).all() and np.isfinite(offsets).all()):
        return None
    used = np.flatnonzero(exponents.sum(axis=1) == degree) if offset == 0.0 else np.arange(len(exponents))
    count = -(-len(used) // TERMS) * TERMS
    terms, factors = np.zeros(count, dtype=np.int64), np.zeros((len(offsets), count))
    terms[: len(used)], factors[:, : len(used)] = used, -2.0 * weights[:, used]
    plan = Monomials(parents, coordinates, terms, factors, offsets, offset, degree, scale)
    return ByMonomials(plan, _limits(centers, count, degree, accuracy), d)


def _all_monomials(d: int, degree: int) -> tuple[Ints, Ints, Ints]:
    """Exponents of all monomials of degree 1 to `degree`, and of which two factors each is the product."""
    tuples = [chosen for size in range(1, degree + 1) for chosen in combinations_with_replacement(range(d), size)]
    place = {chosen: i for i, chosen in enumerate(tuples)}
    exponents = np.array([np.bincount(chosen, minlength=d) for chosen in tuples])
    parents = np.array([place.get(chosen[:-1], 0) for chosen in tuples])
    return exponents, parents, np.array([chosen[-1] for chosen in tuples])


def _weights(centers: ManyCenters, exponents: Ints, offset: float, degree: int) -> Floats:
    """w_e for every center and monomial, less the scale; shape (k, monomials)."""
    powers = np.prod(centers.points[:, np.newaxis, :] ** exponents, axis=2)
    sizes = exponents.sum(axis=1)
    counts = [
        math.factorial(degree) / (math.prod(map(math.factorial, own.tolist())) * math.factorial(degree - size))
        for own, size in zip(exponents, sizes.tolist(), strict=True)
    ]
    return np.asarray((centers.coefficients @ powers) * counts * offset ** (degree - sizes.astype(np.float64)))


def _limits(centers: ManyCenters, terms: int, degree: int, accuracy: float) -> Limits:
    s, d = centers.points.shape
    scales = np.sqrt(centers.diagonals)
    reach = float((np.abs(centers.coefficients) @ scales).max())
    typical = float(np.median(scales[scales > 0.0]))
    each = 2.0 * 1.01 * (s + terms + 2 * degree + 8) * _UNIT * reach
    relative, rest = centers.rounding
    own = 2.0 * degree * (d + 4) * _UNIT  # of K(x, x)
    return Limits(relative + each / (2.0 * typical) + own, rest + each * typical / 2.0, accuracy, centers.typical)
