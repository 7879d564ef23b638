"""Compiled passes over all points. A kernel is a small program that runs tile by tile.

A program is a list of operations in postfix order, so sums and products of kernels run in the same compiled code as a
single kernel: `Gaussian + 2 * Linear` is "push Gaussian, push Linear, scale, add". Operations are chosen once per tile,
which costs almost nothing. No pass is compiled again for another parameter, combination or user's function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.center_tiles import (
    Bounds,
    add_combination,
    add_scaled,
    certify,
    certify_sums,
    subtract_projection,
    two_nearest,
)
from kernelcoreset.kernels.loops.interpreter import call_run
from kernelcoreset.kernels.loops.near import BLOCK, NEAR, call_correct_near
from kernelcoreset.kernels.loops.tiles import (
    TILE,
    copy,
    keep_nearest,
    subtract_values,
    to_power,
    weighted_sum,
)
from kernelcoreset.kernels.program import Program

GROUP = 16  # landmarks evaluated before their values are used, so that these stay in the second-level cache


class Cloud(NamedTuple):
    """Many points: columns of shape (d, n), and K(x, x) of each (empty if the program is exact)."""

    columns: Floats
    diagonals: Floats


class Rows(NamedTuple):
    """A few points, to which the many are compared: rows of shape (m, d), and K(y, y) of each."""

    points: Floats
    diagonals: Floats


class NearestPivots(NamedTuple):
    """What is known, per point, of the pivots so far."""

    distances: Floats
    """distance^z to the nearest pivot, shape (n,)."""
    nearest: NDArray[np.int32]
    """Index of the nearest pivot, shape (n,)."""
    onward: Floats
    """distance^z to the pivot with the next index after the nearest one, by which a cell can be ordered; shape (n,)."""
    tile_costs: Floats
    """Weighted sum of `distances` per tile."""


class Combinations(NamedTuple):
    """Centers as sparse sums: point j counts factors[e] times in center which[e], for each e of its range."""

    rows: Rows
    """The points; K(y, y) of each only if sums of distances are asked for and the program is not exact."""
    starts: Ints
    """The range of point j is starts[j] <= e < starts[j + 1]."""
    which: Ints
    factors: Floats


class Landmarks(NamedTuple):
    """Centers approximated by dense combinations of a few points, with bounds on the error."""

    points: Floats
    factors: Floats
    basis: Floats
    """Lower triangular: row t combines the first t + 1 landmarks to a vector that is orthonormal to those before."""
    bounds: Bounds


class Nearest(NamedTuple):
    """Output of a labelling pass, per point: the nearest center, and squared distances to it and to the second."""

    labels: Ints
    first: Floats
    second: Floats


# `np.int64(TILE)` where memory is made: a constant is a type of its own, for which numba compiles `np.empty` again.


@part()
def values(program: Program, columns: Floats, low: int, high: int, y: Floats, stack: Floats) -> None:
    """Write K(x, y), or the exact squared distance, of points low..high to stack[0]. The last row is working space."""
    call_run(program.address, (program, columns, low, high, y, False, stack))


@compiled()
def diagonal(program: Program, columns: Floats, out: Floats) -> None:
    """out[i] = K(x_i, x_i) for all points."""
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    n = columns.shape[1]
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        call_run(program.address, (program, columns, low, high, columns[0], True, stack))
        copy(stack[0], high - low, out[low:high])


@part()
def distances(program: Program, cloud: Cloud, low: int, high: int, rows: Rows, r: int, z: float, stack: Floats) -> None:
    """Write distance^z of points low..high to rows[r] to stack[0]."""
    m = high - low
    values(program, cloud.columns, low, high, rows.points[r], stack)
    if not program.squared:  # an exact program needs no diagonals: both arrays are empty then
        for start in range(0, m, BLOCK):
            some, own = stack[0, start : min(start + BLOCK, m)], cloud.diagonals[low + start : high]
            if subtract_values(some, own, rows.diagonals[r], NEAR) > 0:
                other = rows.diagonals[r]
                call_correct_near(program.near, (program, cloud.columns, low + start, rows.points[r], own, other, some))
    to_power(stack[0], m, z)


# --- passes over all points ------------------------------------------------------------------------------------------


@compiled()
def block(program: Program, columns: Floats, rows: Floats, out: Floats) -> None:
    """out[r, i] = K(x_i, rows_r), or the exact squared distance."""
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    n = columns.shape[1]
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        for r in range(rows.shape[0]):
            values(program, columns, low, high, rows[r], stack)
            copy(stack[0], high - low, out[r, low:high])


@compiled()
def distance_block(program: Program, cloud: Cloud, rows: Rows, out: Floats) -> None:
    """out[r, i] = squared distance of x_i to rows_r."""
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    n = cloud.columns.shape[1]
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        for r in range(rows.points.shape[0]):
            distances(program, cloud, low, high, rows, r, 2.0, stack)
            copy(stack[0], high - low, out[r, low:high])


@compiled()
def update_nearest(
    program: Program,
    cloud: Cloud,
    weights: Floats,
    pivots: Rows,
    ranges: Ints,
    first: int,
    z: float,
    found: NearestPivots,
) -> None:
    """Compare points with more pivots and update `found`: tile t with pivots ranges[t, 0] up to ranges[t, 1] - 1.

    Pivot r of this call has the index `first + r`. The one after a range is only what follows the last pivot of it.
    A tile is compared with its pivots while it is in the cache.
    """
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    never = np.empty(np.int64(TILE))
    never[:] = -1.0  # smaller than any distance
    n = cloud.columns.shape[1]
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        best, nearest, onward = found.distances[low:high], found.nearest[low:high], found.onward[low:high]
        end = ranges[low // TILE, 1]
        for r in range(ranges[low // TILE, 0], min(end + 1, pivots.points.shape[0])):
            distances(program, cloud, low, high, pivots, r, z, stack)
            keep_nearest(stack[0], high - low, first + r, best if r < end else never, nearest, onward)
        found.tile_costs[low // TILE] = weighted_sum(best, weights[low:high], high - low)


@compiled()
def center_set_costs(
    program: Program, cloud: Cloud, weights: Floats, centers: Rows, k: int, z: float, out: Floats
) -> None:
    """out[s] += sum_i w_i min over the k centers of set s of distance^z; one set is k rows of `centers`."""
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    best = np.empty(np.int64(TILE))
    n = cloud.columns.shape[1]
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        m = high - low
        for s in range(centers.points.shape[0] // k):
            for r in range(s * k, s * k + k):
                distances(program, cloud, low, high, centers, r, z, stack)
                for i in range(m):
                    # Written this way, NaN wins and the caller sees it.
                    best[i] = best[i] if r > s * k and best[i] <= stack[0, i] else stack[0, i]
            out[s] += weighted_sum(best, weights[low:high], m)


@part()
def center_sums(
    program: Program,
    cloud: Cloud,
    low: int,
    high: int,
    centers: Combinations,
    squared: bool,
    stack: Floats,
    out: Floats,
) -> None:
    """out[c, i] = <x_i, center c> for points low..high, or with `squared` sum_j a_j D(x_i, s_j).

    D are squared distances, by a program for distances. One kernel value per point and coreset point.
    """
    m = high - low
    for c in range(out.shape[0]):
        out[c, :m] = 0.0
    for j in range(centers.rows.points.shape[0]):
        if squared:
            distances(program, cloud, low, high, centers.rows, j, 2.0, stack)
        else:
            values(program, cloud.columns, low, high, centers.rows.points[j], stack)
        for e in range(centers.starts[j], centers.starts[j + 1]):
            add_scaled(stack[0], m, centers.factors[e], out[centers.which[e]])


@compiled()
def sum_directly(program: Program, cloud: Cloud, centers: Combinations, squared: bool, out: Floats) -> None:
    """`center_sums` for all points."""
    n = cloud.columns.shape[1]
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    sums = np.empty((out.shape[0], np.int64(TILE)))
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        center_sums(program, cloud, low, high, centers, squared, stack, sums)
        for c in range(out.shape[0]):
            copy(sums[c], high - low, out[c, low:high])


@compiled()
def label_directly(program: Program, cloud: Cloud, centers: Combinations, spreads: Floats, out: Nearest) -> None:
    """The nearest and the second nearest center of every point, from all coreset points.

    The squared distance to a center is sum_j a_j D(x, s_j) - spread with spread = 1/2 sum_ij a_i a_j D(s_i, s_j),
    which loses nothing to a common offset of the kernel values, as K(x, x) - 2 <x, c> + c.c would.
    """
    n = cloud.columns.shape[1]
    stack = np.empty((program.stack_rows, np.int64(TILE)))
    sums = np.empty((len(spreads), np.int64(TILE)))
    squared = np.bool_(True)  # a literal would be a type of its own, for which `center_sums` is compiled again
    offsets = np.empty(len(spreads))
    for c in range(len(spreads)):
        offsets[c] = -spreads[c]
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        center_sums(program, cloud, low, high, centers, squared, stack, sums)
        two_nearest(sums, 1.0, offsets, high - low, out.labels[low:high], out.first[low:high], out.second[low:high])


@part()
def landmark_products(
    program: Program,
    cloud: Cloud,
    low: int,
    high: int,
    landmarks: Landmarks,
    tiles: Floats,
    products: Floats,
    residual: Floats,
) -> None:
    """products[c, i] = <x_i, approximated center c>, residual[i] = the part of |phi(x_i)|^2 outside the basis.

    The landmarks of `basis` come first. A kernel's value is written to row t of `tiles`; its stack uses the rows
    above, which are filled later.
    """
    m = high - low
    k, count = landmarks.factors.shape
    for c in range(k):
        products[c, :m] = 0.0
    for start in range(0, count, GROUP):
        group = min(GROUP, count - start)
        for t in range(group):
            values(program, cloud.columns, low, high, landmarks.points[start + t], tiles[t:])
        for c in range(k):
            add_combination(tiles, group, m, landmarks.factors[c, start:], products[c])
        if start == 0:
            copy(cloud.diagonals[low:high], m, residual)
            subtract_projection(tiles, landmarks.basis, m, tiles[-1], residual)


@compiled()
def label_by_landmarks(
    program: Program,
    cloud: Cloud,
    landmarks: Landmarks,
    squared_norms: Floats,
    accuracy: float,
    scale: float,
    out: Nearest,
    sure: Any,
) -> float:
    """As `label_directly`, from the landmarks alone. Set sure[i] if the result is proved; return the largest error."""
    n = cloud.columns.shape[1]
    k, count = landmarks.factors.shape
    tiles = np.empty((min(GROUP, count) + program.stack_rows, np.int64(TILE)))
    products = np.empty((k, np.int64(TILE)))
    residual = np.empty(np.int64(TILE))
    worst = 0.0
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        m = high - low
        landmark_products(program, cloud, low, high, landmarks, tiles, products, residual)
        first, second = out.first[low:high], out.second[low:high]
        two_nearest(products, -2.0, squared_norms, m, out.labels[low:high], first, second)
        error = certify(
            cloud.diagonals[low:high], residual, first, second, m, landmarks.bounds, accuracy, scale, sure[low:high]
        )
        worst = max(worst, error)
        add_scaled(cloud.diagonals[low:high], m, 1.0, first)
        add_scaled(cloud.diagonals[low:high], m, 1.0, second)
    return worst


@compiled()
def sum_by_landmarks(
    program: Program, cloud: Cloud, landmarks: Landmarks, accuracy: float, out: Floats, sure: Any
) -> None:
    """out[i] = <x_i, center> of the one center, from the landmarks alone. Set sure[i] if it is within `accuracy`."""
    n = cloud.columns.shape[1]
    tiles = np.empty((min(GROUP, landmarks.factors.shape[1]) + program.stack_rows, np.int64(TILE)))
    products = np.empty((1, np.int64(TILE)))
    residual = np.empty(np.int64(TILE))
    for low in range(0, n, TILE):
        high = min(low + TILE, n)
        m = high - low
        landmark_products(program, cloud, low, high, landmarks, tiles, products, residual)
        copy(products[0], m, out[low:high])
        certify_sums(cloud.diagonals[low:high], residual, out[low:high], m, landmarks.bounds, accuracy, sure[low:high])
