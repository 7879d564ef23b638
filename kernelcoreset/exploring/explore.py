"""`explore`: numbers of clusters and widths for every estimator, tried on a sample and told in words."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, check_count, check_points, check_seed, check_weights
from kernelcoreset.clustering.choosing_k import new_axes, weighted_rand_index
from kernelcoreset.clustering.trials import TIE, Trials
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.exploring.sentences import sentences_of
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.features.table import refuse_texts
from kernelcoreset.features.wanted import Features
from kernelcoreset.heartbeat import step
from kernelcoreset.kernels.families import Gaussian, Linear
from kernelcoreset.reporting.elements import table
from kernelcoreset.reporting.notebook import card, sentences

NEIGHBORS = "SpectralClustering"
KERNEL = "SpectralClustering with a kernel"
KERNEL_K_MEANS = "KernelKMeans"
K_MEANS = "plain k-means"
KS = range(2, 11)
"""Numbers of clusters that are tried by default."""
_AGREE = 0.9
_HALVES = 3
_COLORS = {NEIGHBORS: "#0072B2", KERNEL: "#56B4E9", KERNEL_K_MEANS: "#D55E00", K_MEANS: "#999999"}


@dataclass(frozen=True)
class Trial:
    """One clustering of the sample.

    Attributes
    ----------
    method : str
    sigma : float or None
        The width of the Gaussian kernel; None for a method without one.
    k : int
    persistence : float
        How long random walks over nearest neighbors stay in their cluster, against chance; the `score` of estimators.
    """

    method: str
    sigma: float | None
    k: int
    persistence: float


@dataclass(frozen=True, eq=False)
class Finding:
    """The best clustering that one method found.

    Attributes
    ----------
    trial : Trial
    stable_widths : tuple of float or None
        The widths around that of the trial that give nearly the same clusters: adjusted Rand index at least 0.9.
    stability : float
        Mean adjusted Rand index between the clusters that random halves of the sample give.
    tied_ks : tuple of int
        Other numbers of clusters whose persistence is within 0.045 of the best.
    shares : tuple of float
        Share of the sample's weight in every cluster, largest first.
    """

    trial: Trial
    stable_widths: tuple[float, float] | None
    stability: float
    tied_ks: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Exploration:
    """What `explore` found; printing it shows the sentences and a table.

    Attributes
    ----------
    trials : list of Trial
        All clusterings that were tried.
    findings : dict of Finding
        The best clustering of each method, by the name of the method.
    agreements : dict
        Adjusted Rand index between the best clusterings of two methods with the same k, by the pair of their names.
    references : dict
        For every k, the persistence that clusters reach in data without clusters, of the same size and spread.
    rows : int
        Number of rows of the data.
    sampled : int
        Number of distinct points that were clustered.
    dominant : tuple or None
        A column and its share of the squared distances, if that is above 0.9.
    sentences : list of str
    """

    trials: list[Trial]
    findings: dict[str, Finding]
    agreements: dict[tuple[str, str], float]
    references: dict[int, float]
    rows: int
    sampled: int
    dominant: tuple[str, float] | None

    @property
    def sentences(self) -> list[str]:
        """What was found, in plain words."""
        return sentences_of(self)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The best clustering of each method, a row each; `pandas.DataFrame(table)` shows it well."""
        rows = []
        for method, found in self.findings.items():
            trial, k = found.trial, found.trial.k
            rows.append(
                {
                    "method": method,
                    "sigma": trial.sigma,
                    "stable from": found.stable_widths[0] if found.stable_widths else None,
                    "to": found.stable_widths[1] if found.stable_widths else None,
                    "k": k,
                    "tied k": ", ".join(map(str, found.tied_ks)),
                    "persistence": round(trial.persistence, 3),
                    "without clusters": round(self.references[k], 3),
                    "stability": round(found.stability, 3),
                    "largest share": round(found.shares[0], 3),
                    "smallest share": round(found.shares[-1], 3),
                }
            )
        return rows

    def __str__(self) -> str:
        rows = self.table
        cells = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
        sizes = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)).rstrip() for row in cells]
        return "\n".join([*self.sentences, "", *lines])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the sentences and the table."""
        rows = self.table
        cells = [[_shown(value) for value in row.values()] for row in rows]
        facts = {"rows": self.rows, "sampled": self.sampled}
        return card("Exploration", facts, sentences(self.sentences), table(list(rows[0]), cells))

    def plot(self, axes: Any = None) -> Any:
        """Draw the best persistence of each method against k with matplotlib, and return the axes."""
        axes = new_axes() if axes is None else axes
        for method in self.findings:
            best: dict[int, float] = {}
            for trial in self.trials:
                if trial.method == method:
                    best[trial.k] = max(best.get(trial.k, 0.0), trial.persistence)
            axes.plot(list(best), list(best.values()), "o-", color=_COLORS[method], label=method)
            chosen = self.findings[method].trial
            axes.plot(chosen.k, chosen.persistence, "o", markersize=11, markerfacecolor="none", color=_COLORS[method])
        axes.plot(
            list(self.references), list(self.references.values()), ":", color="black", label="data without clusters"
        )
        axes.set(xlabel="number of clusters k", ylabel="persistence", title=f"{self.rows:,} rows", ylim=(0.0, 1.05))
        axes.legend(fontsize="small")
        return axes


def explore(
    X: Any,  # noqa: N803
    *,
    ks: Iterable[int] = KS,
    sample_weight: ArrayLike | None = None,
    features: Features | Mapping[str, Any] | None = None,
    seed: int = 0,
    **columns: Any,
) -> Exploration:
    """Return which clusters each estimator finds in the data, with which width and number, told in plain sentences.

    A uniform sample of 500 rows is clustered by every method, width and number of clusters. All are judged by
    persistence: how long random walks over nearest neighbors stay in their cluster, compared with chance and with data
    without clusters. It needs no labels, and does not depend on the kernel.

    Parameters
    ----------
    X : array-like of shape (n, d), or a Spark DataFrame
        For a DataFrame, `kernelcoreset.spark.explore` is called, with its `columns`: `inputCols` or `featuresCol`,
        `weightCol` and `badRows`.
    ks : iterable of int
        Numbers of clusters to try, at least 2 each.
    sample_weight : array-like of shape (n,), optional
        For an array.
    features : Features or mapping, optional
        Scales, categories, logarithms and missing values, as in the estimators: X may then be a table with texts.
    seed : int

    Returns
    -------
    Exploration
        Print it; `plot()` draws it.

    Notes
    -----
    Takes some seconds, whatever the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> points = np.random.default_rng(0).normal(size=(900, 2)) + np.repeat([[0.0], [9.0], [18.0]], 300, axis=0)
    >>> found = kc.explore(points, ks=range(2, 5))
    >>> found.findings["SpectralClustering"].trial.k
    3
    >>> print(found.sentences[-2])
    Kernel k-means agrees with plain k-means here: you may not need a kernel.
    """
    if type(X).__module__.startswith("pyspark."):
        if sample_weight is not None:
            raise SettingError("`sample_weight` is for arrays. Name the column of a DataFrame: weightCol='...'.")
        # By name: only kernelcoreset.spark imports pyspark, and no folder imports one above it.
        result: Exploration = importlib.import_module("kernelcoreset.spark").explore(
            X, ks=ks, features=features, seed=seed, **columns
        )
        return result
    if columns:
        raise SettingError(f"`{next(iter(columns))}` is for a Spark DataFrame; got an array. Leave it out.")
    wanted = Features.of(features)
    if wanted is None:
        refuse_texts(X)
        names, points = [str(name) for name in getattr(X, "columns", ())], check_points(X)
    else:
        preparation = Preparation.fit(X, wanted, sample_weight)
        names, points = preparation.coordinates, preparation.transform(X)
    weights = None if sample_weight is None else check_weights(sample_weight, len(points))
    return explore_sample(points, weights, len(points), ks=ks, names=names, seed=seed)


def explore_sample(
    points: Floats,
    weights: Floats | None,
    rows: int,
    *,
    ks: Iterable[int] = KS,
    names: list[str] | None = None,
    seed: int = 0,
) -> Exploration:
    """Return the same for a sample of the data, such as a uniform coreset, of which `rows` is the number of rows.

    Assumes validated points and weights.
    """
    tried = sorted({check_count("ks", k, 2, "One cluster cannot be judged.") for k in ks})
    if not tried:
        raise SettingError("`ks` must name at least one number of clusters; got none.")
    trials = Trials.of(points, weights, seed=check_seed(seed))
    tried = [k for k in tried if k < len(trials)]
    if not tried:
        raise DataError(f"`X` must have more distinct rows than clusters; got {len(trials)}. There is nothing to try.")
    with step("exploring a sample of the rows"), one_blas_thread():
        explorer = _Explorer(trials, tried)
        findings = {method: explorer.finding(method) for method in _COLORS}
        return Exploration(
            explorer.tried,
            findings,
            explorer.agreements(findings),
            {k: trials.reference(k) for k in tried},
            rows,
            len(trials),
            _dominant_column(points, weights, names or []),
        )


class _Explorer:
    """Tries every method with every width and k, and compares what they find."""

    def __init__(self, trials: Trials, ks: list[int]) -> None:
        self.trials, self.ks = trials, ks
        self.tried: list[Trial] = []
        self._halves = _halves(trials)

    def finding(self, method: str) -> Finding:
        """Try a method and return its best clustering: stable, and persisting about as long as any."""
        widths: list[float | None] = [float(w) for w in self.trials.widths] if _has_width(method) else [None]
        own = [
            Trial(method, width, k, self.trials.persistence(self.labels(method, width, k), k))
            for k in self.ks
            for width in widths
        ]
        self.tried.extend(own)
        best = {k: max((t for t in own if t.k == k), key=lambda t: (t.persistence, t.sigma or 0.0)) for k in self.ks}
        top = max(trial.persistence for trial in best.values())
        tied = [k for k in self.ks if best[k].persistence >= top - TIE]
        stabilities = {k: self._stability(best[k]) for k in tied}
        chosen = max((best[k] for k in tied), key=lambda trial: trial.persistence + stabilities[trial.k])
        labels = self.labels(method, chosen.sigma, chosen.k)
        shares = np.sort(np.bincount(labels, self.trials.walks.weights, minlength=chosen.k))[::-1]
        return Finding(
            chosen,
            self._stable_widths(chosen, widths, labels),
            stabilities[chosen.k],
            tuple(k for k in tied if k != chosen.k),
            tuple((shares / shares.sum()).tolist()),
        )

    def labels(self, method: str, sigma: float | None, k: int) -> NDArray[np.int32]:
        return _labels(self.trials, method, sigma, k)

    def _stable_widths(
        self, chosen: Trial, widths: list[float | None], labels: NDArray[np.int32]
    ) -> tuple[float, float] | None:
        if chosen.sigma is None:
            return None
        same = [self._agreement(labels, self.labels(chosen.method, width, chosen.k)) >= _AGREE for width in widths]
        place = widths.index(chosen.sigma)
        low = high = place
        while low > 0 and same[low - 1]:
            low -= 1
        while high < len(widths) - 1 and same[high + 1]:
            high += 1
        return float(widths[low] or 0.0), float(widths[high] or 0.0)

    def _stability(self, chosen: Trial) -> float:
        """How well the clusters of two halves agree, each point labelled by its nearest point in the half."""
        agreements = []
        for pair in self._halves:
            labels = [
                _labels(half, chosen.method, chosen.sigma, min(chosen.k, len(half)))[nearest] for half, nearest in pair
            ]
            agreements.append(self._agreement(labels[0], labels[1]))
        return float(np.mean(agreements))

    def _agreement(self, labels: NDArray[np.int32], others: NDArray[np.int32]) -> float:
        return weighted_rand_index(labels, others, self.trials.walks.weights)

    def agreements(self, findings: dict[str, Finding]) -> dict[tuple[str, str], float]:
        """Compare each method with the others: their best clusterings with the k of the first."""
        found = {}
        for first, own in findings.items():
            k = own.trial.k
            labels = self.labels(first, own.trial.sigma, k)
            for second in findings:
                if second != first:
                    other = max((t for t in self.tried if t.method == second and t.k == k), key=lambda t: t.persistence)
                    found[first, second] = self._agreement(labels, self.labels(second, other.sigma, k))
        return found


def _has_width(method: str) -> bool:
    return method in (KERNEL, KERNEL_K_MEANS)


def _labels(trials: Trials, method: str, sigma: float | None, k: int) -> NDArray[np.int32]:
    if method == NEIGHBORS:
        return trials.by_neighbors(k)
    if method == K_MEANS or sigma is None:
        return trials.by_k_means(Linear(), 0.0, k)
    find: Callable[..., NDArray[np.int32]] = trials.by_cut if method == KERNEL else trials.by_k_means
    return find(Gaussian(sigma=sigma), sigma, k)


def _halves(trials: Trials) -> list[list[tuple[Trials, NDArray[np.int64]]]]:
    """Random halves of the sample in pairs, and for each the nearest point of the half to every point of the sample."""
    walks, generator = trials.walks, np.random.default_rng(trials.seed)
    pairs = []
    for _ in range(_HALVES):
        order = generator.permutation(len(trials))
        pair = []
        for rows in (np.sort(order[::2]), np.sort(order[1::2])):
            half = Trials.of(walks.points[rows], walks.weights[rows], seed=trials.seed)
            away = Linear().squared_distances(walks.points, half.walks.points)
            pair.append((half, away.argmin(axis=1)))
        pairs.append(pair)
    return pairs


def _dominant_column(points: Floats, weights: Floats | None, names: list[str]) -> tuple[str, float] | None:
    """Return a column that carries more than nine tenths of the squared distances, and its share."""
    means = np.average(points, axis=0, weights=weights)
    variances = np.average(np.square(points - means), axis=0, weights=weights)
    if points.shape[1] == 1 or not variances.sum() > 0:
        return None
    shares = variances / variances.sum()
    column = int(np.argmax(shares))
    name = names[column] if column < len(names) else str(column)
    return (name, float(shares[column])) if shares[column] > 0.9 else None


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
