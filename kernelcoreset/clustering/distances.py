"""Squared distances of a few points to many, by matrix products where these are faster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.products import products_of, products_pay

# Of the largest squared distance: products leave smaller ones too few digits.
_NEAR = 1e-8
# A squared distance that is a difference of kernel values must be this many times the bound on their rounding.
_CLEAR = 1e6
# The matrix of all distances is computed in so many blocks of rows, each of at least so many.
_BLOCKS, _ROWS = 8, 128


def distances_from(kernel: Kernel, columns: Floats, chosen: NDArray[np.int64]) -> Floats:
    """Return the squared distances of chosen points to all of `columns` (d, s), shape (chosen, s).

    Points at distance 0 are at distance 0 here too, and near ones as far apart as the kernel's own formula says.
    """
    evaluator = evaluator_of(kernel)
    if not products_pay(kernel, len(columns)):
        return evaluator.squared_distances(columns, columns[:, chosen].T)
    with np.errstate(over="ignore", invalid="ignore"):
        products = products_of(kernel, columns[:, chosen].T)
        rows = products.frame.prepare(columns.T)
        block = products.squared_distances(rows).astype(np.float64, copy=False)
    if not np.isfinite(block).all():
        raise evaluator.overflow("K(x, y)", columns)
    near = block <= _NEAR * block.max()
    if not products.exact:  # far from 0, values are large and all points are near
        near |= block <= _CLEAR * products.distance_bound(rows).total
    near[np.arange(len(chosen)), chosen] = False
    again = np.flatnonzero(near.any(axis=1))
    if len(again):
        block[again] = evaluator.squared_distances(columns, columns[:, chosen[again]].T)
    block[np.arange(len(chosen)), chosen] = 0.0
    return block


def all_distances(kernel: Kernel, columns: Floats) -> Floats:
    """Return the squared distances between all points, shape (s, s), symmetric.

    A block of rows is compared with itself and with the points after it: those before it have its distances already.
    """
    s = columns.shape[1]
    squared = np.empty((s, s))
    step = max(_ROWS, s // _BLOCKS)
    for low in range(0, s, step):
        high = min(low + step, s)
        after = np.ascontiguousarray(columns[:, low:])
        squared[low:high, low:] = distances_from(kernel, after, np.arange(high - low))
        corner = squared[low:high, low:high]
        corner += corner.T.copy()  # not quite symmetric, by rounding
        corner *= 0.5
        np.fill_diagonal(corner, 0.0)
        squared[high:, low:high] = squared[low:high, high:].T
    return squared
