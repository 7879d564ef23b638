"""A label for every row of a DataFrame, for the jobs and for the estimators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, IntegerType, NumericType, StringType, StructField, StructType

from kernelcoreset.checks import Floats
from kernelcoreset.describing.tally import RowTally
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.features.arrays import to_arrow
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.labelling.centers import Centers, Labels
from kernelcoreset.labelling.certificate import Probe, Tally
from kernelcoreset.labelling.nearest import LabelledPoints
from kernelcoreset.models.rehearsal import is_large
from kernelcoreset.spark.columns import BatchReader, Layout, array_column, describe_bad_rows, is_vector, quoted
from kernelcoreset.spark.leaves import LeafBuilder, LeafSettings
from kernelcoreset.spark.observed_leaves import ObservedLeaves, leaf_text
from kernelcoreset.spark.row_counts import counted
from kernelcoreset.spark.sampled_columns import as_batch, describe, sampled, with_sample
from kernelcoreset.spark.scan import RowGroups, read_columns, task_frame, tasks_of
from kernelcoreset.spark.summary import TALLY, Measurement, clustering_of, packed
from kernelcoreset.spark.tasks import (
    MOST_TASKS,
    Batches,
    apply_to_columns,
    has_functions,
    map_batches,
    partition_number,
)
from kernelcoreset.spectral.degrees import Degrees
from kernelcoreset.spectral.model import PointModel, SpectralModel
from kernelcoreset.spectral.neighbors import NeighborModel

_LABELS = "__kc_labels"
_MOST_BACK = 4  # numbers that come back from Python with labels in less time than Java needs to put both together


@dataclass(frozen=True)
class LabelSettings:
    """What a labelling task needs to know. Plain data and centers: it is sent to the executors."""

    centers: Centers | LabelledPoints
    z: float
    layout: Layout
    prediction_col: str = "prediction"
    distance_col: str | None = "distance"
    margin_col: str | None = None
    outlier_col: str | None = None
    columns: tuple[str, ...] | None = None
    """Columns of the frame to keep; all by default."""
    drop_bad_rows: bool = False
    degrees: Degrees | None = None
    """For a spectral model: what gives a row its degree, as one more coordinate."""
    typical: Floats | None = None
    """The typical distance in each cluster, which outlier scores are measured by."""
    tally: bool = False
    probe: Probe | None = None
    describe: bool = False
    others: tuple[str, ...] = ()
    """Columns that are described by a sample of the rows, and come with it."""
    leaf: LeafSettings | None = None
    """For a stream: how the leaf of each partition is built in the same pass, and ..."""
    leaf_row: pa.Schema | None = None
    """... the schema of its row."""

    @classmethod
    def of(cls, model: PointModel, layout: Layout, **options: Any) -> Self:
        """Return the settings for a model. Raises SettingError if the layout has another number of features."""
        clustering = clustering_of(model)
        centers: Centers | LabelledPoints
        if isinstance(clustering, NeighborModel):
            centers, z = clustering.labelled, 2.0
        else:
            centers, z = clustering.centers, clustering.z
        degrees = model.degrees if isinstance(model, SpectralModel) else None
        d = centers.points.shape[1] - (degrees is not None)
        typical = model.typical_distances if options.get("outlier_col") else None
        preparation = model.preparation
        if preparation is not None:
            layout = _prepared_layout(layout, preparation)
            return cls(centers, z, layout, degrees=degrees, typical=typical, **options)
        if not layout.is_array and len(layout.features) != d:
            given = f"{len(layout.features)} ({', '.join(layout.features)})"
            raise SettingError(
                f"The model has {d} features; got {given}. Use the columns it was fitted on, in that order."
            )
        layout = replace(layout, dimension=d)
        return cls(centers, z, layout, degrees=degrees, typical=typical, **options)

    def keeps(self, name: str) -> bool:
        """Return whether a column of the frame is kept; others do not go back from Python to Spark."""
        return not self.columns or name in self.columns

    @property
    def is_large(self) -> bool:
        """Whether tasks call what many columns or many clusters need."""
        return is_large(len(self.centers), self.centers.points.shape[1])

    @property
    def new_fields(self) -> list[StructField]:
        """The columns that labelling adds."""
        fields = [StructField(self.prediction_col, IntegerType(), False)]
        numbers = (self.distance_col, self.margin_col, self.outlier_col)
        return [*fields, *(StructField(name, DoubleType(), False) for name in numbers if name)]


def label_rows(
    frame: DataFrame,
    settings: LabelSettings,
    *,
    groups: Sequence[Sequence[RowGroups]] | None = None,
    measurement: Measurement | ObservedLeaves | None = None,
) -> DataFrame:
    """Return the columns of the frame and, for every row, its cluster, its distance and what else was asked for.

    Parameters
    ----------
    frame : DataFrame
    settings : LabelSettings
    groups : list of lists of RowGroups, optional
        All the Parquet files that the frame reads, if tasks may open them themselves; one list per task.
    measurement : Measurement or ObservedLeaves, optional
        Measures the model on the rows, or builds their leaves, while they are written.
    """
    refuse_taken(frame.columns, [field.name for field in settings.new_fields])
    if isinstance(measurement, ObservedLeaves):
        settings = replace(settings, leaf=measurement.settings, leaf_row=measurement.schema)
    elif measurement is not None:
        typical = measurement.typical if settings.typical is None else settings.typical
        settings = replace(
            settings, tally=True, probe=measurement.probe, typical=typical, describe=measurement.describe
        )
    if measurement is not None and groups is None:
        frame = frame.coalesce(MOST_TASKS)  # every task tells the driver something
    stays = groups is None and _stays_in_java(frame, settings)
    label = _label_columns if stays else _label_by_spark
    labelled = label(frame, settings) if groups is None else _label_files(frame, settings, groups)
    if measurement is not None:
        labelled = measurement.observe(labelled, F.col(f"{_LABELS}.{TALLY}" if stays else TALLY))
    if stays:
        kept = [name for name in frame.columns if settings.keeps(name)]
        labelled = labelled.select(*[quoted(name) for name in kept], *map(_unpacked, settings.new_fields))
    elif measurement is not None:
        labelled = labelled.drop(TALLY)
    if settings.drop_bad_rows:
        labelled = labelled.where(F.col(quoted(settings.prediction_col)) >= 0)
    if not settings.columns:
        return labelled
    names = dict.fromkeys([*settings.columns, *(field.name for field in settings.new_fields)])
    return labelled.select(*[quoted(name) for name in names])


def _stays_in_java(frame: DataFrame, settings: LabelSettings) -> bool:
    """Whether columns stay in Java while Python finds the labels, as texts and many numbers should."""
    kept = [field.dataType for field in frame.schema.fields if settings.keeps(field.name)]
    return has_functions() and (len(kept) > _MOST_BACK or not all(isinstance(kind, NumericType) for kind in kept))


def _label_columns(frame: DataFrame, settings: LabelSettings) -> DataFrame:
    """The rows with their labels in one column; only what Python reads is sent to it, and only labels come back."""
    names = list(dict.fromkeys(settings.layout.columns))
    columns = [array_column(frame, name) for name in names]
    others = [name for name in frame.columns if name not in names] if settings.describe else []
    if others:
        columns.append(sampled(frame, others))
    fields = _added_fields(settings)
    arrow_fields = list(to_arrow_schema(StructType(fields)))

    def label(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
        rows = with_sample(batches, names) if others else (as_batch(arrays, names) for arrays in batches)
        for _, added in _label_batches(rows, replace(settings, others=tuple(others)), partition_number()):
            yield pa.StructArray.from_arrays(added, fields=arrow_fields)

    # Always true. Without a step between, Spark 4.2 reads the rows of columnar files without compiled code.
    frame = frame.where(F.spark_partition_id() >= 0)
    return frame.withColumn(
        _LABELS, apply_to_columns(frame, label, columns, StructType(fields), large=settings.is_large)
    )


def _unpacked(field: StructField) -> Column:
    """A new column out of that of labels. Spark takes what a function returns for nullable: no value is null."""
    column = F.col(f"{_LABELS}.{quoted(field.name)}")
    return F.coalesce(column, F.lit(0).cast(field.dataType)).alias(field.name)


def _label_by_spark(frame: DataFrame, settings: LabelSettings) -> DataFrame:
    """The labelled rows, read by Spark."""
    vectors = [field for field in frame.schema.fields if is_vector(field.dataType)]
    # Arrow has no sparse vectors: vectors are sent as arrays and come back as dense vectors. The columns get plain
    # names, since mapInArrow does not accept a name with a dot.
    plain = frame.select(*[array_column(frame, name).alias(f"c{i}") for i, name in enumerate(frame.columns)])
    types = [field.dataType for field in plain.schema.fields]
    fields = [
        StructField(field.name, kind, field.nullable, field.metadata)
        for field, kind in zip(frame.schema.fields, types, strict=True)
    ]
    names = frame.columns
    fields = [field for field in fields if settings.keeps(field.name)]
    vectors = [field for field in vectors if settings.keeps(field.name)]

    def label(batches: Batches) -> Batches:
        renamed = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in counted(batches))
        yield from _with_columns(renamed, settings, partition_number())

    labelled = map_batches(plain, label, StructType([*fields, *_added_fields(settings)]), large=settings.is_large)
    return labelled.withColumns({field.name: _as_vector(field) for field in vectors}) if vectors else labelled


def _label_files(frame: DataFrame, settings: LabelSettings, groups: Sequence[Sequence[RowGroups]]) -> DataFrame:
    """The labelled rows, read by the tasks themselves: Spark's reader would take half the time of the pass."""
    names = frame.columns
    types = [field.type for field in to_arrow_schema(frame.schema)]

    def label(batches: Batches) -> Batches:
        for task, row_groups in tasks_of(batches):
            columns = read_columns(row_groups, names, types)
            rows = (pa.RecordBatch.from_arrays(arrays, names=names) for arrays in columns)
            yield from _with_columns(rows, settings, task["leaf"])

    kept = [field for field in frame.schema.fields if settings.keeps(field.name)]
    schema = StructType([*kept, *_added_fields(settings)])
    return map_batches(task_frame(frame.sparkSession, groups), label, schema, large=settings.is_large)


