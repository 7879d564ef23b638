"""A model measured on all rows of a DataFrame, in the same pass that labels and writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.labelling.certificate import Probe, Tally
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spectral.model import PointModel, SpectralModel
from kernelcoreset.spectral.neighbors import NeighborModel

TALLY = "__kc_tally"
"""The column that carries the tally of a partition, in the last row of the partition."""
CENTER_SETS = 100
_PROBED_ROWS = 200_000  # about how many rows the certificate is measured on; more would slow the labelling down


@dataclass(frozen=True)
class KernelKMeansSummary:
    """How a model fits some rows.

    Attributes
    ----------
    rows, bad_rows : int
    cost : float
        Exact cost of the centers on these rows.
    coreset_cost : float
        Cost of the centers on the coreset.
    cluster_sizes : list of int
    cluster_weights, cluster_costs : list of float
    certificate : dict or None
        Largest relative error of the coreset's cost over random center sets (`largest_error`), the number of center
        sets, the fraction of the rows it was measured on and the standard error.
    n_iter : int
    """

    rows: int
    bad_rows: int
    cost: float
    coreset_cost: float
    cluster_sizes: list[int]
    cluster_weights: list[float]
    cluster_costs: list[float]
    certificate: dict[str, Any] | None
    n_iter: int


def clustering_of(model: PointModel) -> KernelKMeansModel | NeighborModel:
    """Return the model that labels points: of a spectral model of a kernel, that of the normalized kernel."""
    return model.clustering if isinstance(model, SpectralModel) else model


class Measurement:
    """Measures a model on rows while they are labelled and written.

    Parameters
    ----------
    model : KernelKMeansModel, SpectralModel or NeighborModel
    weighted : bool
        Whether the rows have weights of their own.
    center_sets : int
        Random center sets for the certificate; 0 for no certificate. A spectral model never has one: its coreset was
        built with estimated degrees, so the costs of coreset and rows differ for that reason too.
    fraction : float, optional
        Share of the rows that the certificate is measured on; by default about 200,000 rows.
    seed : int

    Notes
    -----
    `label_rows` takes a measurement and observes the labelled rows with it. Once they have been written, `summary`
    returns the result.
    """

    def __init__(
        self,
        model: PointModel,
        weighted: bool,
        center_sets: int = CENTER_SETS,
        fraction: float | None = None,
        seed: int = 0,
    ) -> None:
        self.model = clustering_of(model)
        has_certificate = center_sets > 0 and isinstance(model, KernelKMeansModel)
        self.probe = _draw_probe(model, weighted, center_sets, fraction, seed) if has_certificate else None  # type: ignore[arg-type]
        self._observation = Observation()

    def observe(self, labelled: DataFrame) -> DataFrame:
        """Return the labelled rows without the column of tallies, which is collected when they are written."""
        # As one text with a line per tally: the Observation of pyspark 4.0 cannot return an array.
        tallies = F.concat_ws("\n", F.collect_list(TALLY)).alias("tallies")
        return labelled.observe(self._observation, tallies).drop(TALLY)

    def summary(self) -> KernelKMeansSummary:
        """Return what was measured; the observed rows must have been written."""
        model, probe = self.model, self.probe
        tally = Tally.total(self._observation.get["tallies"].splitlines(), model.k, probe)
        return KernelKMeansSummary(
            rows=int(tally.rows + tally.bad_rows),
            bad_rows=int(tally.bad_rows),
            cost=float(tally.costs.sum()),
            coreset_cost=0.0 if isinstance(model, NeighborModel) else model.solution.cost,
            cluster_sizes=[int(size) for size in tally.sizes],
            cluster_weights=tally.weights.tolist(),
            cluster_costs=tally.costs.tolist(),
            certificate=tally.certificate(probe, model.coreset.points, model.coreset.weights) if probe else None,
            n_iter=1 if isinstance(model, NeighborModel) else model.solution.n_iter,
        )


def _draw_probe(model: KernelKMeansModel, weighted: bool, center_sets: int, fraction: float | None, seed: int) -> Probe:
    """Random center sets: coreset points drawn by weight, which are distributed like random rows."""
    weights = model.coreset.weights
    if fraction is None:
        # The coreset estimates the sum of the rows' weights, which is their number if they have none.
        fraction = 0.01 if weighted else float(min(1.0, _PROBED_ROWS / weights.sum()))
    chosen = np.random.default_rng(seed).choice(len(weights), size=(center_sets, model.k), p=weights / weights.sum())
    return Probe(model.coreset.points[chosen], model.kernel, model.z, fraction, seed)
