"""How good a partition is: its normalized cut, exact or estimated with its standard error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_count, check_points, check_seed, check_weights
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.graphs.graph import graph_normalized_cut
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Rows

SAMPLE = 1_000
"""Default number of points whose similarities to all others are used to estimate a normalized cut."""


@dataclass(frozen=True)
class NormalizedCut:
    """A normalized cut with its standard error; `float` returns the value."""

    value: float
    """Sum over the clusters of cut / volume."""
    standard_error: float
    """0 if the value is exact."""

    def __float__(self) -> float:
        return self.value


def normalized_cut(
    labels: ArrayLike,
    points: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    graph: Any = None,
    weights: ArrayLike | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
) -> NormalizedCut:
    """Return the normalized cut of a partition of points or of the nodes of a graph.

    It is the sum over clusters c of (similarity between c and the rest) / (volume of c). The volume is the similarity
    between c and all points, including c itself and every point with itself. Between 0 and the number of clusters
    minus 1; smaller is better.

    Parameters
    ----------
    labels : array-like of int, shape (n,)
        At least 0. Clusters without points are ignored.
    points : array-like of shape (n, d), optional
        Together with `kernel`. Give either these or `graph`.
    kernel : Kernel, optional
        The similarity of points.
    graph : Graph or sparse matrix, optional
        The cut of a graph is exact.
    weights : array-like of shape (n,), optional
        Of the points: one of weight N counts as N points.
    sample : int or None
        Points to draw, the same number from every cluster, and to compare with all points. With None, or if there are
        no more points than this, the cut is exact. Costs n * sample kernel evaluations.
    seed : int

    Returns
    -------
    NormalizedCut

    Examples
    --------
    >>> from kernelcoreset import Linear, normalized_cut
    >>> cut = normalized_cut([0, 0, 1], [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], kernel=Linear())
    >>> round(cut.value, 6), cut.standard_error
    (0.619048, 0.0)
    """
    if (points is None) == (graph is None):
        raise SettingError("Give either `points` with `kernel`, or `graph`.")
    if graph is not None:
        return NormalizedCut(float(graph_normalized_cut(labels, graph)), 0.0)
    array = check_points(points)  # type: ignore[arg-type]  # it is not None
    own = _check_labels(labels, len(array))
    kernel, masses = check_kernel(kernel), check_weights(weights, len(array))
    if sample is not None:
        check_count("sample", sample, 2, "Or None, for the exact cut.")
    return _cut(own, array, masses, kernel, sample, np.random.default_rng(check_seed(seed)))


def _cut(
    labels: NDArray[np.int64],
    points: Floats,
    weights: Floats,
    kernel: Kernel,
    sample: int | None,
    generator: np.random.Generator,
) -> NormalizedCut:
    """Estimate in each cluster the ratio of similarity inside to volume. Assumes validated input."""
    names, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    drawn = sizes if sample is None or sample >= len(labels) else np.minimum(sizes, max(2, sample // len(names)))
    members = [np.flatnonzero(labels == c) for c in range(len(names))]
    rows = np.concatenate(
        [
            own if count == len(own) else np.sort(generator.choice(own, size=count, replace=False))
            for own, count in zip(members, drawn, strict=True)
        ]
    )
    similarities = np.empty((len(names), len(rows)))
    everyone = Combinations(
        Rows(np.require(points, requirements=["C", "W"]), np.empty(0)),
        np.arange(len(labels) + 1),
        labels.astype(np.int64),
        weights,
    )
    evaluator = evaluator_of(kernel)
    cloud = Cloud(as_columns(points[rows]), np.empty(0))
    passes.sum_directly(evaluator.values, cloud, everyone, False, similarities)
    if not np.isfinite(similarities).all():
        raise evaluator.overflow("the similarity to a cluster", cloud.columns)
    cut, variance = 0.0, 0.0
    for c, (size, count) in enumerate(zip(sizes, drawn, strict=True)):
        own = labels[rows] == c
        kept, volume = weights[rows][own] * similarities[c, own], weights[rows][own] * similarities[:, own].sum(axis=0)
        if not volume.sum() > 0.0:
            raise DataError(
                f"Cluster {names[c]} must have a volume above 0; got {volume.sum():g}. Similarities must be at least "
                "0, and not all 0: drop isolated points, or use another kernel."
            )
        ratio = kept.sum() / volume.sum()
        cut += 1.0 - ratio
        if count < size:
            variance += (1.0 - count / size) * count * np.var(kept - ratio * volume, ddof=1) / volume.sum() ** 2
    return NormalizedCut(float(cut), float(np.sqrt(variance)))


def _check_labels(labels: ArrayLike, n: int) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != (n,) or array.dtype.kind not in "iu" or (n and array.min() < 0):
        raise DataError(
            f"`labels` must be whole numbers of at least 0 and of shape ({n},), one per point; got dtype "
            f"{array.dtype}, shape {array.shape}{f', the smallest {array.min()}' if array.size else ''}."
        )
    return array.astype(np.int64)
