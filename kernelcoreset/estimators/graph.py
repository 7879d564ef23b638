"""The scikit-learn API of graph clustering: GraphClustering with fit, fit_predict and predict."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelcoreset.checks import check_count
from kernelcoreset.graphs.csr import Labels
from kernelcoreset.graphs.graph import Graph
from kernelcoreset.graphs.model import GraphModel, fit_graph


class GraphClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Cluster the nodes of a graph by normalized cut, through a coreset of nodes.

    Does what spectral clustering does in a few passes over the edges: 1,000,000 nodes and 10,000,000 edges take seconds
    on one core. `predict` labels new nodes. See `fit_graph` for the method.

    Parameters
    ----------
    n_clusters : int
    coreset_size : int, optional
        Number of coreset nodes; by default as many as walks from them need to meet.
    n_init : int
        Restarts of k-means in the eigenvectors of the coreset.
    max_iter : int
        Largest number of sweeps of single moves over the whole graph.
    random_state : int, RandomState or None
        An int makes the result reproducible.

    Attributes
    ----------
    labels_ : ndarray of shape (n_nodes,)
        Clusters numbered by descending volume; -1 for a node without edges.
    normalized_cut_ : float
        Exact, on all edges.
    shift_ : float
        Diagonal shift that makes the kernel D^-1 A D^-1 + shift D^-1 positive semidefinite.
    model_ : GraphModel
        The fitted model.
    n_iter_ : int
        Number of sweeps made.
    n_features_in_ : int
        Number of nodes.

    Examples
    --------
    >>> from kernelcoreset import Graph, GraphClustering
    >>> two_triangles = Graph.from_edges([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])
    >>> model = GraphClustering(n_clusters=2, random_state=0).fit(two_triangles)
    >>> model.labels_.tolist(), round(model.normalized_cut_, 3)
    ([0, 0, 0, 1, 1, 1], 0.286)
    >>> model.predict([[0, 0, 0, 1, 1, 0]]).tolist()  # a new node with edges to nodes 3 and 4
    [1]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        coreset_size: int | None = None,
        n_init: int = 5,
        max_iter: int = 30,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.coreset_size = coreset_size
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GraphClustering:  # noqa: N803
        """Find the clusters of a graph.

        Parameters
        ----------
        X : Graph, sparse matrix or array-like of shape (n_nodes, n_nodes)
            Symmetric, weights finite and at least 0.
        y : ignored

        Returns
        -------
        self
        """
        graph = Graph.from_matrix(X)
        self.model_ = fit_graph(
            graph,
            check_count("n_clusters", self.n_clusters),
            size=self.coreset_size,
            n_init=self.n_init,
            max_iter=self.max_iter,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        self._set_attributes()
        return self

    def predict(self, X: Any) -> Labels:  # noqa: N803
        """Return the clusters of new nodes by their edges to the fitted ones.

        Parameters
        ----------
        X : sparse matrix or array-like of shape (m, n_nodes)
            Weights of each new node's edges.

        Returns
        -------
        ndarray of shape (m,)
            -1 for a node without edges to a cluster.
        """
        check_is_fitted(self, "model_")
        return self.model_.predict(X)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model as a folder of JSON and Parquet files, without pickle."""
        check_is_fitted(self, "model_")
        self.model_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GraphClustering:
        """Return a fitted estimator from the folder that `save` wrote."""
        model = GraphModel.load(path)
        loaded = cls(n_clusters=model.k)
        loaded.model_ = model
        loaded._set_attributes()
        return loaded

    def _set_attributes(self) -> None:
        model: GraphModel = self.model_
        self.labels_ = np.array(model.labels)
        self.normalized_cut_ = model.normalized_cut
        self.shift_ = model.shift
        self.n_iter_ = model.sweeps
        self.n_features_in_ = len(model.labels)
