"""The certificate of a coreset: what was measured, what is proved, and what both mean for a clustering."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import (
    Floats,
    check_at_least,
    check_count,
    check_points,
    check_same_dimension,
    check_seed,
    check_weights,
)
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.error import KINDS, center_set_costs, draw_center_sets, relative_errors
from kernelcoreset.coresets.flow import QUICK, THOROUGH, Flow, plan_flow
from kernelcoreset.coresets.optimum import least_cost
from kernelcoreset.coresets.points import distances_among
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.row_sample import CONFIDENCE, RowSample, coins, rates_for
from kernelcoreset.coresets.seeding import seed_pivots
from kernelcoreset.coresets.transport import (
    Transport,
    distance_blocks,
    largest_shares,
    nearest_points,
    plan_transport,
    relative_error,
)
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.reporting.notebook import card, sentences, verdicts
from kernelcoreset.reporting.verdict import confidence_in_words, coreset_verdict

_USELESS = 10.0  # errors beyond this say nothing
_FITTED = 10  # sets of fitted centers
_MOST_EVALUATIONS = 100_000_000  # kernel values between rows and coreset points, by default
_LARGE_MOST_EVALUATIONS = 400_000_000  # for large coresets, while the rows are no more than these
_MANY_ROWS = 100_000
_LLOYD_STEPS = 3
_OTHER_ROWS = (
    "some centers cost nothing on these rows, but not on the coreset. Are they the rows that it was built from?"
)


@dataclass(frozen=True)
class Certificate:
    """How good a coreset is. Plain data.

    Attributes
    ----------
    measured : dict
        `largest_error`: the largest relative error of the coreset's cost over all center sets that were tried, and
        `errors` by their kind. "uniform", "spread" and "crowded" are those of `draw_center_sets`, "fitted" are centers
        of clusters. `center_sets`, `rows` (that were measured on) and `standard_error` (0 if on all rows).
    proved : dict
        `error`: no set of k centers has a larger relative error; infinity if nothing can be proved.
        `error_from_found`: nor has any set, of any number, that costs at least `found_cost` on the coreset, the cost of
        the best clustering that was tried. `confidence` is 1 if the bounds were computed on all rows. On a sample it is
        that of all statements together, those of `meaning` too. `flow` holds what a flow needs, and `moved`, `least`,
        `most` and `wrong` what a transport plan needs, None on a sample; the smaller bound of both is stated. `sample`
        is what a sample leaves open: a cost of `coreset_cost_at_least` on all rows is at most so much, relatively,
        below and above that on the sample (docs/algorithms.md).
    meaning : dict
        `k`; `optimum_at_least`: no clustering of all rows into k clusters costs less; `cost`: the cost of the
        clustering that was given, on all rows, and `times_optimum`: it costs at most this many times the optimum (None
        if none was given or nothing can be proved).
    """

    measured: Mapping[str, Any]
    proved: Mapping[str, Any]
    meaning: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain data: what was measured, with `proved` and `meaning` beside it."""
        return {**self.measured, "proved": dict(self.proved), "meaning": dict(self.meaning)}

    def __str__(self) -> str:
        return "\n".join(f"{name:<9} {text}" for name, text in in_words(self.to_dict()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the sentences, and what follows."""
        plain = self.to_dict()
        told = [f"{name}: {text}" for name, text in in_words(plain)]
        return card("Certificate", {}, verdicts({"Coreset error": coreset_verdict(plain)}), sentences(told))


def in_words(certificate: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the three parts of a certificate, as plain data, in sentences; a part that says nothing is left out."""
    measured, proved, meaning = certificate, certificate.get("proved", {}), certificate.get("meaning", {})
    if measured.get("largest_error") is not None:
        yield "measured", _measured_in_words(measured)
    if proved.get("error") is not None:
        every = f"within {proved['error']:.0%} for every set of {meaning['k']} centers"
        if proved["error"] > _USELESS:
            every = f"nothing useful for every set of {meaning['k']} centers"
        if proved["error_from_found"] <= _USELESS:
            every += (
                f", within {proved['error_from_found']:.0%} for those that cost at least {proved['found_cost']:.6g}"
            )
        yield "proved", every + confidence_in_words(proved)
    if meaning.get("optimum_at_least"):
        text = (
            f"no clustering of all rows into {meaning['k']} clusters costs less than {meaning['optimum_at_least']:.6g}"
        )
        if meaning.get("times_optimum") is not None:
            text += f"; this one costs at most {meaning['times_optimum']:.3g} times the optimum"
        yield "meaning", text + confidence_in_words(proved)


def _measured_in_words(measured: Mapping[str, Any]) -> str:
    if measured["largest_error"] == math.inf:
        return _OTHER_ROWS
    text = f"cost within {measured['largest_error']:.2%} of the truth"
    if "center_sets" in measured:
        text += f" over {measured['center_sets']:,} center sets"
    if measured.get("fraction", 1.0) < 1:
        text += f", on {measured['fraction']:.1%} of the rows"
    if measured.get("standard_error"):
        text += f", standard error {measured['standard_error']:.2%}"
    return text


def certify(
    coreset: Coreset,
    points: ArrayLike,
    *,
    weights: ArrayLike | None,
    k: int | None,
    kernel: Kernel | None,
    n_center_sets: int,
    most_rows: int | None,
    cost: float | None,
    seed: int,
) -> Certificate:
    """Return the certificate of a coreset for the points it was built from; `Coreset.certify` describes it."""
    recipe = _recipe_of(coreset, k, kernel, check_seed(seed))
    n_center_sets = check_count("n_center_sets", n_center_sets)
    cost = None if cost is None else check_at_least("cost", cost, 0.0)
    generator = np.random.default_rng(seed)
    rows = check_points(points)
    if not len(coreset):
        raise DataError("A certificate needs a coreset that is not empty; got one of 0 points.")
    check_same_dimension("points", rows.shape[1], coreset.points.shape[1], "the coreset")
    row_weights = check_weights(weights, len(rows))
    rows, row_weights = rows[row_weights > 0], row_weights[row_weights > 0]
    most = most_rows_for(len(coreset)) if most_rows is None else check_count("most_rows", most_rows)
    own, own_weights = np.array(coreset.points), np.array(coreset.weights)
    fitted = _FittedCenters(own, own_weights, recipe, generator)
    n, every, sample, kept = len(rows), rows, None, np.ones(len(rows))
    if n > most:
        near = nearest_of(rows, own[fitted.best_points], recipe)
        sample, kept = _sampled(fitted, near, row_weights, most)
        chosen = np.flatnonzero(coins(seed).random(n) < kept)
        rows, row_weights, kept = rows[chosen], row_weights[chosen], kept[chosen]
    row_weights = row_weights / kept
    blocks = fitted.watch(distance_blocks(rows, own, recipe.kernel))
    premises = premises_of(own, own_weights, recipe)
    proved, proof = prove(premises, blocks, row_weights, sample, float(fitted.costs.min()))
    errors = {"fitted": fitted.error(row_weights)}
    for kind in KINDS:
        # Like random rows, or from the coreset, where that is much faster.
        source, source_weights = (every, None) if kind == "uniform" else (own, own_weights)
        sets = draw_center_sets(
            source, recipe.k, recipe.kernel, kind=kind, n_center_sets=n_center_sets, z=recipe.z,
            weights=source_weights, seed=recipe.seed,
        )  # fmt: skip
        estimate = center_set_costs(own, sets, recipe.kernel, z=recipe.z, weights=own_weights)
        truth = center_set_costs(rows, sets, recipe.kernel, z=recipe.z, weights=row_weights)
        errors[kind] = float(relative_errors(truth, estimate).max())
    measured = {
        "largest_error": max(errors.values()),
        "errors": errors,
        "center_sets": len(KINDS) * n_center_sets + _FITTED,
        "fraction": len(rows) / n,
        "sampled_rows": len(rows),
        "standard_error": fitted.standard_error(row_weights, kept),
    }
    return Certificate(measured, proved, what_it_means(proof, recipe.k, cost))


def most_rows_for(size: int) -> int:
    """Return on how many rows the bound for a coreset of this size is computed: each takes as many kernel values."""
    return max(2_000, _MOST_EVALUATIONS // size, min(_MANY_ROWS, _LARGE_MOST_EVALUATIONS // size))


def _recipe_of(coreset: Coreset, k: int | None, kernel: Kernel | None, seed: int) -> Recipe:
    """k, kernel and z of a certificate: those of the coreset's settings if they are not given."""
    settings = coreset.settings
    if k is None and "k" not in settings:
        raise SettingError("`k` is not in the settings of this coreset. Give k=...")
    if kernel is None:
        if "kernel" not in settings:
            raise SettingError("`kernel` is not in the settings of this coreset. Give kernel=...")
        kernel = Kernel.from_dict(settings["kernel"])
    k = check_count("k", settings["k"] if k is None else k)
    return Recipe(k, kernel, max(k, len(coreset)), z=settings.get("z", 2.0), seed=seed)


class Proof(NamedTuple):
    """Plans that each bound the cost of every set of centers that costs at least `at_cost` on the coreset."""

    plans: tuple[Transport | Flow, ...]
    at_cost: float
    sample: RowSample | None
    """None if the plans are those of all rows."""

    def interval(self, coreset_cost: float) -> tuple[float, float]:
        """Return the least and the largest cost on all rows of centers that cost this much on the coreset."""
        lows, highs = zip(*(plan.interval(coreset_cost) for plan in self.plans), strict=True)
        return (max(lows), min(highs)) if self.sample is None else self.sample.interval(max(lows), min(highs))

    def error(self, coreset_cost: float) -> float:
        """Return a bound on the relative error of all centers that cost at least this much on the coreset."""
        return relative_error(coreset_cost, *self.interval(coreset_cost))


class Premises(NamedTuple):
    """What a proof needs of the coreset alone, without its rows."""

    weights: Floats
    squared: Floats
    """Squared distances between the points."""
    at_cost: float
    """No set of k centers costs less on the coreset."""
    shares: Floats
    """Of each point, the largest share of such a cost that it has."""
    z: float


def premises_of(points: Floats, weights: Floats, recipe: Recipe) -> Premises:
    """Return what a proof needs of a coreset, in O(s^3) for s points. Assumes validated input."""
    squared, z = distances_among(recipe.kernel, points), recipe.z
    at_cost = least_cost(squared, weights, recipe.k, z)
    return Premises(weights, squared, at_cost, largest_shares(squared, weights, at_cost, z), z)


def prove(
    premises: Premises, blocks: Iterator[Floats], row_weights: Floats, sample: RowSample | None, found_cost: float
) -> tuple[dict[str, Any], Proof]:
    """Return the proved part of a certificate, and the plans behind it. Assumes validated input.

    `blocks` are the squared distances of the rows to the points of the coreset (`distance_blocks`), and `found_cost` is
    the cost of a good clustering on the coreset. If the rows are a sample, `row_weights` are divided by the
    probabilities with which they were kept.
    """
    weights, squared, at_cost, shares, z = premises
    edges = nearest_points(blocks, z)
    plans: list[Transport | Flow] = []
    if sample is None or at_cost == 0.0:  # beside a sample the time for it is better spent on more rows
        plans.append(plan_transport(edges, row_weights, weights, shares, at_cost, z))
    found_cost_at_least = max(at_cost, found_cost)
    if at_cost > 0.0:
        search = THOROUGH if sample is None else QUICK
        plans.append(plan_flow(edges, squared, row_weights, weights, (at_cost, found_cost_at_least), z, search))
    proof = Proof(tuple(plans), at_cost, sample)
    transport, flow = ([plan._asdict() for plan in plans if isinstance(plan, kind)] for kind in (Transport, Flow))
    found = {
        "error": proof.error(at_cost),
        "error_from_found": proof.error(found_cost_at_least),
        "found_cost": found_cost,
        "confidence": 1.0 if sample is None else CONFIDENCE,
        "rows": len(row_weights),
        **{name: transport[0][name] if transport else None for name in ("moved", "least", "most", "wrong")},
        "flow": flow[0] if flow else None,
        "sample": None if sample is None else sample.deviations(at_cost),
        "coreset_cost_at_least": at_cost,
    }
    return found, proof


def what_it_means(proof: Proof, k: int, cost: float | None) -> dict[str, Any]:
    """Return the meaning of a proof for a clustering that costs `cost` on all rows."""
    least = proof.interval(proof.at_cost)[0]
    return {
        "k": k,
        "optimum_at_least": least,
        "cost": cost,
        "times_optimum": cost / least if cost is not None and least > 0.0 else None,
    }


class Nearest(NamedTuple):
    """Of some rows: which of k centers is nearest, and its distance^z."""

    clusters: NDArray[np.intp]
    powers: Floats


def nearest_of(rows: Floats, centers: Floats, recipe: Recipe) -> Nearest:
    """Return the nearest center of each row."""
    clusters, squared = [], []
    for block in distance_blocks(rows, centers, recipe.kernel):
        clusters.append(block.argmin(axis=1))
        squared.append(block.min(axis=1))
    return Nearest(np.concatenate(clusters), np.concatenate(squared) ** (0.5 * recipe.z))


def _sampled(fitted: _FittedCenters, near: Nearest, row_weights: Floats, most: int) -> tuple[RowSample, Floats]:
    """What is known of all rows, and with which probability each of them is kept."""
    k = len(fitted.best_points)
    weights = np.bincount(near.clusters, row_weights, k).astype(np.float64, copy=False)
    costs = np.bincount(near.clusters, row_weights * near.powers, k).astype(np.float64, copy=False)
    rates = rates_for(weights, costs, fitted.z, most)
    return RowSample(rates, weights, costs, fitted.z), rates.probabilities(near.clusters, near.powers, row_weights)


class _FittedCenters:
    """Centers that are not points: means of clusters of the coreset, after a few Lloyd steps from different seeds.

    Attributes
    ----------
    costs : ndarray of shape (sets,)
        On the coreset.
    best_points : ndarray of shape (at most k,)
        Which coreset points are nearest to the centers of the best set.
    """

    def __init__(self, points: Floats, weights: Floats, recipe: Recipe, generator: np.random.Generator) -> None:
        self.k, self.z = k, z = recipe.k, recipe.z
        kernel = recipe.kernel
        squared = kernel.squared_distances(points, points)
        cloud = evaluator_of(kernel).cloud(as_columns(points))
        means = np.zeros((len(points), _FITTED, k))
        for own in means.transpose(1, 2, 0):
            nearest = seed_pivots(kernel, cloud, weights, k, z, generator).nearest
            for _ in range(_LLOYD_STEPS):
                members = weights * np.equal(nearest, np.arange(k)[:, None])
                kept = np.flatnonzero(members.any(axis=1))  # a cluster without points leaves its center where it was
                own[kept] = members[kept] / members[kept].sum(axis=1, keepdims=True)
                inner = 0.5 * np.einsum("cj,cj->c", own @ squared, own)
                inner[~own.any(axis=1)] = -np.inf  # a center that does not exist is infinitely far away
                nearest = (own @ squared - inner[:, None]).argmin(axis=0)
        self._means = means.reshape(len(points), -1)
        self._inner = 0.5 * np.einsum("jc,jc->c", squared @ self._means, self._means)
        self._inner[~self._means.any(axis=0)] = -np.inf
        self._powers: list[Floats] = []
        self.costs: Floats = weights @ self._of(squared)
        best = means[:, int(self.costs.argmin())]
        inner = 0.5 * np.einsum("jc,jc->c", squared @ best, best)
        self.best_points = np.unique((squared @ best - inner)[:, best.any(axis=0)].argmin(axis=0))

    def _of(self, squared: Floats) -> Floats:
        to_means = np.maximum(squared @ self._means - self._inner, 0.0)
        powers: Floats = to_means.reshape(len(squared), _FITTED, self.k).min(axis=2) ** (0.5 * self.z)
        return powers

    def watch(self, blocks: Iterator[Floats]) -> Iterator[Floats]:
        """Return the same blocks of squared distances, and measure the centers on each of them."""
        for squared in blocks:
            self._powers.append(self._of(squared))
            yield squared

    def error(self, row_weights: Floats) -> float:
        """Return the largest relative error, once all blocks have been watched."""
        return float(relative_errors(row_weights @ np.concatenate(self._powers), self.costs).max())

    def standard_error(self, row_weights: Floats, kept: Floats) -> float:
        """Return the largest relative standard error of a cost, if rows were kept with these probabilities."""
        powers = np.concatenate(self._powers)
        sums, spread = row_weights @ powers, np.sqrt((row_weights**2 * (1.0 - kept)) @ powers**2)
        return float(np.divide(spread, sums, out=np.zeros_like(sums), where=sums > 0).max())
