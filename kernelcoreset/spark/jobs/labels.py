"""The step from a model to labelled rows, by the settings of a job. Batch, update and stream jobs share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import check_columns
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.settings.rows import InputSettings, OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import Layout, why_bad
from kernelcoreset.spark.labels import LabelSettings, label_rows, refuse_taken
from kernelcoreset.spark.observed_leaves import ObservedLeaves
from kernelcoreset.spark.scan import RowGroups
from kernelcoreset.spark.summary import KernelKMeansSummary, Measurement
from kernelcoreset.spectral.model import PointModel

_REASON = "reason"


def check_output_columns(there: Sequence[str], output: OutputSettings, wanted_input: InputSettings) -> None:
    """Raise SettingError if the output needs a column that the input does not have, or adds one that it has."""
    refuse_taken(there, output.new_columns)
    wanted = {"output.columns": output.columns or (), "output.partition_by": output.partition_by}
    known = {*there, *output.new_columns}
    check_columns({setting: [n for n in names if n not in known] for setting, names in wanted.items()}, there)
    if wanted_input.bad_rows == "quarantine" and _REASON in there:
        raise SettingError(f"Column {_REASON} already exists: quarantined rows need that name. Rename it.")


def label_input(
    frame: DataFrame,
    layout: Layout,
    model: PointModel,
    settings: Settings,
    *,
    columns: Sequence[str] | None = None,
    groups: Sequence[Sequence[RowGroups]] | None = None,
    measurement: Measurement | ObservedLeaves | None = None,
) -> DataFrame:
    """Return the rows of a frame with their labels; `columns` are the columns to keep, all by default."""
    output = settings.output
    label_settings = LabelSettings.of(
        model,
        layout,
        prediction_col=output.prediction_col,
        distance_col=output.distance_col,
        margin_col=output.margin_col,
        outlier_col=output.outlier_col,
        columns=None if columns is None else tuple(columns),
        drop_bad_rows=settings.input.bad_rows != "fail",
    )
    return label_rows(frame, label_settings, groups=groups, measurement=measurement)


def measurement_of(model: PointModel, settings: Settings, *, with_certificate: bool = True) -> Measurement:
    """Return what measures a model on the labelled rows, with a certificate by the settings."""
    wanted = settings.certificate
    center_sets = wanted.center_sets if with_certificate else 0
    weighted = settings.input.weight_col is not None
    describe = settings.output.describe and with_certificate
    return Measurement(model, weighted, center_sets, wanted.fraction, wanted.seed, describe)


def summary_of(summary: KernelKMeansSummary, model: PointModel) -> dict[str, Any]:
    """Return what the run record keeps of a summary.

    The costs of a spectral model say little about the cut; the record has the cut itself instead.
    """
    found = asdict(summary)
    if found.pop("other_rows"):  # the coreset says nothing about their cost
        del found["coreset_cost"]
    if not isinstance(model, KernelKMeansModel):
        return {name: found[name] for name in ("rows", "bad_rows", "cluster_sizes", "n_iter", "description")}
    return found


def quarantined_rows(frame: DataFrame, layout: Layout, model: PointModel | None = None) -> DataFrame:
    """Return the bad rows of a frame, each with the reason; without a model the layout must have its dimension."""
    reason = why_bad(frame, layout if model is None else LabelSettings.of(model, layout).layout)
    return frame.withColumn(_REASON, reason).where(F.col(_REASON).isNotNull())
