"""Clusters of a graph by normalized cut: the fit, and the model it returns.

A coreset of the graph gives approximate clusters. Moves of single nodes then turn them into a local optimum of the
normalized cut of the whole graph. Each move is exact and takes O(degree of the node).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_count, check_seed
from kernelcoreset.errors import DataError, FormatError, SettingError
from kernelcoreset.files.tables import float_column, label_column
from kernelcoreset.graphs.coreset import MOST_DRAWN, GraphCoreset, build_graph_coreset, cluster_coreset
from kernelcoreset.graphs.csr import UNLABELLED, Indices, Labels, ShortLabels
from kernelcoreset.graphs.graph import Graph, as_rows, check_rows
from kernelcoreset.graphs.moves import label_new
from kernelcoreset.graphs.walks import spread_labels
from kernelcoreset.models.folder import ABOUT, KeptAsFolder, pack, unpack_about, unpack_table
from kernelcoreset.reporting.notebook import card, shares_table

_NODES = "nodes.parquet"
# Sweeps end when fewer than this share of the nodes moved.
_AT_REST = 1e-3
# Up to this many nodes a sweep visits all of them: when the volume of a cluster changes, any node may gain by moving.
_SWEPT_WHOLE = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class GraphModel(KeptAsFolder):
    """Clusters of the nodes of a graph; it can also label new nodes. Immutable.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Cluster of every node, numbered by descending volume; -1 for a node without edges.
    volumes, inner : ndarray of shape (k,)
        Per cluster, the sum of its degrees, and of all weights with both ends in it.
    coreset_nodes, coreset_weights : ndarray of shape (s,)
        The coreset on which the clusters were found.
    hops : int
        Steps of the walks that define similarities of the coreset nodes.
    shift : float
        Diagonal shift that makes the kernel D^-1 A D^-1 positive semidefinite; the diffused kernel needs none.
    sweeps : int
        Passes of single moves over the whole graph that were made.
    """

    FILES: ClassVar = (ABOUT, _NODES)

    labels: Labels
    volumes: Floats
    inner: Floats
    coreset_nodes: Indices
    coreset_weights: Floats
    hops: int
    shift: float
    sweeps: int

    def __repr__(self) -> str:
        return f"GraphModel({len(self.labels):,} nodes in {self.k} clusters, normalized cut {self.normalized_cut:.4g})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        sizes = np.bincount(self.labels[self.labels >= 0], minlength=self.k)
        facts = {"nodes": len(self.labels), "clusters": self.k, "normalized cut": self.normalized_cut}
        shares = shares_table((self.volumes / self.volumes.sum()).tolist(), {"nodes": sizes.tolist()})
        return card("GraphModel", facts, shares)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.volumes)

    @property
    def normalized_cut(self) -> float:
        """The exact normalized cut of the graph that was fitted."""
        return float(np.sum(1.0 - self.inner / self.volumes))

    def predict(self, edges: Any) -> Labels:
        """Return the best cluster of new nodes by their edges to the fitted ones, shape (m,).

        A new node gets the cluster with which the normalized cut is least, in O(degree). A node without edges to a
        cluster gets -1. The fitted clusters do not change.

        Parameters
        ----------
        edges : sparse matrix or array-like of shape (m, n)
            Row r holds the weights of the edges of new node r; the columns are the fitted nodes.
        """
        rows, shape = as_rows(edges, "edges")
        if shape[1] != len(self.labels):
            raise DataError(
                f"`edges` must have a column for each of the {len(self.labels)} fitted nodes; got shape {shape}."
            )
        sums, _, _ = check_rows(rows, shape[1])
        return np.asarray(label_new(rows, sums, self.labels.astype(np.int16), self.volumes.copy(), self.inner.copy()))

    def restricted(self, kept: NDArray[np.bool_]) -> GraphModel:
        """Return the model without the nodes that are not kept, none of which may have edges."""
        number = np.cumsum(kept) - 1
        return replace(self, labels=self.labels[kept], coreset_nodes=number[self.coreset_nodes])

    def to_files(self) -> dict[str, bytes]:
        """Return the model as two files by name, for storage other than a local folder."""
        weights = np.zeros(len(self.labels))
        weights[self.coreset_nodes] = self.coreset_weights
        table = pa.table({"cluster": pa.array(self.labels, pa.int32()), "coreset_weight": pa.array(weights)})
        about = {
            "model": "graph",
            "volumes": self.volumes.tolist(),
            "inner": self.inner.tolist(),
            "hops": self.hops,
            "shift": self.shift,
            "sweeps": self.sweeps,
        }
        return pack(about, _NODES, table)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, trusted_modules: Iterable[str] = ()) -> GraphModel:
        """Return the model that `to_files` gave, or raise FormatError. It has no kernel, so nothing is imported."""
        about = unpack_about(files)
        if about.data.get("model") != "graph":
            raise FormatError("This folder holds another kind of model, not one of a graph.")
        table = unpack_table(files, _NODES, about)
        volumes, inner = about.numbers("volumes"), about.numbers("inner")
        if not len(volumes) or not (volumes > 0.0).all():
            raise about.wrong("volumes", "a list of numbers above 0, one for each cluster")
        if len(inner) != len(volumes):
            raise about.wrong("inner", "as long as `volumes`")
        weights = float_column(table, "coreset_weight", _NODES)
        nodes = np.flatnonzero(weights)
        return GraphModel(
            label_column(table, "cluster", _NODES, least=UNLABELLED, count=len(volumes)),
            volumes,
            inner,
            nodes,
            weights[nodes],
            about.whole("hops"),
            about.number("shift"),
            about.whole("sweeps"),
        )


def fit_graph(
    graph: Any, k: int, *, size: int | None = None, n_init: int = 5, max_iter: int = 30, seed: int = 0
) -> GraphModel:
    """Return k clusters of a graph's nodes with a small normalized cut.

    Draws a coreset of nodes and follows walks of a few steps from each. Clusters the coreset nodes by the leading
    eigenvectors of the matrix of how often their walks meet. Labels every node by the walks that reach it, and then
    moves single nodes as long as the normalized cut of the whole graph falls.

    Parameters
    ----------
    graph : Graph, or what `Graph.from_matrix` takes
    k : int
        At most the number of nodes with edges.
    size : int, optional
        Number of coreset nodes, from k to 20,000. By default as many as their walks need to meet: 500 to 4,000, and at
        least 20 per cluster.
    n_init : int
        Restarts of k-means in the eigenvectors.
    max_iter : int
        Largest number of sweeps over all nodes; they end when fewer than 0.1 % of the nodes move.
    seed : int
        The same seed and graph give the same clusters.

    Returns
    -------
    GraphModel
        Exactly k clusters. Nodes without edges get -1. A component that no walk reached is added as a whole to the
        cluster of least volume.

    Notes
    -----
    O(n + edges) per sweep, and O(s^2) for s coreset nodes. If the graph has components and walks reached them all,
    clusters are unions of components.

    Examples
    --------
    >>> two_triangles = Graph.from_edges([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])
    >>> fit_graph(two_triangles, 2).labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    graph = Graph.from_matrix(graph)
    k, seed = check_count("k", k), check_seed(seed)
    n_init, max_iter = check_count("n_init", n_init), check_count("max_iter", max_iter, least=0)
    there = int(np.count_nonzero(graph.degrees))
    if there == 0:
        raise DataError(f"The graph has no edges; got {graph!r}.")
    if k > MOST_DRAWN:
        raise SettingError(f"`k` must be at most {MOST_DRAWN:,}; got {k:,}. Find components or coarser clusters first.")
    if k > there:
        raise SettingError(f"`k` must be at most the number of nodes with edges ({there}); got {k}.")
    if size is not None:
        size = check_count("size", size, least=k, remedy="Ask for more coreset nodes or fewer clusters.")
        if size > MOST_DRAWN:
            raise SettingError(f"`size` must be at most {MOST_DRAWN:,}, for a matrix of all pairs; got {size:,}.")
    return _fit(graph, k, size, n_init, max_iter, np.random.default_rng(seed))