def _added_fields(settings: LabelSettings) -> list[StructField]:
    return [*settings.new_fields, *([StructField(TALLY, StringType())] if _has_report(settings) else [])]


def _has_report(settings: LabelSettings) -> bool:
    """Whether the last row of a partition tells the driver something: a tally, or a leaf."""
    return settings.tally or settings.leaf is not None


def refuse_taken(there: Sequence[str], new: Sequence[str]) -> None:
    """Raise SettingError if a new column has the name of an existing one; Spark ignores case."""
    lower = {name.lower() for name in there}
    taken = [name for name in new if name.lower() in lower]
    if taken:
        raise SettingError(
            f"Columns already exist: {', '.join(taken)}. Choose other names for the new ones, or drop the old ones."
        )


def _prepared_layout(layout: Layout, preparation: Preparation) -> Layout:
    """The layout with the preparation of a model; SettingError if the columns are others than those of its fit."""
    names = (
        preparation.names if not layout.is_array else sorted({name.rpartition("[")[0] for name in preparation.names})
    )
    if list(layout.features) != names:
        raise SettingError(
            f"The model was fitted on the columns {', '.join(names)}; got {', '.join(layout.features)}. Use those of "
            "the fit, in that order."
        )
    return layout.prepared_by(preparation)


def _as_vector(field: StructField) -> Column:
    from pyspark.ml.functions import array_to_vector

    column = F.col(quoted(field.name))
    return F.when(column.isNotNull(), array_to_vector(column)).alias(field.name, metadata=field.metadata)


