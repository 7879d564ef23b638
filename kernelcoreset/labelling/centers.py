"""Centers as combinations of coreset points, and the label and distance of every point."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_points, check_rows, check_same_dimension, check_spread
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.center_tiles import to_distances
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.kernels.products import products_pay
from kernelcoreset.labelling.grid import ByGrid, by_grid
from kernelcoreset.labelling.landmarks import CHUNK, Ladder, chunks, least_work
from kernelcoreset.labelling.levels import levels_that_pay
from kernelcoreset.labelling.monomials import ByMonomials
from kernelcoreset.labelling.on_demand import PreparedOnDemand, spreads_of
from kernelcoreset.labelling.products import LABELS_ONLY
from kernelcoreset.labelling.rungs import GridFirst, TwoNearest

ACCURACY = 1e-3
"""Largest error of a squared distance by default, relative to itself plus the typical one; see `Centers.label`."""
MANY_ROWS = 65_536
"""From so many rows on, preparing a grid takes less time than it saves."""

_SUM_ERROR = 1e-9  # largest difference of a center's coefficients from sum 1
_MOST_COLUMNS = 128  # above, landmarks are not tried where products are used: choosing them takes too long
_LADDER_RANGE = 1e100  # of K(x, x): landmarks compare squares of kernel values, which must fit in float64


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
        Distance to the second nearest center minus distance to the nearest; infinity if there is only one center.
    certified : float
        Share of the points whose label was proved from a few landmarks or by matrix products.
    distance_error : float
        Largest possible difference between a squared distance here and its direct evaluation; 0 if all were
        evaluated directly.
    """

    labels: NDArray[np.int32]
    distances: Floats
    margins: Floats | None
    certified: float
    distance_error: float


