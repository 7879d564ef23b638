"""The steps of a job on settings: build the coreset, cluster it, label every row, and write the result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.clustering.choosing import choose_sigma
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.jobs.cluster import cluster_coreset, save_model
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.rows import InputSettings, OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels import Normalized
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.labelling.certificate import Probe
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark import scan as direct
from kernelcoreset.spark.columns import Layout, layout_of, quoted, why_bad, with_dimension
from kernelcoreset.spark.jobs.input import read_input
from kernelcoreset.spark.jobs.output import check_output, write_output
from kernelcoreset.spark.jobs.session import open_session
from kernelcoreset.spark.labels import LabelSettings, refuse_taken
from kernelcoreset.spark.leaves import LeafSettings, Leaves, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.sample import sample_degrees, sample_rows
from kernelcoreset.spark.summary import KernelKMeansSummary, make_probe, observed_labels, read_summary
from kernelcoreset.spectral.degrees import Degrees
from kernelcoreset.spectral.model import SpectralModel, load_model

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
        return self.runs_of(self.frame)

    def runs_of(self, frame: DataFrame) -> list[direct.Run] | None:
        """Return the same for another frame of the same files, or of some of them."""
        readable = all(direct.can_read(self.frame.schema[name].dataType) for name in self.layout.features)
        found = self._runs(frame, self.layout.columns) if readable else None
        if found is None and self.settings.scan == "direct":
            raise DataError(
                f'`input.scan` = "direct" needs plain local Parquet files that hold all columns; {self.settings.path} '
                'does not. Use "auto" or "spark".'
            )
        return found

    def copied_runs_of(self, frame: DataFrame) -> list[direct.Run] | None:
        """Return the runs for a pass that takes all columns of a frame along; None where pyarrow cannot copy one."""
        if not all(direct.can_copy(field.dataType) for field in frame.schema.fields):
            return None
        return self._runs(frame, frame.columns)

    def needed(self, columns: Sequence[str] | None) -> DataFrame:
        """Return the columns to be written, or all, and those of the points: others need not be read."""
        if not columns:
            return self.frame
        return self.frame.select(*[quoted(name) for name in dict.fromkeys([*columns, *self.layout.columns])])

    def _runs(self, frame: DataFrame, columns: Sequence[str]) -> list[direct.Run] | None:
        wanted = self.settings
        if wanted.scan == "spark" or not wanted.is_whole_files:
            return None
        # Files that this machine can open are sure to be the workers' too only where the workers are on it.
        local = (self.spark.conf.get("spark.master", None) or "").startswith("local")
        files = direct.local_files(frame) if local or wanted.scan == "direct" else None
        return (direct.plan_runs(files, columns) or None) if files else None


def build_coreset(settings: Settings, record: RunRecord) -> None:
    """Do the work of the job build-coreset."""
    with open_session(settings, record.stage("session")) as spark, record.stage("build"):
        build(spark, settings, record)


def assign(settings: Settings, record: RunRecord) -> None:
    """Do the work of the job assign."""
    model = load_model(str(settings.cluster.model_path))
    with open_session(settings, record.stage("session")) as spark, record.stage("assign"):
        label_input(spark, model, settings, record)


def run(settings: Settings, record: RunRecord) -> None:
    """Do the work of the job run: build, cluster and label."""
    with open_session(settings, record.stage("session")) as spark:
        check(spark, settings)
        with record.stage("build"):
            coreset = build(spark, settings, record)
        with record.stage("cluster"):
            model = cluster_coreset(coreset, settings, record)
        with record.stage("assign"):
            label_input(spark, model, settings, record)


def spectral(settings: Settings, record: RunRecord) -> None:
    """Do the work of the job spectral: degrees, build, cut and label."""
    with open_session(settings, record.stage("session")) as spark:
        check(spark, settings)
        with record.stage("degrees"):
            found = degrees(spark, settings, record)
        with record.stage("build"):
            coreset = build(spark, settings, record, found)
        with record.stage("cluster"):
            model = cut(coreset, settings, record, found)
        with record.stage("assign"):
            label_input(spark, model, settings, record)


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a dry run of these jobs prints."""
    with open_session(settings) as spark:
        return plan_input(spark, settings)


