"""SpectralClustering with the API of scikit-learn: fit, fit_predict and predict."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from sklearn.utils.validation import check_is_fitted

from kernelcoreset.checks import Floats
from kernelcoreset.estimators.base import CoresetClusterer, choose_kernel
from kernelcoreset.kernels import Kernel
from kernelcoreset.spectral.degrees import DEGREE_SAMPLE, Degrees
from kernelcoreset.spectral.model import SpectralModel


class SpectralClustering(CoresetClusterer):
    """Spectral clustering of any number of points, through a coreset; it can also label new points.

    Minimizes the normalized cut of the similarities K(x, y) as weighted kernel k-means of the normalized kernel. The
    cost is linear in the number of points; eigenvectors of all points would be cubic.

    Parameters
    ----------
    n_clusters : int
    kernel : Kernel or str
        The similarity: positive semidefinite and at least 0 on the data. A kernel object, or a name as in
        `KernelKMeans`.
    sigma : float or {"median", "auto"}
        Width of a kernel named by a string. A small width follows chains of neighbors; the median is smooth.
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
        What to save. Spark reads it too.
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

    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        self.kernel_, seed = choose_kernel(self, points, weights)
        degrees = Degrees.estimate(points, self.kernel_, weights=weights, sample=self.degree_sample, seed=seed)
        # Degrees cost as much as labels, so the points are lifted once for both the coreset and the labels.
        lifted, volumes = degrees.lift(points.T, weights)
        self.model_ = SpectralModel.fit_lifted(
            lifted.T, volumes, n_clusters, size, degrees, n_init=self.n_init, max_iter=self.max_iter, seed=seed
        )
        self.labels_ = self.model_.clustering.centers.predict(lifted.T)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model as a folder that `SpectralModel.load` and Spark read; nothing is pickled."""
        check_is_fitted(self, "model_")
        self.model_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, trusted_modules: Iterable[str] = ()) -> SpectralClustering:
        """Return an estimator with the model that `save` wrote. It can predict, but has no `labels_`.

        Parameters
        ----------
        path : path-like
        trusted_modules : iterable of str
            Modules that may be imported if the kernel is a user's function, as in `Kernel.from_dict`.
        """
        model = SpectralModel.load(path, trusted_modules=trusted_modules)
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
    def n_iter_(self) -> int:
        """Iterations of the best restart."""
        check_is_fitted(self, "model_")
        return self.model_.clustering.solution.n_iter
