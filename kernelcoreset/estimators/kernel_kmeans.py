"""KernelKMeans with the API of scikit-learn: fit, predict, transform and score."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernelcoreset.checks import Floats, check_count
from kernelcoreset.clustering.choosing import chosen_kernel
from kernelcoreset.clustering.features import is_written_out
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.estimators.base import CoresetClusterer, check_rows, check_table, choose_seed, told_step
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels import Kernel
from kernelcoreset.labelling.centers import Labels
from kernelcoreset.labelling.in_threads import label_in_threads
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.models.sampled import fit_by_sample, sample_pays
from kernelcoreset.models.spanned import fit_by_span, span_pays


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CoresetClusterer):  # type: ignore[misc]
    """Kernel k-means of any number of points, through a coreset.

    Builds a coreset of `coreset_size` points in at most O(n k) kernel evaluations, clusters it with kernel k-means++
    and Lloyd, and gives every point the label of its nearest center.

    Parameters
    ----------
    n_clusters : int
    kernel : Kernel or str
        A kernel object, or one of "gaussian" (also "rbf"), "exponential", "laplacian", "matern", "polynomial",
        "linear", "cosine".
    sigma : float or {"median", "auto"}
        Width of a kernel named by a string: a number, or a rule of `choose_sigma`. Not used with a kernel object.
    coreset_size : int or "auto"
        Data with no more points than this is clustered whole. "auto" is 1,000, or 20 per cluster if that is more.
    z : float
        At least 1: 2 for k-means, 1 for k-median.
    n_init : int
        Restarts; the best is kept.
    max_iter : int
    refine_iter : int
        Largest number of iterations of Lloyd over all points after the coreset is solved, see
        `KernelKMeansModel.refine`. Each takes about as long as labelling the points and brings the cost nearer to that
        of clustering all points. With more than 512 points per cluster, and 32,768 in all, centers come from a random
        sample of 256 per cluster instead, unless the labels of all points show that it has missed something. Linear and
        Cosine kernels with z = 2 only. Other kernels use such a sample too with 50 clusters or more, 12 columns or more
        and z = 2: centers are then combinations of a few hundred points. All else, and all with 0, keep the centers of
        the coreset.
    features : Features or mapping, optional
        Scales, categories, logarithms and missing values, as in `Features`: X may then be a table with columns of
        texts, and every prediction prepares its rows in the same way. By default X is used as it is.
    random_state : int, RandomState or None
        An int makes the fit repeatable.
    verbose : bool or int
        Whether a fit prints each of its steps with the time it takes.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    inertia_ : float
        Cost of the solution on all points given to fit.
    coreset_ : Coreset
        What the centers were found on. If that was a sample (`refine_iter`), a coreset of all points whose pivots are
        the clusters; its draws are not balanced, so it has a little more error than that of `build_coreset`.
    kernel_ : Kernel
        The kernel used, with its chosen width.
    model_ : KernelKMeansModel
        What to save. Spark reads it too.
    n_iter_ : int
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> points = np.random.default_rng(0).normal(size=(2_000, 2)) + np.repeat([[0.0], [9.0]], 1_000, axis=0)
    >>> model = kc.KernelKMeans(n_clusters=2, kernel=kc.Gaussian(sigma=3.0), coreset_size=100, random_state=0)
    >>> model = model.fit(points)
    >>> sorted(np.bincount(model.labels_).tolist())
    [1000, 1000]
    """

    _types: ClassVar[list[type]] = [np.float64, np.float32]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: Kernel | str = "gaussian",
        sigma: float | str = "median",
        coreset_size: int | str = "auto",
        z: float = 2.0,
        n_init: int = 10,
        max_iter: int = 300,
        refine_iter: int = 3,
        features: Features | Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.sigma = sigma
        self.coreset_size = coreset_size
        self.z = z
        self.n_init = n_init
        self.max_iter = max_iter
        self.refine_iter = refine_iter
        self.features = features
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        seed = choose_seed(self)
        with told_step(self, "choosing the kernel"):
            self.kernel_ = chosen_kernel(self.kernel, self.sigma, points, weights, seed, k=n_clusters)
        steps = check_count("refine_iter", self.refine_iter, 0)
        may_sample = steps > 0 and self.z == 2.0
        if not (may_sample and self._fit_by_sample(points, weights, n_clusters, size, seed)):
            is_refined = may_sample and is_written_out(self.kernel_)
            self._fit_by_coreset(points, weights, n_clusters, size, steps if is_refined else 0, seed)

    def _fit_by_sample(self, points: Floats, weights: Floats | None, n_clusters: int, size: int, seed: int) -> bool:
        """Fit by a sample of the points; return False, with nothing changed, if it does not pay or not suffice."""
        every = np.ones(len(points)) if weights is None else weights
        recipe = Recipe(n_clusters, self.kernel_, size, seed=seed)
        n, is_vector = int(np.count_nonzero(every)), is_written_out(self.kernel_)
        if not (sample_pays if is_vector else span_pays)(n, points.shape[1], recipe):
            return False
        with told_step(self, f"clustering {len(points):,} points by a sample, with {self.kernel_!r}"):
            if is_vector:
                found = fit_by_sample(points, every, recipe, self.n_init, self.max_iter)
            else:
                found = fit_by_span(points, every, recipe)
        if found is None:
            return False
        self.model_ = found.model.with_preparation(self.preparation_)
        self.labels_, self.inertia_ = found.labels.labels, cost_of(found.labels, 2.0, weights)
        return True

    def _fit_by_coreset(
        self, points: Floats, weights: Floats | None, n_clusters: int, size: int, steps: int, seed: int
    ) -> None:
        """Fit by a coreset of all points, and up to `steps` iterations of Lloyd over all of them."""
        with told_step(self, f"building a coreset of {len(points):,} points with {self.kernel_!r}"):
            coreset = build_coreset(points, n_clusters, self.kernel_, size, z=self.z, weights=weights, seed=seed)
        coreset = coreset.with_preparation(self.preparation_)
        with told_step(self, f"clustering {len(coreset):,} coreset points"):
            model = KernelKMeansModel.fit_coreset(
                coreset, n_clusters, self.kernel_, z=self.z, n_init=self.n_init, max_iter=self.max_iter, seed=seed
            )
        if steps and len(coreset) < len(points):
            with told_step(self, f"moving the centers by all points, up to {steps} times"):
                model = model.refine_by_points(points, weights, steps)
        self.model_ = model
        with told_step(self, f"labelling {len(points):,} points"):
            self.labels_, self.inertia_ = labels_and_cost(self.model_, points, weights)

    def transform(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return the feature distance of every row of X to every center, shape (n_samples, n_clusters)."""
        check_is_fitted(self)
        rows = check_rows(self, X) if self.model_.preparation is None else check_table(self, X)
        return self.model_.distances(rows)

    @property
    def n_iter_(self) -> int:
        """Iterations of the best restart."""
        check_is_fitted(self, "model_")
        return self.model_.solution.n_iter

    @property
    def _n_features_out(self) -> int:
        return self.model_.k

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the settings and, after a fit, the data and the clusters."""
        shown = super()._repr_html_()
        if not hasattr(self, "model_"):
            return shown
        about = f"{self.kernel_!r}; {self._describe_data()}; {self.model_.solution.n_iter} iterations."
        return f"{shown}<p>{html.escape(about)}</p>"

    def _describe_data(self) -> str:
        return f"cost {self.inertia_:.6g} on {len(self.labels_):,} points"


def labels_and_cost(
    model: KernelKMeansModel, points: Floats, weights: Floats | None
) -> tuple[NDArray[np.int32], float]:
    """Return the labels of the points and the cost of the centers on them."""
    found = label_in_threads(model.centers, points)
    return found.labels, cost_of(found, model.z, weights)


def cost_of(found: Labels, z: float, weights: Floats | None) -> float:
    """Return the cost of labelled points, sum_x w_x dist^z."""
    powers = found.distances**z
    return float(powers.sum() if weights is None else powers @ weights)
