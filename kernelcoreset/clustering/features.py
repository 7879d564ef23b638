"""Coreset points as explicit vectors whose distances are those of the kernel, exactly or up to a stated remainder.

With such vectors k-means needs no matrix of all distances: distances to all centers are one matrix product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.distances import distances_from
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.families import Cosine, Linear
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.passes import Cloud

_PIVOTS_AT_ONCE = 32
_ORIGIN_TRIALS = 16
# What is left of a squared norm below these shares of the largest one, or of the largest kernel value, is rounding.
_ROUNDING, _VALUE_ROUNDING = 1e-13, 1e-15
_NEGLIGIBLE = 1e-6  # of the variance: what the search may leave out
_DEPENDENT = 0.01  # of the largest remainder among the pivots of a block: what is below waits for another block
_CHECKED_POINTS = 64


class Features(NamedTuple):
    """Vectors f(x), one row per coreset point, with |f(x) - f(y)|^2 = d2(x, y) / unit^2 up to the remainder."""

    rows: Floats
    """Shape (s, r). Their weighted mean is 0 and their largest norm 1."""
    unit: float
    """What the vectors were divided by; costs are multiplied by its square."""
    exact: bool
    """Whether the distances are those of the kernel up to rounding. Otherwise a part of each phi(x) is left out."""
    leading: int
    """How many of the r numbers, the first ones, have nearly all of the variance; only the last steps need the rest."""


def explicit_features(
    kernel: Kernel, cloud: Cloud, weights: Floats, rank: int, generator: np.random.Generator
) -> Features:
    """Return explicit vectors of the points, of at most `rank` numbers unless the kernel has a formula for them.

    Linear and Cosine have one. For other kernels the vectors are rows of a pivoted Cholesky factor of the Gram matrix.
    It is computed from squared distances, with a point as the origin, so a common offset of kernel values costs no
    digits. It ends at the rank of the Gram matrix, where it is exact. Assumes validated input.

    Costs s * rank kernel evaluations and O(s rank^2).
    """
    points, exact = cloud.columns.T, True
    if isinstance(kernel, Linear):
        rows = points
    elif isinstance(kernel, Cosine):
        rows = unit_length(points)
    else:
        rows, exact = _cholesky(kernel, cloud, weights, rank, generator)
    rows = np.subtract(rows, (weights / weights.sum()) @ rows, order="C")
    with np.errstate(over="ignore"):
        unit = float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max()))
    if not np.isfinite(unit):
        raise evaluator_of(kernel).overflow("K(x, y)", cloud.columns)
    if unit > 0.0:
        rows /= unit
    if is_written_out(kernel):
        return Features(rows, unit, exact, rows.shape[1])
    axes, variances = principal_axes(rows, weights)
    left_out = variances.sum() - np.cumsum(variances)
    leading = 1 + int(np.count_nonzero(left_out > _NEGLIGIBLE * variances.sum()))
    return Features(np.ascontiguousarray(rows @ axes), unit, exact, min(leading, len(variances)))


def principal_axes(rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the axes of the weighted principal components of centered rows, as columns, and the variances, falling."""
    variances, axes = np.linalg.eigh((rows.T * (weights / weights.sum())) @ rows)
    return axes[:, ::-1], variances[::-1]


def is_written_out(kernel: Kernel) -> bool:
    """Return whether the vectors of a kernel come from a formula, so that even small distances are exact."""
    return isinstance(kernel, Linear | Cosine)


def unit_length(points: Floats) -> Floats:
    """Return points of length 1; a zero vector stays zero."""
    scaled = points / np.maximum(np.abs(points).max(axis=1, keepdims=True), np.finfo(float).tiny)
    norms = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    units: Floats = scaled / np.where(norms > 0.0, norms, 1.0)
    return units