@dataclass(frozen=True, eq=False)
class Centers(PreparedOnDemand):
    """Centers in the feature space, each a sparse combination of coreset points: c_i = sum_j a_ij phi(s_j). Immutable.

    Parameters
    ----------
    points : array-like of shape (s, d)
        Coreset points s_j.
    coefficients : array-like of shape (k, s)
        a_ij, which sum to 1 for every center; for k-means the weights of cluster i divided by their sum. Zeros cost
        nothing.
    kernel : Kernel

    Attributes
    ----------
    spreads : ndarray of shape (k,)
        1/2 sum_jl a_ij a_il d2(s_j, s_l): the mean squared distance of a center's points to it.

    Notes
    -----
    Creating them costs s^2 kernel evaluations. The first labels cost about as much once more, for preparation.

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
    spreads: Floats = field(init=False)

    def __post_init__(self) -> None:
        kernel = check_kernel(self.kernel)
        points = np.array(check_points(self.points), order="C")
        coefficients = np.array(check_points(self.coefficients, "coefficients"), order="C")
        if coefficients.shape[1] != len(points):
            raise DataError(
                f"`coefficients` must have shape (k, {len(points)}), one column per point; got {coefficients.shape}."
            )
        _refuse_other_sums(coefficients)
        check_spread(points)
        evaluator_of(kernel).check(as_columns(points))
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "coefficients", coefficients)
        object.__setattr__(self, "spreads", spreads_of(kernel, points, coefficients))
        for array in (points, coefficients, self.spreads):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.coefficients)

    def __repr__(self) -> str:
        k, s = self.coefficients.shape
        return f"Centers({k} of {s} points in {self.points.shape[1]} dimensions, {self.kernel!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # What was prepared is not pickled, since it is larger than the centers. It is prepared again on demand.
        return _restored, (self.points, self.coefficients, self.kernel)

    def label(self, points: ArrayLike, *, margins: bool = False, exact_distances: bool = False) -> Labels:
        """Return the nearest center of every point and the distance to it.

        d2(x, c) = sum_j a_j d2(x, s_j) - 1/2 sum_jl a_j a_l d2(s_j, s_l), at least 0, with the squared distances d2 of
        the kernel, which a common offset of the points does not make less exact. Labels are always those of this
        formula: a point is labelled from a few landmarks only if a proved bound shows that no other center can be
        nearer. All other points are evaluated directly.

        A squared distance taken from landmarks is proved to differ from the formula by at most
        1e-3 * (itself + median squared distance of the coreset points to their centers); `distance_error` gives the
        largest bound. Margins are differences of two such distances. The bounds assume that a user's function is
        positive semidefinite and accurate to 1e-10 of sqrt(K(x, x) K(y, y)).

        Parameters
        ----------
        points : array-like of shape (n, d)
        margins : bool
            Whether to return the margin to the second nearest center too.
        exact_distances : bool
            Whether to evaluate every distance by the formula: s kernel evaluations per point.

        Returns
        -------
        Labels
            The label of a point does not depend on the other points. From 12 columns on, the seventh digit of its
            distance may: the rounding of a float32 product depends on how many rows are multiplied at once.

        Notes
        -----
        Costs n * m kernel evaluations with m landmarks, or n * s without any, whichever is less work on the coreset
        points. Memory in addition to the input and the result is bounded.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelcoreset import Gaussian
        >>> points = np.random.default_rng(0).normal(size=(100, 2))
        >>> coefficients = np.kron(np.eye(2), np.full(50, 1 / 50))
        >>> Centers(points, coefficients, Gaussian(sigma=3.0)).label(points).labels.shape
        (100,)
        """
        accuracy = 0.0 if exact_distances else ACCURACY
        return self.label_rows(self._check(points), margins=margins, accuracy=accuracy)

    def predict(self, points: ArrayLike) -> NDArray[np.int32]:
        """Return the nearest center of every point: the labels of `label`, faster because no distances are needed.

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
        rows = self._check(points)
        # The first labels of a few points take less time directly than preparing a ladder. They are the same.
        self._predicted[0] += len(rows)
        few = self._predicted[0] <= len(self.points) and not products_pay(self.kernel, rows.shape[1])
        return self.label_rows(rows, accuracy=0.0 if few else LABELS_ONLY).labels

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
        for low in range(0, len(array), CHUNK):
            cloud = evaluator.cloud(as_columns(np.asarray(array[low : low + CHUNK], dtype=np.float64)))
            out = np.empty((len(self), cloud.columns.shape[1]))
            passes.sum_directly(evaluator.distances, cloud, self.combinations, True, out)
            out -= self.spreads[:, np.newaxis]
            to_distances(out.reshape(-1))
            result[low : low + CHUNK] = out.T
        if not np.isfinite(result).all():
            raise evaluator.overflow("the distance to a center", array.T)
        return result

    # --- assumes validated input --------------------------------------------------------------------------------------

    def label_rows(
        self, rows: NDArray[Any], *, margins: bool = False, accuracy: float = ACCURACY, many: bool = False
    ) -> Labels:
        """Return `label` of rows of shape (n, d) of any real type, n = 0 allowed. Assumes validated input.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Columns (d, n) are given as `columns.T`.
        margins : bool
        accuracy : float
            As `ACCURACY`; 0 evaluates every distance directly, `LABELS_ONLY` is for callers that use no distances.
        many : bool
            Whether these rows are some of many, which a grid pays for; from `MANY_ROWS` on it is used in any case.

        Returns
        -------
        Labels
        """
        n = len(rows)
        labels, distances = np.empty(n, dtype=np.int32), np.empty(n)
        gaps = np.empty(n) if margins else None
        second = np.empty(min(n, CHUNK))  # one array for all chunks, so that it stays in the cache
        grid = self.grid if accuracy > 0.0 and (many or n >= MANY_ROWS) else None
        ladder = self.ladder(accuracy) if grid is None else GridFirst(grid, self, accuracy)
        certified, worst = 0, 0.0
        for chunk in chunks(self.kernel, rows, self.origin):
            out = Nearest(labels[chunk.some], distances[chunk.some], second[: len(chunk)])
            proved, error = ladder.run(chunk, out)
            certified, worst = certified + proved, max(worst, error)
            to_distances(out.first)
            if gaps is not None:
                to_distances(out.second)
                np.subtract(out.second, out.first, out=gaps[chunk.some])
        return Labels(labels, distances, gaps, certified / n if n else 0.0, worst)

    def ladder(self, accuracy: float) -> Ladder[Nearest]:
        """Return how labels of this accuracy are found; prepared once, from the coreset points alone."""
        if accuracy not in self._ladders:
            # Without a ladder nothing of what it is made of is prepared.
            worthwhile = accuracy > 0.0 and 1.0 / _LADDER_RANGE < float(self.many.diagonals.max()) < _LADDER_RANGE
            levels, direct = levels_that_pay(self.many, self.combinations, accuracy) if worthwhile else ((), 0.0)
            method = TwoNearest(self, accuracy, levels)
            k, d = len(self), self.points.shape[1]
            few_left = any(isinstance(level, ByMonomials) for level in levels) or direct < least_work(k, d)
            by_landmarks = worthwhile and not (levels and (few_left or d > _MOST_COLUMNS))
            self._ladders[accuracy] = (
                Ladder.choose(self.kernel, self.sparse, method, direct) if by_landmarks else Ladder(method)
            )
        return self._ladders[accuracy]

    def _check(self, points: ArrayLike) -> NDArray[Any]:
        array = check_rows(points)
        check_same_dimension("points", array.shape[1], self.points.shape[1], "the centers")
        return array

    # --- prepared once, on demand, as all of the base class; never pickled --------------------------------------------

    @cached_property
    def _ladders(self) -> dict[float, Ladder[Nearest]]:
        return {}

    @cached_property
    def _predicted(self) -> list[int]:
        """How many points `predict` has labelled so far, as the only element."""
        return [0]

    @cached_property
    def grid(self) -> ByGrid | None:
        """Polynomials that labels of many rows begin with; None if the kernel or the dimension is not one for them."""
        return by_grid(self.many, self.combinations, ACCURACY)


def _refuse_other_sums(coefficients: Floats) -> None:
    sums = coefficients.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if not abs(sums[worst] - 1.0) <= _SUM_ERROR:
        raise DataError(
            f"`coefficients` must sum to 1 for every center, which is a mean of points; row {worst} sums to "
            f"{sums[worst]:g}. Divide each row by its sum."
        )


_kept: dict[bytes, Centers] = {}


def _restored(points: Floats, coefficients: Floats, kernel: Kernel) -> Centers:
    """Return unpickled centers; the last two are kept with what was prepared for them.

    Otherwise a worker that labels many small batches of a stream would spend most of its time on preparation.
    """
    if evaluator_of(kernel).is_user:  # the function may have changed under the same name
        return Centers(points, coefficients, kernel)
    content = [points.tobytes(), coefficients.tobytes(), repr((kernel.to_dict(), points.shape)).encode()]
    name = hashlib.sha256(b"".join(content)).digest()
    found = _kept.pop(name, None) or Centers(points, coefficients, kernel)
    _kept[name] = found
    while len(_kept) > 2:
        del _kept[next(iter(_kept))]
    return found
