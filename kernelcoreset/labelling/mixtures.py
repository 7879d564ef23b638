"""Labels by matrix products for centers that share their points: a product with the coefficients follows the kernel's.

With m points and k centers a block of b rows takes a product of m d b terms, the kernel of m b values, and a product of
k m b terms. `BySums` would evaluate every point once for each center.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.kernels.loops.center_tiles import two_nearest
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.kernels.loops.products import Reals
from kernelcoreset.kernels.products import Frame, Lengths, Products, products_of
from kernelcoreset.kernels.rounding import Precision
from kernelcoreset.labelling.products import ByProducts, ManyCenters, Scores


@dataclass(frozen=True, eq=False)
class ByMixtures(ByProducts):
    """Any kernel with products: sums over all points, as a product with the coefficients.

    With coefficients a_j, rounded by u |a_j| each, and values off by E and at most L, BLAS may add the m terms in any
    order: a sum is off by sum_j |a_j| (E + (m + 8) u L). A value is a squared distance if the kernel has a closed form
    for it, else K. The sum is then turned into float64.
    """

    products: Products
    coefficients: Reals

    @property
    def frame(self) -> Frame:
        """Precision and mean of the rows."""
        return self.products.frame

    @property
    def work(self) -> float:
        m, d = self.products.points.vectors.shape
        each = 0.1 if self.frame.dtype == np.float32 else 0.28
        return float((m * (3.0 + each * (d + len(self.coefficients))) + 5.0 * d) / (20.0 + d))

    @property
    def is_squared(self) -> bool:
        return self.products.exact

    def score(self, rows: NDArray[Any], out: Nearest) -> Scores:
        (m, d), k = self.products.points.vectors.shape, len(self.coefficients)
        n, step, dtype = len(rows), self.products.block_rows, self.frame.dtype
        lengths = Lengths(np.empty(n), np.empty(n))
        space, vectors, sums = np.empty(m * step, dtype=dtype), np.empty((step, d), dtype=dtype), np.empty((k, step))
        evaluate = self.products.squared_distances if self.is_squared else self.products.values
        factor = 1.0 if self.is_squared else -2.0
        for low in range(0, n, step):
            some = slice(low, min(low + step, n))
            size = some.stop - low
            part = self.frame.prepare(rows[some], vectors[:size])
            lengths.norms[some], lengths.inner[some] = part.norms, part.inner
            block = space[: m * size].reshape(m, size)
            sums[:, :size] = self.coefficients @ evaluate(part, block)
            two_nearest(sums, factor, self.offsets, size, out.labels[some], out.first[some], out.second[some])
        return self._scores(lengths)

    def _scores(self, rows: Lengths) -> Scores:
        unit = float(np.finfo(self.frame.dtype).eps) / 2.0
        terms = (self.coefficients.shape[1] + 8) * unit
        sizes = self.centers.entries.total
        diagonals = self.products.diagonals(rows, centred=self.centers.origin is not None)
        if self.is_squared:
            bound = self.products.distance_bound(rows)
            errors = sizes * (bound.total + 2.0 * terms * bound.largest)  # a distance is up to twice `largest`
            return Scores(diagonals, errors, np.zeros(len(errors)))
        bound = self.products.value_bound(rows)
        errors = 2.0 * sizes * (bound.total + terms * bound.largest)
        return Scores(diagonals, errors, self.products.diagonal_errors(rows))


def by_mixtures(centers: ManyCenters, precision: Precision, accuracy: float) -> ByMixtures:
    """Return the level of centers that share their points."""
    products = products_of(centers.kernel, centers.points, precision, mean=centers.origin)
    offsets = -centers.spreads
    if not products.exact:
        offsets = offsets + centers.coefficients @ centers.diagonals
    return ByMixtures(centers, offsets, accuracy, products, centers.coefficients.astype(precision))
