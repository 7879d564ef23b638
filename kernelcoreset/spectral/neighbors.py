"""Spectral clustering by nearest neighbors: similarities that need no width, on a sample of the points.

The graph of nearest neighbors of the sample is cut, and any other point gets the cluster of the nearest point of the
sample. The sample is drawn uniformly, so that distances to neighbors show the density of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_count, check_points, check_same_dimension, check_seed, check_spread
from kernelcoreset.clustering.cut import cut_labels
from kernelcoreset.clustering.problem import most_points
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.describing.quality import RESTARTS, Labeller
from kernelcoreset.errors import DataError, FormatError
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.files.tables import label_column
from kernelcoreset.kernels.families import Linear
from kernelcoreset.labelling.centers import Labels
from kernelcoreset.labelling.nearest import LabelledPoints
from kernelcoreset.models.folder import ABOUT, KeptAsFolder, pack, unpack_about, unpack_table
from kernelcoreset.models.prepared import PreparesRows
from kernelcoreset.neighbors.graph import neighbor_graph

_TABLE = "neighbors.parquet"
_BLOCK = 1_000
DRAW: dict[str, Any] = {"kernel": Linear(), "draw": "uniform"}
"""What a coreset for this model is built with."""


@dataclass(frozen=True, eq=False, repr=False)
class NeighborModel(PreparesRows, KeptAsFolder):
    """A fitted spectral clustering by nearest neighbors, which can also label new points. Immutable.

    Parameters
    ----------
    coreset : Coreset
        The sample of the data: distinct points and their weights.
    labels : ndarray of int32, shape (s,)
        Cluster of each coreset point, numbered by decreasing weight.
    normalized_cut : float
        Of the graph of the coreset's nearest neighbors: sum over clusters of cut / volume.

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, size=2_000)
    >>> rings = np.repeat([[1.0], [3.0]], 1_000, axis=0) * np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = fit_neighbors(rings, k=2, size=500)
    >>> sorted(np.bincount(model.predict(rings)).tolist())
    [1000, 1000]
    """

    FILES: ClassVar = (ABOUT, _TABLE)
    KIND: ClassVar = "neighbors"
    """What model.json calls this kind of model."""

    coreset: Coreset
    labels: NDArray[np.int32]
    normalized_cut: float

    @staticmethod
    def fit_coreset(coreset: Coreset, k: int, *, n_init: int = 10, seed: int = 0) -> NeighborModel:
        """Return the model of the best cut found on a coreset, which should be drawn uniformly.

        Parameters
        ----------
        coreset : Coreset
            At most 20,000 points. Equal ones are merged.
        k : int
            At most the number of distinct points.
        n_init : int
            Restarts of k-means in the eigenvectors.
        seed : int
        """
        k, n_init, seed = check_count("k", k), check_count("n_init", n_init), check_seed(seed)
        coreset = _distinct(coreset)
        if k > len(coreset):
            raise DataError(
                f"`k` must be at most the number of distinct coreset points ({len(coreset)}); got {k}. Ask for fewer "
                "clusters or a larger coreset."
            )
        if len(coreset) == 1:
            return NeighborModel(coreset, np.zeros(1, dtype=np.int32), 0.0)
        graph = neighbor_graph(coreset.points, coreset.weights)
        labels = cut_labels(graph, coreset.weights, k, n_init, np.random.default_rng(seed))
        masses = np.bincount(labels, coreset.weights, minlength=k)
        first = [int(np.argmax(labels == cluster)) for cluster in range(k)]
        place = np.empty(k, dtype=np.int32)
        place[np.lexsort((first, -np.round(masses / masses.sum(), 9)))] = np.arange(k, dtype=np.int32)
        return NeighborModel(coreset, place[labels], _cut(graph, labels, k))

    @property
    def k(self) -> int:
        """Number of clusters."""
        return int(self.labels.max()) + 1

    @property
    def cluster_sizes(self) -> NDArray[np.int64]:
        """Number of coreset points of each cluster, shape (k,)."""
        return np.bincount(self.labels, minlength=self.k)

    @property
    def cluster_weights(self) -> Floats:
        """Weight of each cluster in the data as the coreset estimates it, shape (k,)."""
        return np.bincount(self.labels, self.coreset.weights, minlength=self.k).astype(np.float64)

    @cached_property
    def labelled(self) -> LabelledPoints:
        """The coreset points with their clusters, ready to label points."""
        return LabelledPoints(np.ascontiguousarray(self.coreset.points), self.labels, self.k)

    @property
    def own_coreset(self) -> Coreset:
        """The coreset."""
        return self.coreset

    def with_preparation(self, preparation: Preparation | None) -> Self:
        """Return the same model, fitted to points that this preparation made of rows."""
        return self if preparation is None else replace(self, coreset=self.coreset.with_preparation(preparation))

    @property
    def coreset_labels(self) -> NDArray[np.int32]:
        """Cluster of each coreset point."""
        return self.labels

    @cached_property
    def typical_distances(self) -> Floats:
        """Median distance of the coreset points of each cluster to the nearest other one, shape (k,)."""
        points = self.coreset.points
        if len(points) == 1:
            return np.zeros(1)
        near = np.empty(len(points))
        for low in range(0, len(points), _BLOCK):
            squared = Linear().squared_distances(points[low : low + _BLOCK], points)
            near[low : low + _BLOCK] = np.sqrt(np.partition(squared, 1, axis=1)[:, 1])
        return np.array([np.median(near[self.labels == cluster]) for cluster in range(self.k)])

    def similar_fit(self, coreset: Coreset) -> Labeller:
        """Cluster another coreset in the same way; return what labels points."""
        return NeighborModel.fit_coreset(coreset, self.k, n_init=RESTARTS).predict_points

    def predict_points(self, points: ArrayLike) -> NDArray[np.int32]:
        """Return the cluster of every point, that of the nearest coreset point, shape (n,), without a preparation."""
        return self.label_points(points).labels

    def label_points(self, points: ArrayLike, *, margins: bool = False) -> Labels:
        """Return cluster, distance to the nearest coreset point and, if `margins`, the margin of every point.

        The margin is how much farther the nearest coreset point of another cluster is.
        """
        array = check_points(points)
        check_same_dimension("points", array.shape[1], self.coreset.points.shape[1], "the coreset")
        return self.labelled.label_rows(array, margins=margins)

    def refit(self, k: int | None = None, **options: Any) -> NeighborModel:
        """Return a model for another k, found on the same coreset; options as in `fit_coreset`."""
        return NeighborModel.fit_coreset(self.coreset, self.k if k is None else k, **options)

    def to_files(self) -> dict[str, bytes]:
        """Return the content of the files by name, for storage that is not a local folder."""
        table = self.coreset.to_arrow().append_column("cluster", pa.array(self.labels, pa.int32()))
        return pack({"model": self.KIND, "k": self.k, "normalized_cut": self.normalized_cut}, _TABLE, table)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, trusted_modules: Iterable[str] = ()) -> NeighborModel:
        """Return the model that `to_files` gave, or raise FormatError. It has no kernel, so nothing is imported."""
        about = unpack_about(files)
        if about.data.get("model") != cls.KIND:
            raise FormatError("This folder holds another kind of model, not one of nearest neighbors.")
        table = unpack_table(files, _TABLE, about)
        coreset = Coreset.from_arrow(table)
        k = about.whole("k", least=1, most=max(1, len(coreset)))
        labels = label_column(table, "cluster", f"{_TABLE} of the model", least=0, count=k)
        if len(np.unique(labels)) != k:
            raise FormatError(f"{_TABLE} of the model must have points of all {k} clusters. Save the model again.")
        return NeighborModel(coreset, labels, about.number("normalized_cut"))


def fit_neighbors(
    points: ArrayLike,
    k: int,
    size: int = 2000,
    *,
    weights: ArrayLike | None = None,
    n_init: int = 10,
    seed: int = 0,
) -> NeighborModel:
    """Return a spectral clustering of points by the nearest neighbors within a uniform sample of them.

    Parameters
    ----------
    points : array-like of shape (n, d)
        Never changed.
    k : int
    size : int
        Points of the sample, at least k. Data with no more points than this is clustered whole.
    weights : array-like of shape (n,), optional
        A point of weight N counts as N points.
    n_init : int
        Restarts of k-means in the eigenvectors.
    seed : int

    Returns
    -------
    NeighborModel

    Notes
    -----
    Takes size^2 distances, and O(size^3) for the eigenvectors of up to 2,500 points.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(3_000, 2)) + np.repeat([[0.0], [9.0]], 1_500, axis=0)
    >>> fit_neighbors(points, k=2, size=300).normalized_cut < 0.01
    True
    """
    coreset = build_coreset(points, check_count("k", k), size=size, weights=weights, seed=seed, **DRAW)
    return NeighborModel.fit_coreset(coreset, k, n_init=n_init, seed=seed)


def _distinct(coreset: Coreset) -> Coreset:
    """Return the coreset with equal points merged, in their order."""
    if len(coreset) == 0:
        raise DataError("`coreset` must have at least one point; got none.")
    if len(coreset) > most_points():
        raise DataError(
            f"`coreset` must have at most {most_points():,} points, for a matrix of all their distances in half of "
            f"this machine's memory; got {len(coreset):,}. Build a smaller one."
        )
    check_spread(coreset.points, "coreset points")
    _, first, inverse = np.unique(coreset.points, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(coreset):
        return coreset
    kept = np.sort(first)
    place = np.searchsorted(kept, first)[inverse.ravel()]
    weights = np.bincount(place, coreset.weights).astype(np.float64)
    ids = None if coreset.ids is None else coreset.ids[kept]
    return Coreset(coreset.points[kept], weights, ids, coreset.settings)


def _cut(graph: Any, labels: NDArray[np.int32], k: int) -> float:
    members = np.zeros((len(labels), k))
    members[np.arange(len(labels)), labels] = 1.0
    inside = np.einsum("ic,ic->c", members, graph @ members)
    return float(np.sum(1.0 - inside / (np.asarray(graph.sum(axis=1)).ravel() @ members)))
