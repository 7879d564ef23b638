"""Clusters that keep their numbers from fit to fit: a warm start, and labels matched to those of the last model."""

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
    """A model whose clusters are numbered like those of the model before.

    Attributes
    ----------
    model : KernelKMeansModel
    moved : float or None
        Share of the weight whose cluster differs from the label of the model before; None for the first model.
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
    """Return a model of the coreset whose cluster numbers match those of the model before.

    If k is the same, one of the runs starts from the labels of that model.

    Parameters
    ----------
    coreset, k, kernel, z, n_init, max_iter, seed
        As in `solve`.
    before : KernelKMeansModel, optional
        The model of the last fit, with the same kernel; k may differ.

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
    known = before.predict_points(coreset.points)
    start = known if before.k == k else None
    model = KernelKMeansModel.fit_coreset(coreset, k, kernel, start=start, **options)  # type: ignore[arg-type]
    place = match_labels(known, model.solution.labels, coreset.weights)
    solution = replace(model.solution, labels=place[model.solution.labels])
    moved = float(coreset.weights[solution.labels != known].sum() / coreset.weights.sum())
    return Tracked(replace(model, solution=solution), moved)


def match_labels(before: ArrayLike, after: ArrayLike, weights: ArrayLike) -> NDArray[np.int32]:
    """Return new numbers for the clusters `after`, shape (k,), with which most weight keeps its label of `before`.

    Parameters
    ----------
    before, after : array-like of int, shape (n,)
        Labels 0, 1, ... of the same points; the numbers of clusters may differ.
    weights : array-like of shape (n,)

    Returns
    -------
    ndarray of int32, shape (k,)
        A permutation of 0..k-1, with k the number of clusters of `after`; `numbers[after]` are the matched labels.

    Examples
    --------
    >>> match_labels([0, 0, 1, 1], [1, 1, 0, 0], [1.0, 1.0, 1.0, 5.0])
    array([1, 0], dtype=int32)
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and executors never match labels

    old, new, own = np.asarray(before), np.asarray(after), np.asarray(weights, dtype=np.float64)
    if not old.shape == new.shape == own.shape or old.ndim != 1 or len(old) == 0:
        shapes = f"{old.shape}, {new.shape} and {own.shape}"
        raise DataError(f"`before`, `after` and `weights` must have the same shape (n,), n at least 1; got {shapes}.")
    k = int(new.max()) + 1
    # Numbers from k on do not exist any more, so those columns are dropped; additional clusters overlap with none.
    overlap = np.zeros((k, max(k, int(old.max()) + 1)))
    np.add.at(overlap, (new, old), own)
    _, numbers = linear_sum_assignment(overlap[:, :k], maximize=True)
    return np.asarray(numbers, dtype=np.int32)
