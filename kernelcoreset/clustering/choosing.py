"""Choosing the width of a kernel from the data, and the number of clusters from the coreset alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import (
    Floats,
    check_at_least,
    check_choice,
    check_count,
    check_points,
    check_seed,
    check_weights,
)
from kernelcoreset.clustering.problem import Problem, Solution, check_k, check_power, prepare
from kernelcoreset.clustering.solve import solve_problem
from kernelcoreset.clustering.weiszfeld import measure_centers
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels.families import Cosine, Exponential, Gaussian, Laplacian, Linear, Matern, Polynomial
from kernelcoreset.kernels.kernel import Kernel, check_kernel

SIGMA_RULES = ("median", "auto")
_SAMPLE = 1_000
_STABLE = 0.9
_KERNELS: dict[str, Any] = {
    "gaussian": Gaussian,
    "exponential": Exponential,
    "laplacian": Laplacian,
    "matern": Matern,
    "polynomial": lambda: Polynomial(degree=2),
    "linear": Linear,
    "cosine": Cosine,
}
_WITH_SIGMA = ("gaussian", "exponential", "laplacian", "matern")


def choose_sigma(points: ArrayLike, rule: str = "median", *, weights: ArrayLike | None = None, seed: int = 0) -> float:
    """Return a width for a Gaussian kernel, from the distances within a sample of the points.

    Parameters
    ----------
    points : array-like of shape (n, d)
    rule : {"median", "auto"}
        "median": the median distance, the usual choice. "auto": the width between median / 16 and 4 * median for which
        kernel values vary most over pairs of points; it is smaller if the data has tight groups.
    weights : array-like of shape (n,), optional
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
    rule = check_choice("sigma", rule, SIGMA_RULES)
    points = check_points(points)
    weights = check_weights(weights, len(points))
    rows = np.flatnonzero(weights)
    own = weights[rows]
    if len(rows) > _SAMPLE:
        generator = np.random.default_rng(check_seed(seed))
        rows = generator.choice(len(points), size=_SAMPLE, p=weights / weights.sum())
        own = np.ones(len(rows))
    sample = points[rows]
    left, right = np.triu_indices(len(sample), 1)
    squared = Linear().squared_distances(sample, sample)[left, right]
    # A pair of points of weights v and w counts v * w times, like their copies. Pairs of equal points are left out.
    shares = np.where(squared > 0, own[left] * own[right], 0.0)
    if not shares.any():
        return 1.0
    median = float(np.sqrt(_weighted_median(squared, shares)))
    if rule == "median":
        return median
    widths = median * 2.0 ** np.arange(-4, 2.5, 0.5)
    return float(max(widths, key=lambda width: _weighted_variance(np.exp(-squared / (2 * width**2)), shares)))


def chosen_kernel(
    kernel: Kernel | str, sigma: float | str, points: Floats, weights: Floats | None, seed: int
) -> Kernel:
    """Return the kernel for a user's setting: a kernel object unchanged, or the named kernel with its width chosen."""
    if not isinstance(kernel, str):
        return check_kernel(kernel)
    name = check_choice("kernel", kernel, tuple(_KERNELS))
    if name not in _WITH_SIGMA:
        return _KERNELS[name]()  # type: ignore[no-any-return]
    width = choose_sigma(points, sigma, weights=weights, seed=seed) if isinstance(sigma, str) else sigma
    return _KERNELS[name](sigma=width)  # type: ignore[no-any-return]


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    running = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(running, running[-1] / 2)]])


def _weighted_variance(values: Floats, weights: Floats) -> float:
    mean = np.average(values, weights=weights)
    return float(np.average((values - mean) ** 2, weights=weights))


@dataclass(frozen=True, eq=False)
class ChoiceOfK:
    """Costs, silhouettes and stabilities for every k, and the recommended k.

    Attributes
    ----------
    ks : ndarray of shape (m,)
    costs : ndarray of shape (m,)
        Cost of the best solution found. It always falls with k, so it cannot decide alone.
    silhouettes : ndarray of shape (m,)
        Weighted mean of (b - a) / b, where a and b are a point's distances in feature space to the nearest and the
        second nearest center; between 0 and 1, and 0 for k = 1.
    stabilities : ndarray of shape (m,)
        Mean adjusted Rand index between independent restarts and the best solution; 1 if all agree.
    recommended : int
    reason : str
    """

    ks: NDArray[np.int64]
    costs: Floats
    silhouettes: Floats
    stabilities: Floats
    recommended: int
    reason: str

    def plot(self, axes: Any = None) -> Any:
        """Draw cost, silhouette and stability against k with matplotlib, and return the axes."""
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError("A plot needs matplotlib: pip install 'kernelcoreset[plots]'.") from None
            axes = plt.figure().gca()
        axes.plot(self.ks, self.costs / self.costs.max(), "o-", color="#0072B2", label="cost, share of the largest")
        axes.plot(self.ks, self.silhouettes, "s-", color="#D55E00", label="silhouette")
        axes.plot(self.ks, self.stabilities, "^-", color="#009E73", label="stability of restarts")
        axes.axvline(self.recommended, color="grey", linestyle=":", label=f"recommended: k = {self.recommended}")
        axes.set(xlabel="number of clusters k", ylabel="share", title="Choosing k on the coreset")
        axes.legend()
        return axes


