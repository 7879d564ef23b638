"""The steps of a job on settings: build the coreset, cluster it, label every row, and write the result."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.choosing import choose_sigma
from kernelcoreset.coreset import Coreset
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.base import Kernel
from kernelcoreset.model import KernelKMeansModel
from kernelcoreset.record import RunRecord
from kernelcoreset.settings import Settings
from kernelcoreset.spark import direct
from kernelcoreset.spark.columns import BatchReader, Layout, layout_of, refuse_bad_rows, selection, why_bad
from kernelcoreset.spark.labels import LabelSettings
from kernelcoreset.spark.leaves import LeafSettings, Leaves, leaves_by_spark
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.output import check_output, write_output
from kernelcoreset.spark.source import read_input
from kernelcoreset.spark.summary import make_probe, observed_labels, read_summary

_SIGMA_SAMPLE = 2_000


class Input:
    """The rows of a job, and how their points are found."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings.input
        self.frame = read_input(spark, self.settings, settings.coreset.seed)
        self.layout = layout_of(self.frame, self.settings.features, self.settings.weight_col, self.settings.id_col)

    @property
    def runs(self) -> list[direct.Run] | None:
        """The leaves of the direct scan, or None where the rows are to be read through Spark."""
        wanted = self.settings
        if wanted.scan == "spark" or wanted.path is None or wanted.format != "parquet" or wanted.where is not None:
            return None
        # Files that this machine can open are sure to be the workers' too only where the workers are on it.
        local = self.spark.conf.get("spark.master", "").startswith("local")
        files = direct.local_files(self.frame) if local or wanted.scan == "direct" else None
        readable = all(direct.can_read(self.frame.schema[name].dataType) for name in self.layout.features)
        found = direct.plan_runs(files, self.columns) if files and readable else None
        if found is None and wanted.scan == "direct":
            raise DataError(
                f'`input.scan` = "direct" needs plain local Parquet files that hold all columns; {wanted.path} '
                'does not. Use "auto" or "spark".'
            )
        return found or None

    @property
    def columns(self) -> list[str]:
        """Features, then weight, then id, by name."""
        return [*self.layout.features, *(name for name in (self.settings.weight_col, self.settings.id_col) if name)]


