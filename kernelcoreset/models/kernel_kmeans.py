"""The result of a fit: centers that label any point, and the coreset they were found on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_count, check_rows, check_same_dimension, check_weights
from kernelcoreset.clustering.features import is_written_out
from kernelcoreset.clustering.problem import Solution
from kernelcoreset.clustering.solve import solve
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.describing.quality import RESTARTS, Labeller
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.features.preparation import Preparation, preparation_of
from kernelcoreset.files.tables import float_column, label_column
from kernelcoreset.kernels.combined import Normalized
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.products import products_pay
from kernelcoreset.labelling.centers import Centers, Labels
from kernelcoreset.labelling.written_out import centers_of, lloyd_over_rows, written_out
from kernelcoreset.models.folder import ABOUT, KeptAsFolder, pack, unpack_about, unpack_table
from kernelcoreset.models.prepared import PreparesRows
from kernelcoreset.models.shared_points import SharedPoints, numbers_text, read_numbers

_CORESET = "coreset.parquet"
_MEANS = "means"
_COST_ACCURACY = 1e-9  # of squared distances, see `Centers.label`
_ROUNDING = 1e-6  # more than the sum of a cluster's coefficients can be off


@dataclass(frozen=True, eq=False, repr=False)
class KernelKMeansModel(PreparesRows, KeptAsFolder):
    """A fitted kernel clustering: k centers in the feature space, each a combination of coreset points. Immutable.

    Parameters
    ----------
    coreset : Coreset
        The coreset that the centers were found on.
    kernel : Kernel
    solution : Solution
        Labels and coefficients on the coreset, cost, iterations.
    z : float
    means : ndarray of shape (k, d), optional
        Centers written out as vectors, if `refine` moved them; those of the solution otherwise.
    shared : SharedPoints, optional
        Centers as combinations of the same few points, if they were found so; those of the solution otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Gaussian, KernelKMeansModel, build_coreset
    >>> points = np.random.default_rng(0).normal(size=(2_000, 2)) + np.repeat([[0.0], [9.0]], 1_000, axis=0)
    >>> kernel = Gaussian(sigma=3.0)
    >>> coreset = build_coreset(points, k=2, kernel=kernel, size=100, seed=0)
    >>> model = KernelKMeansModel.fit_coreset(coreset, k=2, kernel=kernel, seed=0)
    >>> sorted(np.bincount(model.predict(points)).tolist())
    [1000, 1000]
    """

    FILES: ClassVar = (ABOUT, _CORESET)

    coreset: Coreset
    kernel: Kernel
    solution: Solution
    z: float = 2.0
    means: Floats | None = None
    shared: SharedPoints | None = None

    @staticmethod
    def fit_coreset(
        coreset: Coreset,
        k: int,
        kernel: Kernel,
        *,
        z: float = 2.0,
        n_init: int = 10,
        max_iter: int = 300,
        seed: int = 0,
        start: ArrayLike | None = None,
    ) -> KernelKMeansModel:
        """Return the model of the best solution that `solve` finds on a coreset; parameters as there.

        Clusters are numbered by decreasing weight, so their numbers do not depend on the order of the points. With
        `start`, they keep the numbers given there.
        """
        solution = solve(coreset, k, kernel, z=z, n_init=n_init, max_iter=max_iter, seed=seed, start=start)
        if start is None:
            solution = _numbered_by_weight(solution, coreset)
        return KernelKMeansModel(coreset, kernel, solution, float(z))

    @cached_property
    def centers(self) -> Centers:
        """The k centers, ready to label points."""
        if self.means is not None:
            radius = np.sqrt(self.solution.cost / self.coreset.weights.sum())
            return centers_of(self.means, self.kernel, float(radius))
        if self.shared is not None:
            return Centers(self.shared.points, self.shared.coefficients, self.kernel)
        return Centers(self.coreset.points, self.solution.coefficients, self.kernel)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return self.solution.k

    @property
    def cluster_sizes(self) -> NDArray[np.int64]:
        """Number of coreset points of each cluster, shape (k,)."""
        return np.bincount(self.solution.labels, minlength=self.k)

    @property
    def cluster_weights(self) -> Floats:
        """Weight of each cluster in the data as the coreset estimates it, shape (k,)."""
        return np.bincount(self.solution.labels, self.coreset.weights, minlength=self.k).astype(np.float64)

    @property
    def own_coreset(self) -> Coreset:
        """The coreset."""
        return self.coreset

    @cached_property
    def preparation(self) -> Preparation | None:
        """How rows become points; None if rows are points as they are."""
        # Inside a spectral model, points already have their degrees.
        return None if isinstance(self.kernel, Normalized) else preparation_of(self.coreset.settings)

    def with_preparation(self, preparation: Preparation | None) -> Self:
        """Return the same model, fitted to points that this preparation made of rows."""
        return self if preparation is None else replace(self, coreset=self.coreset.with_preparation(preparation))

    @property
    def coreset_labels(self) -> NDArray[np.int32]:
        """Cluster of each coreset point."""
        return self.solution.labels

    @cached_property
    def typical_distances(self) -> Floats:
        """Root mean squared distance of the rows of each cluster to its center, as the coreset estimates it."""
        found = self.label_points(self.coreset.points)
        weights = np.bincount(found.labels, self.coreset.weights, minlength=self.k)
        squares = np.bincount(found.labels, self.coreset.weights * found.distances**2, minlength=self.k)
        return np.sqrt(np.divide(squares, weights, out=np.zeros(self.k), where=weights > 0))

    @property
    def feature_kernel(self) -> Kernel | None:
        """The kernel in whose feature space clusters are round."""
        return self.kernel

    def similar_fit(self, coreset: Coreset) -> Labeller:
        """Cluster another coreset in the same way; return what labels points."""
        model = KernelKMeansModel.fit_coreset(coreset, self.k, self.kernel, z=self.z, n_init=RESTARTS)
        if products_pay(self.kernel, coreset.points.shape[1]):
            return model.centers.predict
        # Directly: for the few points that halves are compared on, landmarks take longer to find than they save.
        return lambda points: model.centers.label(points, exact_distances=True).labels

    def predict_points(self, points: ArrayLike) -> NDArray[np.int32]:
        """Return the cluster of every point, shape (n,), without a preparation."""
        return self.centers.predict(points)

    def label_points(self, points: ArrayLike, *, margins: bool = False) -> Labels:
        """Return cluster, distance and, if `margins`, the margin to the second nearest center of every point."""
        return self.centers.label(points, margins=margins)

    def distances(self, points: Any) -> Floats:
        """Return the feature distance of every row to every center, shape (n, k)."""
        return self.centers.distances(self.prepared(points))

    def cost(self, points: Any, weights: ArrayLike | None = None) -> float:
        """Return sum_x w_x min_c dist(x, c)^z over the given rows, to about 9 digits."""
        return self.cost_of_points(self.prepared(points), weights)

    def cost_of_points(self, points: ArrayLike, weights: ArrayLike | None = None) -> float:
        """Return `cost` of points that need no preparation."""
        points = check_rows(points)
        weights = check_weights(weights, len(points))
        check_same_dimension("points", points.shape[1], self.coreset.points.shape[1], "the centers")
        # A root or power of a distance that is nearly 0 needs more digits than landmarks give.
        accuracy = _COST_ACCURACY if self.z == 2.0 else 0.0
        distances = self.centers.label_rows(points, accuracy=accuracy).distances
        with np.errstate(over="ignore"):
            cost = float(weights @ distances**self.z)
        if not np.isfinite(cost):
            raise evaluator_of(self.kernel).overflow("the clustering cost", points.T)
        return cost

    def representatives(self, count: int = 1) -> list[NDArray[Any]]:
        """Return, for each cluster, its coreset points nearest to the center, nearest first.

        Parameters
        ----------
        count : int
            Points per cluster; a small cluster may have fewer.

        Returns
        -------
        list of k arrays
            Ids of the original rows if the coreset has ids, positions in the coreset otherwise.
        """
        count = check_count("count", count)
        own = self.centers.distances(self.coreset.points)[np.arange(len(self.coreset)), self.solution.labels]
        names = np.arange(len(self.coreset)) if self.coreset.ids is None else self.coreset.ids
        found = []
        for cluster in range(self.k):
            members = np.flatnonzero(self.solution.labels == cluster)
            found.append(names[members[np.argsort(own[members], kind="stable")[:count]]])
        return found

    def refit(self, k: int | None = None, **options: Any) -> KernelKMeansModel:
        """Return a model for another k, found on the same coreset; options as in `solve`.

        k may not exceed the k that the coreset was built for.
        """
        k = self.k if k is None else check_count("k", k)
        most = self.coreset.settings.get("k", k)
        if k > most:
            raise SettingError(
                f"`k` must be at most {most}, the k the coreset was built for; got {k}. Build it for a larger k."
            )
        return KernelKMeansModel.fit_coreset(self.coreset, k, self.kernel, **{"z": self.z, **options})

    def refine(self, points: Any, weights: ArrayLike | None = None, *, steps: int = 3) -> KernelKMeansModel:
        """Return a model whose centers are nearer to the means of all points, by iterations of Lloyd over all of them.

        A coreset gives the mean of a cluster up to the error of its few points there. One iteration over all points
        removes most of it. That is possible where centers are vectors: Linear and Cosine, with z = 2. `solution`, the
        labels of the coreset points, stays as it is.

        Parameters
        ----------
        points : array-like of shape (n, d), or a table if the model prepares its rows
            All points that the coreset stands for. float32 is used as it is.
        weights : array-like of shape (n,), optional
        steps : int
            Largest number of iterations, each about as long as labelling the points.

        Returns
        -------
        KernelKMeansModel

        Examples
        --------
        >>> import numpy as np
        >>> from kernelcoreset import KernelKMeansModel, Linear, build_coreset
        >>> points = np.random.default_rng(0).normal(size=(5_000, 20))
        >>> coreset = build_coreset(points, k=10, kernel=Linear(), size=100)
        >>> model = KernelKMeansModel.fit_coreset(coreset, k=10, kernel=Linear())
        >>> model.refine(points).cost(points) < model.cost(points)
        True
        """
        if not self.can_be_refined:
            raise SettingError(
                f"`refine` needs centers that are vectors: a Linear or Cosine kernel and z=2; got {self.kernel!r} and "
                f"z={self.z:g}. Use a larger coreset instead."
            )
        return self.refine_by_points(self.prepared(points), weights, steps)

    def refine_by_points(self, points: ArrayLike, weights: ArrayLike | None, steps: int) -> KernelKMeansModel:
        """Return the model of `refine` for points that need no preparation."""
        points = check_rows(points)
        weights = check_weights(weights, len(points))
        check_same_dimension("points", points.shape[1], self.coreset.points.shape[1], "the centers")
        steps = check_count("steps", steps)
        return self.with_means(lloyd_over_rows(self.written_out(), points, weights, self.kernel, steps))

    def written_out(self) -> Floats:
        """Return the centers as vectors, shape (k, d); only if they can be refined."""
        if self.means is not None:
            return self.means
        solution = self.solution
        return written_out(self.coreset.points, solution.shares, solution.labels, self.k, self.kernel)

    def with_means(self, means: Floats) -> KernelKMeansModel:
        """Return the model with its centers moved to these vectors, as `refine` does."""
        return replace(self, means=means)

    @property
    def can_be_refined(self) -> bool:
        """Whether `refine` can move the centers."""
        return self.z == 2.0 and is_written_out(self.kernel)

    @property
    def usual_refinements(self) -> int:
        """How many iterations over all rows pay by default: one if there are so many columns that a coreset is coarse.

        A coreset of few columns knows the means of clusters well, and a pass over the rows takes as long as its build.
        """
        return int(self.can_be_refined and products_pay(self.kernel, self.coreset.points.shape[1]))

    @cached_property
    def coreset_cost(self) -> float:
        """Cost of the centers on the coreset: that of the solution, unless `refine` moved them."""
        if self.means is None:
            return self.solution.cost
        return self.cost_of_points(self.coreset.points, self.coreset.weights)

    def to_files(self) -> dict[str, bytes]:
        """Return the content of the two files by name, for storage that is not a local folder."""
        return self.to_files_with({})

    def to_files_with(self, others: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the two files and some others, whose digests are kept in model.json too."""
        solution = self.solution
        table = self.coreset.to_arrow()
        table = table.append_column("cluster", pa.array(solution.labels, pa.int32()))
        table = table.append_column("coefficient", pa.array(solution.shares, pa.float64()))
        about = {
            "k": self.k,
            "z": self.z,
            "kernel": self.kernel.to_dict(),
            "cost": solution.cost,
            "n_iter": solution.n_iter,
            "converged": solution.converged,
        }
        if self.means is not None:
            about[_MEANS] = numbers_text(self.means)
        if self.shared is not None:
            about.update(self.shared.to_dict())
        return pack(about, _CORESET, table, others)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, trusted_modules: Iterable[str] = ()) -> KernelKMeansModel:
        """Return the model that `to_files` wrote, or raise FormatError."""
        model = read_clustering(files, trusted_modules)
        if isinstance(model.kernel, Normalized):
            raise FormatError("This is a spectral model: load it with SpectralModel.load.")
        return model


