"""The fast scan: tasks open plain Parquet files themselves and read row groups with pyarrow, to build and to label.

A leaf is a run of row groups of one file, cut by the files' own metadata, so the leaves, and with them the result, are
the same at any number of cores and any layout of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType

from kernelcoreset.errors import DataError
from kernelcoreset.files.paths import decoded_path
from kernelcoreset.spark.columns import Layout
from kernelcoreset.spark.leaves import MOST_TASKS, LeafSettings, leaf_row, leaf_schema, spare_collector

_BATCH_ROWS = 131_072
_BATCH_BYTES = 32 * 1024**2
LEAF_ROWS = 1_000_000  # small row groups are read together until they hold about this many rows

_NUMBERS = ("double", "float", "integer", "long", "short", "byte")


@dataclass(frozen=True)
class Run:
    """Row groups first..last of one file."""

    file: str
    first: int
    last: int
    rows: int


def local_files(frame: DataFrame) -> list[str] | None:
    """Return the local paths of the files a frame reads, sorted; None where any is not a plain local Parquet file."""
    files = []
    for address in frame.inputFiles():
        path = decoded_path(address)
        if path is None or not path.name.endswith(".parquet"):
            return None
        files.append(str(path))
    return sorted(files) or None


def plan_runs(files: Sequence[str], columns: Sequence[str]) -> list[Run] | None:
    """Return the leaves of some files from their footers; None where a column is not in a file."""
    runs = []
    for file in files:
        try:
            footer = pq.read_metadata(file)
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable(file, error) from None
        if not set(columns) <= set(footer.schema.to_arrow_schema().names):
            return None
        first = rows = 0
        for group in range(footer.num_row_groups):
            rows += footer.row_group(group).num_rows
            if rows >= LEAF_ROWS or group == footer.num_row_groups - 1:
                runs.append(Run(file, first, group, rows))
                first, rows = group + 1, 0
    return runs


def leaves_by_files(
    spark: SparkSession,
    runs: Sequence[Run],
    settings: LeafSettings,
    id_type: DataType | None = None,
) -> DataFrame:
    """Return leaf rows, one for each run."""
    schema = leaf_schema(id_type)
    arrow_schema = to_arrow_schema(schema)

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for leaf, run in runs_of(batches):
            yield leaf_row(leaf, read_points(run, settings.layout), settings, arrow_schema)
        spare_collector()

    return run_tasks(spark, runs).mapInArrow(build, schema)


def run_tasks(spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
    """Return the runs as rows, for tasks that read them: `runs_of` gives them back there."""
    table = pa.Table.from_pylist([{"leaf": leaf, **vars(run)} for leaf, run in enumerate(runs)])
    # Every run a task of its own: row groups differ in size, and idle cores take the next.
    return spark.createDataFrame(table).repartition(min(len(runs), MOST_TASKS))


def runs_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Run]]:
    """Yield the runs of a task with their numbers."""
    for batch in batches:
        for task in batch.to_pylist():
            yield task.pop("leaf"), Run(**task)


def read_points(run: Run, layout: Layout) -> Iterator[list[pa.Array]]:
    """Yield batches of the layout's columns of a run, numbers as float64."""
    types = [pa.list_(pa.float64()) if layout.is_array else pa.float64()] * layout.width
    types += [] if layout.weight_col is None else [pa.float64()]
    types += [] if layout.id_col is None else [None]
    # As Spark does it: a whole number too large for all its digits is rounded.
    yield from read_columns(run, layout.columns, types, safe=False)


def read_columns(
    run: Run, names: Sequence[str], types: Sequence[pa.DataType | None], *, safe: bool = True
) -> Iterator[list[pa.Array]]:
    """Yield batches of the named columns of a run, each as the type given, or as it is in the file for None."""
    try:
        with fs.LocalFileSystem().open_input_file(run.file) as source:
            reader = pq.ParquetFile(source)
            groups = list(range(run.first, run.last + 1))
            rows = _batch_rows(reader.metadata, groups)
            for batch in reader.iter_batches(rows, row_groups=groups, columns=list(names), use_threads=False):
                arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                yield [
                    array if kind is None or array.type == kind else array.cast(kind, safe=safe)
                    for array, kind in zip(arrays, types, strict=True)
                ]
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(run.file, error) from None


def _batch_rows(footer: pq.FileMetaData, groups: Sequence[int]) -> int:
    """Rows of a batch: as many as usual, fewer where all the columns of a row together are wide."""
    sizes = [footer.row_group(group) for group in groups]
    width = sum(group.total_byte_size for group in sizes) / max(1, sum(group.num_rows for group in sizes))
    return int(np.clip(_BATCH_BYTES / max(width, 1.0), 1, _BATCH_ROWS))


def unreadable(file: str, error: Exception) -> DataError:
    """Return the error that names a damaged file."""
    return DataError(f"{file} is not a readable Parquet file ({error}). Write it again, or leave it out.")


def can_read(kind: DataType) -> bool:
    """Whether a feature column of this Spark type is the same in the file: numbers and arrays, not ML vectors."""
    return isinstance(kind, ArrayType) or kind.typeName() in _NUMBERS


def can_copy(kind: DataType) -> bool:
    """Whether a column of this Spark type can be passed through as the file has it: nothing with a calendar or zone."""
    if isinstance(kind, ArrayType):
        return can_copy(kind.elementType)
    return kind.typeName() in (*_NUMBERS, "string", "boolean", "binary")
