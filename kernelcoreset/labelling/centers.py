"""Centers as combinations of coreset points, and the label and distance of every point."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_points, check_same_dimension
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.center_tiles import finish_center_distances
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Landmarks, Nearest
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.labelling import landmarks as compression
from kernelcoreset.labelling.landmarks import SparseCenters

ACCURACY = 1e-3
"""Largest error of a squared distance by default, relative to itself plus the typical one; see `Centers.label`."""

_LABELS_ONLY = 1e30  # an accuracy every distance meets
_CHUNK = 32 * TILE  # points worked on at a time: what they need stays in the second-level cache
_SAMPLE = 1024  # coreset points a compression is tried on


@dataclass(frozen=True, eq=False)
class Labels:
    """The nearest center of every point.

    Parameters
    ----------
    labels : ndarray of int32, shape (n,)
        The nearest center; the lowest index wins a tie.
    distances : ndarray of shape (n,)
        Distance to it, not squared.
    margins : ndarray of shape (n,) or None
        Distance to the second nearest center minus distance to the nearest; infinity where there is one center.
    certified : float
        Share of the points whose label was proved from a few landmarks.
    distance_error : float
        Largest possible difference between a squared distance here and its direct evaluation; 0 where all were
        evaluated directly.
    """

    labels: NDArray[np.int32]
    distances: Floats
    margins: Floats | None
    certified: float
    distance_error: float


@dataclass(frozen=True, eq=False)
class Centers:
    """Centers in the feature space, each a sparse combination of coreset points: c_i = sum_j a_ij phi(s_j). Immutable.

    Parameters
    ----------
    points : array-like of shape (s, d)
        Coreset points s_j.
    coefficients : array-like of shape (k, s)
        a_ij; for k-means the weights of cluster i divided by their sum. Zeros cost nothing.
    kernel : Kernel

    Attributes
    ----------
    squared_norms : ndarray of shape (k,)
        c_i . c_i.

    Notes
    -----
    Costs s^2 kernel evaluations to make, and about as much again, once, before the first labels.

    Examples
    --------
    >>> from kernelcoreset import Linear
    >>> centers = Centers([[0.0], [2.0], [10.0]], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], Linear())
    >>> result = centers.label([[2.0], [7.0]], margins=True)
    >>> result.labels, result.distances, result.margins
    (array([0, 1], dtype=int32), array([1., 3.]), array([7., 3.]))
    """

    points: Floats
    coefficients: Floats
    kernel: Kernel
    squared_norms: Floats = field(init=False)

    def __post_init__(self) -> None:
        kernel = check_kernel(self.kernel)
        points = np.array(check_points(self.points), order="C")
        coefficients = np.array(check_points(self.coefficients, "coefficients"), order="C")
        if coefficients.shape[1] != len(points):
            raise DataError(
                f"`coefficients` must have shape (k, {len(points)}), one column a point; got {coefficients.shape}."
            )
        evaluator_of(kernel).check(as_columns(points))
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "coefficients", coefficients)
        object.__setattr__(self, "squared_norms", np.diag(self._sparse.gram).copy())
        for array in (points, coefficients, self.squared_norms):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.coefficients)

    def __repr__(self) -> str:
        k, s = self.coefficients.shape
        return f"Centers({k} of {s} points in {self.points.shape[1]} dimensions, {self.kernel!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # What was prepared is left behind and made again where it is needed: it is larger than the centers.
        return _restored, (self.points, self.coefficients, self.kernel)

    def label(self, points: ArrayLike, *, margins: bool = False, exact_distances: bool = False) -> Labels:
        """Return the nearest center of every point and the distance to it.

        d2(x, c) = K(x, x) - 2 sum_j a_j K(x, s_j) + c.c, at least 0. Labels are those of this formula, always: a point
        is labelled from a few landmarks only where a proved bound shows that no other center can be nearer, and
        evaluated directly where it does not.

        A squared distance taken from landmarks is proved to differ from the formula by at most
        1e-3 * (itself + median squared distance of the coreset points to their centers); `distance_error` gives the
        largest bound. Margins are differences of two such distances.
        A user's function is trusted to 1e-10 of sqrt(K(x, x) K(y, y)), and must be positive semidefinite.

        Parameters
        ----------
        points : array-like of shape (n, d)
        margins : bool
            Whether to return the margin to the second nearest center too.
        exact_distances : bool
            Whether to evaluate every distance by the formula: s kernel evaluations a point.

        Returns
        -------
        Labels
            The same for a point whatever the points around it.

        Notes
        -----
        Costs n * m kernel evaluations, with m landmarks (or none, then n * s) chosen by the least expected work on the
        coreset points. Memory beside the input and the result is bounded.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelcoreset import Gaussian
        >>> points = np.random.default_rng(0).normal(size=(100, 2))
        >>> coefficients = np.kron(np.eye(2), np.full(50, 1 / 50))
        >>> Centers(points, coefficients, Gaussian(sigma=3.0)).label(points).labels.shape
        (100,)
        """
        array = self._check(points)
        accuracy = 0.0 if exact_distances else ACCURACY
        return self._label_chunks(_row_chunks(array), len(array), margins, accuracy)

    def predict(self, points: ArrayLike) -> NDArray[np.int32]:
        """Return the nearest center of every point: the labels of `label`, faster for want of distances.

        Parameters
        ----------
        points : array-like of shape (n, d)

        Returns
        -------
        ndarray of int32, shape (n,)

        Examples
        --------
        >>> from kernelcoreset import Linear
        >>> Centers([[0.0], [10.0]], [[1.0, 0.0], [0.0, 1.0]], Linear()).predict([[2.0], [7.0]])
        array([0, 1], dtype=int32)
        """
        array = self._check(points)
        return self._label_chunks(_row_chunks(array), len(array), False, _LABELS_ONLY).labels

    def distances(self, points: ArrayLike) -> Floats:
        """Return the distance of every point to every center, evaluated directly.

        Parameters
        ----------
        points : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, k)
            Not squared. Costs n * s kernel evaluations.

        Examples
        --------
        >>> from kernelcoreset import Linear
        >>> Centers([[0.0], [10.0]], [[1.0, 0.0], [0.0, 1.0]], Linear()).distances([[2.0], [7.0]])
        array([[2., 8.],
               [7., 3.]])
        """
        array = self._check(points)
        result = np.empty((len(array), len(self)))
        evaluator = evaluator_of(self.kernel)
        for low, columns in _row_chunks(array):
            out = np.empty((len(self), columns.shape[1]))
            cloud = Cloud(columns, evaluator_of(self.kernel).diagonal(columns))
            passes.center_distances(evaluator.values, cloud, self._combinations, self.squared_norms, out)
            result[low : low + columns.shape[1]] = out.T
        if not np.isfinite(result).all():
            raise evaluator_of(self.kernel).overflow("the distance to a center")
        return result

    # --- inside: assumes validated input ------------------------------------------------------------------------------

    def _label_columns(self, columns: Floats, *, margins: bool = False, accuracy: float = ACCURACY) -> Labels:
        """`label` for columns of shape (d, n), n = 0 allowed. Assumes validated input."""
        n = columns.shape[1]
        chunks = ((low, np.ascontiguousarray(columns[:, low : low + _CHUNK])) for low in range(0, n, _CHUNK))
        return self._label_chunks(chunks, n, margins, accuracy)

    def _label_chunks(self, chunks: Iterable[tuple[int, Floats]], n: int, margins: bool, accuracy: float) -> Labels:
        labels, distances = np.empty(n, dtype=np.int32), np.empty(n)
        gaps = np.empty(n) if margins else None
        second = np.empty(min(n, _CHUNK))  # one for all chunks, so that it stays in the cache
        levels = self._levels(accuracy)
        certified, worst = 0, 0.0
        for low, columns in chunks:
            m = columns.shape[1]
            own = slice(low, low + m)
            cloud = Cloud(columns, evaluator_of(self.kernel).diagonal(columns))
            out = Nearest(labels[own], distances[own], second[:m])
            proved, error = self._label_cloud(cloud, levels, accuracy, out)
            certified, worst = certified + proved, max(worst, error)
            finish_center_distances(cloud.diagonals, m, out.first)
            if gaps is not None:
                finish_center_distances(cloud.diagonals, m, out.second)
                np.subtract(out.second, out.first, out=gaps[own])
        return Labels(labels, distances, gaps, certified / n if n else 0.0, worst)

    def _label_cloud(self, cloud: Cloud, levels: list[Landmarks], accuracy: float, out: Nearest) -> tuple[int, float]:
        """Label by the first level, what it leaves by the next, the rest directly; how many by levels, worst error."""
        if not levels:
            self._label_directly(cloud.columns, out)
            return 0, 0.0
        sure, error = self._label_by_landmarks(levels[0], cloud, accuracy, out)
        rest = np.flatnonzero(~sure)
        if len(rest) == 0:
            return len(sure), error
        left = Cloud(np.ascontiguousarray(cloud.columns[:, rest]), cloud.diagonals[rest])
        found = _empty_nearest(len(rest))
        proved, other_error = self._label_cloud(left, levels[1:], accuracy, found)
        for whole, part in zip(out, found, strict=True):
            whole[rest] = part
        return len(sure) - len(rest) + proved, max(error, other_error)

    def _label_directly(self, columns: Floats, out: Nearest) -> None:
        evaluator = evaluator_of(self.kernel)
        passes.label_directly(evaluator.values, columns, self._combinations, self.squared_norms, out)
        if not np.isfinite(out.first).all():
            raise evaluator_of(self.kernel).overflow("the distance to a center")

    def _label_by_landmarks(
        self, landmarks: Landmarks, cloud: Cloud, accuracy: float, out: Nearest
    ) -> tuple[NDArray[np.bool_], float]:
        sure = np.empty(cloud.columns.shape[1], dtype=np.bool_)
        evaluator = evaluator_of(self.kernel)
        error = passes.label_by_landmarks(
            evaluator.values, cloud, landmarks, self.squared_norms, accuracy, self._typical, out, sure
        )
        return sure, error

    def _check(self, points: ArrayLike) -> Floats:
        array = check_points(points)
        check_same_dimension("points", array.shape[1], self.points.shape[1], "the centers")
        return array

    # --- prepared once, on demand; never pickled ----------------------------------------------------------------------

    @cached_property
    def _sparse(self) -> SparseCenters:
        """Only the coreset points that some center uses."""
        used = (self.coefficients != 0).any(axis=0)
        used[0] |= not used.any()
        points, coefficients = np.ascontiguousarray(self.points[used]), self.coefficients[:, used]
        columns = as_columns(points)
        products = np.empty_like(coefficients)
        for low in range(0, len(points), TILE):
            some = slice(low, low + TILE)
            products[:, some] = coefficients @ evaluator_of(self.kernel).block(columns, points[some]).T
        return SparseCenters(points, coefficients, evaluator_of(self.kernel).diagonal(columns), products)

    @cached_property
    def _combinations(self) -> Combinations:
        point, which = np.nonzero(self._sparse.coefficients.T)
        starts = np.searchsorted(point, np.arange(len(self._sparse.points) + 1))
        return Combinations(self._sparse.points, starts, which, self._sparse.coefficients[which, point])

    @cached_property
    def _typical(self) -> float:
        """Median squared distance of the coreset points to their nearest centers."""
        sparse = self._sparse
        nearest = (self.squared_norms[:, None] - 2.0 * sparse.products).min(axis=0)
        return float(np.median(np.maximum(sparse.diagonals + nearest, 0.0)))

    @cached_property
    def _levels_by_accuracy(self) -> dict[float, list[Landmarks]]:
        return {0.0: []}

    def _levels(self, accuracy: float) -> list[Landmarks]:
        """The compressions worth trying, found on the coreset points: so they do not hang on what is labelled first."""
        if accuracy not in self._levels_by_accuracy:
            self._levels_by_accuracy[accuracy] = self._choose_levels(accuracy)
        return self._levels_by_accuracy[accuracy]

    def _choose_levels(self, accuracy: float) -> list[Landmarks]:
        sparse = self._sparse
        s, d = sparse.points.shape
        tried, works, left = [], [], []
        for span in compression.pick_landmarks(self.kernel, sparse):
            landmarks = compression.compress(self.kernel, sparse, span)
            # A landmark labels itself without error, and says nothing of other points.
            others = np.delete(np.arange(s), span.pivots)
            sample = others[:: -(-len(others) // _SAMPLE)]
            cloud = Cloud(as_columns(sparse.points[sample]), sparse.diagonals[sample])
            sure, _ = self._label_by_landmarks(landmarks, cloud, accuracy, _empty_nearest(len(sample)))
            # Landmarks that span all there is, as for a polynomial, need no measure of what they leave out.
            bare = compression.without_basis(landmarks)
            sure_bare, _ = self._label_by_landmarks(bare, cloud, accuracy, _empty_nearest(len(sample)))
            if sure_bare.sum() >= sure.sum():
                landmarks = bare
            tried.append(landmarks)
            works.append(compression.work(landmarks, d))
            left.append(float(1.0 - sure.mean()))
            if left[-1] < 1e-3:
                break
        direct = compression.direct_work(self._combinations, len(self))
        return [tried[i] for i in compression.cheapest(works, left, direct)]


_kept: dict[bytes, Centers] = {}


def _restored(points: Floats, coefficients: Floats, kernel: Kernel) -> Centers:
    """The centers that came from another process; the last two are kept, prepared.

    A worker that labels one small batch of a stream after the other would spend most of its time preparing.
    """
    if evaluator_of(kernel).is_user:  # a user's function may have changed under the same name
        return Centers(points, coefficients, kernel)
    content = [points.tobytes(), coefficients.tobytes(), repr((kernel.to_dict(), points.shape)).encode()]
    name = hashlib.sha256(b"".join(content)).digest()
    found = _kept.pop(name, None) or Centers(points, coefficients, kernel)
    _kept[name] = found
    while len(_kept) > 2:
        del _kept[next(iter(_kept))]
    return found


def _row_chunks(points: Floats) -> Iterator[tuple[int, Floats]]:
    """Rows as contiguous columns, so many at a time, with where they start."""
    for low in range(0, len(points), _CHUNK):
        yield low, as_columns(points[low : low + _CHUNK])


def _empty_nearest(n: int) -> Nearest:
    return Nearest(np.empty(n, dtype=np.int32), np.empty(n), np.empty(n))
