"""How long random walks over nearest neighbors stay in their cluster: a score that no kernel and no width changes.

The cost of a clustering depends on the kernel and always falls with k, so it cannot compare widths or numbers of
clusters. Walks can: clusters that are separated keep a walk for long, whatever found them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.neighbors.graph import neighbor_graph

SAMPLE = 500
"""Points on which walks are made: all eigenvectors of their graph are needed."""

_LENGTHS = 40
# The longest walk has 0.6 steps per point. Much shorter ones do not leave any cluster, and much longer ones all
# clusters that touch. Measured on the shapes of scikit-learn's gallery: docs/algorithms.md.
_LONGEST = 0.6


@dataclass(frozen=True, eq=False)
class Walks:
    """Random walks over the nearest neighbors of a sample of points. Immutable.

    Parameters
    ----------
    rows : ndarray of shape (m,)
        The places of the sample in the points it was drawn from.
    points : ndarray of shape (m, d)
        The sample: distinct points.
    weights : ndarray of shape (m,)
        How often each was drawn.
    """

    rows: NDArray[np.int64]
    points: Floats
    weights: Floats

    @staticmethod
    def of(points: Floats, weights: Floats | None = None, *, seed: int = 0, sample: int = SAMPLE) -> Walks:
        """Return walks over a sample of at most `sample` points, drawn in proportion to weight.

        Assumes validated input, not all weights 0. Equal points count as one of their weight.

        Examples
        --------
        >>> import numpy as np
        >>> Walks.of(np.random.default_rng(0).normal(size=(2_000, 2))).points.shape
        (500, 2)
        """
        drawn = np.arange(len(points)) if weights is None else np.flatnonzero(weights)
        counts = np.ones(len(drawn)) if weights is None else weights[drawn]
        if len(drawn) > sample:
            # Evenly spaced along a random order: a point of much weight is drawn as often as it should be.
            generator = np.random.default_rng(seed)
            order = generator.permutation(len(drawn))
            running = np.cumsum(counts[order])
            marks = (np.arange(sample) + generator.random()) * (running[-1] / sample)
            picks = order[np.minimum(np.searchsorted(running, marks, side="right"), len(order) - 1)]
            drawn, counts = drawn[picks], np.ones(sample)
        _, first, inverse = np.unique(points[drawn], axis=0, return_index=True, return_inverse=True)
        return Walks(drawn[first], points[drawn[first]], np.bincount(inverse.ravel(), counts).astype(np.float64))

    @cached_property
    def graph(self) -> Any:
        """Similarities between the points of the sample, a sparse matrix."""
        return neighbor_graph(self.points, self.weights)

    @cached_property
    def _modes(self) -> tuple[Floats, Floats, Floats]:
        """How long each mode of the walk lasts, from 0 to 1; the modes; and the shares of the degrees."""
        from scipy.linalg import eigh  # slow to import

        matrix = self.graph.toarray()
        degrees = matrix.sum(axis=1)
        root = np.sqrt(degrees)
        values, vectors = eigh(matrix / root[:, np.newaxis] / root, check_finite=False)
        lengths = np.geomspace(1.0, max(2.0, _LONGEST * len(degrees)), _LENGTHS)
        kept = np.clip(0.5 + 0.5 * values, 0.0, 1.0)  # of a walk that stays where it is every other step
        return (kept[:, np.newaxis] ** lengths).mean(axis=1), vectors, degrees / degrees.sum()

    def persistence(self, labels: NDArray[Any], k: int) -> float:
        """Return how much more often than by chance a walk ends in the cluster where it started.

        sum over clusters of P(start and end in it) - P(start in it)^2, averaged over walks of 1 to 0.6 m steps, and
        divided by 1 - 1 / k. It is 1 if no walk leaves its cluster and all clusters are equally large, and near 0
        for random labels, of which only the shortest walks notice nothing.

        Parameters
        ----------
        labels : ndarray of int, shape (n,)
            Of all the points that the sample was drawn from, from 0 to k - 1.
        k : int
            Number of clusters.

        Examples
        --------
        >>> import numpy as np
        >>> points = np.random.default_rng(0).normal(size=(200, 2)) + 9.0 * np.repeat([[0.0], [1.0]], 100, axis=0)
        >>> walks = Walks.of(points)
        >>> round(walks.persistence(np.arange(200) // 100, 2), 2), round(walks.persistence(np.arange(200) % 2, 2), 2)
        (1.0, 0.09)
        """
        return self.sample_persistence(labels[self.rows], k)

    def sample_persistence(self, own: NDArray[Any], k: int) -> float:
        """Return the same for labels of the sample alone, shape (m,)."""
        if k == 1 or len(own) < 2:
            return 0.0
        lasting, modes, shares = self._modes
        members = np.zeros((len(own), k))
        members[np.arange(len(own)), own] = np.sqrt(shares)
        stay = lasting @ np.square(modes.T @ members).sum(axis=1)
        chance = np.square(shares @ (members > 0)).sum()
        return float((stay - chance) / (1.0 - 1.0 / k))
