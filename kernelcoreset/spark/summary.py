"""A solution measured on all rows of a DataFrame, in the labelling pass itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.labelling.certificate import Probe, Tally
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.labels import TALLY, LabelSettings, label_rows
from kernelcoreset.spark.scan import Run

_CENTER_SETS = 100
_PROBED_ROWS = 200_000  # rows the certificate is measured on, about; more would slow the labelling down


@dataclass(frozen=True)
class KernelKMeansSummary:
    """What a model does on some rows.

    Attributes
    ----------
    rows, bad_rows : int
    cost : float
        Exact cost of the centers on these rows.
    coreset_cost : float
        What the coreset says of the rows it was built from.
    cluster_sizes : list of int
    cluster_weights, cluster_costs : list of float
    certificate : dict or None
        Largest relative error of the coreset's cost over random center sets (`largest_error`), their number, the
        share of rows it was measured on and the standard error.
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


def make_probe(
    model: KernelKMeansModel,
    weighted: bool,
    center_sets: int = _CENTER_SETS,
    fraction: float | None = None,
    seed: int = 0,
) -> Probe | None:
    """Return random center sets for the certificate: coreset points by weight, which is what rows at random are."""
    if center_sets == 0:
        return None
    weights = model.coreset.weights
    if fraction is None:
        # Without weights of their own, the rows' number is what the coreset weighs.
        fraction = 0.01 if weighted else float(min(1.0, _PROBED_ROWS / weights.sum()))
    chosen = np.random.default_rng(seed).choice(len(weights), size=(center_sets, model.k), p=weights / weights.sum())
    return Probe(model.coreset.points[chosen], model.kernel, model.z, fraction, seed)


def observed_labels(
    frame: DataFrame, settings: LabelSettings, probe: Probe | None, runs: Sequence[Run] | None = None
) -> tuple[DataFrame, Observation]:
    """Return the labelled rows, and the observation that holds their tally once they have been written."""
    labelled = label_rows(frame, replace(settings, tally=True, probe=probe), runs)
    observation = Observation()
    observed = labelled.observe(observation, F.collect_list(TALLY).alias("tallies")).drop(TALLY)
    if settings.drop_bad_rows:
        observed = observed.where(F.col(quoted(settings.prediction_col)) >= 0)
    return observed, observation


def read_summary(observation: Observation, model: KernelKMeansModel, probe: Probe | None) -> KernelKMeansSummary:
    """Return what was observed on the way to the writer."""
    tally = Tally.total(list(observation.get["tallies"]), model.k, probe)
    certificate = tally.certificate(probe, model.coreset.points, model.coreset.weights) if probe else None
    return KernelKMeansSummary(
        rows=int(tally.rows + tally.bad_rows),
        bad_rows=int(tally.bad_rows),
        cost=float(tally.costs.sum()),
        coreset_cost=model.solution.cost,
        cluster_sizes=[int(size) for size in tally.sizes],
        cluster_weights=tally.weights.tolist(),
        cluster_costs=tally.costs.tolist(),
        certificate=certificate,
        n_iter=model.solution.n_iter,
    )


def summarize(frame: DataFrame, model: KernelKMeansModel, settings: LabelSettings) -> KernelKMeansSummary:
    """Return the summary of a model on the rows of a frame; nothing is written."""
    # A spectral model was solved with degrees of its own: its cost is not to be compared with that of the rows.
    center_sets = _CENTER_SETS if settings.degrees is None else 0
    probe = make_probe(model, settings.layout.weight_col is not None, center_sets)
    labelled, observation = observed_labels(frame, settings, probe)
    labelled.write.format("noop").mode("overwrite").save()
    return read_summary(observation, model, probe)
