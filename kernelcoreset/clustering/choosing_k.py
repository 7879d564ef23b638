"""Choosing the number of clusters from the coreset alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, check_at_least, check_count, check_seed
from kernelcoreset.clustering.problem import Problem, Solution, check_k, check_power, prepare
from kernelcoreset.clustering.solve import solve_problem
from kernelcoreset.clustering.trials import STANDS_OUT, TIE, Trials
from kernelcoreset.clustering.weiszfeld import measure_centers
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels.kernel import Kernel, check_kernel

_STABLE = 0.9
_SPLITS = 3


@dataclass(frozen=True, eq=False)
class ChoiceOfK:
    """How clusterings with every k fare, and the recommended k.

    Attributes
    ----------
    ks : ndarray of shape (m,)
    costs : ndarray of shape (m,)
        Cost of the best solution found. It always falls with k, so it cannot decide alone.
    silhouettes : ndarray of shape (m,)
        Weighted mean of (b - a) / b, where a and b are a point's distances in feature space to the nearest and the
        second nearest center; between 0 and 1, and 0 for k = 1.
    stabilities : ndarray of shape (m,)
        Mean adjusted Rand index between the clusterings that two random halves of the coreset give; 1 if they agree.
    persistences : ndarray of shape (m,)
        How long random walks over nearest neighbors stay in their cluster, against chance: 1 if they never leave, 0 for
        random labels and for k = 1. It does not depend on the kernel.
    references : ndarray of shape (m,)
        The persistence that as many clusters reach in data without clusters, of the same size and spread.
    recommended : int
    stands_out : bool
        Whether the recommended clusters persist clearly longer than those in data without clusters.
    reason : str
        In words: why, what is as good, and what to doubt.
    """

    ks: NDArray[np.int64]
    costs: Floats
    silhouettes: Floats
    stabilities: Floats
    persistences: Floats
    references: Floats
    recommended: int
    stands_out: bool
    reason: str

    def plot(self, axes: Any = None) -> Any:
        """Draw persistence, its reference, stability and cost against k with matplotlib, and return the axes."""
        axes = new_axes() if axes is None else axes
        axes.plot(self.ks, self.persistences, "o-", color="#0072B2", label="persistence")
        axes.plot(self.ks, self.references, "o:", color="#56B4E9", label="persistence without clusters")
        axes.plot(self.ks, self.stabilities, "^-", color="#009E73", label="stability of halves")
        axes.plot(self.ks, self.silhouettes, "s-", color="#D55E00", label="silhouette")
        axes.plot(self.ks, self.costs / self.costs.max(), "--", color="grey", label="cost, share of the largest")
        axes.axvline(self.recommended, color="grey", linestyle=":", label=f"recommended: k = {self.recommended}")
        axes.set(xlabel="number of clusters k", ylabel="share", title="Choosing k on the coreset")
        axes.legend(fontsize="small")
        return axes


def new_axes() -> Any:
    """Return the axes of a new matplotlib figure, or raise an ImportError that says what to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("A plot needs matplotlib: pip install 'kernelcoreset[plots]'.") from None
    return plt.figure().gca()


@one_blas_thread()
def choose_k(
    coreset: Coreset,
    ks: Iterable[int],
    kernel: Kernel,
    *,
    z: float = 2.0,
    n_init: int = 4,
    max_iter: int = 300,
    seed: int = 0,
) -> ChoiceOfK:
    """Return how clusterings of a coreset with every k fare, and a recommendation in words.

    Of the numbers whose clusters persist about as long as the best ones, within 0.045, the recommended one has the
    largest sum of persistence and stability. Only the coreset is read, not the data. A coreset of 1,000 points takes
    seconds.

    Parameters
    ----------
    coreset : Coreset
    ks : iterable of int
        Numbers of clusters to try, from 1 to the k that the coreset was built for.
    kernel : Kernel
    z : float
    n_init : int
        Restarts per k.
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
    >>> choice = choose_k(coreset, range(1, 7), Gaussian(sigma=5.0))
    >>> choice.recommended, choice.stands_out
    (3, True)
    """
    kernel = check_kernel(kernel)
    n_init, seed = check_count("n_init", n_init), check_seed(seed)
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
    found = [solve_problem(problem, k, z, n_init, max_iter, np.random.default_rng(seed)) for k in tried]
    halves = _Halves.of(problem, seed)
    trials = Trials.of(coreset.points, coreset.weights, seed=seed)
    persistences = [trials.walks.persistence(best.labels, k) for k, best in zip(tried, found, strict=True)]
    return _recommend(
        np.array(tried),
        np.array([best.cost for best in found]),
        np.array([_silhouette(problem, best) for best in found]),
        np.array([halves.stability(k, z, max_iter, seed) for k in tried]),
        np.array(persistences),
        np.array([trials.reference(k) if 1 < k < len(trials) else 0.0 for k in tried]),
    )


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


