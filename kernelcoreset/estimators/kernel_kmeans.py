"""The scikit-learn face: KernelKMeans with fit, predict, transform and score, and what its sisters share with it."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_count
from kernelcoreset.clustering.choosing import chosen_kernel
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels import Kernel
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        "kernelcoreset's estimators need scikit-learn: pip install 'kernelcoreset[scikit-learn]'."
    ) from None


class CoresetClusterer(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What the estimators of points have in common: checks of what comes in, and labels by the fitted `model_`."""

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:  # noqa: N803
        """Find the clusters of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        points, weights = self._checked(X, sample_weight)
        n_clusters, size = self._checked_counts()
        if len(points) < n_clusters:
            raise SettingError(f"n_samples={len(points)} should be >= n_clusters={n_clusters}. Ask for fewer clusters.")
        self._fit(points, weights, n_clusters, size)
        return self

    @abstractmethod
    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        """Set `model_` and what a fit tells besides. Assumes validated input."""

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:  # noqa: N803
        """Return the cluster of every row of X, shape (n_samples,)."""
        check_is_fitted(self)
        return self.model_.predict(validate_data(self, X, dtype=np.float64, reset=False))  # type: ignore[no-any-return]

    @property
    def coreset_(self) -> Coreset:
        """The coreset the clusters were found on."""
        return self._fitted_model().coreset  # type: ignore[no-any-return]

    def _fitted_model(self) -> Any:
        check_is_fitted(self, "model_")
        return self.model_

    def _checked(
        self,
        X: ArrayLike,  # noqa: N803
        sample_weight: ArrayLike | None,
        *,
        reset: bool = True,
    ) -> tuple[Floats, Floats | None]:
        points = validate_data(self, X, dtype=np.float64, reset=reset, ensure_min_samples=1)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, points, dtype=np.float64)
        return points, weights

    def _checked_counts(self) -> tuple[int, int]:
        n_clusters = check_count("n_clusters", self.n_clusters)
        size = check_count("coreset_size", self.coreset_size)
        if size < n_clusters:
            raise SettingError(f"`coreset_size` must be at least n_clusters ({n_clusters}); got {size}.")
        return n_clusters, size

    def _choose_kernel(self, points: Floats, weights: Floats | None) -> int:
        """Set `kernel_`, its width chosen from the points, and return the seed of this fit."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.kernel_ = chosen_kernel(self.kernel, self.sigma, points, weights, seed)
        return seed


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CoresetClusterer):  # type: ignore[misc]
    """Kernel k-means of any number of points, through a coreset.

    Builds a coreset of `coreset_size` points in O(n k) kernel evaluations, clusters it with kernel k-means++ and Lloyd,
    and labels every point exactly as the centers found would.

    Parameters
    ----------
    n_clusters : int
    kernel : Kernel or str
        A kernel object, or one of "gaussian", "exponential", "laplacian", "matern", "polynomial", "linear", "cosine".
    sigma : float or {"median", "auto"}
        Width of a kernel named by a string: a number, or a rule of `choose_sigma`. Not used with a kernel object.
    coreset_size : int
        Data with no more points than this is clustered whole.
    z : float
        At least 1: 2 for k-means, 1 for k-median.
    n_init : int
        Restarts; the best is kept.
    max_iter : int
    random_state : int, RandomState or None
        An int makes the fit repeatable.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    inertia_ : float
        Cost of the solution on all points given to fit.
    coreset_ : Coreset
    kernel_ : Kernel
        The kernel used, its width chosen.
    model_ : KernelKMeansModel
        What to save, and what Spark's face reads too.
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

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: Kernel | str = "gaussian",
        sigma: float | str = "median",
        coreset_size: int = 1000,
        z: float = 2.0,
        n_init: int = 10,
        max_iter: int = 300,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.sigma = sigma
        self.coreset_size = coreset_size
        self.z = z
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        seed = self._choose_kernel(points, weights)
        coreset = build_coreset(points, n_clusters, self.kernel_, size, z=self.z, weights=weights, seed=seed)
        self.model_ = KernelKMeansModel.fit_coreset(
            coreset, n_clusters, self.kernel_, z=self.z, n_init=self.n_init, max_iter=self.max_iter, seed=seed
        )
        self._measure(points, weights)

    def transform(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return the feature distance of every row of X to every center, shape (n_samples, n_clusters)."""
        check_is_fitted(self)
        return self.model_.distances(validate_data(self, X, dtype=np.float64, reset=False))

    def score(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Return minus the cost of the centers on X: larger is better, as scikit-learn wants it."""
        check_is_fitted(self)
        return -self.model_.cost(*self._checked(X, sample_weight, reset=False))

    @property
    def n_iter_(self) -> int:
        """Iterations of the best restart."""
        check_is_fitted(self, "model_")
        return self.model_.solution.n_iter

    @property
    def _n_features_out(self) -> int:
        return self.model_.k

    def _measure(self, points: Floats, weights: Floats | None) -> None:
        """Label the rows given to fit, and keep their labels and cost."""
        found = self.model_.label(points)
        self.labels_ = found.labels
        powers = found.distances**self.z
        self.inertia_ = float(powers.sum() if weights is None else powers @ weights)

    def _repr_html_(self) -> str:
        """What a notebook shows: the settings, and once fitted, what was found."""
        settings = html.escape(repr(self))
        if not hasattr(self, "model_"):
            return f"<pre>{settings}</pre><p>Not fitted yet.</p>"
        model = self.model_
        share = model.cluster_weights / model.cluster_weights.sum()
        rows = "".join(
            f"<tr><td>{cluster}</td><td>{100 * share[cluster]:.1f} %</td><td>{model.cluster_sizes[cluster]}</td></tr>"
            for cluster in range(model.k)
        )
        return (
            f"<pre>{settings}</pre><p>{html.escape(repr(self.kernel_))}; {self._what_was_seen()}; coreset of "
            f"{len(model.coreset):,}; {model.solution.n_iter} iterations.</p>"
            f"<table><tr><th>cluster</th><th>share of weight</th><th>coreset points</th></tr>{rows}</table>"
        )

    def _what_was_seen(self) -> str:
        return f"cost {self.inertia_:.6g} on {len(self.labels_):,} points"
