"""A weighted undirected graph in compressed rows, checked once, and the exact normalized cut of a clustering.

The kernel of a graph is K = D^-1 A D^-1 + shift D^-1 with weights D, A the weights of the edges and D the degrees:
weighted kernel k-means with it minimizes the normalized cut (Dhillon, Guan and Kulis). A kernel value is read from a
row.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, as_numeric, check_count, refuse_masked
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.graphs import csr as loops
from kernelcoreset.graphs.csr import Indices, Rows, ShortLabels
from kernelcoreset.graphs.moves import fill_components, improve, mark_unsettled, measure

MOST_NODES = 2**31 - 1
MOST_CLUSTERS = 20_000
# Entries that differ by less than this share of their value are equal up to rounding.
_TOLERANCE = 1e-9
_LEAST_DEGREE = 1e-150
_MANY_WAIT = 0.02


class Graph:
    """A weighted undirected graph. Immutable; create one with `Graph.from_edges` or `Graph.from_matrix`.

    Weights are finite and at least 0; an entry of weight 0 is not an edge. A self-loop counts once in its node's
    degree. Nodes without edges are allowed and belong to no cluster.

    Attributes
    ----------
    rows : Rows
        The symmetric matrix of weights in compressed rows, without duplicates.
    degrees : ndarray of shape (n,)
        Row sums D_ii.
    loops : ndarray of shape (n,)
        The diagonal.

    Examples
    --------
    >>> graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [1.0, 0.5, 1.0])
    >>> graph
    Graph(4 nodes, 3 edges, 0 without edges)
    >>> graph.degrees.tolist()
    [1.0, 1.5, 1.5, 1.0]
    """

    def __init__(self, rows: Rows, degrees: Floats, diagonal: Floats) -> None:
        self.rows, self.degrees, self.loops = rows, degrees, diagonal

    @staticmethod
    def from_edges(
        source: ArrayLike, target: ArrayLike, weights: ArrayLike | None = None, *, n: int | None = None
    ) -> Graph:
        """Return the graph of an edge list. O(edges).

        An edge has no direction: (i, j) and (j, i) mean the same. An edge given several times, or once in each
        direction, has the sum of its weights. Giving all edges twice does not change a clustering.

        Parameters
        ----------
        source, target : array-like of shape (m,)
            Nodes as whole numbers from 0.
        weights : array-like of shape (m,), optional
            Finite and at least 0; default 1.
        n : int, optional
            Number of nodes; default: the largest node plus 1.

        Returns
        -------
        Graph
        """
        ends = [_as_nodes(source, "source"), _as_nodes(target, "target")]
        if len(ends[0]) != len(ends[1]):
            raise DataError(f"`source` and `target` must have the same length; got {len(ends[0])} and {len(ends[1])}.")
        values = np.ones(len(ends[0])) if weights is None else as_numeric(weights, "weights")
        if values.shape != ends[0].shape:
            raise DataError(f"`weights` must have shape {ends[0].shape}, one per edge; got {values.shape}.")
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            raise DataError(_bad_weight(int(np.argmax(bad)), "edge", values))
        most = max((int(end.max()) for end in ends if len(end)), default=-1)
        nodes = most + 1 if n is None else check_count("n", n)
        least = min((int(end.min()) for end in ends if len(end)), default=0)
        if least < 0 or most >= nodes:
            raise DataError(
                f"Nodes must be whole numbers from 0 to n - 1 ({nodes - 1}); got {least if least < 0 else most}. "
                "Give a larger n, or number the nodes from 0 (np.unique(..., return_inverse=True) does)."
            )
        _refuse_count(nodes)
        return _finish(loops.rows_of_edges(ends[0], ends[1], values, nodes))

    @staticmethod
    def from_matrix(matrix: Any) -> Graph:
        """Return the graph of a symmetric matrix of weights, a scipy sparse matrix of any format or an array.

        An object with `indptr`, `indices`, `data` and `shape` (compressed rows), or with `tocsr()`, counts as sparse.
        Duplicate entries are summed. float64 values and int32 indices are not copied, so do not change the matrix
        while the graph is in use. The graph never changes it. O(entries).

        Parameters
        ----------
        matrix : sparse matrix or array-like of shape (n, n)

        Returns
        -------
        Graph

        Examples
        --------
        >>> Graph.from_matrix([[0.0, 2.0], [2.0, 0.0]])
        Graph(2 nodes, 1 edges, 0 without edges)
        """
        if isinstance(matrix, Graph):
            return matrix
        rows, shape = as_rows(matrix, "matrix")
        if shape[0] != shape[1]:
            raise DataError(f"The matrix of a graph must be square; got shape {shape}.")
        _refuse_count(shape[0])
        graph = _finish(rows)
        if not loops.looks_symmetric(graph.rows):
            mirrored = Rows(*loops.transpose(*graph.rows, graph.n))
            i, j = loops.first_difference(mirrored, graph.rows, _TOLERANCE)
            if i >= 0:
                raise DataError(
                    f"The matrix of a graph must be symmetric; entries ({i}, {j}) and ({j}, {i}) differ. "
                    "For a directed graph, use A + A.T or (A + A.T) / 2."
                )
        return graph

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.degrees)

    @property
    def n_edges(self) -> int:
        """Number of edges, each counted once, self-loops included."""
        return (len(self.rows.indices) + int(np.count_nonzero(self.loops))) // 2

    @cached_property
    def shift(self) -> float:
        """A shift that makes K = D^-1 A D^-1 + shift D^-1 positive semidefinite: max(0, max_i 1 - 2 a_ii / d_i).

        By Gershgorin's theorem no eigenvalue of D^-1 A is below -shift. The shift is 1 if there are no self-loops, and
        0 if each self-loop weighs at least as much as all other edges of its node.
        """
        with np.errstate(invalid="ignore"):
            shares = self.loops / self.degrees  # nan for nodes without edges
        return max(0.0, 1.0 - 2.0 * float(np.fmin.reduce(shares, initial=0.5)))

    def near(self, nodes: Indices, hops: int) -> Rows:
        """Return rows that hold at least those that walks of `hops` steps from these nodes pass."""
        return self.rows

    def measure(self, labels: ShortLabels, k: int) -> tuple[Floats, Floats]:
        """Return volume and inner weight per cluster."""
        return self._measure(labels, k, np.empty(0))

    def _measure(self, labels: ShortLabels, k: int, held: Floats) -> tuple[Floats, Floats]:
        """Do it, and put the weight of each node's entries in its own cluster into `held`, unless that is empty."""
        found = loops.in_threads(
            lambda part: measure(part.start, loops.part_of(self.rows, part), self.degrees[part], labels, k, held[part]),
            loops.parts_of(self.rows),
        )
        volumes, inner = np.sum(found, axis=0)
        return volumes, inner

    def sweep(
        self, labels: ShortLabels, volumes: Floats, inner: Floats, waiting: NDArray[np.bool_], *, whole: bool
    ) -> int:
        """Move single nodes as `improve` does, and return how many moved."""
        # Past this number it takes less time to measure all nodes by threads than to visit neighbours of those moved.
        if whole or len(loops.parts_of(self.rows)) == 1 or np.count_nonzero(waiting) <= _MANY_WAIT * self.n:
            return int(improve(0, self.rows, self.degrees, labels, volumes, inner, waiting, whole))
        moved = int(improve(0, self.rows, self.degrees, labels, volumes, inner, waiting, True))
        held = np.zeros(self.n)
        volumes[:], inner[:] = self._measure(labels, len(volumes), held)
        mark_unsettled(self.degrees, self.loops, labels, held, volumes, inner, waiting)
        return moved

    def first_sweep(self, labels: ShortLabels, volumes: Floats, inner: Floats, waiting: NDArray[np.bool_]) -> int:
        """Move about half of the nodes and return how many moved; only nodes that may move next are left waiting.

        The parts of a large graph are swept at once. Each sees the moves of its own nodes only. Sweeps that follow are
        exact, so that the clusters end in a local optimum all the same.
        """
        parts = loops.parts_of(self.rows)
        if len(parts) == 1:
            return self.sweep(labels, volumes, inner, waiting, whole=True)

        def improve_part(part: slice) -> ShortLabels:
            own, rows = labels.copy(), loops.part_of(self.rows, part)
            improve(part.start, rows, self.degrees[part], own, volumes.copy(), inner.copy(), waiting[part], True)
            return own[part]

        found = np.concatenate(loops.in_threads(improve_part, parts))
        held = np.zeros(self.n)
        new_volumes, new_inner = self._measure(found, len(volumes), held)
        if not (new_volumes > 0.0).all():  # the parts together have moved all nodes of a cluster
            return self.sweep(labels, volumes, inner, waiting, whole=True)
        moved = int(np.count_nonzero(found != labels))
        labels[:], volumes[:], inner[:] = found, new_volumes, new_inner
        mark_unsettled(self.degrees, self.loops, labels, held, volumes, inner, waiting)
        return moved

    def fill(self, labels: ShortLabels, volumes: Floats, inner: Floats) -> None:
        """Add every component without labels, as a whole, to the cluster of least volume."""
        fill_components(self.rows, self.degrees, labels, volumes, inner)

    def __repr__(self) -> str:
        return f"Graph({self.n:,} nodes, {self.n_edges:,} edges, {int((self.degrees == 0).sum()):,} without edges)"


