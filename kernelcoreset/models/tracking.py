"""Clusters that keep their names from fit to fit: a warm start, labels matched to those before, and what moved."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel


@dataclass(frozen=True)
class Tracked:
    """A model whose clusters are named after those of the one before.

    Attributes
    ----------
    model : KernelKMeansModel
    moved : float or None
        Share of the weight that is in another cluster than the centers before would put it; None for a first model.
    """

    model: KernelKMeansModel
    moved: float | None


def refit_tracked(
    coreset: Coreset,
    k: int,
    kernel: Kernel,
    before: KernelKMeansModel | None = None,
    *,
    z: float = 2.0,
    n_init: int = 10,
    max_iter: int = 300,
    seed: int = 0,
) -> Tracked:
    """Return a model of the coreset, begun also from the centers before, in which cluster 3 stays cluster 3.

    Parameters
    ----------
    coreset, k, kernel, z, n_init, max_iter, seed
        As in `solve`.
    before : KernelKMeansModel, optional
        Of the last fit, with the same kernel; k may differ.

    Returns
    -------
    Tracked

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Coreset, Linear
    >>> days = np.random.default_rng(0).normal(size=(2, 90, 1)) + np.repeat([[0.0], [50.0], [99.0]], 30, axis=0)
    >>> first, second = (Coreset(day, np.ones(90)) for day in days)
    >>> model = refit_tracked(first, 3, Linear(), seed=1).model
    >>> tracked = refit_tracked(second, 3, Linear(), model, seed=2)
    >>> np.array_equal(tracked.model.predict(second.points), model.predict(second.points)), tracked.moved
    (True, 0.0)
    """
    options = {"z": z, "n_init": n_init, "max_iter": max_iter, "seed": seed}
    if before is None:
        return Tracked(KernelKMeansModel.fit_coreset(coreset, k, kernel, **options), None)  # type: ignore[arg-type]
    known = before.predict(coreset.points)
    start = known if before.k == k else None
    model = KernelKMeansModel.fit_coreset(coreset, k, kernel, start=start, **options)  # type: ignore[arg-type]
    place = match_labels(known, model.solution.labels, coreset.weights)
    coefficients = np.empty_like(model.solution.coefficients)
    coefficients[place] = model.solution.coefficients
    solution = replace(model.solution, labels=place[model.solution.labels], coefficients=coefficients)
    moved = float(coreset.weights[solution.labels != known].sum() / coreset.weights.sum())
    return Tracked(replace(model, solution=solution), moved)


def match_labels(before: ArrayLike, after: ArrayLike, weights: ArrayLike) -> NDArray[np.int32]:
    """Return new names for the clusters `after`, shape (k,), under which most weight keeps its label of `before`.

    Parameters
    ----------
    before, after : array-like of int, shape (n,)
        Labels 0, 1, ... of the same points; the numbers of clusters may differ.
    weights : array-like of shape (n,)

    Returns
    -------
    ndarray of int32, shape (k,)
        `names[after]` are the matched labels; a permutation of 0..k-1, with k the clusters of `after`.

    Examples
    --------
    >>> match_labels([0, 0, 1, 1], [1, 1, 0, 0], [1.0, 1.0, 1.0, 5.0])
    array([1, 0], dtype=int32)
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and executors never match labels

    old, new, own = np.asarray(before), np.asarray(after), np.asarray(weights, dtype=np.float64)
    if not old.shape == new.shape == own.shape or old.ndim != 1 or len(old) == 0:
        shapes = f"{old.shape}, {new.shape} and {own.shape}"
        raise DataError(f"`before`, `after` and `weights` must have one shape (n,), n at least 1; got {shapes}.")
    k = int(new.max()) + 1
    # A cluster before that is beyond k has no successor of its name; a new one shares nothing with those before.
    overlap = np.zeros((k, max(k, int(old.max()) + 1)))
    np.add.at(overlap, (new, old), own)
    _, names = linear_sum_assignment(overlap[:, :k], maximize=True)
    return np.asarray(names, dtype=np.int32)