def _fit(
    graph: Graph, k: int, size: int | None, n_init: int, max_iter: int, generator: np.random.Generator
) -> GraphModel:
    """Return the model. Assumes validated input."""
    coreset, labels, volumes, inner = _start(graph, k, size, n_init, generator, lazy=False)
    # With random labels, the share of a cluster's weight that stays inside it is its share of the total volume.
    if k > 1 and np.sum(inner / volumes) < volumes.sum() / graph.degrees.sum():
        # Worse than random: these are the two sides of a nearly bipartite graph. Lazy walks do not see the sides.
        coreset, labels, volumes, inner = _start(graph, k, size, n_init, generator, lazy=True)
    sweeps, moved = 0, graph.n
    waiting = np.ones(graph.n, dtype=np.bool_)
    while sweeps < max_iter and moved > _AT_REST * graph.n:
        if sweeps == 0 and graph.n > _SWEPT_WHOLE:
            moved = graph.first_sweep(labels, volumes, inner, waiting)
        else:
            moved = graph.sweep(labels, volumes, inner, waiting, whole=graph.n <= _SWEPT_WHOLE)
        sweeps += 1
    graph.fill(labels, volumes, inner)
    order = _by_volume(labels, volumes)
    place = np.append(np.argsort(order), UNLABELLED).astype(np.int32)  # the last one is for the label -1
    return GraphModel(
        place[labels],
        volumes[order],
        inner[order],
        coreset.nodes,
        coreset.weights,
        coreset.hops,
        graph.shift,
        sweeps,
    )


def _start(
    graph: Graph, k: int, size: int | None, n_init: int, generator: np.random.Generator, *, lazy: bool
) -> tuple[GraphCoreset, ShortLabels, Floats, Floats]:
    """Return a coreset, labels of the nodes its walks reach, volumes and inner weights; no cluster is empty."""
    coreset = build_graph_coreset(graph, k, size, generator, lazy=lazy)
    clusters = cluster_coreset(graph, coreset, k, n_init, generator)
    heavy = np.bincount(clusters, coreset.weights, minlength=k).astype(np.float64)
    labels = spread_labels(coreset.met, coreset.weights, clusters, heavy)
    _fill_empty(graph, labels, k)
    volumes, inner = graph.measure(labels, k)
    return coreset, labels, volumes, inner


def _fill_empty(graph: Graph, labels: ShortLabels, k: int) -> None:
    """Give every empty cluster the node of largest degree, except nodes that are alone in their cluster."""
    counts = np.bincount(labels[labels >= 0], minlength=k)
    for empty in np.flatnonzero(counts == 0):
        may_leave = (labels < 0) | (counts[labels] > 1)
        node = int(np.argmax(np.where(may_leave, graph.degrees, -1.0)))
        if labels[node] >= 0:
            counts[labels[node]] -= 1
        labels[node] = empty
        counts[empty] = 1


def _by_volume(labels: ShortLabels, volumes: Floats) -> Indices:
    """Return the clusters by descending volume, equal ones by their first node."""
    _, first = np.unique(labels[labels >= 0], return_index=True)
    return np.lexsort((first, -np.round(volumes / volumes.sum(), 12)))
