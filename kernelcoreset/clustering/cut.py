"""Clusters of a graph of similarities by its leading eigenvectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.problem import Labels
from kernelcoreset.clustering.starts import plain_k_means

# Up to this many points the dense method takes seconds, and it finds all vectors of a repeated eigenvalue.
_MOST_DENSE = 2_500


def cut_labels(matrix: Any, weights: Floats, k: int, n_init: int, generator: np.random.Generator) -> Labels:
    """Return labels 0..k-1 of the points of a graph, all of them used, by k-means in its leading eigenvectors.

    The eigenvectors are those of the normalized matrix, with rows of length 1: points of one cluster then have nearly
    the same direction (Ng, Jordan and Weiss).

    Parameters
    ----------
    matrix : sparse matrix or ndarray of shape (s, s)
        Symmetric and at least 0; no row is 0. Assumes validated input.
    weights : ndarray of shape (s,)
    k : int
        At most s.
    n_init : int
        Restarts of k-means.
    generator : numpy.random.Generator
    """
    if k == 1:
        return np.zeros(len(weights), dtype=np.int32)
    return labels_by_vectors(leading_vectors(matrix, k, generator), weights, k, n_init, generator)


def labels_by_vectors(vectors: Floats, weights: Floats, k: int, n_init: int, generator: np.random.Generator) -> Labels:
    """Return the labels of `cut_labels` from the leading eigenvectors, the first k of which are used; k at least 2."""
    rows = vectors[:, :k]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    labels = plain_k_means(np.ascontiguousarray(rows), weights, k, generator, runs=n_init)
    return _without_empty(labels, rows, k)


def leading_vectors(matrix: Any, count: int, generator: np.random.Generator) -> Floats:
    """Return the eigenvectors of the largest eigenvalues of the normalized matrix, largest first, shape (s, count)."""
    from scipy.linalg import eigh  # slow to import, and executors never cut
    from scipy.sparse import csc_array, issparse
    from scipy.sparse.linalg import eigsh

    root = 1.0 / np.sqrt(np.asarray(matrix.sum(axis=1)).ravel())
    matrix = matrix * root[:, np.newaxis] * root[np.newaxis]
    s = matrix.shape[0]
    if s <= _MOST_DENSE or count >= s - 1:
        dense = matrix.toarray() if issparse(matrix) else matrix
        values, vectors = eigh(dense, subset_by_index=(s - count, s - 1), check_finite=False)
    else:
        # Eigenvalues lie close together below 1. Inverting around a shift just above 1 moves them apart.
        start = generator.normal(size=s)
        values, vectors = eigsh(csc_array(matrix), count, sigma=1.0 + 1e-6, which="LM", v0=start)
    found: Floats = vectors[:, np.argsort(-values, kind="stable")]
    return found


def _without_empty(labels: Labels, rows: Floats, k: int) -> Labels:
    """Return the labels, with the row that is farthest from its center in place of every empty cluster."""
    labels = labels.copy()
    for empty in np.flatnonzero(np.bincount(labels, minlength=k) == 0):
        counts = np.bincount(labels, minlength=k)
        centers = np.stack([rows[labels == c].mean(axis=0) if counts[c] else rows[0] for c in range(k)])
        away = np.square(rows - centers[labels]).sum(axis=1)
        labels[int(np.argmax(np.where(counts[labels] > 1, away, -1.0)))] = empty
    return labels
