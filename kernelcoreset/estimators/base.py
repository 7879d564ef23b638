"""What the estimators of points share: checks of their input, the choice of the kernel, and labels by the model."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, check_choice, check_count, refuse_misread
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.describing.description import Description
from kernelcoreset.errors import SettingError
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.features.table import columns_of, refuse_texts
from kernelcoreset.features.wanted import Features
from kernelcoreset.heartbeat import step
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.neighbors.persistence import Walks

_LEAST_SIZE, _POINTS_PER_CLUSTER = 1000, 20  # of a coreset whose size is "auto"
_MANY_NUMBERS = 1 << 22


@contextmanager
def told_step(estimator: Any, text: str) -> Iterator[None]:
    """Print what a fit does and how long it takes, with a dot every two seconds, if the estimator is `verbose`.

    If it is not, a person at a terminal or in a notebook still sees a step that takes longer.
    """
    if not estimator.verbose:
        with step(text):
            yield
        return
    print(f"{text} ...", end="", flush=True)
    start = time.perf_counter()
    try:
        with step(text, lambda line: print("." if line else "", end="", flush=True)):
            yield
    finally:
        print(f" {time.perf_counter() - start:.2f} s", flush=True)


class CoresetClusterer(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """An estimator with `n_clusters`, `kernel`, `sigma`, `coreset_size` and `random_state` whose fit sets `model_`."""

    _types: ClassVar[list[type]] = [np.float64]
    """Types of points that a fit takes as they are; others become float64."""

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
        points, weights, self.preparation_ = prepare_input(self, X, sample_weight)
        n_clusters, size = check_counts(self)
        if len(points) < n_clusters:
            raise SettingError(f"n_samples={len(points)} should be >= n_clusters={n_clusters}. Ask for fewer clusters.")
        self._fit(points, weights, n_clusters, size)
        return self

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the settings as scikit-learn shows them and, after a fit, the clusters."""
        shown = str(estimator_html_repr(self))
        return shown + self.model_._repr_html_() if hasattr(self, "model_") else f"{shown}<p>Not fitted yet.</p>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return the same for notebooks that ask for all forms at once; scikit-learn's own would come first."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    @abstractmethod
    def _fit(self, points: Floats, weights: Floats | None, n_clusters: int, size: int) -> None:
        """Set `model_`, with `preparation_`, and the other fitted attributes. Assumes validated input."""

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:  # noqa: N803
        """Return the cluster of every row of X, shape (n_samples,)."""
        check_is_fitted(self)
        with step("labelling rows"):
            if self.model_.preparation is not None:
                return self.model_.predict(check_table(self, X))  # type: ignore[no-any-return]
            rows = check_rows(self, X, dtype=[np.float64, np.float32])
            return self.model_.predict(rows)  # type: ignore[no-any-return]

    def score(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Return how well the clusters fit X, by a measure that compares kernels, widths and numbers of clusters.

        It is the persistence: how much more often than by chance a random walk over the nearest neighbors within X ends
        in the cluster where it started, averaged over walks of 1 to 300 steps. 1 if no walk leaves its cluster and all
        clusters are equally large; near 0 for random labels and 0 for one cluster. At most 500 rows of X are used, the
        same ones in every call. A cost could not be compared: it depends on the kernel, and always falls with k.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
            Larger is better.
        """
        check_is_fitted(self)
        model = self.model_
        if model.preparation is None:
            points, weights = check_input(self, X, sample_weight, reset=False)
        else:
            points = model.prepared(check_table(self, X))
            weights = check_sample_weight(sample_weight, points)
        walks = Walks.of(points.astype(np.float64, copy=False), weights)
        return walks.sample_persistence(model.predict_points(walks.points), model.k)

    def describe(self, X: Any = None, sample_weight: ArrayLike | None = None) -> Description:  # noqa: N803
        """Return what the clusters are: sizes, the columns that set them apart, typical and unusual rows, quality.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a table, optional
            Rows to describe the clusters by; a table may have more columns than those of the fit. By default the
            points of the coreset, which estimate all rows.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        Description
            `print` shows it in words.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return self.model_.describe(X, sample_weight, names=None if names is None else list(names))  # type: ignore[no-any-return]

    @property
    def coreset_(self) -> Coreset:
        """The coreset that the clusters were found on."""
        check_is_fitted(self, "model_")
        return self.model_.coreset  # type: ignore[no-any-return]


def check_rows(
    estimator: CoresetClusterer,
    X: ArrayLike,  # noqa: N803
    *,
    reset: bool = False,
    dtype: Any = np.float64,
) -> Floats:
    """Return rows of a type, checked as scikit-learn does, but without what it would read or round silently."""
    refuse_misread(X, "X")
    try:
        points: Floats = validate_data(
            estimator, X, dtype=dtype, reset=reset, ensure_min_samples=1, ensure_all_finite=not _is_finite(X)
        )
    except ValueError:
        refuse_texts(X)
        raise
    return points


def _is_finite(X: Any) -> bool:  # noqa: N803
    """Return whether many numbers are finite, by all threads; False says nothing, scikit-learn then looks for itself.

    It is one pass over the memory, which takes one thread a few percent of a fit.
    """
    if not (isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64) and X.flags.c_contiguous):
        return False
    if X.ndim != 2 or X.size < _MANY_NUMBERS:
        return False

    def total(part: slice) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(X[part].sum())

    with one_blas_thread() as threads:
        return bool(np.isfinite(map_in_threads(total, equal_parts(len(X), threads), threads)).all())


