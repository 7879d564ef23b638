"""Choosing the width of a kernel from the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, check_choice, check_count, check_points, check_rows, check_seed, check_weights
from kernelcoreset.clustering.trials import Trials
from kernelcoreset.kernels.families import Cosine, Exponential, Gaussian, Laplacian, Linear, Matern, Polynomial
from kernelcoreset.kernels.kernel import Kernel, check_kernel

SIGMA_RULES = ("median", "auto")
_SAMPLE = 1_000
_KS = range(2, 9)
_SAME = 0.01  # persistences that differ by less do not decide between widths
_KERNELS: dict[str, Any] = {
    "gaussian": Gaussian,
    "rbf": Gaussian,
    "exponential": Exponential,
    "laplacian": Laplacian,
    "matern": Matern,
    "polynomial": lambda: Polynomial(degree=2),
    "linear": Linear,
    "cosine": Cosine,
}
_WITH_SIGMA = ("gaussian", "rbf", "exponential", "laplacian", "matern")


def choose_sigma(
    points: ArrayLike,
    rule: str = "median",
    *,
    weights: ArrayLike | None = None,
    k: int | None = None,
    spectral: bool = False,
    kernel: Callable[..., Kernel] = Gaussian,
    seed: int = 0,
) -> float:
    """Return a width for a kernel, from a sample of the points; `compare_sigmas` also says how others fare.

    Parameters
    ----------
    points : array-like of shape (n, d)
    rule : {"median", "auto"}
        "median": the median distance, the usual choice. "auto": of 7 widths, from the distance of near neighbors to the
        median, the one whose clusters keep random walks over nearest neighbors longest. It clusters a sample of 500
        points with every width, which takes a few seconds.
    weights : array-like of shape (n,), optional
    k : int, optional
        For "auto": the number of clusters. By default the best of 2 to 8 counts for every width.
    spectral : bool
        For "auto": whether the kernel is for spectral clustering and not for kernel k-means.
    kernel : class
        For "auto": the kernel that the width is for, called with `sigma`.
    seed : int

    Returns
    -------
    float
        Above 0; 1 if all points are equal, as the width does not matter then.

    Examples
    --------
    >>> from kernelcoreset import choose_sigma
    >>> choose_sigma([[0.0], [3.0]])
    3.0
    """
    found = compare_sigmas(points, rule, weights=weights, k=k, spectral=spectral, kernel=kernel, seed=seed)
    return found.sigma


@dataclass(frozen=True)
class ChoiceOfSigma:
    """The width that was chosen, and how all that were tried fare.

    Attributes
    ----------
    sigma : float
    rule : str
    widths, persistences : tuple of float
        What "auto" tried, and how long walks over nearest neighbors stay in the clusters of each; else empty.
    """

    sigma: float
    rule: str
    widths: tuple[float, ...] = ()
    persistences: tuple[float, ...] = ()

    @property
    def reason(self) -> str:
        """Why, in words."""
        if not self.widths:
            return f"sigma = {self.sigma:.6g} is the median distance between rows of a sample."
        best = max(self.persistences)
        return (
            f"sigma = {self.sigma:.6g} is the widest of {len(self.widths)} widths whose clusters keep near rows "
            f"together as long as any (persistence {best:.2f})."
        )


def compare_sigmas(
    points: ArrayLike,
    rule: str = "median",
    *,
    weights: ArrayLike | None = None,
    k: int | None = None,
    spectral: bool = False,
    kernel: Callable[..., Kernel] = Gaussian,
    seed: int = 0,
) -> ChoiceOfSigma:
    """Return the width that `choose_sigma` chooses, with what it was compared to; parameters as there.

    Examples
    --------
    >>> compare_sigmas([[0.0], [3.0]]).reason
    'sigma = 3 is the median distance between rows of a sample.'
    """
    rule = check_choice("sigma", rule, SIGMA_RULES)
    points = check_rows(points)
    weights = check_weights(weights, len(points))
    seed = check_seed(seed)
    if rule == "auto":
        trials = Trials.of(check_points(points), weights, seed=seed)
        if len(trials) > 2:
            return _persistent_width(trials, kernel, _KS if k is None else [check_count("k", k)], spectral)
    return ChoiceOfSigma(_median_distance(points, weights, seed), rule)


def _median_distance(points: NDArray[Any], weights: Floats, seed: int) -> float:
    rows = np.flatnonzero(weights)
    own = weights[rows]
    if len(rows) > _SAMPLE:
        rows = np.random.default_rng(seed).choice(len(points), size=_SAMPLE, p=weights / weights.sum())
        own = np.ones(len(rows))
    sample = points[rows].astype(np.float64)
    left, right = np.triu_indices(len(sample), 1)
    squared = Linear().squared_distances(sample, sample)[left, right]
    # A pair of points of weights v and w counts v * w times, like their copies. Pairs of equal points are left out.
    shares = np.where(squared > 0, own[left] * own[right], 0.0)
    return float(np.sqrt(_weighted_median(squared, shares))) if shares.any() else 1.0


@one_blas_thread()
def _persistent_width(
    trials: Trials, kernel: Callable[..., Kernel], ks: Iterable[int], spectral: bool
) -> ChoiceOfSigma:
    """Choose the widest of the widths whose clusters persist longest."""
    find = trials.by_cut if spectral else trials.by_k_means
    possible = [k for k in ks if 1 < k <= len(trials)]
    persistences = np.array(
        [
            max((trials.persistence(find(kernel(sigma=width), width, k), k) for k in possible), default=0.0)
            for width in trials.widths
        ]
    )
    sigma = float(trials.widths[persistences >= persistences.max() - _SAME].max())
    return ChoiceOfSigma(sigma, "auto", tuple(trials.widths.tolist()), tuple(persistences.tolist()))


def chosen_kernel(
    kernel: Kernel | str,
    sigma: float | str,
    points: Floats,
    weights: Floats | None,
    seed: int,
    *,
    k: int | None = None,
    spectral: bool = False,
) -> Kernel:
    """Return the kernel for a user's setting: a kernel object unchanged, or the named kernel with its width chosen."""
    if not isinstance(kernel, str):
        return check_kernel(kernel)
    name = check_choice("kernel", kernel, tuple(_KERNELS))
    if name not in _WITH_SIGMA:
        return _KERNELS[name]()  # type: ignore[no-any-return]
    family = _KERNELS[name]
    if isinstance(sigma, str):
        sigma = choose_sigma(points, sigma, weights=weights, k=k, spectral=spectral, kernel=family, seed=seed)
    return family(sigma=sigma)  # type: ignore[no-any-return]


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    running = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(running, running[-1] / 2)]])