def _label_batches(
    batches: Iterator[pa.RecordBatch], settings: LabelSettings, partition: int
) -> Iterator[tuple[pa.RecordBatch, list[pa.Array]]]:
    """The batches of one partition, each with the columns that labelling adds. Bad rows have the label -1.

    With `settings.tally` the last row of the partition carries the tally of the partition, with `settings.leaf` its
    leaf. Each batch is therefore held back until there is another.
    """
    layout = settings.layout
    reader = BatchReader(layout)
    report = _Report(settings, partition, reader)
    held: tuple[pa.RecordBatch, list[pa.Array]] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue  # no row could carry a report
        arrays = [batch.column(batch.schema.get_field_index(name)) for name in layout.columns]
        rows, weights, good = reader.read_rows(arrays)
        report.add_read(arrays, rows, weights, good)
        if good is not None and not settings.drop_bad_rows:
            where = f" in partition {partition}, so far"
            raise DataError(describe_bad_rows(reader.bad, report.rows, where))
        found = _label_good_rows(batch, rows, weights, good, settings, report)
        if held is not None:
            yield held
        held = batch, _new_columns(found, settings)
    if held is not None:
        if _has_report(settings):
            held[1][-1] = report.column(held[0].num_rows)
        yield held


def _label_good_rows(
    batch: pa.RecordBatch,
    rows: NDArray[Any],
    weights: Floats | None,
    good: NDArray[np.bool_] | None,
    settings: LabelSettings,
    report: _Report,
) -> Labels:
    """The labels of a batch, -1 for bad rows; good ones are added to the report."""
    if good is not None:
        if not good.any():
            return _spread(None, good)
        batch = batch.filter(pa.array(good))
        rows, weights = rows[good], None if weights is None else weights[good]
    if settings.degrees is not None:
        lifted, weights = settings.degrees.lift(rows.T, weights)
        rows = lifted.T
    found = settings.centers.label_rows(rows, margins=settings.margin_col is not None)
    report.add_labelled(batch, rows, weights, found)
    return found if good is None else _spread(found, good)