def plan_input(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    """Return what a run would take, without doing it."""
    data = Input(spark, settings)
    rows = data.frame.count()
    runs = data.runs
    leaves = len(runs) if runs else data.frame.select(F.spark_partition_id().alias("p")).distinct().count()
    size, k = settings.coreset.coreset_size, settings.coreset.k
    leaf_size = leaf_size_of(size, settings.coreset.leaf_size)
    dimension = with_dimension(data.frame, data.layout).dimension or 1
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
    check_output(spark, settings.output)
    check_columns(Input(spark, settings).frame.columns, settings.output, settings.input)


def check_columns(there: Sequence[str], output: OutputSettings, wanted_input: InputSettings) -> None:
    """Refuse an output that the input's columns cannot fill, or that would hide one of them."""
    refuse_taken(there, output.new_columns)
    wanted = {*(output.columns or ()), *output.partition_by} - set(output.new_columns)
    missing = sorted(wanted - set(there))
    if missing:
        raise SettingError(f"Columns missing: {', '.join(missing)}. There are: {', '.join(there)}.")
    if wanted_input.bad_rows == "quarantine" and _REASON in there:
        raise SettingError(f"Column {_REASON} is there already: quarantined rows need that name. Rename it.")


def degrees(spark: SparkSession, settings: Settings, record: RunRecord) -> Degrees:
    """Return what gives every row its degree, from a uniform sample of the rows."""
    if settings.coreset.z != 2.0:
        raise SettingError(f"`coreset.z` must be 2 for spectral clustering; got {settings.coreset.z:g}. Leave it out.")
    data = Input(spark, settings)
    by_file = data.runs is not None
    layout = with_dimension(data.frame, data.layout)
    # The footers of the files know the number of rows; bad rows among them make the least degree a little smaller.
    total = None if layout.weight_col or not data.runs else float(sum(run.rows for run in data.runs))
    kernel = kernel_of(data.frame, layout, settings, by_file=by_file)
    found = sample_degrees(
        data.frame, layout, kernel, settings.spectral.degree_sample, _place(settings, by_file), total
    )
    record.add(degree_sample=len(found.points))
    return found


def build(spark: SparkSession, settings: Settings, record: RunRecord, degrees: Degrees | None = None) -> Coreset:
    """Read all rows once and return their coreset; bad rows by the policy of the settings.

    With degrees it is a coreset of the normalized kernel, for spectral clustering.
    """
    data = Input(spark, settings)
    kernel = (
        kernel_of(data.frame, data.layout, settings, by_file=data.runs is not None)
        if degrees is None
        else Normalized(degrees.kernel)
    )
    record.add(kernel=repr(kernel))
    leaf_settings = leaf_settings_of(settings, kernel, with_dimension(data.frame, data.layout))
    leaf_settings = replace(leaf_settings, degrees=degrees)
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


def leaf_settings_of(settings: Settings, kernel: Kernel, layout: Layout) -> LeafSettings:
    """Return what the tasks need to know that build leaves."""
    wanted = settings.coreset
    return LeafSettings(
        Recipe(wanted.k, kernel, wanted.coreset_size, z=wanted.z, seed=wanted.seed),
        leaf_size=leaf_size_of(wanted.coreset_size, wanted.leaf_size),
        layout=layout,
    )


def cut(coreset: Coreset, settings: Settings, record: RunRecord, degrees: Degrees) -> SpectralModel:
    """Return the spectral clustering of a coreset of the normalized kernel; no rows are read."""
    wanted = settings.cluster
    model = SpectralModel.fit_coreset(coreset, wanted.k, degrees, seed=settings.coreset.seed, **wanted.effort)
    record.add(normalized_cut=model.normalized_cut)
    save_model(model, settings, record)
    return model


def label_input(
    spark: SparkSession, model: KernelKMeansModel | SpectralModel, settings: Settings, record: RunRecord
) -> None:
    """Label every row, write the result, and measure the solution on all rows in the same pass."""
    check(spark, settings)
    data = Input(spark, settings)
    if settings.input.bad_rows == "quarantine":
        bad = quarantined(data.frame, data.layout, model)
        bad.write.mode("overwrite").parquet(str(settings.input.quarantine_path))
    clustering, degrees = _parts_of(model)
    wanted = settings.certificate
    # A spectral model was solved with degrees of its own: its cost is not to be compared with that of the rows.
    center_sets = wanted.center_sets if degrees is None else 0
    probe = make_probe(clustering, settings.input.weight_col is not None, center_sets, wanted.fraction, wanted.seed)
    frame = data.needed(settings.output.columns)
    with record.stage("write"):
        summary = label_and_write(
            frame, data.layout, model, settings, settings.output, probe, data.copied_runs_of(frame)
        )
    found = asdict(summary)
    if degrees is not None:  # costs of the normalized kernel say little by themselves; the cut is told already
        found = {name: found[name] for name in ("rows", "bad_rows", "cluster_sizes", "n_iter")}
    record.add(**found, output=settings.output.path or settings.output.table)


def _parts_of(model: KernelKMeansModel | SpectralModel) -> tuple[KernelKMeansModel, Degrees | None]:
    """The clustering of a model, and what lifts rows to the points it is of."""
    return (model.clustering, model.degrees) if isinstance(model, SpectralModel) else (model, None)


def quarantined(frame: DataFrame, layout: Layout, model: KernelKMeansModel | SpectralModel) -> DataFrame:
    """Return the bad rows of a frame, each with its reason."""
    clustering, degrees = _parts_of(model)
    dimension = clustering.coreset.points.shape[1] - (degrees is not None)
    reason = why_bad(frame, replace(layout, dimension=dimension))
    return frame.withColumn(_REASON, reason).where(F.col(_REASON).isNotNull())


def label_settings_of(layout: Layout, model: KernelKMeansModel | SpectralModel, settings: Settings) -> LabelSettings:
    """Return what the tasks need to know that label rows."""
    output = settings.output
    clustering, degrees = _parts_of(model)
    return LabelSettings(
        clustering.centers,
        clustering.z,
        layout,
        prediction_col=output.prediction_col,
        distance_col=output.distance_col,
        margin_col=output.margin_col,
        drop_bad_rows=settings.input.bad_rows != "fail",
        degrees=degrees,
    )


def chosen_columns(labelled: DataFrame, output: OutputSettings) -> DataFrame:
    """Return the columns that are to be written."""
    if not output.columns:
        return labelled
    return labelled.select(*[quoted(name) for name in dict.fromkeys([*output.columns, *output.new_columns])])


def label_and_write(
    frame: DataFrame,
    layout: Layout,
    model: KernelKMeansModel | SpectralModel,
    settings: Settings,
    output: OutputSettings,
    probe: Probe | None,
    runs: Sequence[direct.Run] | None = None,
) -> KernelKMeansSummary:
    """Label the rows of a frame, write them to the output, and return what was seen of them on the way.

    `runs` are the files that the frame would read and nothing else, where the tasks may open them themselves.
    """
    labelled, observation = observed_labels(frame, label_settings_of(layout, model, settings), probe, runs)
    labelled = chosen_columns(labelled, output)
    write_output(labelled, output)
    return read_summary(observation, _parts_of(model)[0], probe)


def _leaves(data: Input, settings: LeafSettings) -> Leaves:
    runs = data.runs
    if runs is None:
        return gather(leaves_by_spark(data.frame, settings), settings)
    id_type = data.frame.schema[data.settings.id_col].dataType if data.settings.id_col else None
    return gather(direct.leaves_by_files(data.spark, runs, settings, id_type), settings, most_leaves=len(runs))


def kernel_of(frame: DataFrame, layout: Layout, settings: Settings, *, by_file: bool = False) -> Kernel:
    """Return the kernel of the settings; a width that is to be chosen comes from a random sample of the rows."""
    rule = settings.kernel.sigma_rule
    if rule is None:
        return settings.kernel.build()
    layout = replace(with_dimension(frame, layout), weight_col=None, id_col=None)
    points, _ = sample_rows(frame, layout, _SIGMA_SAMPLE, _place(settings, by_file))
    if not len(points):
        raise DataError("`kernel.sigma` cannot be chosen: there is no row that can be used.")
    return settings.kernel.build(sigma=choose_sigma(points, rule, seed=settings.coreset.seed))


def _place(settings: Settings, by_file: bool) -> Column:
    """A random order of the rows, by the seed alone."""
    seed = settings.coreset.seed
    # Random by where a row stands in its file, so that the direct scan stays the same at any layout of partitions.
    return F.xxhash64(F.lit(seed), "_metadata.file_name", "_metadata.row_index") if by_file else F.rand(seed)
