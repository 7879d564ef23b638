"""SpectralClustering with the API of scikit-learn: fit, fit_predict, predict and score."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.choosing import chosen_kernel
from kernelcoreset.estimators.base import CoresetClusterer, choose_seed, told_step
from kernelcoreset.features.preparation import is_nameless
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels import Kernel
from kernelcoreset.spectral.affinity import chosen_affinity
from kernelcoreset.spectral.degrees import DEGREE_SAMPLE, Degrees
from kernelcoreset.spectral.model import SpectralModel, load_spectral
from kernelcoreset.spectral.neighbors import NeighborModel, fit_neighbors


class SpectralClustering(CoresetClusterer):
    """Spectral clustering of any number of points, through a coreset; it can also label new points.

    Minimizes the normalized cut of a graph of similarities. By default these are similarities to the nearest neighbors,
    which need no width and follow chains and groups of different density. With a kernel, they are K(x, y). The cost is
    linear in the number of points; eigenvectors of all points would be cubic.

    Parameters
    ----------
    n_clusters : int
    affinity : {"auto", "nearest_neighbors", "kernel"}
        "nearest_neighbors": locally scaled similarities of a uniform sample of the points, see `fit_neighbors`; other
        points get the cluster of the nearest one. "kernel": the similarities of `kernel`, as weighted kernel k-means of
        the normalized kernel, see `fit_spectral`. "auto": "kernel" if `kernel` or `sigma` is given, else
        "nearest_neighbors". "rbf", scikit-learn's name, is "kernel".
    kernel : Kernel or str, optional
        The similarity: positive semidefinite and at least 0 on the data. A kernel object, or a name as in
        `KernelKMeans`; "gaussian" by default.
    sigma : float or {"median", "auto"}, optional
        Width of a kernel named by a string, "auto" by default. A small width follows chains of neighbors; the median is
        smooth.
    coreset_size : int
        Data with no more points than this is clustered whole.
    degree_sample : int or None
        With a kernel: points that degrees are estimated from; None computes them exactly, at n^2 kernel evaluations.
    n_init : int
    max_iter : int
        With a kernel.
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
    normalized_cut_ : float
        As the coreset estimates it; `normalized_cut` measures that of a kernel on the points.
    affinity_ : str
        "nearest_neighbors" or "kernel".
    kernel_ : Kernel or None
        None for nearest neighbors.
    model_ : NeighborModel or SpectralModel
        What to save. Spark reads it too.
    coreset_ : Coreset
        With a kernel, the last coordinate of its points is their degree.
    n_iter_ : int
        With a kernel, iterations of the best restart; else 1.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, size=2_000)
    >>> radius = np.repeat([1.0, 3.0], 1_000)
    >>> rings = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    >>> model = kc.SpectralClustering(n_clusters=2, coreset_size=500, random_state=0)
    >>> labels = model.fit(rings).labels_
    >>> len(set(labels[:1_000])), len(set(labels)), model.predict([[0.0, 1.1]])[0] == labels[0]
    (1, 2, np.True_)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "auto",
        kernel: Kernel | str | None = None,
        sigma: float | str | None = None,
        coreset_size: int = 2000,
        degree_sample: int | None = DEGREE_SAMPLE,
        n_init: int = 10,
        max_iter: int = 300,
        features: Features | Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.kernel = kernel
        self.sigma = sigma
        self.coreset_size = coreset_size
        self.degree_sample = degree_sample
        self.n_init = n_init
        self.max_iter = max_iter
        self.features = features
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        has_kernel = self.kernel is not None or self.sigma is not None
        self.kernel_: Kernel | None = None
        self.model_: NeighborModel | SpectralModel
        self.affinity_ = chosen_affinity(self.affinity, has_kernel=has_kernel)
        if self.affinity_ == "kernel":
            self._fit_kernel(points, weights, n_clusters, size)
            return
        seed = choose_seed(self)
        with told_step(self, f"clustering a sample of {len(points):,} points by nearest neighbors"):
            model = fit_neighbors(points, n_clusters, size, weights=weights, n_init=self.n_init, seed=seed)
        self.model_ = model.with_preparation(self.preparation_)
        with told_step(self, f"labelling {len(points):,} points"):
            self.labels_ = self.model_.predict_points(points)

    def _fit_kernel(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        seed = choose_seed(self)
        kernel = "gaussian" if self.kernel is None else self.kernel
        sigma = "auto" if self.sigma is None else self.sigma
        with told_step(self, "choosing the kernel"):
            similarity = chosen_kernel(kernel, sigma, points, weights, seed, k=n_clusters, spectral=True)
        with told_step(self, f"estimating the degrees of {len(points):,} points with {similarity!r}"):
            degrees = Degrees.estimate(points, similarity, weights=weights, sample=self.degree_sample, seed=seed)
            # Degrees cost as much as labels, so the points are lifted once for both the coreset and the labels.
            lifted, volumes = degrees.lift(points.T, weights)
        with told_step(self, "clustering a coreset of them"):
            model = SpectralModel.fit_lifted(
                lifted.T, volumes, n_clusters, size, degrees, n_init=self.n_init, max_iter=self.max_iter, seed=seed
            )
        self.kernel_, self.model_ = similarity, model.with_preparation(self.preparation_)
        with told_step(self, f"labelling {len(points):,} points"):
            self.labels_ = model.predict_lifted(lifted.T)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model as a folder that its class's `load` and Spark read; nothing is pickled."""
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
        model = load_spectral(path, trusted_modules=trusted_modules)
        if isinstance(model, NeighborModel):
            estimator = cls(n_clusters=model.k, affinity="nearest_neighbors")
            estimator.kernel_, dimension = None, model.coreset.points.shape[1]
        else:
            estimator = cls(n_clusters=model.k, affinity="kernel", kernel=model.kernel)
            estimator.kernel_, dimension = model.kernel, model.degrees.points.shape[1]
        preparation = model.preparation
        estimator.features = None if preparation is None else preparation.wanted
        estimator.n_features_in_ = dimension if preparation is None else len(preparation.columns)
        if preparation is not None and not is_nameless(preparation.names):
            estimator.feature_names_in_ = np.array(preparation.names, dtype=object)
        estimator.model_, estimator.affinity_ = model, estimator.affinity
        return estimator

    @property
    def normalized_cut_(self) -> float:
        """The normalized cut of the solution, as the coreset estimates it."""
        check_is_fitted(self, "model_")
        return self.model_.normalized_cut

    @property
    def n_iter_(self) -> int:
        """With a kernel, iterations of the best restart; else 1."""
        check_is_fitted(self, "model_")
        return self.model_.clustering.solution.n_iter if isinstance(self.model_, SpectralModel) else 1
