"""A label for every row: the second pass over the data, which also measures the solution on all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.labelling.centers import Centers, Labels
from kernelcoreset.labelling.certificate import Probe, Tally
from kernelcoreset.spark.columns import BatchReader, Layout, array_column, describe_bad_rows, quoted
from kernelcoreset.spark.leaves import spare_collector
from kernelcoreset.spark.scan import Run, read_columns, run_tasks, runs_of
from kernelcoreset.spectral.degrees import Degrees

TALLY = "__kc_tally"
NOT_LABELLED = Labels(np.full(1, -1, np.int32), np.zeros(1), np.zeros(1), 0.0, 0.0)


@dataclass(frozen=True)
class LabelSettings:
    """What a task needs to know. Plain data and centers: it travels to the executors."""

    centers: Centers
    z: float
    layout: Layout
    prediction_col: str = "prediction"
    distance_col: str | None = "distance"
    margin_col: str | None = None
    drop_bad_rows: bool = False
    tally: bool = False
    probe: Probe | None = None
    degrees: Degrees | None = None  # with them, rows get their degree as one more coordinate

    @property
    def new_fields(self) -> list[StructField]:
        """The columns that labelling adds."""
        fields = [StructField(self.prediction_col, IntegerType(), False)]
        fields += [StructField(name, DoubleType(), False) for name in (self.distance_col, self.margin_col) if name]
        return [*fields, StructField(TALLY, StringType())] if self.tally else fields


def label_rows(frame: DataFrame, settings: LabelSettings, runs: Sequence[Run] | None = None) -> DataFrame:
    """Return the frame's own columns and, for every row, its cluster, its distance and what else was asked for.

    With `runs`, the Parquet files that the frame would read and nothing else, the tasks open them themselves.

    With `settings.tally` the last column holds, in the last row of each partition, what was counted there: to be
    read with `observe` on the way to the writer, and dropped before it. A partition of bad rows alone then keeps one of
    them, with the label -1, to carry its tally: that row is to be dropped too.
    """
    refuse_taken(frame.columns, [field.name for field in settings.new_fields])
    d = settings.centers.points.shape[1] - (settings.degrees is not None)
    if not settings.layout.is_array and len(settings.layout.features) != d:
        given = f"{len(settings.layout.features)} ({', '.join(settings.layout.features)})"
        raise SettingError(f"The model has {d} features; got {given}. Use the columns it was fitted on, in that order.")
    settings = replace(settings, layout=replace(settings.layout, dimension=d))
    if runs is not None:
        return _label_runs(frame, settings, runs)
    vectors = [field for field in frame.schema.fields if isinstance(field.dataType, VectorUDT)]
    # Vectors do not travel well through Arrow: sparse ones break, so they go as arrays and come back as dense vectors.
    # The names are ours, since mapInArrow does not take one with a dot in it.
    plain = frame.select(*[array_column(frame, name).alias(f"c{i}") for i, name in enumerate(frame.columns)])
    types = [field.dataType for field in plain.schema.fields]
    own = [
        StructField(field.name, kind, field.nullable, field.metadata)
        for field, kind in zip(frame.schema.fields, types, strict=True)
    ]
    names = frame.columns

    def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        renamed = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        yield from _label_batches(renamed, settings, partition)
        spare_collector()

    labelled = plain.mapInArrow(label, StructType([*own, *settings.new_fields]))
    return labelled.withColumns({field.name: _as_vector(field) for field in vectors}) if vectors else labelled


def _label_runs(frame: DataFrame, settings: LabelSettings, runs: Sequence[Run]) -> DataFrame:
    """`label_rows` by the direct scan. Half the time of a pass through Spark is the way from its reader to a task."""
    names = frame.columns
    types = [field.type for field in to_arrow_schema(frame.schema)]

    def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for leaf, run in runs_of(batches):
            rows = (pa.RecordBatch.from_arrays(arrays, names=names) for arrays in read_columns(run, names, types))
            yield from _label_batches(rows, settings, leaf)
        spare_collector()

    schema = StructType([*frame.schema.fields, *settings.new_fields])
    return run_tasks(frame.sparkSession, runs).mapInArrow(label, schema)


def refuse_taken(there: Sequence[str], new: Sequence[str]) -> None:
    """Refuse new columns that are there already; Spark does not tell a from A."""
    lower = {name.lower() for name in there}
    taken = [name for name in new if name.lower() in lower]
    if taken:
        raise SettingError(
            f"Columns are there already: {', '.join(taken)}. Choose other names for the new ones, or drop them."
        )


def _as_vector(field: StructField) -> Column:
    column = F.col(quoted(field.name))
    return F.when(column.isNotNull(), array_to_vector(column)).alias(field.name, metadata=field.metadata)


def _label_batches(
    batches: Iterator[pa.RecordBatch], settings: LabelSettings, partition: int
) -> Iterator[pa.RecordBatch]:
    """Label batch after batch; one is held back, so that the last can carry the tally."""
    layout = settings.layout
    reader = BatchReader(layout)
    tally = Tally(len(settings.centers), partition, settings.probe)
    held: pa.RecordBatch | None = None
    dropped: pa.RecordBatch | None = None
    for batch in batches:
        arrays = [batch.column(batch.schema.get_field_index(name)) for name in layout.columns]
        columns, weights, good = reader.read(arrays)
        if good is not None:
            if not settings.drop_bad_rows:
                total = tally.rows + batch.num_rows
                where = f" in partition {partition}, so far"
                raise DataError(describe_bad_rows(reader.bad, total, where))
            dropped = batch.filter(pa.array(~good)).slice(0, 1)
            if not good.any():
                continue
            batch = batch.filter(pa.array(good))
            columns, weights = columns[:, good], None if weights is None else weights[good]
        if settings.degrees is not None:
            columns, weights = settings.degrees.lift(columns, weights)
        found = settings.centers.label_columns(columns, margins=settings.margin_col is not None)
        if settings.tally:
            tally.add(columns, weights, found.labels, found.distances**settings.z)
        if held is not None:
            yield held
        held = _with_columns(batch, found, settings)
    tally.bad_rows, tally.bad_columns = reader.bad.rows, reader.bad.counts
    if settings.tally and held is None and dropped is not None:
        held = _with_columns(dropped, NOT_LABELLED, settings)
    if held is not None:
        yield _carrying(held, tally) if settings.tally else held


def _with_columns(batch: pa.RecordBatch, found: Labels, settings: LabelSettings) -> pa.RecordBatch:
    arrays = [pa.array(found.labels, pa.int32())]
    arrays += [pa.array(found.distances)] if settings.distance_col else []
    arrays += [pa.array(found.margins)] if settings.margin_col else []
    arrays += [pa.nulls(batch.num_rows, pa.string())] if settings.tally else []
    names = [field.name for field in settings.new_fields]
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=[*batch.schema.names, *names])


def _carrying(batch: pa.RecordBatch, tally: Tally) -> pa.RecordBatch:
    """The batch with the tally in its last row."""
    texts = pa.array([None] * (batch.num_rows - 1) + [tally.to_json()], pa.string())
    return batch.set_column(batch.num_columns - 1, TALLY, texts)