def plan(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    """Return what a run would take, without doing it."""
    data = Input(spark, settings)
    rows = data.frame.count()
    runs = data.runs
    leaves = len(runs) if runs else data.frame.select(F.spark_partition_id().alias("p")).distinct().count()
    size, k = settings.coreset.coreset_size, settings.coreset.k
    leaf_size = settings.coreset.leaf_size or 4 * size
    dimension = len(data.layout.features)
    evaluations = rows * 4 * k + size * size
    cores = os.cpu_count() or 1
    return {
        "rows": rows,
        "scan": "direct" if runs else "spark",
        "leaves": leaves,
        "driver_bytes": min(leaves * leaf_size, rows) * 8 * (dimension + 2),
        "kernel_evaluations": evaluations,
        # Nanoseconds a row and core, as measured on two-dimensional rows: building, then labelling and writing.
        "estimated_seconds": round(rows * (300 + 1_500) * 1e-9 / cores + 5, 1),
    }


def build(spark: SparkSession, settings: Settings, record: RunRecord) -> Coreset:
    """Read all rows once and return their coreset; bad rows by the policy of the settings."""
    check_output(settings.output)
    data = Input(spark, settings)
    kernel = _kernel(data, settings)
    record.add(kernel=repr(kernel))
    leaf_settings = LeafSettings(
        k=settings.coreset.k,
        kernel=kernel,
        size=settings.coreset.coreset_size,
        z=settings.coreset.z,
        seed=settings.coreset.seed,
        leaf_size=settings.coreset.leaf_size or 4 * settings.coreset.coreset_size,
        layout=data.layout,
        weight_name=settings.input.weight_col or "weight",
    )
    with record.stage("leaves"):
        found = _leaves(data, leaf_settings)
    record.add(rows=found.rows, bad_rows=found.bad_rows, bad_columns=found.bad_columns, leaves=found.leaves)
    if settings.input.bad_rows == "fail":
        refuse_bad_rows(found.bad_columns, found.bad_rows, found.rows)
    if not found.coresets:
        raise DataError(f"There is no row to cluster: {found.rows:,} rows read, {found.bad_rows:,} of them bad.")
    with record.stage("merge"):
        coreset = merge_leaves(found, leaf_settings)
    record.add(coreset_points=len(coreset), coreset_weight=float(coreset.weights.sum()))
    if settings.coreset.path is not None:
        coreset.write_parquet(settings.coreset.path)
        record.add(coreset=settings.coreset.path)
    return coreset


def cluster(coreset: Coreset, settings: Settings, record: RunRecord) -> KernelKMeansModel:
    """Return the clustering of a coreset; no rows are read."""
    kernel = Kernel.from_dict(coreset.settings["kernel"])
    model = KernelKMeansModel.fit_coreset(
        coreset,
        settings.cluster.k,
        kernel,
        z=settings.coreset.z,
        n_init=settings.cluster.n_init,
        max_iter=settings.cluster.max_iter,
        seed=settings.coreset.seed,
    )
    record.add(kernel=repr(kernel), coreset_cost=model.solution.cost, n_iter=model.solution.n_iter)
    if settings.cluster.model_path is not None:
        model.save(settings.cluster.model_path, overwrite=True)
        record.add(model=settings.cluster.model_path)
    return model


def assign(spark: SparkSession, model: KernelKMeansModel, settings: Settings, record: RunRecord) -> None:
    """Label every row, write the result, and measure the solution on all rows in the same pass."""
    check_output(settings.output)
    data = Input(spark, settings)
    bad_rows, output = settings.input.bad_rows, settings.output
    frame = data.frame
    if bad_rows == "quarantine":
        reason = why_bad(frame, data.layout, settings.input.weight_col)
        bad = frame.withColumn("reason", reason).where(F.col("reason").isNotNull())
        bad.write.mode("overwrite").parquet(str(settings.input.quarantine_path))
    label_settings = LabelSettings(
        model.centers,
        model.z,
        data.layout,
        settings.input.weight_col,
        prediction_col=output.prediction_col,
        distance_col=output.distance_col,
        margin_col=output.margin_col,
        drop_bad_rows=bad_rows != "fail",
    )
    wanted = settings.certificate
    probe = make_probe(model, settings.input.weight_col is not None, wanted.center_sets, wanted.fraction, wanted.seed)
    labelled, observation = observed_labels(frame, label_settings, probe)
    if output.columns:
        labelled = labelled.select(*output.columns, *output.new_columns)
    with record.stage("write"):
        write_output(labelled, output)
    record.add(**asdict(read_summary(observation, model, probe)), output=output.path or output.table)


def _leaves(data: Input, settings: LeafSettings) -> Leaves:
    dimension = len(data.layout.features)
    runs = data.runs
    if runs is None:
        rows = leaves_by_spark(data.frame, settings, data.settings.weight_col, data.settings.id_col)
        return gather(rows, settings, dimension)
    id_type = data.frame.schema[data.settings.id_col].dataType if data.settings.id_col else None
    rows = direct.leaves_by_files(data.spark, runs, settings, data.columns, id_type)
    return gather(rows, settings, dimension, most_leaves=len(runs))


def _kernel(data: Input, settings: Settings) -> Kernel:
    """The kernel of the settings; a width that is to be chosen comes from a random sample of the rows."""
    rule = settings.kernel.sigma_rule
    if rule is None:
        return settings.kernel.build()
    columns = selection(data.frame, data.layout, None, None)
    sample = data.frame.select(*columns).orderBy(F.rand(settings.coreset.seed)).limit(_SIGMA_SAMPLE).toArrow()
    reader = BatchReader(_features_only(data.layout))
    points = []
    for batch in sample.to_batches():
        found, _, good = reader.read(batch.columns)
        points.append(found.T if good is None else found.T[good])
    if not sum(map(len, points)):
        raise DataError("`kernel.sigma` cannot be chosen: there is no row that can be used.")
    return settings.kernel.build(sigma=choose_sigma(np.concatenate(points), rule, seed=settings.coreset.seed))


def _features_only(layout: Layout) -> Layout:
    return Layout(layout.features, layout.is_array, with_weights=False, with_ids=False)
