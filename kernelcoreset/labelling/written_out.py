"""Centers of Linear and Cosine written out as vectors, and iterations of Lloyd over all rows with them.

A coreset knows the mean of a cluster up to the error of its few points there. One pass over all rows gives the mean
itself. That takes one matrix product with k vectors, about as long as labelling the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, Ints
from kernelcoreset.clustering.features import unit_length
from kernelcoreset.clustering.means import blocks
from kernelcoreset.kernels.families import Cosine, Linear
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.products import Reals, row_sums
from kernelcoreset.kernels.products import Frame
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.labelling.centers import Centers

PARTS = 4
"""Parts of the rows that threads work on. Their sums are added at the end: the number of threads changes no digit."""
_SMALL_OFFSET = 4.0  # rows are centred if their mean is farther than so many times their spread: float32 needs it
_SAMPLE = 256
_LEAST_PART = 2_048
_FIRST_NUMBERS = 1 << 18  # coordinates of the rows that decide on the precision for all
_SHORT_RANGE = (1e-15, 1e15)  # of the largest number: squares of others do not fit in float32
_COARSE = 1e-4  # mean squared distance to the centers, of the largest squared norm: below it, float32 is too coarse


def written_out(points: Floats, shares: Floats, labels: NDArray[np.int32], k: int, kernel: Kernel) -> Floats:
    """Return the centers sum_j shares_j phi(s_j) of k clusters of points as vectors, shape (k, d).

    phi(x) is x for Linear and x / |x| for Cosine.
    """
    vectors = unit_length(points) if isinstance(kernel, Cosine) else points
    means = np.zeros((k, points.shape[1]))
    np.add.at(means, labels, shares[:, np.newaxis] * vectors)
    return means


def centers_of(means: Floats, kernel: Kernel, radius: float) -> Centers:
    """Return vectors as centers, each a combination of two points.

    A mean of unit vectors (Cosine) is shorter than 1: it lies between a unit vector u and -u. Any other vector (Linear)
    is the middle of two points at the distance `radius`, that of a typical row: `Centers` takes the accuracy that
    distances need from the points that centers are made of.
    """
    if isinstance(kernel, Cosine):
        shares = 0.5 + 0.5 * np.minimum(np.linalg.norm(means, axis=1), 1.0)
        units = unit_length(means)
        units[shares == 0.5] = np.eye(1, means.shape[1])
        pairs = np.vstack([units, -units])
    else:
        shares = np.full(len(means), 0.5)
        aside = radius * np.eye(1, means.shape[1])
        pairs = np.vstack([means + aside, means - aside])
    return Centers(pairs, np.hstack([np.diag(shares), np.diag(1.0 - shares)]), kernel)


def lloyd_over_rows(means: Floats, rows: NDArray[Any], weights: Floats, kernel: Kernel, steps: int) -> Floats:
    """Return written-out centers after at most `steps` iterations of Lloyd over rows (n, d) of any real type.

    Nearest centers are found in float32, or in float64 if clusters are small beside their distances. Means are sums in
    float64. A center that no row is nearest to stays where it is. Ends early if no row changes its center. Assumes
    validated input.

    Costs O(n k d) per iteration, as a matrix product. Memory in addition to the input is O(n + k d).
    """
    return lloyd_with_labels(means, rows, weights, kernel, steps)[0]


def lloyd_with_labels(
    means: Floats, rows: NDArray[Any], weights: Floats, kernel: Kernel, steps: int
) -> tuple[Floats, NDArray[np.int32]]:
    """Return the same, and the labels of the last iteration, shape (n,), whose means the centers are."""
    frame, data = frame_for(means, rows, kernel), _Weighted(rows, weights, kernel, row_scales(rows, kernel))
    labels = np.full(len(rows), -1, dtype=np.int32)
    with one_blas_thread() as threads:
        for _ in range(steps):
            before = labels.copy()
            sums = _one_pass(means - frame.mean, data, frame, labels, threads)
            if np.array_equal(before, labels):
                break
            mass = np.bincount(labels, weights, minlength=len(means)).astype(np.float64)
            means = _moved(means, frame.mean, sums, mass)
    return means, labels


def means_of(labels: NDArray[np.int32], k: int, rows: NDArray[Any], weights: Floats, kernel: Kernel) -> Floats:
    """Return the written-out centers of k clusters of rows (n, d) of any real type; that of an empty one is 0."""
    kind = np.dtype(np.float32 if rows.dtype == np.float32 else np.float64)
    frame = Frame(np.zeros(rows.shape[1]), kind)

    def add_up(part: slice) -> Floats:
        sums = np.zeros((k, rows.shape[1]))
        for block in blocks(part.stop - part.start, rows.shape[1]):
            some = slice(part.start + block.start, part.start + block.stop)
            add_rows(frame.round(rows[some]), weights[some] * row_scales(rows[some], kernel), labels[some], sums)
        return sums

    with one_blas_thread() as threads:
        sums = np.sum(map_in_threads(add_up, equal_parts(len(rows), PARTS), threads), axis=0)
    mass = np.bincount(labels, weights, minlength=k)[:, np.newaxis]
    means: Floats = sums / np.where(mass > 0.0, mass, 1.0)
    return means


def lloyd_over_chosen(
    means: Floats, rows: NDArray[Any], weights: Floats, chosen: NDArray[np.int64] | None, kernel: Kernel
) -> Floats:
    """Return written-out centers after one iteration of `lloyd_over_rows` over chosen rows, or over all if None.

    Chosen rows are copied in small blocks. The first ones decide on the precision, which saves a pass over all. Rows
    that do not fit in it make a center infinite.
    """
    size = max(_SAMPLE, _FIRST_NUMBERS // rows.shape[1])
    frame = frame_for(means, rows[:size] if chosen is None else rows[chosen[:size]], kernel)
    own = weights if chosen is None else weights[chosen]
    labels = np.empty(len(own), dtype=np.int32)
    with np.errstate(over="ignore", invalid="ignore"), one_blas_thread() as threads:
        sums = _one_pass(means - frame.mean, _Weighted(rows, own, kernel, chosen=chosen), frame, labels, threads)
        mass = np.bincount(labels, own, minlength=len(means)).astype(np.float64)
        return _moved(means, frame.mean, sums, mass)


class RowSums:
    """One iteration of Lloyd over rows that come in batches: for each center, the sum of the rows nearest to it.

    Sums over parts of the rows can be added. Works on one thread, as tasks of Spark do. Assumes validated input.

    Parameters
    ----------
    means : ndarray of shape (k, d)
        Written-out centers.
    kernel : Kernel
        Linear or Cosine.

    Attributes
    ----------
    sums : ndarray of shape (k, d)
        Of the weighted rows, relative to a point that depends on the centers alone.
    mass : ndarray of shape (k,)
        Their weight.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Linear
    >>> found = RowSums(np.array([[0.0], [8.0]]), Linear())
    >>> for batch in ([[1.0]], [[6.0], [7.0]]):
    ...     found.add(np.array(batch), None)
    >>> found.moved().tolist()
    [[1.0], [6.5]]
    """

    def __init__(self, means: Floats, kernel: Kernel) -> None:
        self.means, self.kernel = means, kernel
        self.sums, self.mass = np.zeros_like(means), np.zeros(len(means))
        self._frame: Frame | None = None

    def add(self, rows: NDArray[Any], weights: Floats | None) -> None:
        """Add rows (n, d) of any real type. The first ones decide on the precision."""
        if not len(rows):
            return
        weights = np.ones(len(rows)) if weights is None else weights
        if self._frame is None:
            self._frame = frame_for(self.means, rows, self.kernel)
        sums, mass = self._of(rows, weights, self._frame)
        if not np.isfinite(sums).all():  # a row is beyond float32
            sums, mass = self._of(rows, weights, Frame(self._frame.mean, np.dtype(np.float64)))
        self.sums += sums
        self.mass += mass

    def _of(self, rows: NDArray[Any], weights: Floats, frame: Frame) -> tuple[Floats, Floats]:
        labels = np.empty(len(rows), dtype=np.int32)
        sums = _one_pass(self.means - frame.mean, _Weighted(rows, weights, self.kernel), frame, labels, threads=1)
        return sums, np.bincount(labels, weights, minlength=len(self.means)).astype(np.float64)

    def moved(self) -> Floats:
        """Return the means of the rows of each center; a center without any stays."""
        return _moved(self.means, _middle(self.means, self.kernel), self.sums, self.mass)


class _Weighted(NamedTuple):
    """Rows, all or some of them, that are multiplied by 1 / |x| for Cosine, and their weights."""

    rows: NDArray[Any]
    weights: Floats
    kernel: Kernel
    scales: Floats | None = None
    """What rows are multiplied by, if that is known."""
    chosen: NDArray[np.int64] | None = None

    def take(self, some: slice) -> tuple[NDArray[Any], Floats, Floats]:
        own = self.rows[some] if self.chosen is None else self.rows[self.chosen[some]]
        return own, self.weights[some], row_scales(own, self.kernel) if self.scales is None else self.scales[some]


def _moved(means: Floats, middle: Floats, sums: Floats, mass: Floats) -> Floats:
    """The means of the rows of each center, from sums relative to `middle`; a center without any stays."""
    masses = mass[:, np.newaxis]
    return np.where(masses > 0.0, middle + sums / np.where(masses > 0.0, masses, 1.0), means)


def _one_pass(means: Floats, data: _Weighted, frame: Frame, labels: NDArray[np.int32], threads: int) -> Floats:
    """Write the nearest center of every row to `labels`; return the weighted sums of the rows of each center."""
    narrow = means.astype(frame.dtype)
    halves = 0.5 * np.einsum("ij,ij->i", narrow, narrow)
    is_scaled = isinstance(data.kernel, Cosine)

    def assign(part: slice) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller's is not that of a thread
            return add_up(part)

    def add_up(part: slice) -> Floats:
        sums = np.zeros_like(means)
        for block in blocks(part.stop - part.start, max(means.shape)):
            some = slice(part.start + block.start, part.start + block.stop)
            rows, weights, scales = data.take(some)
            own = frame.round(rows)
            products = own @ narrow.T
            if is_scaled:
                products *= scales[:, np.newaxis].astype(frame.dtype)
            np.subtract(halves, products, out=products)
            labels[some] = products.argmin(axis=1)
            add_rows(own, weights * scales, labels[some], sums)
        return sums

    parts = equal_parts(len(labels), min(PARTS, -(-len(labels) // _LEAST_PART)))
    total: Floats = np.sum(map_in_threads(assign, parts, threads), axis=0)
    return total


@compiled(nogil=True)
def add_rows(rows: Reals, factors: Floats, labels: Ints, sums: Floats) -> None:
    """Add factors[i] * rows[i] to sums[labels[i]]."""
    for i in range(len(rows)):
        own = sums[labels[i]]
        for j in range(rows.shape[1]):
            own[j] += factors[i] * rows[i, j]


def frame_for(means: Floats, rows: NDArray[Any], kernel: Kernel) -> Frame:
    """What rows are centred by, and the precision that their distances to the centers need.

    Rows are centred by the mean of the centers, or not at all if that is near beside their spread.
    """
    middle = _middle(means, kernel)
    sample = rows[:: -(-len(rows) // _SAMPLE)].astype(np.float64)
    sample = unit_length(sample) if isinstance(kernel, Cosine) else sample
    away = Linear().squared_distances(sample, means).min(axis=1).mean()
    is_coarse = away < _COARSE * np.square(sample - middle).sum(axis=1).max()
    in_range = _SHORT_RANGE[0] < max(float(rows.max()), -float(rows.min())) < _SHORT_RANGE[1]
    return Frame(middle, np.dtype(np.float32 if in_range and not is_coarse else np.float64))


def _middle(means: Floats, kernel: Kernel) -> Floats:
    """The mean of the centers, or 0 if rows need no centring."""
    middle: Floats = means.mean(axis=0)
    spread = np.sqrt(np.square(means - middle).sum(axis=1).mean())
    if isinstance(kernel, Cosine) or np.linalg.norm(middle) <= _SMALL_OFFSET * spread:
        return np.zeros_like(middle)
    return middle


def row_scales(rows: NDArray[Any], kernel: Kernel) -> Floats:
    """1 / |x| for Cosine, 0 for a zero vector; 1 for Linear."""
    if not isinstance(kernel, Cosine):
        return np.ones(len(rows))
    squares, nothing = np.empty(len(rows)), np.zeros(rows.shape[1])
    for some in blocks(len(rows), rows.shape[1]):
        part = rows[some] if rows.dtype == np.float32 else np.asarray(rows[some], dtype=np.float64)
        row_sums(np.ascontiguousarray(part), nothing, squares[some], np.empty(len(part)))
    norms = np.sqrt(squares)
    scales: Floats = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0.0)
    return scales
