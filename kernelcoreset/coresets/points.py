"""All points of a reduction, ready to be compared with pivots: as columns by loops, or as rows by matrix products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.passes import Cloud, NearestPivots
from kernelcoreset.kernels.loops.products import Reals
from kernelcoreset.kernels.loops.tiles import FAST, TILE
from kernelcoreset.kernels.products import Products, products_of, products_pay
from kernelcoreset.kernels.rounding import Precision

Indices = NDArray[np.int64]

_MOST_UNSURE = 0.1  # share of rows whose distance may be all rounding, up to which float32 is used


def points_of(kernel: Kernel, array: NDArray[Any]) -> Points:
    """Return points (n, d) of any real type in the form in which they are compared faster. Assumes validated input."""
    if products_pay(kernel, array.shape[1]):
        return RowPoints(kernel, array)
    return ColumnPoints(kernel, evaluator_of(kernel).cloud(as_columns(np.asarray(array, dtype=np.float64))))


def distances_between(kernel: Kernel, few: Floats, many: Floats) -> Floats:
    """Return squared distances of shape (few, many), roughly: only choices depend on them. Assumes validated input.

    Matrix products in float32 are used if they are faster, and float64 if float32 overflows.
    """
    if not products_pay(kernel, few.shape[1]):
        return kernel.squared_distances(few, many)
    found = np.empty((len(few), len(many)))
    precisions: tuple[Precision, ...] = ("float32", "float64")
    for precision in precisions:
        products = products_of(kernel, few, precision)
        with np.errstate(over="ignore", invalid="ignore"):
            for low in range(0, len(many), products.block_rows):
                high = low + products.block_rows
                found[:, low:high] = products.squared_distances(many[low:high])
        if np.isfinite(found).all():
            return found
    raise evaluator_of(kernel).overflow("K(x, y)", many.T)


class Points(ABC):
    """Many points and a kernel."""

    passes_are_slow: ClassVar[bool]
    """Whether a pass over all points takes longer than comparing them with a few pivots."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.evaluator = evaluator_of(kernel)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Numbers of points and of coordinates."""

    @property
    @abstractmethod
    def columns(self) -> Floats:
        """All points as columns (d, n), for messages and for the paper's method."""

    @abstractmethod
    def rows(self, indices: Indices) -> Floats:
        """Return some points as rows in float64, contiguous."""

    @abstractmethod
    def take(self, indices: Indices) -> Points:
        """Return some points, in the order of their indices."""

    def check(self) -> None:
        """Raise KernelError if a user's function is no kernel on a few of the points."""
        if self.evaluator.is_user:
            self.evaluator.check(self.columns)

    @abstractmethod
    def update_nearest(
        self, weights: Floats, pivots: Floats, ranges: Indices, first: int, z: float, found: NearestPivots
    ) -> None:
        """As `passes.update_nearest`."""

    def compare(
        self, weights: Floats, pivots: Indices, ranges: Indices | None, first: int, z: float, found: NearestPivots
    ) -> None:
        """Compare all points with more pivots, given by their indices, and update `found`.

        Tile t is compared with pivots ranges[t, 0] up to ranges[t, 1] - 1, every tile with all of them by default.
        Their numbers start at `first`. KernelError if the cost overflows.
        """
        if ranges is None:
            ranges = np.repeat([[0, len(pivots)]], len(found.tile_costs), axis=0)
        self.update_nearest(weights, self.rows(pivots), ranges, first, z, found)
        if not np.isfinite(found.tile_costs.sum()):
            raise self.evaluator.overflow("the clustering cost", self.columns)


class ColumnPoints(Points):
    """Points as columns, compared by the loops of `passes`: for few coordinates, and for every kernel."""

    passes_are_slow = False

    def __init__(self, kernel: Kernel, cloud: Cloud) -> None:
        super().__init__(kernel)
        self.cloud = cloud

    @property
    def shape(self) -> tuple[int, int]:
        d, n = self.cloud.columns.shape
        return n, d

    @property
    def columns(self) -> Floats:
        return self.cloud.columns

    def rows(self, indices: Indices) -> Floats:
        return np.ascontiguousarray(self.cloud.columns[:, indices].T)

    def take(self, indices: Indices) -> ColumnPoints:
        diagonals = self.cloud.diagonals  # empty if they are not used
        taken = Cloud(np.take(self.cloud.columns, indices, axis=1), diagonals[indices] if len(diagonals) else diagonals)
        return ColumnPoints(self.kernel, taken)

    def update_nearest(
        self, weights: Floats, pivots: Floats, ranges: Indices, first: int, z: float, found: NearestPivots
    ) -> None:
        rows = self.evaluator.rows(pivots)
        passes.update_nearest(self.evaluator.distances, self.cloud, weights, rows, ranges, first, z, found)