@dataclass(frozen=True, eq=False)
class _Halves:
    """Random halves of a problem, in pairs. Clusters that are in the data are found in either half."""

    problem: Problem
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]]

    @staticmethod
    def of(problem: Problem, seed: int) -> _Halves:
        generator = np.random.default_rng(seed)
        orders = [generator.permutation(len(problem.weights)) for _ in range(_SPLITS)]
        return _Halves(problem, [(np.sort(order[::2]), np.sort(order[1::2])) for order in orders])

    def stability(self, k: int, z: float, max_iter: int, seed: int) -> float:
        """Return how well the clusterings of two halves agree on all points, on average."""
        if k == 1:
            return 1.0
        agreements = []
        for pair in self.pairs:
            labels = [self._labels(rows, k, z, max_iter, seed) for rows in pair if len(rows) >= k]
            if len(labels) == 2:
                agreements.append(weighted_rand_index(labels[0], labels[1], self.problem.weights))
        return float(np.mean(agreements)) if agreements else 0.0

    def _labels(self, rows: NDArray[np.int64], k: int, z: float, max_iter: int, seed: int) -> NDArray[np.int64]:
        """The clusters of all points by the centers that a half of them has."""
        whole = self.problem
        solution = solve_problem(whole.part(rows), k, z, 1, max_iter, np.random.default_rng(seed))
        coefficients = np.zeros((k, len(whole.weights)))
        coefficients[:, rows] = solution.coefficients
        nearest: NDArray[np.int64] = _to_centers(whole, coefficients).argmin(axis=0)
        return nearest


def _to_centers(problem: Problem, coefficients: Floats) -> Floats:
    """Squared distances of all points to all centers, shape (k, s)."""
    squared = np.empty_like(coefficients)
    measure_centers(problem.squared, coefficients, squared)
    return squared


def _silhouette(problem: Problem, solution: Solution) -> float:
    """Weighted mean of (b - a) / b over the points, a and b the distances to the nearest and the next center."""
    if solution.k == 1:
        return 0.0
    nearest, second = np.sqrt(np.partition(_to_centers(problem, solution.coefficients), 1, axis=0)[:2])
    gaps = np.divide(second - nearest, second, out=np.zeros_like(second), where=second > 0)
    return float(np.average(gaps, weights=problem.weights))


def _recommend(
    ks: NDArray[np.int64],
    costs: Floats,
    silhouettes: Floats,
    stabilities: Floats,
    persistences: Floats,
    references: Floats,
) -> ChoiceOfK:
    equal = np.flatnonzero(persistences >= persistences.max() - TIE)
    if len(ks) > 1:
        equal = equal[ks[equal] > 1]  # k = 1 has persistence 0, like clusters of no use
    chosen = int(equal[np.argmax((persistences + stabilities)[equal])]) if len(equal) else 0
    stands_out = bool(persistences[chosen] - references[chosen] >= STANDS_OUT)
    reason = describe_choice(ks, chosen, persistences, references, stabilities)
    return ChoiceOfK(ks, costs, silhouettes, stabilities, persistences, references, int(ks[chosen]), stands_out, reason)


def describe_choice(
    ks: NDArray[np.int64], chosen: int, persistences: Floats, references: Floats, stabilities: Floats
) -> str:
    """Return in words why the k at place `chosen` is recommended: ties, edges of the range, and doubts."""
    k, best = int(ks[chosen]), int(np.argmax(persistences))
    if len(ks) == 1 or k == 1:
        return f"k = {k} is the only number of clusters that can be judged. Try more."
    sentences = []
    if persistences[chosen] - references[chosen] < STANDS_OUT:
        sentences.append(
            f"Nothing stands out: the clusters of k = {k} persist no longer ({persistences[chosen]:.2f}) than those "
            f"in data without clusters ({references[chosen]:.2f})."
        )
    else:
        sentences.append(
            f"k = {k}: its clusters keep a walk over nearest neighbors for long (persistence "
            f"{persistences[chosen]:.2f}, in data without clusters {references[chosen]:.2f})."
        )
    ties = [int(other) for other in np.flatnonzero(persistences >= persistences[best] - TIE) if other != chosen]
    if ties:
        named = " and ".join(f"k = {ks[other]} ({persistences[other]:.2f})" for other in ties)
        sentences.append(f"A tie with {named}: halves of the data decide for k = {k}.")
    if chosen == len(ks) - 1:
        sentences.append(f"k = {k} is the largest number tried: try larger ones.")
    elif k == 2 and ks[0] <= 2:
        sentences.append("2 is the smallest number there is: compare with one cluster by eye.")
    elif chosen == 0:
        sentences.append(f"k = {k} is the smallest number tried: try smaller ones.")
    if stabilities[chosen] < _STABLE:
        sentences.append(f"Halves of the data disagree about these clusters (agreement {stabilities[chosen]:.2f}).")
    return " ".join(sentences)
