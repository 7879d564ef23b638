"""The fast scan: tasks open plain Parquet files themselves and read row groups with pyarrow.

A leaf is a run of row groups of one file, cut by the files' own metadata, so the leaves, and with them the result, are
the same at any number of cores and any layout of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType

from kernelcoreset.errors import DataError
from kernelcoreset.spark.columns import Layout
from kernelcoreset.spark.leaves import MOST_TASKS, LeafSettings, leaf_row, leaf_schema, spare_collector

_BATCH_ROWS = 131_072
LEAF_ROWS = 1_000_000  # small row groups are read together until they hold about this many rows


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
        parts = urlparse(address)
        if parts.scheme not in ("", "file") or not parts.path.endswith(".parquet"):
            return None
        files.append(unquote(parts.path))
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
    tasks = pa.table(
        {
            "leaf": pa.array(range(len(runs)), pa.int64()),
            "file": [run.file for run in runs],
            "first": pa.array([run.first for run in runs], pa.int64()),
            "last": pa.array([run.last for run in runs], pa.int64()),
        }
    )

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                parts = read_groups(task["file"], range(task["first"], task["last"] + 1), settings.layout)
                yield leaf_row(task["leaf"], parts, settings, arrow_schema)
        spare_collector()

    # Every run a task of its own: row groups differ in size, and idle cores take the next.
    return spark.createDataFrame(tasks).repartition(min(len(runs), MOST_TASKS)).mapInArrow(build, schema)


def read_groups(file: str, groups: range, layout: Layout) -> Iterator[list[pa.Array]]:
    """Give batches of the layout's columns from some row groups of a file, numbers as float64."""
    types = [pa.list_(pa.float64()) if layout.is_array else pa.float64()] * layout.width
    types += [] if layout.weight_col is None else [pa.float64()]
    names = layout.columns
    try:
        with fs.LocalFileSystem().open_input_file(file) as source:
            reader = pq.ParquetFile(source)
            for batch in reader.iter_batches(_BATCH_ROWS, row_groups=list(groups), columns=names, use_threads=False):
                arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                for i, kind in enumerate(types):
                    # As Spark does it: a whole number too large for all its digits is rounded.
                    arrays[i] = arrays[i] if arrays[i].type == kind else arrays[i].cast(kind, safe=False)
                yield arrays
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(file, error) from None


def unreadable(file: str, error: Exception) -> DataError:
    """Return the error that names a damaged file."""
    return DataError(f"{file} is not a readable Parquet file ({error}). Write it again, or leave it out.")


def can_read(kind: DataType) -> bool:
    """Whether a feature column of this Spark type is the same in the file: numbers and arrays, not ML vectors."""
    return isinstance(kind, ArrayType) or kind.typeName() in (
        "double",
        "float",
        "integer",
        "long",
        "short",
        "byte",
    )
