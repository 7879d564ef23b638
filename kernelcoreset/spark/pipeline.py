"""The steps of a job on settings: build the coreset, cluster it, label every row, and write the result."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.choosing import choose_sigma
from kernelcoreset.coreset import Coreset
from kernelcoreset.degrees import Degrees
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels import Normalized
from kernelcoreset.kernels.base import Kernel
from kernelcoreset.model import KernelKMeansModel
from kernelcoreset.record import RunRecord
from kernelcoreset.settings import Settings
from kernelcoreset.spark import direct
from kernelcoreset.spark.columns import layout_of, quoted, why_bad, with_dimension
from kernelcoreset.spark.degrees import sample_degrees, sample_rows
from kernelcoreset.spark.labels import LabelSettings, refuse_taken
from kernelcoreset.spark.leaves import LeafSettings, Leaves, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.output import check_output, write_output
from kernelcoreset.spark.source import read_input
from kernelcoreset.spark.summary import make_probe, observed_labels, read_summary
from kernelcoreset.spectral import SpectralModel

_SIGMA_SAMPLE = 2_000
_REASON = "reason"


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
        local = (self.spark.conf.get("spark.master", None) or "").startswith("local")
        files = direct.local_files(self.frame) if local or wanted.scan == "direct" else None
        readable = all(direct.can_read(self.frame.schema[name].dataType) for name in self.layout.features)
        found = direct.plan_runs(files, self.layout.columns) if files and readable else None
        if found is None and wanted.scan == "direct":
            raise DataError(
                f'`input.scan` = "direct" needs plain local Parquet files that hold all columns; {wanted.path} '
                'does not. Use "auto" or "spark".'
            )
        return found or None


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


def check(spark: SparkSession, settings: Settings) -> None:
    """Refuse at once what the last step of a job would refuse after all the others."""
    output = settings.output
    check_output(spark, output)
    there = Input(spark, settings).frame.columns
    refuse_taken(there, output.new_columns)
    wanted = {*(output.columns or ()), *output.partition_by} - set(output.new_columns)
    missing = sorted(wanted - set(there))
    if missing:
        raise SettingError(f"Columns missing: {', '.join(missing)}. There are: {', '.join(there)}.")
    if settings.input.bad_rows == "quarantine" and _REASON in there:
        raise SettingError(f"Column {_REASON} is there already: quarantined rows need that name. Rename it.")


def degrees(spark: SparkSession, settings: Settings, record: RunRecord) -> Degrees:
    """Return what gives every row its degree, from a uniform sample of the rows."""
    if settings.coreset.z != 2.0:
        raise SettingError(f"`coreset.z` must be 2 for spectral clustering; got {settings.coreset.z:g}. Leave it out.")
    data = Input(spark, settings)
    layout = with_dimension(data.frame, data.layout)
    # The footers of the files know the number of rows; bad rows among them make the least degree a little smaller.
    total = None if layout.weight_col or not data.runs else float(sum(run.rows for run in data.runs))
    place = _place(data, settings)
    found = sample_degrees(data.frame, layout, _kernel(data, settings), settings.spectral.degree_sample, place, total)
    record.add(degree_sample=len(found.points))
    return found


def build(spark: SparkSession, settings: Settings, record: RunRecord, degrees: Degrees | None = None) -> Coreset:
    """Read all rows once and return their coreset; bad rows by the policy of the settings.

    With degrees it is a coreset of the normalized kernel, for spectral clustering.
    """
    data = Input(spark, settings)
    kernel = _kernel(data, settings) if degrees is None else Normalized(degrees.kernel)
    record.add(kernel=repr(kernel))
    leaf_settings = LeafSettings(
        k=settings.coreset.k,
        kernel=kernel,
        size=settings.coreset.coreset_size,
        z=settings.coreset.z,
        seed=settings.coreset.seed,
        leaf_size=settings.coreset.leaf_size or 4 * settings.coreset.coreset_size,
        layout=with_dimension(data.frame, data.layout),
        degrees=degrees,
    )
    with record.stage("leaves"):
        found = _leaves(data, leaf_settings)
    record.add(rows=found.rows, bad_rows=found.bad.rows, bad_columns=found.bad.counts, leaves=found.leaves)
    refuse_unusable(found, settings.input.bad_rows)
    with record.stage("merge"):
        coreset = merge_leaves(found, leaf_settings)
    record.add(coreset_points=len(coreset), coreset_weight=float(coreset.weights.sum()))
    if settings.coreset.path is not None:
        coreset.write_parquet(settings.coreset.path)
        record.add(coreset=settings.coreset.path)
    return coreset


def cluster(coreset: Coreset, settings: Settings, record: RunRecord) -> KernelKMeansModel:
    """Return the clustering of a coreset; no rows are read."""
    if "kernel" not in coreset.settings:
        raise DataError("The coreset does not say which kernel it was built with. Build it with build-coreset.")
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


def cut(coreset: Coreset, settings: Settings, record: RunRecord, degrees: Degrees) -> SpectralModel:
    """Return the spectral clustering of a coreset of the normalized kernel; no rows are read."""
    wanted = settings.cluster
    model = SpectralModel.fit_coreset(
        coreset, wanted.k, degrees, n_init=wanted.n_init, max_iter=wanted.max_iter, seed=settings.coreset.seed
    )
    record.add(normalized_cut=model.normalized_cut)
    if wanted.model_path is not None:
        model.save(wanted.model_path, overwrite=True)
        record.add(model=wanted.model_path)
    return model


def assign(
    spark: SparkSession, model: KernelKMeansModel | SpectralModel, settings: Settings, record: RunRecord
) -> None:
    """Label every row, write the result, and measure the solution on all rows in the same pass."""
    own_degrees = model.degrees if isinstance(model, SpectralModel) else None
    model = model.clustering if isinstance(model, SpectralModel) else model
    check(spark, settings)
    data = Input(spark, settings)
    bad_rows, output = settings.input.bad_rows, settings.output
    frame = data.frame
    if bad_rows == "quarantine":
        dimension = model.coreset.points.shape[1] - (own_degrees is not None)
        reason = why_bad(frame, replace(data.layout, dimension=dimension))
        bad = frame.withColumn(_REASON, reason).where(F.col(_REASON).isNotNull())
        bad.write.mode("overwrite").parquet(str(settings.input.quarantine_path))
    label_settings = LabelSettings(
        model.centers,
        model.z,
        data.layout,
        prediction_col=output.prediction_col,
        distance_col=output.distance_col,
        margin_col=output.margin_col,
        drop_bad_rows=bad_rows != "fail",
        degrees=own_degrees,
    )
    wanted = settings.certificate
    # A spectral model was solved with degrees of its own: its cost is not to be compared with that of the rows.
    center_sets = wanted.center_sets if own_degrees is None else 0
    probe = make_probe(model, settings.input.weight_col is not None, center_sets, wanted.fraction, wanted.seed)
    labelled, observation = observed_labels(frame, label_settings, probe)
    if output.columns:
        labelled = labelled.select(*[quoted(name) for name in (*output.columns, *output.new_columns)])
    with record.stage("write"):
        write_output(labelled, output)
    found = asdict(read_summary(observation, model, probe))
    if own_degrees is not None:  # costs of the normalized kernel say little by themselves; the cut is told already
        found = {name: found[name] for name in ("rows", "bad_rows", "cluster_sizes", "n_iter")}
    record.add(**found, output=output.path or output.table)


def _leaves(data: Input, settings: LeafSettings) -> Leaves:
    runs = data.runs
    if runs is None:
        return gather(leaves_by_spark(data.frame, settings), settings)
    id_type = data.frame.schema[data.settings.id_col].dataType if data.settings.id_col else None
    return gather(direct.leaves_by_files(data.spark, runs, settings, id_type), settings, most_leaves=len(runs))


def _kernel(data: Input, settings: Settings) -> Kernel:
    """The kernel of the settings; a width that is to be chosen comes from a random sample of the rows."""
    rule = settings.kernel.sigma_rule
    if rule is None:
        return settings.kernel.build()
    layout = replace(with_dimension(data.frame, data.layout), weight_col=None, id_col=None)
    points, _ = sample_rows(data.frame, layout, _SIGMA_SAMPLE, _place(data, settings))
    if not len(points):
        raise DataError("`kernel.sigma` cannot be chosen: there is no row that can be used.")
    return settings.kernel.build(sigma=choose_sigma(points, rule, seed=settings.coreset.seed))


def _place(data: Input, settings: Settings) -> Column:
    """A random order of the rows, by the seed alone."""
    seed = settings.coreset.seed
    # Random by where a row stands in its file, so that the direct scan stays the same at any layout of partitions.
    return F.xxhash64(F.lit(seed), "_metadata.file_name", "_metadata.row_index") if data.runs else F.rand(seed)
