"""All points of a reduction, ready to be compared with pivots: as columns by loops, or as rows by matrix products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.closest import Closest, closest_among
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.passes import Cloud, NearestPivots
from kernelcoreset.kernels.loops.products import Reals
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.kernels.products import Lengths, Products, products_of, products_pay
from kernelcoreset.kernels.rounding import Precision

Indices = NDArray[np.int64]
MOST_COPIED = 1 << 22
"""Coordinates of chosen rows that are copied together, since they are compared several times."""

_ACCURACY = 0.125  # largest relative error of a distance; the bound on rounding is mostly far above the rounding
_MOST_UNSURE = 0.1  # share of rows above that error up to which products in float32 are enough
_PART = 65_536  # rows whose bounds are computed at once
_FEW = 8_192  # rows whose bounds take no longer than that of the longest one


def points_of(kernel: Kernel, array: NDArray[Any]) -> Points:
    """Return points (n, d) of any real type in the form in which they are compared faster. Assumes validated input."""
    if products_pay(kernel, array.shape[1]):
        return RowPoints(kernel, array)
    return ColumnPoints(kernel, evaluator_of(kernel).cloud(as_columns(np.asarray(array, dtype=np.float64))))


def distances_between(kernel: Kernel, few: NDArray[Any], many: NDArray[Any]) -> Reals:
    """Return squared distances of shape (few, many), roughly: only choices depend on them. Assumes validated input.

    The points may be of any real type. Matrix products in float32 are used if they are faster, and float64 if float32
    overflows.
    """
    if not products_pay(kernel, few.shape[1]):
        return kernel.squared_distances(few, many)
    few = few.astype(np.float64, copy=False)
    precisions: tuple[Precision, ...] = ("float32", "float64")
    for precision in precisions:
        products = products_of(kernel, few, precision, mean=_small_mean(few))
        found: Reals = np.empty((len(few), len(many)), dtype=precision)
        with np.errstate(over="ignore", invalid="ignore"):
            for low in range(0, len(many), products.block_rows):
                high = low + products.block_rows
                found[:, low:high] = products.squared_distances(many[low:high])
        if np.isfinite(found).all():
            return found
    raise evaluator_of(kernel).overflow("K(x, y)", many.T.astype(np.float64))


def distances_among(kernel: Kernel, points: Floats) -> Floats:
    """Return squared distances between all pairs of points, in float64, by matrix products if they are faster."""
    if not products_pay(kernel, points.shape[1]):
        return kernel.squared_distances(points, points)
    products = products_of(kernel, points)
    rows = products.frame.prepare(points)._replace(vectors=products.points.vectors)  # the same memory: half a product
    squared: Floats = products.squared_distances(rows).astype(np.float64, copy=False)
    np.fill_diagonal(squared, 0.0)
    return squared


def _small_mean(points: Floats) -> Floats | None:
    """Zero if points need no centring, because their mean is shorter than their spread: rows are not copied then."""
    mean = points.mean(axis=0)
    with np.errstate(over="ignore"):  # what overflows is centred
        is_small = np.square(mean).sum() < np.square(points - mean).sum() / len(points)
    return np.zeros_like(mean) if is_small else None


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
    def given(self, indices: Indices) -> NDArray[Any]:
        """Return some points as rows of the type they have."""

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
            ranges = np.zeros((len(found.tile_costs), 2), dtype=np.int64)
            ranges[:, 1] = len(pivots)
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

    def given(self, indices: Indices) -> Floats:
        return self.rows(indices)

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

    A distance for which the rounding of the products may matter is evaluated again directly in float64; if there are
    many such rows, by products in float64 first. So equal points are at distance 0, and near ones keep their digits.

    Parameters
    ----------
    kernel : Kernel
    array : ndarray of shape (m, d)
    indices : ndarray of shape (n,), optional
        The points are these rows of the array, in this order; all rows by default. Rows are copied block by block, or
        once if they are few.
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
        return np.ascontiguousarray(self.given(indices), dtype=np.float64)

    def given(self, indices: Indices) -> NDArray[Any]:
        return self.array[indices if self.indices is None else self.indices[indices]]

    def block(self, low: int, high: int) -> NDArray[Any]:
        """Return consecutive points as rows of the type they have; a view if possible."""
        return self.array[low:high] if self.indices is None else self.array[self.indices[low:high]]

    def take(self, indices: Indices) -> RowPoints:
        if len(indices) * self.array.shape[1] <= MOST_COPIED:
            return RowPoints(self.kernel, self.given(indices))
        return RowPoints(self.kernel, self.array, indices if self.indices is None else self.indices[indices])

    def update_nearest(
        self, weights: Floats, pivots: Floats, ranges: Indices, first: int, z: float, found: NearestPivots
    ) -> None:
        n = len(self)
        for low, high, begin, end in _spans(ranges, n):
            comparison = _Comparison(self.kernel, pivots[begin : end + 1], end - begin, first + begin, z)
            for start in range(low, high, _PART):
                comparison.update(self, start, min(start + _PART, high), found)
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


class _Known(NamedTuple):
    """What is known of some points: the first three fields of `NearestPivots`."""

    distances: Floats
    nearest: NDArray[np.int32]
    onward: Floats

    def part(self, chosen: slice | Indices) -> _Known:
        """Return some of the points: views by a slice, copies by indices."""
        return _Known(self.distances[chosen], self.nearest[chosen], self.onward[chosen])

    def replace(self, chosen: slice | Indices, other: _Known) -> None:
        """Overwrite some of the points."""
        self.distances[chosen], self.nearest[chosen], self.onward[chosen] = other


class _Comparison:
    """Some pivots, ready to be compared with rows. One more than `count` pivots only follows the last of them."""

    def __init__(self, kernel: Kernel, pivots: Floats, count: int, first: int, z: float) -> None:
        self.kernel, self.pivots, self.count, self.first, self.z = kernel, pivots, count, first, z
        self._ready: dict[Precision, tuple[Products, Reals, Reals]] = {}

    def update(self, points: RowPoints, low: int, high: int, found: NearestPivots) -> None:
        """Compare points low..high with the pivots and update what is known of them, except for the costs of tiles."""
        known = _Known(found.distances[low:high], found.nearest[low:high], found.onward[low:high])
        away, at, unsure = self._by_products("float32", points, low, known.distances)
        if len(unsure) > _MOST_UNSURE * (high - low):
            away, at, unsure = self._by_products("float64", points, low, known.distances)
        before = known.part(unsure)
        _merge(away, at, self.first, *known)
        for start in range(0, len(unsure), TILE):
            some = slice(start, start + TILE)
            self._directly(points, low, unsure[some], before.part(some), known)

    def _prepared(self, precision: Precision) -> tuple[Products, Reals, Reals]:
        """The pivots, and memory for the rows of a block and for their products: new memory would take longer."""
        if precision not in self._ready:
            products = products_of(self.kernel, self.pivots, precision, mean=_small_mean(self.pivots))
            step, (m, d) = products.block_rows, self.pivots.shape
            self._ready[precision] = products, np.empty((step, d), dtype=precision), np.empty(m * step, dtype=precision)
        return self._ready[precision]

    def _by_products(
        self, precision: Precision, points: RowPoints, low: int, before: Floats
    ) -> tuple[Floats, NDArray[np.int32], Indices]:
        """Return distance^z as `_merge` needs it, the nearest pivots, and which may be off by more than `_ACCURACY`."""
        products, space, block = self._prepared(precision)
        n, step = len(before), products.block_rows
        lengths = Lengths(np.empty(n), np.empty(n))
        closest = Closest(products, n, block)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, n, step):
                some = slice(start, min(start + step, n))
                own = points.block(low + start, low + some.stop)
                rows = products.frame.prepare(own, space[: len(own)], lengths.part(some))
                closest.find(rows, self.count, some)
            away = self._to_power(closest.distances())
            return away, closest.at, self._unsure(products, lengths, away[0], before)

    def _to_power(self, squared: Reals) -> Floats:
        """distance^z, in float64."""
        away: Floats = squared.astype(np.float64)
        if self.z != 2.0:
            away **= 0.5 * self.z
        return away

    def _unsure(self, products: Products, rows: Lengths, new: Floats, before: Floats) -> Indices:
        """Which of the new distances may be off by more than `_ACCURACY`."""
        which = np.arange(len(new))
        if products.exact and len(new) > _FEW:  # then the bound grows with |x|: that of the longest row serves for most
            longest = np.argmax(rows.norms, keepdims=True)
            which = np.flatnonzero(~(new > self._limits(products, rows.part(longest))))
            if len(which) == 0:
                return which
        new, limits = new[which], self._limits(products, rows.part(which))
        is_new = (new < before[which]) | ~np.isfinite(new) | ~np.isfinite(limits)
        return which[is_new & ~(new > limits)]

    def _limits(self, products: Products, rows: Lengths) -> Floats:
        """Distances of these rows above which they are accurate enough."""
        limits: Floats = (products.distance_bound(rows).total / _ACCURACY) ** (0.5 * self.z)
        return limits

    def _directly(self, points: RowPoints, low: int, which: Indices, before: _Known, known: _Known) -> None:
        """Evaluate some rows in float64, without products; a row that equals its pivot is at distance 0."""
        rows = points.rows(low + which)
        pivots = np.clip(known.nearest[which] - self.first, 0, self.count - 1)
        equal = (rows == self.pivots[pivots]).all(axis=1)
        known.distances[which[equal]], known.nearest[which[equal]] = 0.0, self.first + pivots[equal]
        other = np.flatnonzero(~equal)
        if len(other):
            block = evaluator_of(self.kernel).squared_distances(as_columns(rows[other]), self.pivots)
            at, squared = closest_among(block, self.count)
            new = before.part(other)
            _merge(self._to_power(squared), at, self.first, *new)
            known.replace(which[other], new)


@compiled()
def _merge(
    away: Floats, at: NDArray[np.int32], first: int, distances: Floats, nearest: NDArray[np.int32], onward: Floats
) -> None:
    """Update what is known with more pivots; `away` has distance^z to the nearest, the next and the first of them."""
    for i in range(len(at)):
        closer = away[0, i] < distances[i]
        following = away[2, i] if nearest[i] == first - 1 else onward[i]
        onward[i] = away[1, i] if closer else following
        nearest[i] = first + at[i] if closer else nearest[i]
        distances[i] = away[0, i] if closer else distances[i]