def graph_normalized_cut(labels: ArrayLike, graph: Any) -> float:
    """Return the exact normalized cut, sum over clusters of (weight of edges leaving it) / (sum of its degrees).

    Between 0 and the number of clusters; 0 if no edge joins two clusters. O(edges).

    Parameters
    ----------
    labels : array-like of shape (n,)
        Clusters as whole numbers from 0; -1 is only allowed for nodes without edges.
    graph : Graph, or what `Graph.from_matrix` takes

    Examples
    --------
    >>> round(graph_normalized_cut([0, 0, 1, 1], Graph.from_edges([0, 1, 2], [1, 2, 3])), 3)
    0.667
    """
    graph = Graph.from_matrix(graph)
    found = check_labels(labels, graph)
    if found.max(initial=-1) > MOST_CLUSTERS:  # large numbers, but not more clusters than fit in int16: renumber them
        found = np.unique(found, return_inverse=True)[1] - int(found.min() < 0)
    found = found.astype(np.int16)
    volumes, inner = graph.measure(found, int(found.max(initial=-1)) + 1)
    there = volumes > 0
    return float(np.sum(1.0 - inner[there] / volumes[there]))


def check_labels(labels: ArrayLike, graph: Graph) -> NDArray[np.int64]:
    """Return the labels as int64, one per node of the graph, or raise DataError."""
    found = np.asarray(labels)
    if found.shape != (graph.n,) or found.dtype.kind not in "iu":
        raise DataError(
            f"`labels` must be whole numbers of shape ({graph.n},), one per node; got {found.dtype}, {found.shape}."
        )
    bad = (found < -1) | ((found == -1) & (graph.degrees > 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise DataError(
            f"`labels` must be at least 0, or -1 for a node without edges; got {found[first]} for node {first}."
        )
    if len(np.unique(found)) > MOST_CLUSTERS:
        raise DataError(f"`labels` must name at most {MOST_CLUSTERS:,} clusters; got {len(np.unique(found)):,}.")
    return found.astype(np.int64)


def as_rows(matrix: Any, name: str) -> tuple[Rows, tuple[int, int]]:
    """Return a sparse matrix or an array as compressed rows, and its shape; values are not checked."""
    if not hasattr(matrix, "indptr") and not hasattr(matrix, "tocsr"):
        from scipy.sparse import csr_array  # slow to import, and executors make no graphs

        dense = as_numeric(matrix, name)
        if dense.ndim != 2:
            raise DataError(f"`{name}` must have two dimensions; got shape {dense.shape}.")
        matrix = csr_array(dense)
    elif getattr(matrix, "format", "csr") != "csr" or not hasattr(matrix, "indptr"):
        matrix = matrix.tocsr()
    rows = Rows(
        np.require(matrix.indptr, np.int64, ["C", "W"]),
        np.require(matrix.indices, np.int32, ["C", "W"]),
        np.require(as_numeric(matrix.data, name), np.float64, ["C", "W"]),
    )
    return rows, (int(matrix.shape[0]), int(matrix.shape[1]))


def check_rows(rows: Rows, n: int) -> tuple[Floats, Floats, bool]:
    """Return row sums, diagonal and whether the rows are canonical; raise DataError for bad weights or indices."""
    sums, diagonal = np.zeros(len(rows.starts) - 1), np.zeros(len(rows.starts) - 1)
    found = loops.in_threads(
        lambda part: loops.sum_rows(part.start, loops.part_of(rows, part), n, sums[part], diagonal[part]),
        loops.parts_of(rows),
    )
    bad = next((int(entry) for entry, _ in found if entry >= 0), -1)
    if bad >= 0:
        if not 0 <= rows.indices[bad] < n:
            raise DataError(f"Column indices must be nodes from 0 to {n - 1}; got {rows.indices[bad]} at entry {bad}.")
        raise DataError(_bad_weight(bad, "entry", rows.data))
    return sums, diagonal, all(once for _, once in found)


def check_degrees(degrees: Floats) -> None:
    """Raise DataError unless products of two degrees, and their sum, are finite and above 0."""
    with np.errstate(over="ignore"):
        total = float(degrees.sum())
    if not np.isfinite(total):
        raise DataError(f"The weights of all edges must have a finite sum; got {total}. Divide them by a constant.")
    least = float(degrees.min(where=degrees > 0.0, initial=np.inf))
    if least < _LEAST_DEGREE or total > 1.0 / _LEAST_DEGREE:
        raise DataError(
            f"The weights of a node's edges must sum to {_LEAST_DEGREE:g} to {1.0 / _LEAST_DEGREE:g}, because products "
            f"of two such sums are needed; got {least:g} to {degrees.max():g}. Multiply all weights by a constant."
        )


def _finish(rows: Rows) -> Graph:
    degrees, diagonal, once = check_rows(rows, len(rows.starts) - 1)
    check_degrees(degrees)
    return Graph(rows if once else loops.sum_duplicates(rows), degrees, diagonal)


def _as_nodes(values: ArrayLike, name: str) -> NDArray[np.int64]:
    refuse_masked(values, name)
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"`{name}` must be one-dimensional whole numbers; got dtype {array.dtype}, shape {array.shape}. "
            "Number other ids first: np.unique(ids, return_inverse=True)."
        )
    return np.require(array, np.int64, ["C", "W"])


def _bad_weight(place: int, what: str, values: Floats) -> str:
    return (
        f"Weights of edges must be finite and at least 0; got {values[place]} at {what} {place}. "
        "Drop such edges, or map signed similarities to positive weights, by exp for example."
    )


def _refuse_count(n: int) -> None:
    if n > MOST_NODES:
        raise SettingError(f"A graph has at most {MOST_NODES:,} nodes; got {n:,}.")
    if n < 1:
        raise DataError("A graph must have at least one node; got none. Check the filter or the path that made it.")
