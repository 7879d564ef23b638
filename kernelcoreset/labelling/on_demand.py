"""What labels need of centers, prepared when it is first needed: origin, diagonals, norms, the typical distance."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Nearest
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.labelling.landmarks import SparseCenters, direct_rounding, without_zeros
from kernelcoreset.labelling.products import Entries, ManyCenters
from kernelcoreset.labelling.rungs import new_nearest

_TYPICAL = 65_536  # coordinates of coreset points whose distances give the typical one


class PreparedOnDemand:
    """The base of `Centers`: what follows from its fields, each computed once, by the first who asks."""

    points: Floats
    coefficients: Floats
    kernel: Kernel
    spreads: Floats

    @cached_property
    def _used(self) -> NDArray[np.bool_]:
        used: NDArray[np.bool_] = (self.coefficients != 0).any(axis=0)
        return used

    @cached_property
    def combinations(self) -> Combinations:
        """The centers by their coreset points, without those that no center uses."""
        rows = evaluator_of(self.kernel).rows(self.points[self._used])
        which, point, factors = self._entries
        order = np.argsort(point, kind="stable")
        starts = np.searchsorted(point[order], np.arange(len(rows.points) + 1))
        return Combinations(rows, starts, which[order], factors[order])

    @cached_property
    def _own(self) -> Floats:
        """The coefficients of the coreset points that some center uses; all of them as they are, since k s are many."""
        return self.coefficients if self._used.all() else self.coefficients[:, self._used]

    @cached_property
    def _entries(self) -> Entries:
        which, point = np.nonzero(self._own)
        return Entries(which, point, self._own[which, point])

    @cached_property
    def many(self) -> ManyCenters:
        """The centers as levels of matrix products need them, without the coreset points that no center uses."""
        points = self.combinations.rows.points
        moved = points if self.origin is None else points - self.origin
        diagonals = evaluator_of(self.kernel).diagonal(as_columns(moved))
        rounding = direct_rounding(self.kernel, moved, without_zeros(self._own, self._entries), diagonals)
        return ManyCenters(
            self.kernel, points, self._own, self._entries, self.spreads, self.origin, diagonals, rounding, self.typical
        )

    @cached_property
    def origin(self) -> Floats | None:
        """What is subtracted from points before landmarks are used, so that K is not much larger than distances.

        The mean of the points, for kernels whose distances do not change with it; None for others.
        """
        return self.combinations.rows.points.mean(axis=0) if evaluator_of(self.kernel).moves else None

    @cached_property
    def sparse(self) -> SparseCenters:
        """The centers less `origin`, without the coreset points that no center uses."""
        points = self.combinations.rows.points
        return self._sparse(points if self.origin is None else points - self.origin)

    def _sparse(self, points: Floats) -> SparseCenters:
        columns = as_columns(points)
        own, products = without_zeros(self._own, self._entries), np.empty_like(self._own)
        for low in range(0, len(points), TILE):
            some = slice(low, low + TILE)
            products[:, some] = own @ evaluator_of(self.kernel).block(columns, points[some]).T
        return SparseCenters(points, own, evaluator_of(self.kernel).diagonal(columns), products)

    @cached_property
    def squared_norms(self) -> Floats:
        """c_i . c_i, shape (k,)."""
        own = self.sparse if self.origin is None else self._sparse(self.combinations.rows.points)
        return np.diag(own.gram).copy()

    @cached_property
    def typical(self) -> float:
        """Median squared distance of the coreset points, or of some of them, to their nearest centers."""
        points = self.combinations.rows.points
        most = int(np.clip(_TYPICAL // points.shape[1], 128, 1024))
        some = points[:: -(-len(points) // most)]
        found = new_nearest(len(some))
        self.nearest_directly(as_columns(some), found)
        return float(np.median(np.maximum(found.first, 0.0)))

    def nearest_directly(self, columns: Floats, out: Nearest) -> None:
        """Write the nearest and the second nearest center of columns (d, n), by the formula, to `out`."""
        evaluator = evaluator_of(self.kernel)
        passes.label_directly(
            evaluator.distances, evaluator.cloud(columns), self.combinations, self.spreads.copy(), out
        )
        if not np.isfinite(out.first).all():
            raise evaluator.overflow("the distance to a center", columns)


def spreads_of(kernel: Kernel, points: Floats, coefficients: Floats) -> Floats:
    """1/2 sum_jl a_ij a_il d2(s_j, s_l) of every center, from the points that it uses."""
    evaluator = evaluator_of(kernel)
    spreads = np.empty(len(coefficients))
    # Centers that share their points are evaluated together: one by one, each would evaluate all pairs of them.
    is_shared = np.count_nonzero(coefficients) > 2 * len(points)
    for some in [slice(None)] if is_shared else [slice(i, i + 1) for i in range(len(coefficients))]:
        used = np.flatnonzero(coefficients[some].any(axis=0))
        rows, factors = evaluator.rows(points[used]), coefficients[some, used]
        columns = as_columns(rows.points)
        point, which = np.nonzero(factors.T)
        starts = np.searchsorted(point, np.arange(len(used) + 1))
        own = Combinations(rows, starts, np.ascontiguousarray(which), factors[which, point])
        sums = np.empty((len(factors), len(used)))
        passes.sum_directly(evaluator.distances, Cloud(columns, rows.diagonals), own, True, sums)
        if not np.isfinite(sums).all():
            raise evaluator.overflow("the distances between the points of a center", columns)
        spreads[some] = 0.5 * (factors * sums).sum(axis=1)
    return spreads