def _spread(found: Labels | None, good: NDArray[np.bool_]) -> Labels:
    """The labels of good rows at their places among all rows."""
    n = len(good)
    every = Labels(np.full(n, -1, np.int32), np.zeros(n), np.zeros(n), 0.0, 0.0)
    if found is not None:
        every.labels[good], every.distances[good] = found.labels, found.distances
        if found.margins is not None and every.margins is not None:
            every.margins[good] = found.margins
    return every


class _Report:
    """What a partition tells the driver besides its labelled rows: a tally, or a leaf."""

    def __init__(self, settings: LabelSettings, partition: int, reader: BatchReader) -> None:
        self.rows = 0
        self._settings = settings
        self._reader = reader
        self._builder = None if settings.leaf is None else LeafBuilder(partition, settings.leaf, reader=reader)
        self._tally = Tally(len(settings.centers), partition, settings.probe)
        self._described = _row_tally(settings)

    def add_read(
        self, arrays: Sequence[pa.Array], rows: NDArray[Any], weights: Floats | None, good: NDArray[np.bool_] | None
    ) -> None:
        """Add a batch as it was read."""
        self.rows += len(arrays[0])
        if self._builder is not None:
            self._builder.add_rows(arrays, rows, weights, good)

    def add_labelled(self, batch: pa.RecordBatch, rows: NDArray[Any], weights: Floats | None, found: Labels) -> None:
        """Add the good rows of a batch, with their labels."""
        settings = self._settings
        if settings.tally:
            self._tally.add(rows.T, weights, found.labels, found.distances**settings.z)
            weights = None if settings.degrees is not None else weights
            if self._described is not None:
                describe(self._described, batch, found, weights, settings.others)

    def column(self, rows: int) -> pa.Array:
        """Return a column with the report in the last of so many rows."""
        return pa.array([None] * (rows - 1) + [self._text()], pa.string())

    def _text(self) -> str:
        if self._builder is not None:
            return leaf_text(self._builder.row(self._settings.leaf_row))
        tally, bad = self._tally, self._reader.bad
        tally.bad_rows, tally.bad_columns = bad.rows, bad.counts
        tally.descriptions = [] if self._described is None else [self._described.to_dict()]
        return packed(tally.to_json())


def _with_columns(batches: Batches, settings: LabelSettings, partition: int) -> Batches:
    """The batches of one partition with the columns that are kept and those that labelling adds."""
    new = [field.name for field in _added_fields(settings)]
    for batch, added in _label_batches(batches, settings, partition):
        kept = [name for name in batch.schema.names if settings.keeps(name)]
        yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in kept), *added], names=[*kept, *new])


def _new_columns(found: Labels, settings: LabelSettings) -> list[pa.Array]:
    arrays = [to_arrow(found.labels, pa.int32())]
    arrays += [to_arrow(found.distances)] if settings.distance_col else []
    arrays += [to_arrow(found.margins)] if settings.margin_col and found.margins is not None else []
    arrays += [to_arrow(_outlier_scores(found, settings.typical))] if settings.outlier_col else []
    arrays += [pa.nulls(len(found.labels), pa.string())] if _has_report(settings) else []
    return arrays


def _row_tally(settings: LabelSettings) -> RowTally | None:
    if not settings.describe or settings.typical is None:
        return None
    layout = settings.layout
    return RowTally(
        len(settings.centers), settings.typical, [name for name in (layout.id_col, layout.weight_col) if name]
    )


def _outlier_scores(found: Labels, typical: Floats | None) -> Floats:
    """Distances by the typical ones; those of rows without a label are 0, as their distances are."""
    if typical is None:
        return np.zeros(len(found.labels))
    return found.distances / np.where(typical > 0.0, typical, 1.0)[found.labels]