def check_input(
    estimator: CoresetClusterer,
    X: ArrayLike,  # noqa: N803
    sample_weight: ArrayLike | None,
    *,
    reset: bool = True,
) -> tuple[Floats, Floats | None]:
    """Return rows and weights as arrays, checked as scikit-learn does; rows of the types that the estimator takes.

    Parameters
    ----------
    estimator : CoresetClusterer
    X : array-like of shape (n_samples, n_features)
    sample_weight : array-like of shape (n_samples,) or None
    reset : bool
        Whether to set `n_features_in_` from X, as a fit does, or to compare X with it.

    Returns
    -------
    points : ndarray of shape (n_samples, n_features)
    weights : ndarray of shape (n_samples,) or None
    """
    points = check_rows(estimator, X, reset=reset, dtype=estimator._types)
    return points, check_sample_weight(sample_weight, points)


def check_sample_weight(sample_weight: ArrayLike | None, points: Floats) -> Floats | None:
    """Return the weights of points, checked as scikit-learn does; None if none are given."""
    if sample_weight is None:
        return None
    refuse_misread(sample_weight, "sample_weight")
    weights: Floats = _check_sample_weight(sample_weight, points, dtype=np.float64)
    return weights


def check_table(estimator: CoresetClusterer, X: Any, *, reset: bool = False) -> Any:  # noqa: N803
    """Return a table as it is, its number and names of columns checked as scikit-learn does."""
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X


def prepare_input(
    estimator: CoresetClusterer,
    X: Any,  # noqa: N803
    sample_weight: ArrayLike | None,
    *,
    reset: bool = True,
    preparation: Preparation | None = None,
) -> tuple[Floats, Floats | None, Preparation | None]:
    """Return rows and weights as `check_input` does, prepared if `features` asks for it, and the preparation.

    Means and scales are those of X, unless a preparation is given.
    """
    wanted = Features.of(estimator.features)
    if wanted is None:
        return *check_input(estimator, X, sample_weight, reset=reset), None
    table = columns_of(check_table(estimator, X, reset=reset))
    n = len(next(iter(table.values()), ()))
    weights = check_sample_weight(sample_weight, np.zeros((n, 1)))
    preparation = Preparation.fit(table, wanted, weights) if preparation is None else preparation
    return preparation.transform(table), weights, preparation


def check_counts(estimator: CoresetClusterer) -> tuple[int, int]:
    """Return `n_clusters` and `coreset_size`, checked."""
    n_clusters = check_count("n_clusters", estimator.n_clusters)
    if isinstance(estimator.coreset_size, str):
        check_choice("coreset_size", estimator.coreset_size, ("auto",))
        return n_clusters, max(_LEAST_SIZE, _POINTS_PER_CLUSTER * n_clusters)
    size = check_count("coreset_size", estimator.coreset_size)
    if size < n_clusters:
        raise SettingError(f"`coreset_size` must be at least n_clusters ({n_clusters}); got {size}.")
    return n_clusters, size


def choose_seed(estimator: CoresetClusterer) -> int:
    """Return the seed of a fit."""
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))
