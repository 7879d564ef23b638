"""How good a clustering is on all rows: sums that labelling collects, and the certificate computed from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.error import center_set_costs
from kernelcoreset.kernels.kernel import Kernel

_GROUPS = 20  # groups of sampled rows: the spread of their sums gives the standard error
_WAITING = _GROUPS * 1024  # sampled rows measured at once: a full tile per group


@dataclass(frozen=True)
class Probe:
    """Center sets whose cost is measured on a random share of the rows, for the certificate.

    Parameters
    ----------
    center_sets : ndarray of shape (m, k, d)
    kernel : Kernel
    z : float
    fraction : float
        Share of the rows that are sampled.
    seed : int
    """

    center_sets: Floats
    kernel: Kernel
    z: float
    fraction: float
    seed: int


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
    sizes, weights, costs : ndarray of shape (k,)
        Rows, weight and cost of each cluster.

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
        self.rows = self.bad_rows = self.sampled = 0
        self.bad_columns: dict[str, int] = {}
        self.sizes, self.weights, self.costs = np.zeros(k), np.zeros(k), np.zeros(k)
        self._set_costs = np.zeros((_GROUPS, 0 if probe is None else len(probe.center_sets)))
        self._waiting: list[tuple[Floats, Floats]] = []

    def add(self, columns: NDArray[Any], weights: Floats | None, labels: NDArray[Any], powers: Floats) -> None:
        """Add labelled rows; `columns` have shape (d, n), `powers` are their distances^z."""
        k, n = len(self.sizes), columns.shape[1]
        own = np.ones(n) if weights is None else weights
        self.sizes += np.bincount(labels, minlength=k)
        self.weights += np.bincount(labels, own, minlength=k)
        self.costs += np.bincount(labels, own * powers, minlength=k)
        if self.probe is not None:
            # Seeded by the position of the rows in their partition, so a retried task samples the same rows.
            generator = np.random.default_rng([self.probe.seed, self.partition, self.rows])
            chosen = np.flatnonzero(generator.random(n) < self.probe.fraction)
            self._waiting.append((np.asarray(columns[:, chosen], dtype=np.float64), own[chosen]))
            self.sampled += len(chosen)
            if sum(len(some) for _, some in self._waiting) >= _WAITING:
                self._measure()
        self.rows += n

    def _measure(self) -> None:
        """Measure the center sets on the waiting rows. Many rows at once cost far less than a few at a time."""
        probe, waiting = self.probe, self._waiting
        self._waiting = []
        if probe is None or not waiting:
            return
        points = np.concatenate([columns for columns, _ in waiting], axis=1).T
        weights = np.concatenate([some for _, some in waiting])
        places = np.arange(self.sampled - len(weights), self.sampled) % _GROUPS
        for group in range(_GROUPS):
            rows = places == group
            if weights[rows].any():
                self._set_costs[group] += center_set_costs(
                    points[rows], probe.center_sets, probe.kernel, z=probe.z, weights=weights[rows]
                )

    @property
    def set_costs(self) -> Floats:
        """Cost of every center set on each group of sampled rows, shape (groups, sets)."""
        self._measure()
        return self._set_costs

    def to_json(self) -> str:
        """Return the tally as text."""
        return json.dumps(
            {
                "partition": self.partition,
                "set_costs": self.set_costs.tolist(),
                "rows": self.rows,
                "bad_rows": self.bad_rows,
                "bad_columns": self.bad_columns,
                "sampled": self.sampled,
                "sizes": self.sizes.tolist(),
                "weights": self.weights.tolist(),
                "costs": self.costs.tolist(),
            }
        )

    @staticmethod
    def total(texts: list[str], k: int, probe: Probe | None) -> Tally:
        """Return the sum over all partitions. If a retried task gave a partition twice, it counts once."""
        whole = Tally(k, probe=probe)
        parts = {part["partition"]: part for part in map(json.loads, texts)}
        for _, part in sorted(parts.items()):
            for name in ("rows", "bad_rows", "sampled"):
                setattr(whole, name, getattr(whole, name) + part[name])
            for name in ("sizes", "weights", "costs", "_set_costs"):
                setattr(whole, name, getattr(whole, name) + np.asarray(part[name.lstrip("_")]))
            for column, count in part["bad_columns"].items():
                whole.bad_columns[column] = whole.bad_columns.get(column, 0) + count
        return whole

    def certificate(self, probe: Probe, coreset_points: Floats, coreset_weights: Floats) -> dict[str, Any]:
        """Return the largest relative error of the coreset over the probe's center sets, and its standard error."""
        sums = self.set_costs.sum(axis=0)
        truth = sums / probe.fraction
        estimate = center_set_costs(coreset_points, probe.center_sets, probe.kernel, z=probe.z, weights=coreset_weights)
        known = truth > 0
        if not known.any():
            return {"largest_error": None, "center_sets": len(sums), "fraction": probe.fraction, "standard_error": None}
        errors = np.abs(estimate[known] / truth[known] - 1)
        worst = int(np.argmax(errors))
        groups = self.set_costs[:, known][:, worst]
        # Sampling a share f of finitely many rows leaves a factor 1 - f of the variance.
        spread = float(np.std(groups, ddof=1) * np.sqrt(_GROUPS * (1 - probe.fraction)) / groups.sum())
        return {
            "largest_error": float(errors[worst]),
            "center_sets": int(known.sum()),
            "fraction": probe.fraction,
            "sampled_rows": int(self.sampled),
            "standard_error": spread,
        }
