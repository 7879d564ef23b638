"""One compiled loop for labels by a grid: in each cell of a grid, squared distances to centers are polynomials.

The coefficients of a cell are contiguous, centers last, so that one multiplication serves several centers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.kernels.loops.tiles import FAST

TILE = 64  # so that all monomials of a tile stay in the first-level cache
LANES = 4
"""Centers that are evaluated together."""
OVERLAP = 1.001
"""How far a point may be from the middle of its cell, in halves of a side: rounding may choose the next cell."""


class Grid(NamedTuple):
    """Squared distances to all centers as a polynomial per cell of a grid."""

    low: Floats
    """Where the grid begins, shape (d,)."""
    counts: Ints
    """Grid per coordinate, shape (d,)."""
    side: float
    parents: Ints
    """Monomial t is monomial parents[t] times monomial coordinates[t]; monomial 0 is 1, the next d are coordinates."""
    coordinates: Ints
    table: Floats
    """Coefficients of shape (cells, monomials, centers), of coordinates from -1 to 1; as many centers as a multiple of
    `LANES`, those added infinitely far away."""


@part(fastmath=FAST)
def _locate(grid: Grid, j: int, given: Floats, m: int, local: Floats, cell: Floats, sure: NDArray[np.bool_]) -> None:
    """Write coordinate j of m points, from -1 to 1 in their cells, to `local`; continue the numbers of the cells."""
    low, count, side = grid.low[j], float(grid.counts[j]), grid.side
    per_side, per_half = 1.0 / side, 2.0 / side
    for i in range(m):
        place = (given[i] - low) * per_side
        inside = (place >= 0.0) & (place < count)  # not so for NaN
        place = np.floor(place) if inside else 0.0
        # The same number as in `Grid.middles`, where nodes are; fused or not is within its rounding.
        local[i] = (given[i] - (low + (place + 0.5) * side)) * per_half
        sure[i] = sure[i] & inside & (abs(local[i]) <= OVERLAP)
        cell[i] = cell[i] * count + place


@part(fastmath=FAST)
def _evaluate(table: Floats, size: int, terms: int, cell: Floats, monomials: Floats, m: int, out: Floats) -> None:
    """Write the polynomials of all centers at m points to `out`, `size` numbers per point.

    Numbers that are next to each other in memory are read and written together: the compiler makes vectors of them.
    """
    width = np.uint64(size)
    for i in range(m):
        begin = np.uint64(cell[i]) * np.uint64(terms) * width
        for c in range(0, size, LANES):
            at = begin + np.uint64(c)
            v, w, x, y = 0.0, 0.0, 0.0, 0.0
            for t in range(terms):
                factor = monomials[t, i]
                v += factor * table[at]
                w += factor * table[at + np.uint64(1)]
                x += factor * table[at + np.uint64(2)]
                y += factor * table[at + np.uint64(3)]
                at += width
            to = np.uint64(i) * width + np.uint64(c)
            out[to] = v
            out[to + np.uint64(1)] = w
            out[to + np.uint64(2)] = x
            out[to + np.uint64(3)] = y


@part(fastmath=FAST)
def _two_smallest(
    values: Floats,
    size: int,
    m: int,
    error: float,
    labels: Ints,
    first: Floats,
    second: Floats,
    sure: NDArray[np.bool_],
) -> None:
    for i in range(m):
        one, two, nearest = np.inf, np.inf, 0
        for c in range(size):
            value = values[i * size + c]
            closer = value < one
            middle = one if closer else value
            two = middle if middle < two else two
            nearest = c if closer else nearest
            one = value if closer else one
        labels[i] = nearest
        first[i] = one
        second[i] = two
        sure[i] = sure[i] & (two - one > 2.0 * error)


@compiled()
def label_by_grid(grid: Grid, columns: Floats, error: float, out: Nearest, sure: NDArray[np.bool_]) -> None:
    """The nearest and the second nearest center of points (d, n) and their squared distances, each off by `error`.

    Set sure[i] if no other center can be nearer; never for a point outside the grid, whose distances are not set right.
    """
    d, n = columns.shape
    terms, size = grid.table.shape[1:]
    table = grid.table.reshape(-1)
    monomials, cell, values = np.empty((terms, TILE)), np.empty(TILE), np.empty(TILE * size)
    for low in range(0, n, TILE):
        m = min(TILE, n - low)
        high = low + m
        for i in range(m):
            monomials[0, i] = 1.0
            cell[i] = 0.0
            sure[low + i] = True
        for j in range(d):
            _locate(grid, j, columns[j, low:high], m, monomials[j + 1], cell, sure[low:high])
        for t in range(d + 1, terms):
            one, two, product = monomials[grid.parents[t]], monomials[grid.coordinates[t]], monomials[t]
            for i in range(m):
                product[i] = one[i] * two[i]
        _evaluate(table, size, terms, cell, monomials, m, values)
        labels, first, second = out.labels[low:high], out.first[low:high], out.second[low:high]
        _two_smallest(values, size, m, error, labels, first, second, sure[low:high])
