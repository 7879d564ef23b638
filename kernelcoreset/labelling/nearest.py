"""Labels by the nearest of some labelled points: in few dimensions by a k-d tree, in many by matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.labelling.centers import Labels

# In more dimensions a k-d tree visits nearly all points, and a matrix product is faster.
_MOST_TREE_DIMENSIONS = 12
_BLOCK = 4_096
_CANDIDATES = 4


@dataclass(frozen=True, eq=False)
class LabelledPoints:
    """Points whose clusters are known; any other point gets the cluster of the nearest one. Immutable.

    Parameters
    ----------
    points : ndarray of shape (s, d)
        Distinct.
    clusters : ndarray of int32, shape (s,)
        From 0 to k - 1.
    k : int

    Examples
    --------
    >>> import numpy as np
    >>> known = LabelledPoints(np.array([[0.0], [4.0], [9.0]]), np.array([0, 1, 0], dtype=np.int32), 2)
    >>> found = known.label_rows(np.array([[1.0], [5.0]]), margins=True)
    >>> found.labels, found.distances, found.margins
    (array([0, 1], dtype=int32), array([1., 1.]), array([2., 3.]))
    """

    points: Floats
    clusters: NDArray[np.int32]
    k: int

    def __len__(self) -> int:
        return self.k

    def __reduce__(self) -> tuple[Any, ...]:
        return LabelledPoints, (self.points, self.clusters, self.k)  # trees are built again on demand

    def label_rows(
        self, rows: NDArray[Any], *, margins: bool = False, accuracy: float = 0.0, many: bool = False
    ) -> Labels:
        """Return the labels of rows of shape (n, d) of any real type, n = 0 allowed. Assumes validated input.

        A distance is the Euclidean distance to the nearest point. A margin is how much farther the nearest point of
        another cluster is; infinity if there is only one cluster. `accuracy` and `many` are ignored: all distances are
        exact.
        """
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        distances, nearest = self._all.query(rows)
        labels = self.clusters[nearest]
        gaps = None
        if margins:
            others = np.full(len(rows), np.inf)
            for cluster, search in self._each:
                elsewhere = np.flatnonzero(labels != cluster)
                others[elsewhere] = np.minimum(others[elsewhere], search.query(rows[elsewhere])[0])
            gaps = others - distances
        return Labels(labels, distances, gaps, 1.0 if len(rows) else 0.0, 0.0)

    @cached_property
    def _all(self) -> _Search:
        return _Search(self.points)

    @cached_property
    def _each(self) -> list[tuple[int, _Search]]:
        return [(int(c), _Search(self.points[self.clusters == c])) for c in np.unique(self.clusters)]


class _Search:
    """Finds the nearest of some points."""

    def __init__(self, points: Floats) -> None:
        from scipy.spatial import cKDTree  # slow to import

        self.points = points
        self.tree = cKDTree(points) if points.shape[1] <= _MOST_TREE_DIMENSIONS else None
        self.origin = points.mean(axis=0)
        self.shifted = points - self.origin
        self.norms = np.square(self.shifted).sum(axis=1)

    def query(self, rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """Return the distance to the nearest point and its place, for every row."""
        if self.tree is not None:
            distances, nearest = self.tree.query(rows)
            return np.asarray(distances, dtype=np.float64), np.asarray(nearest, dtype=np.int64)
        distances, nearest = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
        for low in range(0, len(rows), _BLOCK):
            some = slice(low, low + _BLOCK)
            distances[some], nearest[some] = self._query_block(rows[some])
        return distances, nearest

    def _query_block(self, rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
        # Products cancel where points are near, so the best few are measured again by differences.
        away = self.norms - 2.0 * (rows - self.origin) @ self.shifted.T
        few = min(_CANDIDATES, len(self.points))
        candidates = np.sort(np.argpartition(away, few - 1, axis=1)[:, :few], axis=1)
        exact = np.square(rows[:, np.newaxis] - self.points[candidates]).sum(axis=2)
        best = exact.argmin(axis=1)[:, np.newaxis]
        distances = np.sqrt(np.take_along_axis(exact, best, axis=1)[:, 0])
        return distances, np.take_along_axis(candidates, best, axis=1)[:, 0]
