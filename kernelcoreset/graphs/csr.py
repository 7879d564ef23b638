"""Sparse matrices in compressed rows: building and checking one, and D^2 sampling of its nodes.

Row i of a graph holds the neighbours indices[starts[i] : starts[i + 1]] with the weights `data`. Row sums are the
degrees. A kernel value is read from a row. Nothing here owns a random generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats
from kernelcoreset.coresets.seeding import pick
from kernelcoreset.kernels.jit import compiled, part
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.kernels.threads import equal_parts, map_in_threads

Indices = NDArray[np.int64]
Nodes = NDArray[np.int32]
Labels = NDArray[np.int32]
ShortLabels = NDArray[np.int16]  # labels are read in random order: small ones fit in the cache

UNLABELLED = -1

Result = TypeVar("Result")
# Sums over parts depend on their number by rounding, so it must not depend on the processors.
_PARTS = 4
_MANY_ENTRIES = 1_000_000  # fewer are passed over before threads have started


class Rows(NamedTuple):
    """A sparse matrix in compressed rows."""

    starts: Indices
    indices: Nodes
    data: Floats


def parts_of(rows: Rows) -> list[slice]:
    """Return parts of the rows for threads: one part if there are few entries."""
    n = len(rows.starts) - 1
    return equal_parts(n, _PARTS) if len(rows.indices) >= _MANY_ENTRIES else [slice(0, n)]


def part_of(rows: Rows, part: slice) -> Rows:
    """Return some of the rows; nothing is copied."""
    return rows._replace(starts=rows.starts[part.start : part.stop + 1])


def in_threads(work: Callable[[slice], Result], parts: list[slice]) -> list[Result]:
    """Return work(part) for every part, in their order; as many at once as BLAS may use threads."""
    if len(parts) == 1:
        return [work(parts[0])]
    with one_blas_thread() as threads:
        return map_in_threads(work, parts, threads)


# --- making and checking a graph --------------------------------------------------------------------------------------


def rows_of_edges(source: Indices, target: Indices, weights: Floats, n: int) -> Rows:
    """Return the symmetric matrix of an edge list: every edge in both directions, sorted, duplicates summed."""
    from scipy.sparse import csr_array  # slow to import, and executors make no graphs

    low, high = np.minimum(source, target).astype(np.int32), np.maximum(source, target).astype(np.int32)
    # Each pair is summed once and then mirrored, so that rounding cannot make the matrix asymmetric.
    upper = csr_array((np.where(low == high, 0.5 * weights, weights), (low, high)), shape=(n, n))
    matrix = upper + upper.T.tocsr()
    return Rows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False), matrix.data)


def transpose(starts: Indices, columns: Nodes, values: NDArray[Any], n: int) -> tuple[Indices, Nodes, NDArray[Any]]:
    """Return starts, row numbers and values of the n columns, each sorted by row, of a matrix given by rows."""
    from scipy.sparse import csr_array  # slow to import, and executors make no graphs

    by_column = csr_array((values, columns, starts), shape=(len(starts) - 1, n)).tocsc()
    return by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32, copy=False), by_column.data


@compiled()
def sum_duplicates(rows: Rows) -> Rows:
    """Return the matrix with duplicate entries summed, in the order of first appearance, and zeros dropped."""
    n = len(rows.starts) - 1
    starts = np.zeros(n + 1, dtype=np.int64)
    indices = np.empty(len(rows.indices), dtype=np.int32)
    data = np.empty(len(rows.data))
    seen = np.full(n, -1, dtype=np.int64)
    fill = 0
    for i in range(n):
        for e in range(rows.starts[i], rows.starts[i + 1]):
            j = rows.indices[e]
            if rows.data[e] == 0.0:
                continue
            if seen[j] >= starts[i]:
                data[seen[j]] += rows.data[e]
            else:
                seen[j] = fill
                indices[fill] = j
                data[fill] = rows.data[e]
                fill += 1
        starts[i + 1] = fill
    return Rows(starts, indices[:fill].copy(), data[:fill].copy())


def looks_symmetric(rows: Rows) -> bool:
    """Return whether the entries above and below the diagonal have the same fingerprint.

    Always true for a symmetric matrix; true for another one with probability 2^-64. One sequential pass, much faster
    than a transposed copy.
    """
    found = in_threads(lambda part: _difference(part.start, part_of(rows, part)), parts_of(rows))
    return sum(int(difference) for difference in found) % 2**64 == 0


@compiled(nogil=True)
def _difference(first: int, rows: Rows) -> np.uint64:
    """Return the fingerprint of the entries above the diagonal minus that of those below; row 0 is row `first`."""
    difference = np.uint64(0)
    bits = rows.data.view(np.uint64)
    for i in range(first, first + len(rows.starts) - 1):
        for e in range(rows.starts[i - first], rows.starts[i - first + 1]):
            j = np.int64(rows.indices[e])
            low, high = np.uint64(i if i < j else j), np.uint64(j if i < j else i)
            mixed = (low * np.uint64(0x9E3779B97F4A7C15)) ^ (high * np.uint64(0xC2B2AE3D27D4EB4F))
            mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
            mixed = (mixed ^ bits[e]) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(29)
            if i < j:
                difference += mixed * np.uint64(0x9FB21C651E98DF25)
            elif i > j:
                difference -= mixed * np.uint64(0x9FB21C651E98DF25)
    return difference


@compiled()
def first_difference(rows: Rows, other: Rows, tolerance: float) -> tuple[int, int]:
    """Return the first (i, j) where matrices differ by more than `tolerance` times the larger value, or (-1, -1)."""
    n = len(rows.starts) - 1
    mine, theirs = np.zeros(n), np.zeros(n)
    for i in range(n):
        for e in range(rows.starts[i], rows.starts[i + 1]):
            mine[rows.indices[e]] += rows.data[e]
        for e in range(other.starts[i], other.starts[i + 1]):
            theirs[other.indices[e]] += other.data[e]
        for e in range(rows.starts[i], rows.starts[i + 1]):
            j = int(rows.indices[e])
            if abs(mine[j] - theirs[j]) > tolerance * max(abs(mine[j]), abs(theirs[j])):
                return i, j
        for e in range(rows.starts[i], rows.starts[i + 1]):
            mine[rows.indices[e]] = 0.0
        for e in range(other.starts[i], other.starts[i + 1]):
            theirs[other.indices[e]] = 0.0
    return -1, -1


@compiled(nogil=True)
def sum_rows(first: int, rows: Rows, n: int, degrees: Floats, loops: Floats) -> tuple[int, bool]:
    """Add up rows and diagonal of a matrix with n columns; return its first bad entry, or -1, and if it is canonical.

    Row i is row `first` + i of the matrix.

    Bad is a weight that is negative or not finite, or an index that is not a node. Canonical rows have strictly rising
    indices and no zeros, so no entry is there twice.
    """
    rising = True
    for i in range(len(rows.starts) - 1):
        before = -1
        for e in range(rows.starts[i], rows.starts[i + 1]):
            weight, j = rows.data[e], rows.indices[e]
            if not (0.0 <= weight < np.inf and 0 <= j < n):
                return e, rising
            degrees[i] += weight
            if j == first + i:
                loops[i] += weight
            rising = rising and j > before and weight > 0.0
            before = j
    return -1, rising


# --- D^2 sampling with the kernel of a graph --------------------------------------------------------------------------


@compiled()
def seed_nodes(
    rows: Rows, degrees: Floats, own: Floats, uniforms: Floats
) -> tuple[Indices, Floats, Labels, Floats, float]:
    """Draw pivots by D^2 for K_ij = a_ij / (d_i d_j), K_ii = own; return the fields of a `Seeding`.

    A node that is not a neighbour of pivot p has d2 = K_ii + K_pp. Such nodes change only for a pivot with the least
    K_pp so far, which happens O(log pivots) times. All other pivots change their neighbours only.
    """
    n = len(degrees)
    best = np.ones(n)
    nearest = np.zeros(n, dtype=np.int32)
    tile_costs = np.empty((n + TILE - 1) // TILE)
    _sum_tiles(degrees, best, tile_costs)
    pivots = np.empty(len(uniforms), dtype=np.int64)
    least = np.inf
    for p in range(len(uniforms)):
        pivot = pick(best, degrees, tile_costs, uniforms[p : p + 1])[0]
        if pivot < 0:  # the rest of its tile was only rounding error
            _sum_tiles(degrees, best, tile_costs)
            if tile_costs.sum() <= 0.0:
                pivots = pivots[:p]
                break
            pivot = pick(best, degrees, tile_costs, uniforms[p : p + 1])[0]
        pivots[p] = pivot
        if own[pivot] < least:
            least = own[pivot]
            for i in range(n):
                if p == 0 or own[i] + least < best[i]:
                    best[i], nearest[i] = own[i] + least, p
            _sum_tiles(degrees, best, tile_costs)
        for e in range(rows.starts[pivot], rows.starts[pivot + 1]):
            i = rows.indices[e]
            near = max(own[i] + own[pivot] - 2.0 * rows.data[e] / (degrees[i] * degrees[pivot]), 0.0)
            if near < best[i]:
                tile_costs[i // TILE] -= degrees[i] * (best[i] - near)
                best[i], nearest[i] = near, p
        tile_costs[pivot // TILE] -= degrees[pivot] * best[pivot]
        best[pivot], nearest[pivot] = 0.0, p
    _sum_tiles(degrees, best, tile_costs)
    return pivots, best, nearest, np.zeros(n), tile_costs.sum()


@part()
def _sum_tiles(weights: Floats, best: Floats, tile_costs: Floats) -> None:
    tile_costs[:] = 0.0
    for i in range(len(best)):
        tile_costs[i // TILE] += weights[i] * best[i]
