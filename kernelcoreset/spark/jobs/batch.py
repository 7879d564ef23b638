"""The batch jobs: build a coreset of all rows, cluster it, label all rows; in one run or step by step."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.coresets.recipe import leaf_size_of
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.background import in_background
from kernelcoreset.jobs.cluster import cluster_coreset, cluster_neighbors, cluster_spectral
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.report import show_model
from kernelcoreset.jobs.settings.rows import OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels import Normalized
from kernelcoreset.spark.columns import numbers_in
from kernelcoreset.spark.jobs import coreset as coreset_step
from kernelcoreset.spark.jobs.delta import Commit
from kernelcoreset.spark.jobs.history import recorded_session
from kernelcoreset.spark.jobs.input import Input
from kernelcoreset.spark.jobs.labels import (
    check_output_columns,
    label_input,
    measurement_of,
    quarantined_rows,
    summary_of,
)
from kernelcoreset.spark.jobs.output import check_output, check_tables, write_output
from kernelcoreset.spark.jobs.session import open_session
from kernelcoreset.spark.large_batches import large_batches
from kernelcoreset.spark.progress import watched
from kernelcoreset.spectral.affinity import chosen_affinity
from kernelcoreset.spectral.model import PointModel, SpectralModel, load_model
from kernelcoreset.spectral.neighbors import DRAW, NeighborModel


def build_coreset(settings: Settings, record: RunRecord) -> None:
    """Build the coreset of all rows and write it."""
    with recorded_session(settings, record) as spark, record.stage("build"):
        data = input_of(spark, settings)
        check_tables(spark, settings, data.source)
        coreset_step.build(data, settings, record)


def assign(settings: Settings, record: RunRecord) -> None:
    """Label all rows with a saved model."""
    model = load_model(str(settings.cluster.model_path), trusted_modules=settings.run.trusted_modules)
    with recorded_session(settings, record) as spark, record.stage("assign"):
        data = input_of(spark, settings, model)
        check(data, settings)
        write_labels(data, model, settings, record)


def run(settings: Settings, record: RunRecord) -> None:
    """Build the coreset of all rows, cluster it and label all rows."""
    with recorded_session(settings, record) as spark:
        data = input_of(spark, settings)
        check(data, settings)
        with record.stage("build"):
            coreset = coreset_step.build(data, settings, record)
        with record.stage("cluster"):
            model = cluster_coreset(coreset, settings, record, partial(coreset_step.refined, data, settings, record))
        with record.stage("assign"):
            write_labels(data, model, settings, record)


def spectral(settings: Settings, record: RunRecord) -> None:
    """Build a coreset for spectral clustering, find its best cut and label all rows."""
    if settings.coreset.z != 2.0:
        raise SettingError(f"`coreset.z` must be 2 for spectral clustering; got {settings.coreset.z:g}. Leave it out.")
    wanted = settings.spectral.affinity
    affinity = chosen_affinity(wanted, has_kernel=settings.has("kernel")) if wanted == "auto" else wanted
    record.add(affinity=affinity)
    with recorded_session(settings, record) as spark:
        data = input_of(spark, settings)
        check(data, settings)
        model = (
            _fit_kernel_cut(data, settings, record) if affinity == "kernel" else _fit_neighbors(data, settings, record)
        )
        with record.stage("assign"):
            write_labels(data, model, settings, record)


def _fit_kernel_cut(data: Input, settings: Settings, record: RunRecord) -> SpectralModel:
    """Estimate the degrees, build the coreset of the normalized kernel and cluster it."""
    with record.stage("degrees"):
        degrees = coreset_step.estimate_degrees(data, settings, record)
    with record.stage("build"):
        coreset = coreset_step.build(data, settings, record, Normalized(degrees.kernel), degrees=degrees)
    with record.stage("cluster"):
        return cluster_spectral(coreset, settings, record, degrees)


def _fit_neighbors(data: Input, settings: Settings, record: RunRecord) -> NeighborModel:
    """Build a uniform sample of the rows and cut the graph of its nearest neighbors."""
    with record.stage("build"):
        coreset = coreset_step.build(data, settings, record, DRAW["kernel"], draw=DRAW["draw"])
    with record.stage("cluster"):
        return cluster_neighbors(coreset, settings, record)


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a run would read and need, without running it."""
    with open_session(settings) as spark:
        return _plan(input_of(spark, settings), settings)


