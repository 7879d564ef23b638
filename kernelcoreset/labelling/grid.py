"""Squared distances to centers as polynomials in the cells of a grid: the first rung of the ladder, in few dimensions.

The squared distance f(x) = sum_j a_j D(x, s_j) - spread of a point to a center is a smooth function of x if the kernel
is smooth. In a cell of a fine grid it is replaced by a polynomial P of total degree p, which costs a few dozen
multiplications per point in place of dozens of kernel values. P is taken from values of f, by the formula itself, at as
many points as P has coefficients, so any kernel will do whose derivatives have known bounds.

The error
---------
Let B be a bound of the derivatives of f of order q = p + 1 in any direction, m the middle of the cell, h half its side,
u = (x - m) / h, and T the Taylor polynomial of f at m, with coefficients tau of the monomials u^e. Then
|f(x) - T(x)| <= B |x - m|^q / q!. The coefficients of P are w = W f(y), where f(y) are the values at the nodes y_t,
V the monomials at the nodes, and W the stored inverse of V, W V = I + F. Since f(y_t) = (V tau)_t + R_t,

    w - tau = F tau + W R,   |w - tau|_1 <= |F|_1 |tau|_1 + A,   A = sum_t L_t |R_t|,

with L_t the sum of |W| over column t. |F|_1 <= g, measured, gives |tau|_1 <= (|w|_1 + A) / (1 - g) and

    |w - tau|_1 <= (g |w|_1 + A) / (1 - g),

which bounds |P - T| in the cell, where |u_i| <= 1. R_t has three parts: the remainder B |y_t - m|^q / q!, the rounding
of f(y_t), and that of y_t itself. Nodes near m make the first part small and L_t large, which the rounding is
multiplied by. Evaluating P rounds |w|_1 by (terms + 3 p + 4) units. m is rounded in x - m, too: that moves x by a unit
of the largest coordinates. `OVERLAP` is part of |x - m| and of the powers of u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.grid import LANES, OVERLAP, Grid, label_by_grid
from kernelcoreset.kernels.loops.passes import Combinations, Nearest
from kernelcoreset.kernels.smoothness import derivative_bounds
from kernelcoreset.labelling.products import ManyCenters

_UNIT = 2.0**-53
_MOST_DIMENSIONS = 3
_DEGREES = range(2, 9)
_MOST_NODES = 16_384  # values of every center that are computed; with 8 centers, a table of a megabyte
_SHARE = 0.25  # of the error that a distance may have: the rest of it would leave more labels unproved
_REMAINDER = 0.9  # of that, the share of the remainder; the others are roundings
_NODES_WITHIN = 0.25  # nodes are at most so many halves of a side from the middle of their cell


@dataclass(frozen=True, eq=False)
class ByGrid:
    """A rung of the ladder in few dimensions: polynomials per cell, proved unless two centers are nearly equally near.

    Parameters
    ----------
    grid : Grid
    error : float
        Largest difference of a squared distance from its direct evaluation.
    """

    grid: Grid
    error: float

    def run(self, columns: Floats, out: Nearest, sure: NDArray[np.bool_]) -> float:
        """Label columns (d, n); set sure[i] if the result is proved, and return the largest error among those."""
        label_by_grid(self.grid, columns, self.error, out, sure)
        return self.error if sure.any() else 0.0


def by_grid(centers: ManyCenters, combinations: Combinations, accuracy: float) -> ByGrid | None:
    """Return the rung with the lowest degree that needs few cells; None if there is none, or the kernel is not smooth.

    Parameters
    ----------
    centers : ManyCenters
    combinations : Combinations
        The same centers as the formula needs them.
    accuracy : float
        As for `Centers.label_rows`.
    """
    d = centers.points.shape[1]
    bounds = derivative_bounds(evaluator_of(centers.kernel).values, _DEGREES[-1] + 1)
    allowed = _SHARE * accuracy * centers.typical
    if bounds is None or d > _MOST_DIMENSIONS or not allowed > 0.0:
        return None
    total = centers.entries.total
    low, high = centers.points.min(axis=0), centers.points.max(axis=0)
    for degree in _DEGREES:
        fit = _fit(d, degree)
        # The remainder decides on the side of a cell; all the rest is small or there is no grid.
        remainder = 2.0 * total * bounds[degree + 1] / math.factorial(degree + 1)
        half = (_REMAINDER * allowed / (remainder * fit.reach)) ** (1.0 / (degree + 1))
        with np.errstate(over="ignore"):
            counts = np.floor((high - low) / (2.0 * half)) + 3.0
        if np.prod(counts) * len(fit.nodes) <= _MOST_NODES:
            break
    else:
        return None
    # One more cell on each side: a coreset point is never at the edge.
    places = _Places(low - 2.0 * half, counts.astype(np.int64), 2.0 * half)
    coefficients = _coefficients(centers, combinations, places, fit)
    largest = float(np.abs(low).max() + np.abs(high).max()) + places.side * float(counts.max())
    moved = 2.0 * total * bounds[1] * 4.0 * d * _UNIT * largest
    error = _REMAINDER * allowed + _rounding(centers, coefficients, fit, moved)
    if not error <= allowed:
        return None
    return ByGrid(_grid(places, coefficients, fit), error)


class _Places(NamedTuple):
    low: Floats
    counts: Ints
    side: float

    @property
    def middles(self) -> Floats:
        """Middles of the cells along each coordinate."""
        return self.low[:, np.newaxis] + (np.arange(self.counts.max()) + 0.5) * self.side


class _Fit(NamedTuple):
    """How values at the nodes of a cell become the coefficients of a polynomial, in coordinates from -1 to 1."""

    parents: Ints
    coordinates: Ints
    nodes: Floats
    """Shape (terms, d)."""
    inverse: Floats
    """W, shape (terms, terms)."""
    unlike: float
    """g: how far W is from the inverse."""
    sizes: Floats
    """L, shape (terms,)."""
    reach: float
    """The error of P by the remainder, for a remainder of |u|^q: that of T, and that of the nodes."""
    degree: int


def _fit(d: int, degree: int) -> _Fit:
    tuples = [chosen for size in range(degree + 1) for chosen in combinations_with_replacement(range(d), size)]
    place = {chosen: i for i, chosen in enumerate(tuples)}
    parents = np.array([place[chosen[:-1]] for chosen in tuples])
    coordinates = np.array([1 + chosen[-1] if chosen else 0 for chosen in tuples])
    exponents = np.array([np.bincount(chosen, minlength=d) for chosen in tuples], dtype=np.int64).reshape(-1, d)
    # 0, 1, -1, 2, -2, ... for exponents 0, 1, 2, ...: monomials and nodes of a lower set determine each other.
    steps = np.array([(i + 1) // 2 * (1 if i % 2 else -1) for i in range(degree + 1)])
    nodes = steps[exponents] * (_NODES_WITHIN / max(1, (degree + 1) // 2))
    values = np.prod(nodes[:, np.newaxis, :] ** exponents, axis=2)
    inverse = np.linalg.inv(values)
    sizes = np.abs(inverse).sum(axis=0)
    off = inverse @ values - np.eye(len(values))
    measured = len(values) * _UNIT * np.abs(inverse) @ np.abs(values)
    unlike = float((np.abs(off) + measured).sum(axis=0).max())
    away = np.linalg.norm(nodes, axis=1) ** (degree + 1)
    reach = (OVERLAP * math.sqrt(d)) ** (degree + 1) + OVERLAP**degree * float(sizes @ away) / (1.0 - unlike)
    return _Fit(parents, coordinates, nodes, inverse, unlike, sizes, reach, degree)


def _coefficients(centers: ManyCenters, combinations: Combinations, places: _Places, fit: _Fit) -> Floats:
    """The coefficients w of every cell and center, shape (cells, terms, k)."""
    middles = places.middles
    axes = [middles[j, :count] for j, count in enumerate(places.counts)]
    cells = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    nodes = cells[:, np.newaxis, :] + fit.nodes * (0.5 * places.side)
    evaluator = evaluator_of(centers.kernel)
    values = np.empty((len(centers.coefficients), nodes.shape[0] * nodes.shape[1]))
    cloud = evaluator.cloud(as_columns(nodes.reshape(-1, len(axes))))
    passes.sum_directly(evaluator.distances, cloud, combinations, True, values)
    values -= centers.spreads[:, np.newaxis]
    each = values.reshape(len(values), len(cells), -1)
    return np.ascontiguousarray(np.einsum("et,ict->cei", fit.inverse, each))


def _rounding(centers: ManyCenters, coefficients: Floats, fit: _Fit, moved: float) -> float:
    """All of the error but the remainder; `moved` is the change of f by the rounding of a node, or of a point."""
    relative, rest = centers.rounding
    direct = relative * float(centers.diagonals.max()) + rest
    size = float(np.abs(coefficients).sum(axis=1).max())
    terms, total = len(fit.nodes), float(fit.sizes.sum())
    fitted = (fit.unlike * size + total * (direct + moved)) / (1.0 - fit.unlike) + 2.0 * (
        terms + 2
    ) * _UNIT * total * size
    evaluated = (terms + 3 * fit.degree + 4) * _UNIT * size
    return OVERLAP**fit.degree * (fitted + evaluated) + direct + moved


def _grid(places: _Places, coefficients: Floats, fit: _Fit) -> Grid:
    count, terms, k = coefficients.shape
    table = np.zeros((count, terms, -(-k // LANES) * LANES))
    table[:, 0, k:] = np.inf
    table[:, :, :k] = coefficients
    return Grid(places.low, places.counts, places.side, fit.parents, fit.coordinates, table)