def _cholesky(
    kernel: Kernel, cloud: Cloud, weights: Floats, rank: int, generator: np.random.Generator
) -> tuple[Floats, bool]:
    """Return the vectors, shape (s, at most rank), and whether nothing is left out.

    Pivots are drawn in blocks, by what is left of their norms: one block is one matrix product.
    """
    from scipy.linalg import solve_triangular  # slow to import, and executors never solve

    s = len(weights)
    few = np.unique(np.linspace(0, s - 1, _ORIGIN_TRIALS).astype(np.int64))
    origin = few[np.argmin(distances_from(kernel, cloud.columns, few) @ weights)]
    norms = distances_from(kernel, cloud.columns, origin[np.newaxis])[0]
    largest = float(cloud.diagonals.max()) if len(cloud.diagonals) else 0.0
    noise = max(_ROUNDING * float(norms.max()), _VALUE_ROUNDING * largest)
    rows, r = np.zeros((s, rank)), 0
    left = norms.copy()
    while r < rank and left.max() > noise:
        count = min(_PIVOTS_AT_ONCE, rank - r, int(np.count_nonzero(left)))
        pivots = generator.choice(s, size=count, replace=False, p=left / left.sum())
        # Most pivots of a late block depend on others: only those that are kept are compared with all points.
        among = distances_from(kernel, np.ascontiguousarray(cloud.columns[:, pivots]), np.arange(count))
        gram = 0.5 * (norms[pivots, np.newaxis] + norms[pivots] - among)
        gram -= rows[pivots, :r] @ rows[pivots, :r].T
        kept, factor = _independent(gram, noise)
        pivots = pivots[kept]
        block = 0.5 * (norms[pivots, np.newaxis] + norms - distances_from(kernel, cloud.columns, pivots))
        block -= rows[pivots, :r] @ rows[:, :r].T
        fresh = solve_triangular(factor, block, lower=True, overwrite_b=True)
        rows[:, r : r + len(kept)] = fresh.T
        r += len(kept)
        left = np.maximum(left - np.square(fresh).sum(axis=0), 0.0)
        left[pivots] = 0.0
    rows = rows[:, : max(r, 1)]
    exact = bool(left.max() <= noise)
    return rows, exact and (not evaluator_of(kernel).is_user or _agree(kernel, cloud, rows))


def _independent(gram: Floats, noise: float) -> tuple[NDArray[np.int64], Floats]:
    """Return pivots of a block that are not nearly combinations of each other, and the Cholesky factor of theirs."""
    kept, factor = np.empty(len(gram), dtype=np.int64), np.zeros_like(gram)
    count = factor_independent(gram, max(noise, _DEPENDENT * float(np.diag(gram).max())), kept, factor)
    chosen = kept[:count]
    return chosen, factor[chosen, :count]


@compiled()
def factor_independent(gram: Floats, least: float, kept: NDArray[np.int64], factor: Floats) -> int:
    """Write pivots, the one with the largest remainder first, and their columns of the factor; return how many.

    It ends when no remainder is above `least`. There is at least one pivot.
    """
    left = np.empty(len(gram))
    for i in range(len(gram)):
        left[i] = gram[i, i]
    for j in range(len(gram)):
        p = 0
        for i in range(len(gram)):
            if left[i] > left[p]:
                p = i
        if j > 0 and left[p] <= least:
            return j
        kept[j] = p
        scale = 1.0 / np.sqrt(max(left[p], 1e-300))
        for i in range(len(gram)):
            value = gram[i, p]
            for t in range(j):
                value -= factor[i, t] * factor[p, t]
            factor[i, j] = value * scale
            left[i] -= factor[i, j] * factor[i, j]
        for t in range(j + 1):
            left[kept[t]] = 0.0
    return len(gram)


def _agree(kernel: Kernel, cloud: Cloud, rows: Floats) -> bool:
    """Return whether the vectors have the kernel's distances on a few points; a function may be no kernel."""
    some = np.unique(np.linspace(0, len(rows) - 1, _CHECKED_POINTS).astype(np.int64))
    own = distances_from(kernel, cloud.columns, some)[:, some]
    gap = Linear().squared_distances(rows[some], rows[some]) - own
    return bool(np.abs(gap).max() <= 1e-9 * max(float(own.max()), np.finfo(float).tiny))
