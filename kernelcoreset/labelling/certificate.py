"""How good a clustering is on all rows: sums that labelling collects, and the certificate computed from them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, Ints
from kernelcoreset.coresets.certificate import Certificate, Premises, premises_of, prove, what_it_means
from kernelcoreset.coresets.error import center_set_costs, chosen_costs, relative_errors
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.row_sample import Rates, RowSample, coins
from kernelcoreset.coresets.transport import distance_blocks
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.products import products_pay

_GROUPS = 20  # groups of sampled rows: the spread of their sums gives the standard error
_WAITING = _GROUPS * 1024  # sampled rows measured at once: a full tile per group
_WAITING_NUMBERS = 1 << 21  # and their coordinates, 16 MiB


@dataclass(frozen=True)
class Probe:
    """Center sets whose cost is measured on a random share of the rows, for the certificate.

    Parameters
    ----------
    among : ndarray of shape (p, d)
        The points that centers are chosen among: few, since they go to every task.
    chosen : ndarray of shape (m, k)
        The centers of each set, as rows of `among`.
    kernel : Kernel
    z : float
    fraction : float
        Share of the rows that are sampled.
    seed : int
    kinds : tuple of str
        The kind of each center set.
    rates : Rates, optional
        With which probability a row comes to the driver, for the proof. If None, no row does.
    """

    among: Floats
    chosen: Ints
    kernel: Kernel
    z: float
    fraction: float
    seed: int
    kinds: tuple[str, ...] = ()
    rates: Rates | None = None

    @property
    def center_sets(self) -> Floats:
        """The sets written out, shape (m, k, d)."""
        return self.among[self.chosen]

    def costs(self, points: NDArray[Any], weights: Floats) -> Floats:
        """Return the costs of the sets on points (n, d) with g weights each, shape (n, g): shape (g, m)."""
        if products_pay(self.kernel, points.shape[1]):
            return chosen_costs(points, weights, self.among, self.chosen, self.kernel, self.z)
        costs, sets = np.zeros((weights.shape[1], len(self.chosen))), self.center_sets
        for own, each in zip(costs, weights.T, strict=True):
            rows = np.flatnonzero(each)
            if len(rows):
                own[:] = center_set_costs(points[rows], sets, self.kernel, z=self.z, weights=each[rows])
        return costs


class Tally:
    """Counts and costs of the labelled rows of one partition, or of all of them.

    Everything is a sum, so the tallies of partitions can be added. Sampled rows are dealt to groups in turn; the spread
    of the groups' costs gives the standard error of their sum.

    Parameters
    ----------
    k : int
        Number of clusters.
    partition : int
    probe : Probe, optional
        What to measure for the certificate.

    Attributes
    ----------
    rows, bad_rows, sampled : int
    bad_columns : dict
        Number of bad rows by column.
    left_to_chance : int
        Rows that may not be among those kept for the proof.
    sizes, weights, costs : ndarray of shape (k,)
        Rows, weight and cost of each cluster.
    descriptions : list of dict
        What else was collected about the rows, as plain data; carried along for each partition.

    Examples
    --------
    >>> import numpy as np
    >>> tally = Tally(k=2)
    >>> tally.add(np.zeros((1, 3)), None, np.array([0, 1, 1]), np.array([1.0, 4.0, 9.0]))
    >>> Tally.total([tally.to_json()], k=2, probe=None).costs
    array([ 1., 13.])
    """

    def __init__(self, k: int, partition: int = -1, probe: Probe | None = None) -> None:
        self.partition = partition
        self.probe = probe
        self.rows = self.bad_rows = self.sampled = self.left_to_chance = 0
        self.bad_columns: dict[str, int] = {}
        self.sizes, self.weights, self.costs = np.zeros(k), np.zeros(k), np.zeros(k)
        self._set_costs = np.zeros((_GROUPS, 0 if probe is None else len(probe.chosen)))
        self.descriptions: list[dict[str, Any]] = []
        self._waiting: list[tuple[NDArray[Any], Floats]] = []
        self._kept: list[tuple[NDArray[Any], Floats]] = []

    def add(self, columns: NDArray[Any], weights: Floats | None, labels: NDArray[Any], powers: Floats) -> None:
        """Add labelled rows; `columns` have shape (d, n), `powers` are their distances^z."""
        k, n = len(self.sizes), columns.shape[1]
        places = labels.astype(np.intp)  # once: bincount would do it every time
        sizes = np.bincount(places, minlength=k)
        self.sizes += sizes
        self.weights += sizes if weights is None else np.bincount(places, weights, minlength=k)
        self.costs += np.bincount(places, powers if weights is None else weights * powers, minlength=k)
        if self.probe is not None:
            # Seeded by the position of the rows in their partition, so a retried task samples the same rows.
            drawn: Floats = coins(self.probe.seed, self.partition, self.rows).random(size=(n,))
            chosen = np.flatnonzero(drawn < self.probe.fraction)
            own = np.ones(len(chosen)) if weights is None else weights[chosen]
            self._waiting.append((columns[:, chosen], own))
            self.sampled += len(chosen)
            if self.probe.rates is not None:
                self._keep(columns, weights, self.probe.rates.probabilities(places, powers, weights), drawn)
            if sum(len(some) for _, some in self._waiting) >= min(_WAITING, _WAITING_NUMBERS // len(columns)):
                self._measure()
        self.rows += n

    def _keep(self, columns: NDArray[Any], weights: Floats | None, probabilities: Floats, drawn: Floats) -> None:
        """Keep the rows whose number is below their probability, with weights divided by it."""
        kept = np.flatnonzero(drawn < probabilities)
        own = np.ones(len(kept)) if weights is None else weights[kept]
        self._kept.append((columns[:, kept], own / probabilities[kept]))
        without = 0 if weights is None else np.count_nonzero(probabilities == 0.0)
        self.left_to_chance += int(np.count_nonzero(probabilities < 1.0) - without)

    def _measure(self) -> None:
        """Measure the center sets on the waiting rows. Many rows at once cost far less than a few at a time."""
        probe, waiting = self.probe, self._waiting
        self._waiting = []
        if probe is None or not waiting:
            return
        points = np.concatenate([columns for columns, _ in waiting], axis=1).T
        weights = np.concatenate([some for _, some in waiting])
        del waiting  # many columns take much memory
        places = np.arange(self.sampled - len(weights), self.sampled) % _GROUPS
        by_group = np.where(places[:, np.newaxis] == np.arange(_GROUPS), weights[:, np.newaxis], 0.0)
        self._set_costs += probe.costs(points, by_group)

    @property
    def set_costs(self) -> Floats:
        """Cost of every center set on each group of sampled rows, shape (groups, sets)."""
        self._measure()
        return self._set_costs

    @property
    def kept(self) -> tuple[NDArray[Any], Floats]:
        """Points (n, d) of the rows that were kept for the proof, in their type, and weights by their probabilities."""
        if not self._kept:
            return np.empty((0, 0)), np.empty(0)
        return np.concatenate([columns for columns, _ in self._kept], axis=1).T, np.concatenate(
            [own for _, own in self._kept]
        )

    def to_json(self) -> str:
        """Return the tally as text."""
        kept, kept_weights = self.kept
        return json.dumps(
            {
                "partition": self.partition,
                "set_costs": self.set_costs.tolist(),
                "rows": self.rows,
                "bad_rows": self.bad_rows,
                "bad_columns": self.bad_columns,
                "sampled": self.sampled,
                "left_to_chance": self.left_to_chance,
                "sizes": self.sizes.tolist(),
                "weights": self.weights.tolist(),
                "costs": self.costs.tolist(),
                "kept": _to_text(kept),
                "kept_type": kept.dtype.str,
                "kept_weights": _to_text(kept_weights),
                "descriptions": self.descriptions,
            }
        )

    @staticmethod
    def total(texts: list[str], k: int, probe: Probe | None) -> Tally:
        """Return the sum over all partitions. If a retried task gave a partition twice, it counts once."""
        whole = Tally(k, probe=probe)
        parts = {part["partition"]: part for part in map(json.loads, texts)}
        for _, part in sorted(parts.items()):
            for name in ("rows", "bad_rows", "sampled", "left_to_chance"):
                setattr(whole, name, getattr(whole, name) + part[name])
            for name in ("sizes", "weights", "costs", "_set_costs"):
                setattr(whole, name, getattr(whole, name) + np.asarray(part[name.lstrip("_")]))
            kept_weights = _from_text(part["kept_weights"])
            if len(kept_weights):
                rows = _from_text(part["kept"], part["kept_type"]).reshape(len(kept_weights), -1)
                whole._kept.append((rows.T, kept_weights))
            whole.descriptions += part["descriptions"]
            for column, count in part["bad_columns"].items():
                whole.bad_columns[column] = whole.bad_columns.get(column, 0) + count
        return whole

    def certificate(
        self,
        probe: Probe,
        coreset_points: Floats,
        coreset_weights: Floats,
        coreset_cost: float | None = None,
        premises: Premises | None = None,
    ) -> Certificate:
        """Return what the rows say about the coreset, and about the clustering they were labelled with.

        Parameters
        ----------
        probe : Probe
        coreset_points, coreset_weights : ndarray of shape (s, d), (s,)
        coreset_cost : float, optional
            Cost of the clustering on the coreset.
        premises : Premises, optional
            `premises_for` of the probe and the coreset, if they are known already.
        """
        k = probe.chosen.shape[1]
        measured = self._measured(probe, coreset_points, coreset_weights, coreset_cost)
        rows, weights = self.kept
        if probe.rates is None or not len(rows):
            return Certificate(measured, {"error": None, "confidence": None, "rows": 0}, {"k": k})
        blocks = distance_blocks(rows.astype(np.float64, copy=False), coreset_points, probe.kernel)
        premises = premises or premises_for(probe, coreset_points, coreset_weights)
        sample = RowSample(probe.rates, self.weights, self.costs, probe.z) if self.left_to_chance else None
        proved, proof = prove(premises, blocks, weights, sample, coreset_cost or 0.0)
        return Certificate(measured, proved, what_it_means(proof, k, float(self.costs.sum())))

    def _measured(
        self, probe: Probe, coreset_points: Floats, coreset_weights: Floats, coreset_cost: float | None
    ) -> dict[str, Any]:
        """The largest relative error over the probe's center sets and the clustering's own, and its standard error."""
        sums = self.set_costs.sum(axis=0)
        truth = sums / probe.fraction
        estimate = probe.costs(coreset_points, coreset_weights[:, np.newaxis])[0]
        known = truth > 0
        if not known.any():
            return {"largest_error": None, "center_sets": len(sums), "fraction": probe.fraction, "standard_error": None}
        errors = np.where(known, relative_errors(np.where(known, truth, 1.0), estimate), 0.0)
        by_kind = {kind: float(errors[np.array(probe.kinds) == kind].max()) for kind in dict.fromkeys(probe.kinds)}
        cost = float(self.costs.sum())
        if coreset_cost is not None and cost > 0.0:
            by_kind["fitted"] = abs(coreset_cost / cost - 1.0)
        groups = self.set_costs[:, int(np.argmax(errors))]
        # Sampling a share f of finitely many rows leaves a factor 1 - f of the variance.
        spread = float(np.std(groups, ddof=1) * np.sqrt(_GROUPS * (1 - probe.fraction)) / groups.sum())
        return {
            "largest_error": max([float(errors.max()), *by_kind.values()]),
            "errors": by_kind,
            "center_sets": int(known.sum()),
            "fraction": probe.fraction,
            "sampled_rows": int(self.sampled),
            "standard_error": spread,
        }


def premises_for(probe: Probe, coreset_points: Floats, coreset_weights: Floats) -> Premises:
    """Return what the proof needs of the coreset alone."""
    recipe = Recipe(k := probe.chosen.shape[1], probe.kernel, max(k, len(coreset_points)), z=probe.z)
    return premises_of(np.array(coreset_points), np.array(coreset_weights), recipe)


def _to_text(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _from_text(text: str, kind: str = "<f8") -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), dtype=kind)