def input_of(spark: SparkSession, settings: Settings, model: PointModel | None = None) -> Input:
    """Return the rows of a job. Columns become points by [features], or as a model has it."""
    features = settings.wanted_features
    if model is not None:
        features = None if model.preparation is None else model.preparation.wanted
    return Input(spark, settings.input, settings.coreset.seed, features)


def plan_assign(settings: Settings) -> dict[str, Any]:
    """Return what `assign` would read and need, without running it."""
    model = load_model(str(settings.cluster.model_path), trusted_modules=settings.run.trusted_modules)
    with open_session(settings) as spark:
        return _plan(input_of(spark, settings, model), settings)


def _plan(data: Input, settings: Settings) -> dict[str, Any]:
    rows = data.frame.count()
    groups = data.leaf_groups
    partitions = data.frame.select(F.spark_partition_id().alias("p")).distinct()
    leaves = len(groups) if groups else partitions.count()
    size, k = settings.coreset.coreset_size, settings.coreset.k
    leaf_size = leaf_size_of(size, settings.coreset.leaf_size)
    dimension = data.sized_layout.dimension or 1
    cores = os.cpu_count() or 1
    look = data.look()
    return {
        "rows": rows,
        "scan": "direct" if groups else "spark",
        "leaves": leaves,
        "driver_bytes": min(leaves * leaf_size, rows) * 8 * (dimension + 2),
        "kernel_evaluations": rows * 4 * k + size * size,
        # Nanoseconds per row and core, measured on two-dimensional rows: building, then labelling and writing.
        "estimated_seconds": round(rows * (300 + 1_500) * 1e-9 / cores + 5, 1),
        "distance_shares": {name: round(share, 3) for name, share in look.shares.items()},
        "warnings": look.warnings,
    }


def check(data: Input, settings: Settings) -> None:
    """Check the output before any work is done, so that a job does not fail in its last step."""
    check_tables(data.spark, settings, data.source)
    check_output(data.spark, settings.output)
    check_output_columns(data.frame.columns, settings.output, settings.input)


def commit_of(record: RunRecord) -> Commit:
    """Return what the history of a Delta output says; only a run with a given id is known when it comes again."""
    writer = None if record.settings.run.id is None else f"{record.job}-{record.id}"
    return Commit(record.job, record.id, writer)


def write_labels(data: Input, model: PointModel, settings: Settings, record: RunRecord) -> None:
    """Label all rows and write them; the same pass measures the model on all rows."""
    output = settings.output
    if settings.input.bad_rows == "quarantine":
        bad = quarantined_rows(data.traced, data.layout, model)
        quarantine = OutputSettings(path=settings.input.quarantine_path, mode="overwrite")
        write_output(bad, quarantine, "input.quarantine_path")
    measurement = measurement_of(model, settings)
    frame = data.with_columns(output.columns)
    groups = data.groups_to_copy(frame)
    rows = data.known_rows or record.values.get("rows")
    large = large_batches(data.spark, numbers_in(frame))
    with record.stage("write"), watched(data.spark, "write", rows), large:
        labelled = label_input(
            frame, data.layout, model, settings, columns=output.columns, groups=groups, measurement=measurement
        )
        # What the record says of the model alone is found out while executors are at work.
        with in_background(*measurement.preparations, partial(show_model, record, model)):
            is_new = write_output(labelled, output, commit=commit_of(record))
    record.add(output=output.path or output.table)
    if is_new:
        record.add(**summary_of(measurement.summary(), model))
    else:
        record.add(outcome=f"nothing to do: the output has the rows of run {record.id} already")