def choose_k(
    coreset: Coreset,
    ks: Iterable[int],
    kernel: Kernel,
    *,
    z: float = 2.0,
    n_init: int = 10,
    max_iter: int = 300,
    seed: int = 0,
) -> ChoiceOfK:
    """Return costs, silhouettes and stabilities of clusterings of a coreset for every k, and a recommendation.

    The recommended k has the largest silhouette among those whose restarts agree: a stability of at least 0.9, or the
    largest one if none reaches that. Only the coreset is read, not the data.

    Parameters
    ----------
    coreset : Coreset
    ks : iterable of int
        Numbers of clusters to try, from 1 to the k that the coreset was built for.
    kernel : Kernel
    z : float
    n_init : int
        Restarts per k, at least 2.
    max_iter : int
    seed : int

    Returns
    -------
    ChoiceOfK

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Gaussian, build_coreset, choose_k
    >>> points = np.random.default_rng(0).normal(size=(900, 2)) + np.repeat([[0.0], [9.0], [18.0]], 300, axis=0)
    >>> coreset = build_coreset(points, k=6, kernel=Gaussian(sigma=5.0), size=150, seed=0)
    >>> choose_k(coreset, range(1, 7), Gaussian(sigma=5.0)).recommended
    3
    """
    kernel = check_kernel(kernel)
    n_init = check_count("n_init", n_init, 2, "Stability compares restarts, so it needs two.")
    seed = check_seed(seed)
    tried = sorted({check_count("ks", k) for k in ks})
    if not tried:
        raise SettingError("`ks` must name at least one number of clusters; got none.")
    most = coreset.settings.get("k", len(coreset))
    if tried[-1] > most:
        raise SettingError(
            f"`ks` must be at most {most}, the k the coreset was built for; got {tried[-1]}. Build one for a larger k."
        )
    z, max_iter = check_at_least("z", z, 1.0), check_count("max_iter", max_iter)
    problem = prepare(coreset, kernel)
    check_k(problem, tried[-1])
    check_power(problem, z)
    costs, silhouettes, stabilities = [], [], []
    for k in tried:
        best = solve_problem(problem, k, z, n_init, max_iter, np.random.default_rng(seed))
        costs.append(best.cost)
        silhouettes.append(_silhouette(problem, best))
        restarts = [
            solve_problem(problem, k, z, 1, max_iter, np.random.default_rng(seed + restart))
            for restart in range(1, n_init + 1)
        ]
        agreements = [weighted_rand_index(best.labels, other.labels, problem.weights) for other in restarts]
        stabilities.append(float(np.mean(agreements)))
    return _recommend(np.array(tried), np.array(costs), np.array(silhouettes), np.array(stabilities))


def weighted_rand_index(labels: NDArray[Any], others: NDArray[Any], weights: Floats) -> float:
    """Return the adjusted Rand index of two labellings; a point of weight w counts as w points. It is 1 if they agree.

    w equal points count as w^2 / 2 pairs, which is nearly right for large weights.
    """
    table = np.zeros((int(labels.max()) + 1, int(others.max()) + 1))
    np.add.at(table, (labels, others), weights)
    together, left, right = (table**2).sum(), (table.sum(axis=1) ** 2).sum(), (table.sum(axis=0) ** 2).sum()
    expected = left * right / table.sum() ** 2
    largest = (left + right) / 2
    return 1.0 if largest == expected else float((together - expected) / (largest - expected))


def _silhouette(problem: Problem, solution: Solution) -> float:
    """Weighted mean of (b - a) / b over the points, a and b the distances to the nearest and the next center."""
    if len(solution.coefficients) == 1:
        return 0.0
    squared = np.empty_like(solution.coefficients)
    measure_centers(problem.squared, solution.coefficients.copy(), squared)
    nearest, second = np.sqrt(np.partition(squared, 1, axis=0)[:2])
    gaps = np.divide(second - nearest, second, out=np.zeros_like(second), where=second > 0)
    return float(np.average(gaps, weights=problem.weights))


def _recommend(ks: NDArray[np.int64], costs: Floats, silhouettes: Floats, stabilities: Floats) -> ChoiceOfK:
    enough = min(_STABLE, float(stabilities.max()))
    candidates = np.flatnonzero((stabilities >= enough) & ((ks > 1) | (len(ks) == 1)))
    if not len(candidates):  # only k = 1 was stable
        candidates = np.flatnonzero(stabilities >= enough)
    chosen = candidates[np.argmax(silhouettes[candidates])]
    reason = (
        f"k = {ks[chosen]} has the largest silhouette ({silhouettes[chosen]:.2f}) among the {len(candidates)} of "
        f"{len(ks)} numbers whose restarts agree (stability {stabilities[chosen]:.2f}, at least {enough:.2f} required)."
    )
    return ChoiceOfK(ks, costs, silhouettes, stabilities, int(ks[chosen]), reason)
