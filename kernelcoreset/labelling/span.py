"""Rows as vectors in the span of a few points, for kernels whose centers cannot be written out.

A center is a mean of many phi(x). What is particular to each of them averages out, so a center is near to the plane
through a few hundred phi(l_j), though no phi(x) is. Clusters are found in coordinates of that plane, and a center is a
combination of all l_j with coefficients that sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    def coordinates(self, rows: NDArray[Any]) -> Narrow:
        """Return the coordinates of rows (n, d) of any real type, shape (n, r); in float32, not finite beyond it."""
        found: Narrow = np.empty((len(rows), self.axes.shape[1]), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # callers look whether coordinates are finite
            axes = (-0.5 * self.axes).astype(np.float32)
            origin = (self.middle @ (-0.5 * self.axes)).astype(np.float32)

        def fill(part: slice) -> None:
            step = self.products.block_rows
            space = np.empty(len(self.points) * step, dtype=np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                for low in range(part.start, part.stop, step):
                    some = slice(low, min(low + step, part.stop))
                    size = some.stop - low
                    block = space[: len(self.points) * size].reshape(len(self.points), size)
                    squared = self.products.squared_distances(rows[some], block)
                    np.matmul(squared.T, axes, out=found[some])
                    found[some] -= origin

        with one_blas_thread() as threads:
            map_in_threads(fill, equal_parts(len(rows), PARTS), threads)
        return found

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