class RowPoints(Points):
    """Points as rows of any real type, compared by matrix products in float32, block by block.

    Distances of points very near to their pivot, which are all rounding, are evaluated again directly, so that equal
    points are at distance 0. If there are many of them, or float32 overflows, the products of a block are in float64.

    Parameters
    ----------
    kernel : Kernel
    array : ndarray of shape (m, d)
    indices : ndarray of shape (n,), optional
        The points are these rows of the array, in this order; all rows by default. Rows are copied block by block.
    """

    passes_are_slow = True

    def __init__(self, kernel: Kernel, array: NDArray[Any], indices: Indices | None = None) -> None:
        super().__init__(kernel)
        self.array = array
        self.indices = indices

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.array if self.indices is None else self.indices), self.array.shape[1]

    @property
    def columns(self) -> Floats:
        rows = self.array if self.indices is None else self.array[self.indices]
        return as_columns(np.asarray(rows, dtype=np.float64))

    def rows(self, indices: Indices) -> Floats:
        chosen = indices if self.indices is None else self.indices[indices]
        return np.ascontiguousarray(self.array[chosen], dtype=np.float64)

    def take(self, indices: Indices) -> RowPoints:
        return RowPoints(self.kernel, self.array, indices if self.indices is None else self.indices[indices])

    def update_nearest(
        self, weights: Floats, pivots: Floats, ranges: Indices, first: int, z: float, found: NearestPivots
    ) -> None:
        n = len(self)
        for low, high, begin, end in _spans(ranges, n):
            comparison = _Comparison(self.kernel, pivots[begin : end + 1], end - begin, first + begin, z)
            for start in range(low, high, comparison.block_rows):
                stop = min(start + comparison.block_rows, high)
                chosen = slice(start, stop) if self.indices is None else self.indices[start:stop]
                own = NearestPivots(
                    found.distances[start:stop], found.nearest[start:stop], found.onward[start:stop], found.tile_costs
                )
                comparison.update(self.array[chosen], own)
        found.tile_costs[:] = np.add.reduceat(weights * found.distances, np.arange(0, n, TILE))

    def __len__(self) -> int:
        return self.shape[0]


def _spans(ranges: Indices, n: int) -> Iterator[tuple[int, int, int, int]]:
    """Runs of tiles with the same range of pivots that is not empty: first point, end, first pivot, end."""
    changes = np.flatnonzero((ranges[1:] != ranges[:-1]).any(axis=1)) + 1
    for tile, following in zip([0, *changes], [*changes, len(ranges)], strict=True):
        begin, end = ranges[tile]
        if begin < end:
            yield int(tile) * TILE, min(int(following) * TILE, n), int(begin), int(end)


class _Comparison:
    """Some pivots, ready to be compared with rows. One more than `count` pivots only follows the last of them."""

    def __init__(self, kernel: Kernel, pivots: Floats, count: int, first: int, z: float) -> None:
        self.kernel, self.pivots, self.count, self.first, self.z = kernel, pivots, count, first, z
        self._products: dict[Precision, Products] = {"float32": products_of(kernel, pivots, "float32")}
        self.block_rows = self._products["float32"].block_rows
        # The memory of a block is used again for the next one: new memory would take longer than the subtraction.
        self._space: Reals = np.empty((self.block_rows, pivots.shape[1]), dtype=np.float32)
        self._block: Reals = np.empty(len(pivots) * self.block_rows, dtype=np.float32)

    def update(self, rows: NDArray[Any], found: NearestPivots) -> None:
        """Compare rows with the pivots and update what is known of them, except for the costs of tiles."""
        new, unsure = self._compared(rows, "float32", found)
        if np.count_nonzero(unsure) > _MOST_UNSURE * len(rows):
            new, unsure = self._compared(rows, "float64", found)
            unsure &= np.isfinite(new.distances)  # the caller refuses the others
        for pivot in np.unique(new.nearest[unsure]):
            own = unsure & (new.nearest == pivot)
            columns = as_columns(np.asarray(rows[own], dtype=np.float64))
            exact = evaluator_of(self.kernel).squared_distances(columns, self.pivots[[pivot - self.first]])
            new.distances[own] = exact[0] ** (0.5 * self.z)
        found.distances[:], found.nearest[:], found.onward[:] = new.distances, new.nearest, new.onward

    def _compared(
        self, rows: NDArray[Any], precision: Precision, found: NearestPivots
    ) -> tuple[NearestPivots, NDArray[np.bool_]]:
        """Compare by products; return what is known then, and which rows have a new distance that is not sure."""
        if precision not in self._products:
            self._products[precision] = products_of(self.kernel, self.pivots, precision)
        products = self._products[precision]
        space = self._space[: len(rows)] if precision == "float32" else None
        prepared = products.frame.prepare(rows, space)
        new = NearestPivots(found.distances.copy(), found.nearest.copy(), found.onward.copy(), found.tile_costs)
        with np.errstate(over="ignore", invalid="ignore"):
            size = len(self.pivots) * len(rows)
            out = self._block[:size].reshape(len(self.pivots), -1) if precision == "float32" else None
            block = products.squared_distances(prepared, out)
            bounds = (2.0 * products.distance_bound(prepared).total) ** (0.5 * self.z)
        _keep_nearest(block, self.count, self.first, self.z, new.distances, new.nearest, new.onward)
        is_new = (new.distances < found.distances) | ~np.isfinite(new.distances)
        return new, is_new & ~(new.distances > bounds)


@compiled(fastmath=FAST)
def _keep_nearest(block: Reals, count: int, first: int, z: float, best: Floats, nearest: Ints, onward: Floats) -> None:
    """As `tiles.keep_nearest`, for a block of squared distances to pivots first, first + 1, ...

    The pivot after the first `count` ones is only what follows the last of them.
    """
    for r in range(block.shape[0]):
        values = block[r]
        own, before = np.int32(first + r), np.int32(first + r - 1)
        taken = r < count
        for i in range(values.shape[0]):
            value, smallest, at = np.float64(values[i]), best[i], nearest[i]
            if z == 1.0:
                value = np.sqrt(value)
            elif z != 2.0:
                value = value ** (0.5 * z)
            closer = taken and not (smallest <= value)  # written this way, NaN wins and the caller sees it
            onward[i] = 0.0 if closer else (value if at == before else onward[i])
            best[i] = value if closer else smallest
            nearest[i] = own if closer else at
