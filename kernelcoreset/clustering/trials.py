"""Clusterings of a sample of the data by each method, judged alike: what choices of width, k and method compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.cut import labels_by_vectors, leading_vectors
from kernelcoreset.clustering.problem import Labels, Problem, count_distinct, prepare
from kernelcoreset.clustering.solve import solve_problem
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.kernels.families import Linear
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.neighbors.graph import SCALE_RANK
from kernelcoreset.neighbors.persistence import Walks

TIE = 0.045
"""Persistences that differ by less are equally good: groups of groups persist a little longer than groups do."""
STANDS_OUT = 0.07
"""Persistence above that of data without clusters, from which on clusters stand out."""

_WIDTHS = 7
_VECTORS = 10
_RESTARTS = 3
_MAX_ITER = 100


@dataclass(frozen=True, eq=False)
class Trials:
    """Clusterings of a small sample of the data. Immutable.

    Parameters
    ----------
    walks : Walks
        The sample, and what judges a clustering of it.
    seed : int
    """

    walks: Walks
    seed: int = 0
    _found: dict[tuple[str, float, int], Labels] = field(default_factory=dict)
    _vectors: dict[tuple[str, float], Floats] = field(default_factory=dict)
    _problems: dict[float, Problem] = field(default_factory=dict)

    @staticmethod
    def of(points: Floats, weights: Floats | None = None, *, seed: int = 0) -> Trials:
        """Return trials on a sample of at most 500 points. Assumes validated input."""
        return Trials(Walks.of(points, weights, seed=seed), seed)

    def __len__(self) -> int:
        return len(self.walks.points)

    def persistence(self, labels: Labels, k: int) -> float:
        """Return how long walks stay in the clusters, see `Walks.persistence`."""
        return self.walks.sample_persistence(labels, k)

    def by_neighbors(self, k: int) -> Labels:
        """Return the clusters of `fit_neighbors` on the sample."""
        return self._kept("neighbors", 0.0, k, lambda: self._cut("neighbors", 0.0, k, lambda: self.walks.graph))

    def by_cut(self, kernel: Kernel, width: float, k: int) -> Labels:
        """Return the best normalized cut of the similarities of a kernel; `width` names the kernel."""

        def similarities() -> Floats:
            root = np.sqrt(self.walks.weights)
            block: Floats = kernel.block(self.walks.points, self.walks.points)
            return np.maximum(block, 0.0) * root[:, np.newaxis] * root

        return self._kept("cut", width, k, lambda: self._cut("cut", width, k, similarities))

    def by_k_means(self, kernel: Kernel, width: float, k: int) -> Labels:
        """Return kernel k-means clusters; `width` names the kernel."""

        def find() -> Labels:
            if width not in self._problems:
                self._problems[width] = prepare(Coreset(self.walks.points, self.walks.weights), kernel)
            problem = self._problems[width]
            most = count_distinct(problem, k)
            generator = np.random.default_rng(self.seed)
            return solve_problem(problem, min(k, most), 2.0, _RESTARTS, _MAX_ITER, generator).labels

        return self._kept("k-means", width, k, find)

    @cached_property
    def widths(self) -> Floats:
        """Widths to try, from the typical distance of near neighbors to the median of all distances."""
        squared = Linear().squared_distances(self.walks.points, self.walks.points)
        rank = min(SCALE_RANK, len(squared) - 1)
        near = float(np.sqrt(np.median(np.partition(squared, rank, axis=1)[:, rank])))
        far = float(np.sqrt(np.median(squared[np.triu_indices(len(squared), 1)])))
        return np.geomspace(min(near, far), far, _WIDTHS)

    def reference(self, k: int) -> float:
        """Return the persistence that k clusters reach in data without clusters, of the same size and spread.

        The larger one of a Gaussian and of a box with the data's covariance: a long cloud is easier to cut than a
        round one, also if it has no clusters.
        """
        return max(each.persistence(each.by_neighbors(k), k) for each in self._structureless)

    @cached_property
    def _structureless(self) -> list[Trials]:
        clouds = structureless(self.walks.points, self.walks.weights, len(self), self.seed)
        return [Trials.of(cloud, seed=self.seed) for cloud in clouds]

    def _cut(self, method: str, width: float, k: int, similarities: Callable[[], Any]) -> Labels:
        """Cluster by eigenvectors, which are computed once for all k up to 10."""
        k = min(k, len(self))
        vectors = self._vectors.get((method, width), np.empty((0, 0)))
        if vectors.shape[1] < k:
            vectors = leading_vectors(similarities(), min(max(k, _VECTORS), len(self)), self._generator)
            self._vectors[method, width] = vectors
        return labels_by_vectors(vectors, self.walks.weights, k, _RESTARTS, self._generator)

    @property
    def _generator(self) -> np.random.Generator:
        """A new generator for each step, so that a result does not depend on the trials before it."""
        return np.random.default_rng(self.seed)

    def _kept(self, method: str, width: float, k: int, find: Callable[[], Labels]) -> Labels:
        """Return the labels of a trial, which is made once."""
        if (method, width, k) not in self._found:
            self._found[method, width, k] = find()
        return self._found[method, width, k]


def structureless(points: Floats, weights: Floats, n: int, seed: int = 0) -> list[Floats]:
    """Return two sets of n points without clusters, a Gaussian and a box, with the mean and covariance of the data.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(100, 2)) * [9.0, 1.0] + [5.0, 0.0]
    >>> [cloud.std(axis=0).round().tolist() for cloud in structureless(points, np.ones(100), 5_000)]
    [[9.0, 1.0], [9.0, 1.0]]
    """
    mean = np.average(points, axis=0, weights=weights)
    centered = points - mean
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    spread = np.sqrt(np.average(np.square(centered @ axes.T), axis=0, weights=weights))
    generator = np.random.default_rng(seed)
    shape, half = (n, len(spread)), np.sqrt(3.0)  # a box of this half width has variance 1
    clouds = (generator.normal(size=shape), generator.uniform(-half, half, size=shape))
    return [cloud * spread @ axes + mean for cloud in clouds]
