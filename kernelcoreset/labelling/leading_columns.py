"""Rows in fewer columns for the search of written-out centers: nearly their leading principal components.

Centers of clusters differ in a few directions, and rows differ in all of them. A direction in which centers do not
differ adds the same to all distances of a row, so the search for clusters can do without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.means import Narrow, blocks
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.labelling.written_out import PARTS, row_scales

_LEAST_COLUMNS = 192  # with 128 of 384 columns of embeddings the cost was 0.5 % higher
_MOST_COLUMNS = 384  # with 768 of 1536 columns and k = 1,000 the cost was the same, in 1.5 times the time
_TURNS = 2  # of the subspace iteration
_ROWS_PER_COLUMN = 32  # rows that the axes are found on


class LeadingColumns(NamedTuple):
    """Rows in fewer columns."""

    rows: Narrow
    """Shape (n, r), with mean about 0."""
    left_out: float
    """Mean squared length of what is left out of a row."""


def leading_columns(
    rows: NDArray[Any], weights: Floats, k: int, kernel: Kernel, generator: np.random.Generator
) -> LeadingColumns | None:
    """Return rows (n, d) of any real type by about their k leading principal components, at least 192, at most 384.

    The axes come from some of the rows and two turns of a subspace iteration, so they are only near those of all rows.
    With fewer than twice as many columns all are kept. None if the numbers do not fit in float32. Assumes validated
    input.

    Costs O(n d r), as a matrix product. Memory in addition to the input is that of the result.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    weights : ndarray of shape (n,)
    k : int
        Number of centers that the rows are for.
    kernel : Kernel
        Linear or Cosine. Rows are divided by their lengths for Cosine.
    generator : Generator

    Returns
    -------
    LeadingColumns or None
    """
    n, d = rows.shape
    count = max(_LEAST_COLUMNS, min(k, _MOST_COLUMNS))
    are_few, scales = d < 2 * count, row_scales(rows, kernel)
    some = slice(None, None, max(1, n // (_ROWS_PER_COLUMN * count)))
    few, share = np.ascontiguousarray(rows[some]), weights[some] / weights[some].sum()
    with np.errstate(over="ignore", invalid="ignore"), one_blas_thread() as threads:
        kind = np.float32 if rows.dtype == np.float32 else np.float64
        middle = ((share * scales[some]).astype(kind) @ few).astype(np.float64)
        few = _centred(few, scales[some], middle)
        axes = None if are_few else _leading_axes(few, share, count, generator, threads)
        if axes is None and not are_few:
            return None
        found: Narrow = np.empty((n, d if axes is None else count), dtype=np.float32)
        lengths = np.empty(n)

        def project(part: slice) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # the caller's is not that of a thread
                for block in blocks(part.stop - part.start, d):
                    own = slice(part.start + block.start, part.start + block.stop)
                    vectors = _centred(rows[own], scales[own], middle)
                    if axes is None:
                        found[own] = vectors
                    else:
                        np.matmul(vectors, axes, out=found[own])
                    lengths[own] = np.einsum("ij,ij->i", vectors, vectors)

        map_in_threads(project, equal_parts(n, PARTS), threads)
        if not (np.isfinite(found).all() and np.isfinite(lengths).all()):
            return None
    lengths -= np.einsum("ij,ij->i", found, found)
    return LeadingColumns(found, max(float(np.average(lengths, weights=weights)), 0.0))


def _centred(rows: NDArray[Any], scales: Floats, middle: Floats) -> Narrow:
    if rows.dtype != np.float32:
        return (rows * scales[:, np.newaxis] - middle).astype(np.float32)
    # Two roundings where one would do, in half the time.
    centred: Narrow = rows * scales.astype(np.float32)[:, np.newaxis]
    centred -= middle.astype(np.float32)
    return centred


def _leading_axes(
    rows: Narrow, share: Floats, count: int, generator: np.random.Generator, threads: int
) -> Narrow | None:
    """Return about the leading principal axes of centred rows as columns (d, count), or None if they overflow."""
    axes = generator.standard_normal((rows.shape[1], count), dtype=np.float32)
    narrow = share.astype(np.float32)[:, np.newaxis]

    def turn(part: slice) -> Narrow:
        with np.errstate(over="ignore", invalid="ignore"):
            product: Narrow = rows[part].T @ (narrow[part] * (rows[part] @ axes))
            return product

    for _ in range(_TURNS):
        turned = np.sum(map_in_threads(turn, equal_parts(len(rows), PARTS), threads), axis=0)
        if not np.isfinite(turned).all():
            return None
        axes, _ = np.linalg.qr(turned)
    return axes