def read_clustering(files: Mapping[str, bytes], trusted_modules: Iterable[str] = ()) -> KernelKMeansModel:
    """Return the model that `to_files` wrote, with any kernel: also the one inside a spectral model."""
    about = unpack_about(files)
    table = unpack_table(files, _CORESET, about)
    coreset = Coreset.from_arrow(table)
    k, z = about.whole("k", least=1, most=len(coreset)), about.number("z")
    if z < 1.0:
        raise about.wrong("z", "at least 1")
    name = f"{_CORESET} of the model"
    labels = label_column(table, "cluster", name, least=0, count=k)
    own = float_column(table, "coefficient", name)
    sums = np.bincount(labels, own.clip(-2.0, 2.0), minlength=k)[np.unique(labels)]
    if (np.abs(own) > 1.0 + _ROUNDING).any() or (np.abs(sums - 1.0) > _ROUNDING).any():
        raise FormatError(f"The coefficients in {name} must sum to 1 for each cluster; they do not. Save it again.")
    solution = Solution(labels, own, k, about.number("cost"), about.whole("n_iter"), about.flag("converged"))
    kernel = Kernel.from_dict(about.mapping("kernel"), trusted_modules=trusted_modules)
    d = coreset.points.shape[1]
    means = read_numbers(about, _MEANS, k, d) if _MEANS in about.data else None
    if means is not None and not (z == 2.0 and is_written_out(kernel)):
        raise about.wrong(_MEANS, "left out for this kernel and z")
    return KernelKMeansModel(coreset, kernel, solution, z, means, SharedPoints.from_fields(about, k, d))


def _numbered_by_weight(solution: Solution, coreset: Coreset) -> Solution:
    """Return the solution with its clusters ordered by decreasing weight; the mean point breaks ties."""
    k, labels = solution.k, solution.labels
    weights = np.bincount(labels, coreset.weights, minlength=k)
    means = [np.bincount(labels, solution.shares * column, minlength=k) for column in coreset.points.T]
    # Rounded, because the order of a sum changes its last bits.
    keys = [np.round(column, 9) for column in means[::-1]]
    order = np.lexsort((*keys, -np.round(weights / weights.sum(), 9)))
    place = np.empty(k, dtype=np.int32)
    place[order] = np.arange(k, dtype=np.int32)
    return replace(solution, labels=place[labels])
