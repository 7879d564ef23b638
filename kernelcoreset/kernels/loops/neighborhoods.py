"""Compiled loop that compares a point with the centers near to it only, if there are many centers in few columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.passes import Cloud, Nearest, Rows, distances
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.kernels.program import Program

BATCH = 64
"""Points of centers that are compared with a point at a time; a few centers have about so many."""
ROUNDINGS = 6.0
"""Roundings of a squared distance that two of them must differ by, see `labelling.neighborhoods`."""


class Neighborhoods(NamedTuple):
    """Pivots in two levels, the centers near to each pivot, and the points that the centers are made of."""

    heads: Cloud
    """Some of the pivots: the first level."""
    starts: Ints
    """Those nearest to head h are the pivots starts[h] <= p < starts[h + 1]."""
    pivots: Cloud
    centers: Ints
    """The centers nearest to each pivot, in the order of their distance; shape (pivots, length)."""
    apart: Floats
    """At most the distance of a pivot to these centers, then to all that are not listed; shape (pivots, length + 1)."""
    points: Cloud
    """Those of center 0, those of center 1, and so on."""
    ends: Ints
    """The points of center c are ends[c] <= j < ends[c + 1]."""
    factors: Floats
    spreads: Floats


@part()
def _nearest(
    program: Program, cloud: Cloud, low: int, high: int, rows: Rows, r: int, stack: Floats
) -> tuple[int, float]:
    """Return which of the points low..high is nearest to row r, and the squared distance."""
    best, at = np.inf, low
    for start in range(low, high, TILE):
        end = min(start + TILE, high)
        distances(program, cloud, start, end, rows, r, 2.0, stack)
        for i in range(end - start):
            if stack[0, i] < best:
                best, at = stack[0, i], start + i
    return at, best


@part()
def _gather(near: Neighborhoods, c: int, batch: Cloud, m: int) -> int:
    """Append the points of center c to a batch of m points; return how many it then has."""
    low, high = int(near.ends[c]), int(near.ends[c + 1])
    for j in range(batch.columns.shape[0]):
        for i in range(low, high):
            batch.columns[j, m + i - low] = near.points.columns[j, i]
    if batch.diagonals.shape[0] > 0:
        for i in range(low, high):
            batch.diagonals[m + i - low] = near.points.diagonals[i]
    return m + high - low


@part()
def _square(lower: float) -> float:
    return lower * lower if lower > 0.0 else 0.0


@compiled(nogil=True)
def label_by_neighborhoods(
    program: Program, rows: Rows, roundings: Floats, near: Neighborhoods, both: bool, out: Nearest, sure: Any
) -> int:
    """As `label_directly`, from the centers near to each row alone; return how many kernel values were needed.

    Centers come in the order of their distance to a pivot p near x. One at the distance a from p is at least
    a - d(x, p) away from x: the search ends where that is more than the distance to the best so far, or with `both` to
    the second best. Set sure[i] if the result is proved. Without `both`, `out.second` is only a lower bound.
    """
    d, length = near.points.columns.shape[0], near.centers.shape[1]
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    batch = Cloud(np.empty((d, np.int64(TILE))), np.empty(np.int64(TILE if len(near.points.diagonals) > 0 else 0)))
    total = 0
    for r in range(rows.points.shape[0]):
        head, _ = _nearest(program, near.heads, 0, near.starts.shape[0] - 1, rows, r, stack)
        low, high = near.starts[head], near.starts[head + 1]
        pivot, square = _nearest(program, near.pivots, low, high, rows, r, stack)
        total += near.starts.shape[0] - 1 + high - low
        slack = ROUNDINGS * roundings[r]
        reach, apart, centers = np.sqrt(square + roundings[r]), near.apart[pivot], near.centers[pivot]
        limit = reach + apart[min(1, length - 1) if both else 0]
        limit = limit * limit + slack
        first, second, label = np.inf, np.inf, 0
        place, is_open = 0, True
        while is_open:
            begin, m = place, 0
            while place < length and m < BATCH:
                if _square(apart[place] - reach) > limit:
                    is_open = False
                    break
                m = _gather(near, centers[place], batch, m)
                place += 1
            is_open = is_open and place < length
            distances(program, batch, 0, m, rows, r, 2.0, stack)
            total += m
            e = 0
            for t in range(begin, place):
                c = centers[t]
                value = -near.spreads[c]
                for j in range(near.ends[c], near.ends[c + 1]):
                    value += near.factors[j] * stack[0, e]
                    e += 1
                if value < first:
                    first, second, label = value, first, c
                elif value < second:
                    second = value
            limit = (second if both else first) + slack
        beyond = _square(apart[place] - reach)
        # Not sure if a distance is not a number.
        sure[r] = min(second, beyond) - first > slack and (not both or beyond > limit)
        out.labels[r], out.first[r], out.second[r] = label, first, second if both else min(second, beyond)
    return total
