"""Labels among many centers in few columns: a rung of the ladder that looks at the centers near to a point only.

A center is a combination of its own coreset points, about s / k of them, so a few centers cost a few of the s kernel
values. Which few follows from the triangle inequality in the feature space. For every pivot p, a coreset point, the
centers are listed in the order of their distance to p. A point x looks for a pivot near to it, in two levels, and
follows the list of that pivot: all centers from c on are at least d(p, c) - d(x, p) away from x, and the search ends
where that is more than the best distance so far. Pivots are the coreset points that are nearest to some center.

Rounding
--------
Every squared distance here, of x or p to a point or to a center, is off by at most e(x) = relative K(x, x) + rest,
where both numbers are the larger of those for a center (`landmarks.direct_rounding`) and for a single point. A listed
distance is sqrt(d2(p, c) - e(p)), the distance to a pivot sqrt(d2(x, p) + e(x)): these hold for the exact values, up to
the rounding of root, difference and square, which is less than e(x). The direct evaluation of two squared distances
and their evaluation here are off by e(x) each, so two that differ by 6 e(x) are in the order of the direct ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.neighborhoods import BATCH, Neighborhoods, label_by_neighborhoods
from kernelcoreset.kernels.loops.passes import Combinations, Nearest, Rows
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.labelling.landmarks import direct_rounding, is_semidefinite
from kernelcoreset.labelling.products import ManyCenters

LEAST_CENTERS = 24
"""With fewer, comparing a row with the centers near to it only saves nothing."""

_LENGTH = 64  # centers listed per pivot: a point that needs more is evaluated directly
_TRIAL = 512  # coreset points that the lists are tried on
_EACH, _VALUE = 150.0, 5.0  # work of a point and of each of its kernel values, in kernel values of long loops


@dataclass(frozen=True, eq=False)
class ByNeighborhoods:
    """A rung of the ladder for many centers.

    Parameters
    ----------
    centers : ManyCenters
    near : Neighborhoods
    rounding : tuple of float
        Rounding of a squared distance: relative to K(x, x), and the rest.
    accuracy : float
        As for `Centers.label_rows`.
    both : bool
        Whether the second nearest center is found too, not only proved to be farther.
    """

    centers: ManyCenters
    near: Neighborhoods
    rounding: tuple[float, float]
    accuracy: float
    both: bool

    def run(self, rows: NDArray[Any], out: Nearest, sure: NDArray[np.bool_]) -> float:
        """Label rows (n, d); set sure[i] if the result is proved, and return the largest error among those."""
        roundings, _ = self.search(rows, out, sure)
        errors = 2.0 * roundings
        sure &= errors <= self.accuracy * (np.maximum(out.first - errors, 0.0) + self.centers.typical)
        return float(errors[sure].max(initial=0.0))

    def search(self, rows: NDArray[Any], out: Nearest, sure: NDArray[np.bool_]) -> tuple[Floats, int]:
        """Label rows whatever the accuracy; return the rounding of each, and how many kernel values were needed."""
        kernel, origin = self.centers.kernel, self.centers.origin
        evaluator = evaluator_of(kernel)
        points = np.require(rows, dtype=np.float64, requirements=["C", "W"])
        # Relative to the origin only if no distance needs K(x, x).
        diagonals = evaluator.diagonal(as_columns(points if origin is None else points - origin))
        own = Rows(points, np.empty(0) if evaluator.distances.squared else diagonals)
        roundings = self.rounding[0] * diagonals + self.rounding[1]
        return roundings, label_by_neighborhoods(evaluator.distances, own, roundings, self.near, self.both, out, sure)

    def tried(self) -> tuple[float, float]:
        """Return the work per point, in kernel values, and the share of points that are left, on coreset points."""
        points = self.centers.points[:: -(-len(self.centers.points) // _TRIAL)]
        out = Nearest(np.empty(len(points), dtype=np.int32), np.empty(len(points)), np.empty(len(points)))
        sure = np.empty(len(points), dtype=np.bool_)
        _, values = self.search(points, out, sure)
        return _EACH + _VALUE * values / len(points), 1.0 - float(sure.mean())


def by_neighborhoods(
    centers: ManyCenters, combinations: Combinations, accuracy: float, both: bool
) -> ByNeighborhoods | None:
    """Return the rung, or None if there are few centers, some of them have many points, or K is no kernel.

    Parameters
    ----------
    centers : ManyCenters
    combinations : Combinations
        The same centers as the formula needs them.
    accuracy, both
        See `ByNeighborhoods`.
    """
    which, point, factors = centers.entries
    k = len(centers.coefficients)
    ends = np.searchsorted(which, np.arange(k + 1))
    if k < LEAST_CENTERS or np.diff(ends).max() + BATCH > TILE or not is_semidefinite(centers.kernel, centers.points):
        return None
    evaluator = evaluator_of(centers.kernel)
    own = as_columns(centers.points)
    pivots = _medoids(centers, ends)
    worst = [int(np.argmax(centers.diagonals))]
    moved = centers.points[worst] - (0.0 if centers.origin is None else centers.origin)
    single = direct_rounding(centers.kernel, moved, np.ones((1, 1)), centers.diagonals[worst])
    rounding = max(centers.rounding[0], single[0]), max(centers.rounding[1], single[1])
    heads, starts, pivots = _groups(centers, pivots)
    listed, apart = _lists(centers, combinations, pivots, rounding)
    near = Neighborhoods(
        evaluator.cloud(np.ascontiguousarray(own[:, heads])),
        starts,
        evaluator.cloud(np.ascontiguousarray(own[:, pivots])),
        listed,
        apart,
        evaluator.cloud(np.ascontiguousarray(own[:, point])),
        ends,
        factors,
        centers.spreads.copy(),
    )
    return ByNeighborhoods(centers, near, rounding, accuracy, both)


def _medoids(centers: ManyCenters, ends: Ints) -> Ints:
    """Return the coreset point nearest to each center, of its own points, each once."""
    evaluator = evaluator_of(centers.kernel)
    _, point, factors = centers.entries
    found = np.empty(len(ends) - 1, dtype=np.int64)
    for c, (low, high) in enumerate(pairwise(ends)):
        own = centers.points[point[low:high]]
        squares = evaluator.squared_distances(as_columns(own), own)
        found[c] = point[low + int(np.argmin(factors[low:high] @ squares))]
    return np.unique(found)


def _groups(centers: ManyCenters, pivots: Ints) -> tuple[Ints, Ints, Ints]:
    """Return heads, the starts of their pivots, and the pivots in that order: about as many heads as pivots of each."""
    evaluator = evaluator_of(centers.kernel)
    count = int(np.ceil(np.sqrt(len(pivots))))
    heads = np.random.default_rng(0).choice(pivots, size=count, replace=False)
    squares = evaluator.squared_distances(as_columns(centers.points[pivots]), centers.points[heads])
    nearest = np.argmin(squares, axis=0)
    order = np.argsort(nearest, kind="stable")
    return heads, np.searchsorted(nearest[order], np.arange(count + 1)), pivots[order]


def _lists(
    centers: ManyCenters, combinations: Combinations, pivots: Ints, rounding: tuple[float, float]
) -> tuple[Ints, Floats]:
    """Return the nearest centers of each pivot, and lower bounds of their distances and of that to all others."""
    evaluator = evaluator_of(centers.kernel)
    k = len(centers.coefficients)
    length = min(_LENGTH, k)
    listed = np.empty((len(pivots), length), dtype=np.int64)
    apart = np.full((len(pivots), length + 1), np.inf)
    for low in range(0, len(pivots), TILE):
        some = pivots[low : low + TILE]
        squares = np.empty((k, len(some)))
        passes.sum_directly(
            evaluator.distances, evaluator.cloud(as_columns(centers.points[some])), combinations, True, squares
        )
        squares = (squares - centers.spreads[:, np.newaxis]).T
        squares -= rounding[0] * centers.diagonals[some, np.newaxis] + rounding[1]
        near = np.argpartition(squares, length - 1, axis=1)[:, :length]
        order = np.argsort(np.take_along_axis(squares, near, axis=1), axis=1, kind="stable")
        listed[low : low + TILE] = near = np.take_along_axis(near, order, axis=1)
        apart[low : low + TILE, :length] = np.sqrt(np.maximum(np.take_along_axis(squares, near, axis=1), 0.0))
    if length < k:
        apart[:, length] = apart[:, length - 1]
    return listed, apart
