"""Rows as vectors in the span of a few points, for kernels whose centers cannot be written out.

A center is a mean of many phi(x). What is particular to each of them averages out, so a center is near to the plane
through a few hundred phi(l_j), though no phi(x) is. Clusters are found in coordinates of that plane, and a center is a
combination of all l_j with coefficients that sum to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.means import Narrow
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.products import Products, products_of
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.labelling.written_out import PARTS

_NEGLIGIBLE = 1e-4  # of the largest variance: axes below are left out, since their coefficients would be large


@dataclass(frozen=True, eq=False)
class Span:
    """The plane through phi(l_1), ..., phi(l_m), with their mean as the origin.

    With the squared distances D of the points, less the means of rows and columns, -D / 2 = U V U^T has the inner
    products of all phi(l_j) less the origin. The axes are W = U V^(-1/2). A row x has the coordinates
    -(D(x) - middle) W / 2, and coordinates y belong to the combination of the phi(l_j) by 1/m + W y.

    Parameters
    ----------
    points : ndarray of shape (m, d)
        The l_j.
    axes : ndarray of shape (m, r)
        W, by falling variance; each column sums to 0.
    middle : ndarray of shape (m,)
        Mean squared distance of l_j to all points.
    products : Products
    """

    points: Floats
    axes: Floats
    middle: Floats
    products: Products

    def coordinates(self, rows: NDArray[Any], count: int | None = None) -> Narrow:
        """Return the leading coordinates of rows (n, d) of any real type, shape (n, count); all if None.

        In float32, and not finite beyond it.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # callers look whether coordinates are finite
            axes = (-0.5 * self.axes[:, :count]).astype(np.float32)
            origin = (self.middle @ (-0.5 * self.axes[:, :count])).astype(np.float32)
        found: Narrow = np.empty((len(rows), axes.shape[1]), dtype=np.float32)

        def fill(part: slice) -> None:
            with np.errstate(over="ignore", invalid="ignore"):
                for some, squared in self._squared_distances(rows, None, part):
                    np.matmul(squared.T, axes, out=found[some])
                    found[some] -= origin

        with one_blas_thread() as threads:
            map_in_threads(fill, equal_parts(len(rows), PARTS), threads)
        return found

    def means(self, rows: NDArray[Any], weights: Floats, labels: NDArray[np.int32], k: int) -> Floats:
        """Return the means of the coordinates of rows (n, d) in k clusters, shape (k, r); that of an empty one is 0.

        Coordinates are affine in the distances to the points, so the means of these suffice: no row's own coordinates
        are kept, which would be r numbers per row.
        """
        shares = weights / weights.max()  # a small unit of the weights would not fit in float32
        order = np.argsort(labels, kind="stable")
        sums, mass = np.zeros((k, len(self.points))), np.bincount(labels, shares, minlength=k)
        ends = np.cumsum(np.bincount(labels, minlength=k))
        cuts = np.searchsorted(ends, [part.stop for part in equal_parts(len(rows), PARTS)])
        starts = [0, *ends[cuts]]  # whole clusters: no two threads add to the same sum

        def add_up(part: slice) -> None:
            with np.errstate(over="ignore", invalid="ignore"):
                for some, squared in self._squared_distances(rows, order, part):
                    own = labels[order[some]]
                    firsts = np.concatenate([[0], np.flatnonzero(np.diff(own)) + 1])
                    squared *= shares[order[some]].astype(np.float32)
                    sums[own[firsts]] += np.add.reduceat(squared, firsts, axis=1).T

        with one_blas_thread() as threads:
            parts = [slice(int(low), int(high)) for low, high in pairwise(starts) if low < high]
            map_in_threads(add_up, parts, threads)
        found: Floats = (sums / np.where(mass > 0.0, mass, 1.0)[:, np.newaxis] - self.middle) @ (-0.5 * self.axes)
        found[mass == 0.0] = 0.0
        return found

    def _squared_distances(
        self, rows: NDArray[Any], order: NDArray[np.int64] | None, part: slice
    ) -> Iterator[tuple[slice, Narrow]]:
        """Yield blocks of a part of the rows, in an order if there is one, with their distances (m, block) to points.

        The memory of a block is that of the next one, too.
        """
        m, step = len(self.points), self.products.block_rows
        space = np.empty(m * step, dtype=np.float32)
        for low in range(part.start, part.stop, step):
            some = slice(low, min(low + step, part.stop))
            own = rows[some] if order is None else rows[order[some]]
            yield some, self.products.squared_distances(own, space[: m * len(own)].reshape(m, len(own)))

    def coefficients(self, means: Floats) -> Floats:
        """Return what combinations of the points means (k, r) of coordinates are, shape (k, m); they sum to 1."""
        found: Floats = 1.0 / len(self.points) + means @ self.axes.T
        found /= found.sum(axis=1, keepdims=True)  # which is 1 up to rounding
        return found


def span_of(kernel: Kernel, points: Floats) -> Span | None:
    """Return the span of points (m, d) for a kernel with products; None if all have one place in it.

    Costs O(m^2 d + m^3). Assumes validated input.
    """
    m = len(points)
    squared = products_of(kernel, points).squared_distances(points).astype(np.float64)
    middle = squared.mean(axis=0)
    inner = -0.5 * (squared - middle - middle[:, np.newaxis] + middle.mean())
    variances, axes = np.linalg.eigh(0.5 * (inner + inner.T))
    variances, axes = variances[::-1], axes[:, ::-1]
    kept = variances > _NEGLIGIBLE * variances[0]
    if not (np.isfinite(variances).all() and variances[0] > 0.0):
        return None
    scaled = axes[:, kept] / np.sqrt(variances[kept])
    scaled -= scaled.sum(axis=0) / m
    return Span(points, scaled, middle, products_of(kernel, points, "float32"))
