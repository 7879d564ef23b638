"""The scikit-learn face of spectral clustering: SpectralClustering with fit, fit_predict and predict."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import check_count
from kernelcoreset.choosing import chosen_kernel
from kernelcoreset.coreset import Coreset
from kernelcoreset.degrees import DEGREE_SAMPLE
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels import Kernel
from kernelcoreset.spectral import SpectralModel, fit_spectral

try:
    from sklearn.base import BaseEstimator, ClusterMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        "kernelcoreset.SpectralClustering needs scikit-learn: pip install 'kernelcoreset[scikit-learn]'."
    ) from None


class SpectralClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Spectral clustering of any number of points, through a coreset; it labels new points too.

    Minimises the normalized cut of the similarities K(x, y) as weighted kernel k-means of the normalized kernel:
    linear in the number of points, where eigenvectors of all of them would be cubic.

    Parameters
    ----------
    n_clusters : int
    kernel : Kernel or str
        The similarity: positive semidefinite and at least 0 on the data. A kernel object, or a name as in
        `KernelKMeans`.
    sigma : float or {"median", "auto"}
        Width of a kernel named by a string. A sharp one follows chains of neighbours; the median is smooth.
    coreset_size : int
        Data with no more points than this is clustered whole.
    degree_sample : int or None
        Points that degrees are estimated from; None computes them exactly, at n^2 kernel evaluations.
    n_init, max_iter : int
    random_state : int, RandomState or None
        An int makes the fit repeatable.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    normalized_cut_ : float
        As the coreset estimates it; `normalized_cut` measures it on the points.
    kernel_ : Kernel
    model_ : SpectralModel
        What to save, and what Spark's face reads too.
    coreset_ : Coreset
        The last coordinate of its points is their degree.
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, size=2_000)
    >>> radius = np.repeat([1.0, 3.0], 1_000)
    >>> rings = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    >>> model = kc.SpectralClustering(n_clusters=2, kernel=kc.Gaussian(sigma=0.3), coreset_size=500, random_state=0)
    >>> labels = model.fit(rings).labels_
    >>> len(set(labels[:1_000])), len(set(labels)), model.predict([[0.0, 1.1]])[0] == labels[0]
    (1, 2, np.True_)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: Kernel | str = "gaussian",
        sigma: float | str = "median",
        coreset_size: int = 2000,
        degree_sample: int | None = DEGREE_SAMPLE,
        n_init: int = 10,
        max_iter: int = 300,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.sigma = sigma
        self.coreset_size = coreset_size
        self.degree_sample = degree_sample
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> SpectralClustering:  # noqa: N803
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
        points = validate_data(self, X, dtype=np.float64, ensure_min_samples=1)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, points, dtype=np.float64)
        n_clusters = check_count("n_clusters", self.n_clusters)
        size = check_count("coreset_size", self.coreset_size)
        if size < n_clusters:
            raise SettingError(f"`coreset_size` must be at least n_clusters ({n_clusters}); got {size}.")
        if len(points) < n_clusters:
            raise SettingError(f"n_samples={len(points)} should be >= n_clusters={n_clusters}. Ask for fewer clusters.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.kernel_ = chosen_kernel(self.kernel, self.sigma, points, weights, seed)
        self.model_ = fit_spectral(
            points,
            n_clusters,
            self.kernel_,
            size,
            degree_sample=self.degree_sample,
            weights=weights,
            n_init=self.n_init,
            max_iter=self.max_iter,
            seed=seed,
        )
        self.labels_ = self.model_.predict(points)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:  # noqa: N803
        """Return the cluster of every row of X, shape (n_samples,)."""
        check_is_fitted(self)
        return self.model_.predict(validate_data(self, X, dtype=np.float64, reset=False))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model as a folder that `SpectralModel.load` and Spark's face read; nothing is pickled."""
        check_is_fitted(self)
        self.model_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SpectralClustering:
        """Return an estimator with the model that `save` wrote; it predicts, and has no `labels_`."""
        model = SpectralModel.load(path)
        estimator = cls(n_clusters=model.k, kernel=model.kernel)
        estimator.model_, estimator.kernel_ = model, model.kernel
        estimator.n_features_in_ = model.degrees.points.shape[1]
        return estimator

    @property
    def normalized_cut_(self) -> float:
        """The normalized cut of the solution, as the coreset estimates it."""
        check_is_fitted(self, "model_")
        return self.model_.normalized_cut

    @property
    def coreset_(self) -> Coreset:
        """The coreset the cut was found on, degrees as last coordinate."""
        check_is_fitted(self, "model_")
        return self.model_.coreset

    @property
    def n_iter_(self) -> int:
        """Iterations of the best restart."""
        check_is_fitted(self, "model_")
        return self.model_.clustering.solution.n_iter
