"""StreamingKernelKMeans with the API of scikit-learn: partial_fit over a tree of coresets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from kernelcoreset.checks import Floats, check_count
from kernelcoreset.clustering.choosing import chosen_kernel
from kernelcoreset.coresets.tree import CoresetTree
from kernelcoreset.errors import SettingError
from kernelcoreset.estimators.base import check_counts, choose_seed, prepare_input, told_step
from kernelcoreset.estimators.kernel_kmeans import KernelKMeans, labels_and_cost
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels import Kernel
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.models.tracking import refit_tracked


class StreamingKernelKMeans(KernelKMeans):
    """Kernel k-means of rows that arrive in batches, each seen once, in bounded memory.

    `partial_fit` adds a batch to a `CoresetTree`. The clusters are computed again when labels are requested after new
    rows, or every `refit_every` batches. Each fit starts from the clusters before it, so a cluster that stays in its
    place keeps its number. `fit` forgets all earlier rows; `partial_fit` may add more after it.

    Parameters
    ----------
    n_clusters, kernel, sigma, coreset_size, z, n_init, max_iter, features, random_state, verbose
        As in `KernelKMeans`. A rule for sigma, means and scales use the first batch alone, so that should be a typical
        one.
    refit_every : int, optional
        Batches between two fits. With None, the default, labels always take all rows so far into account.

    Attributes
    ----------
    tree_ : CoresetTree
        All rows so far.
    model_ : KernelKMeansModel
        The current clusters, computed on access if rows have arrived since.
    n_batches_ : int
    labels_, inertia_
        Of the rows given to `fit`. `partial_fit` removes them, because it keeps no rows to label.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> model = kc.StreamingKernelKMeans(n_clusters=2, kernel=kc.Gaussian(sigma=3.0), coreset_size=100, random_state=0)
    >>> generator = np.random.default_rng(0)
    >>> for _ in range(20):
    ...     batch = generator.normal(size=(500, 2)) + 9.0 * generator.integers(2, size=(500, 1))
    ...     model = model.partial_fit(batch)
    >>> labels = model.predict([[0.0, 0.0], [9.0, 9.0], [0.5, 0.0]])
    >>> bool(labels[0] == labels[2] != labels[1]), model.tree_.n_rows
    (True, 10000)
    """

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
        features: Features | Mapping[str, Any] | None = None,
        random_state: Any = None,
        refit_every: int | None = None,
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            n_clusters,
            kernel=kernel,
            sigma=sigma,
            coreset_size=coreset_size,
            z=z,
            n_init=n_init,
            max_iter=max_iter,
            refine_iter=0,  # rows are seen once
            features=features,
            random_state=random_state,
            verbose=verbose,
        )
        self.refit_every = refit_every

    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        self._start(points, weights, n_clusters, size)
        self._add_batch(points, weights)
        self.labels_, self.inertia_ = labels_and_cost(self._refit(), points, weights)

    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> StreamingKernelKMeans:
        """Add one more batch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any number of rows, the same columns in every call.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        is_first = not self.__sklearn_is_fitted__()
        before = None if is_first else self.preparation_
        points, weights, self.preparation_ = prepare_input(self, X, sample_weight, reset=is_first, preparation=before)
        if self.refit_every is not None:
            check_count("refit_every", self.refit_every)
        if is_first:
            self._start(points, weights, *check_counts(self))
        self._add_batch(points, weights)
        if self.refit_every is not None and self.n_batches_ % self.refit_every == 0:
            self._refit()
        return self

    @property
    def model_(self) -> KernelKMeansModel:  # type: ignore[override] # an attribute in the parent
        """The current clusters."""
        if self._model is None or (self.refit_every is None and self._seen_by_model < self.n_batches_):
            return self._refit()
        return self._model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tree_")

    def _start(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        """Forget all rows and clusters, and choose the kernel."""
        self._seed = choose_seed(self)
        self.kernel_ = chosen_kernel(self.kernel, self.sigma, points, weights, self._seed, k=n_clusters)
        self.tree_ = CoresetTree(n_clusters, self.kernel_, size, z=self.z, seed=self._seed)
        self.n_batches_ = 0
        self._model: KernelKMeansModel | None = None
        self._seen_by_model = 0

    def _add_batch(self, points: Floats, weights: Floats | None) -> None:
        with told_step(self, f"adding a batch of {len(points):,} rows"):
            self.tree_.add(points, weights)
        self.n_batches_ += 1
        for name in ("labels_", "inertia_"):  # those of an earlier fit belong to other rows
            self.__dict__.pop(name, None)

    def _refit(self) -> KernelKMeansModel:
        tree = self.tree_
        if tree.n_weighted < tree.k:
            raise SettingError(
                f"n_samples={tree.n_weighted} should be >= n_clusters={tree.k}. Give more batches first, or ask "
                "for fewer clusters."
            )
        options = {"n_init": self.n_init, "max_iter": self.max_iter, "seed": self._seed}
        with told_step(self, f"clustering {tree.n_rows:,} rows"):
            coreset = tree.result().with_preparation(self.preparation_)
            self._model = refit_tracked(coreset, tree.k, tree.kernel, self._model, z=tree.z, **options).model
        self._seen_by_model = self.n_batches_
        return self._model

    def _describe_data(self) -> str:
        return f"{self.tree_.n_rows:,} rows in {self.n_batches_:,} batches"
