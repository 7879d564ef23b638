"""Parquet files that tasks open themselves, row group by row group, with pyarrow: faster than through Spark's reader.

How the files are divided among the tasks depends on their footers alone. The result is therefore the same for any
number of cores and any partitioning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType

from kernelcoreset.errors import DataError
from kernelcoreset.files.paths import decoded_path
from kernelcoreset.spark.columns import Layout
from kernelcoreset.spark.tasks import MOST_TASKS

_BATCH_ROWS = 131_072
_BATCH_BYTES = 32 * 1024**2
LEAF_ROWS = 1_000_000
"""Small row groups of a file are read together until they have about this many rows."""

_NUMBERS = ("double", "float", "integer", "long", "short", "byte")


@dataclass(frozen=True)
class RowGroups:
    """Row groups first, ..., last of one file, which are read together."""

    file: str
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class _Footer:
    """What is needed of the footer of a Parquet file."""

    columns: frozenset[str]
    rows: tuple[int, ...]
    """Rows of each row group."""


class Footers:
    """The footers of Parquet files. The footer of a file is read when it is first needed, and then kept."""

    def __init__(self) -> None:
        self._found: dict[str, _Footer] = {}

    def row_groups(self, files: Sequence[str], columns: Sequence[str]) -> list[RowGroups] | None:
        """Return the row groups of the files as tasks read them; None if a file lacks one of the columns."""
        found = []
        for file in files:
            footer = self._footer(file)
            if not footer.columns.issuperset(columns):
                return None
            first = rows = 0
            for group, group_rows in enumerate(footer.rows):
                rows += group_rows
                if rows >= LEAF_ROWS or group == len(footer.rows) - 1:
                    found.append(RowGroups(file, first, group, rows))
                    first, rows = group + 1, 0
        return found

    def _footer(self, file: str) -> _Footer:
        if file not in self._found:
            try:
                read = pq.read_metadata(file)
            except (OSError, pa.ArrowInvalid) as error:
                raise _unreadable(file, error) from None
            rows = tuple(read.row_group(group).num_rows for group in range(read.num_row_groups))
            self._found[file] = _Footer(frozenset(read.schema.to_arrow_schema().names), rows)
        return self._found[file]


def local_files(frame: DataFrame) -> list[str] | None:
    """Return the local paths of the files a frame reads, sorted; None unless all are plain local Parquet files."""
    files = []
    for address in frame.inputFiles():
        path = decoded_path(address)
        if path is None or not path.name.endswith(".parquet"):
            return None
        files.append(str(path))
    return sorted(files) or None


def task_frame(spark: SparkSession, row_groups: Sequence[RowGroups]) -> DataFrame:
    """Return one row for each item of `row_groups`; tasks get the items back with `row_groups_of`."""
    table = pa.Table.from_pylist([{"leaf": leaf, **vars(part)} for leaf, part in enumerate(row_groups)])
    # One task for each: row groups differ in size, and an idle core takes the next.
    return spark.createDataFrame(table).repartition(min(len(row_groups), MOST_TASKS))


def row_groups_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, RowGroups]]:
    """Yield the row groups that a task is to read, with their numbers."""
    for batch in batches:
        for task in batch.to_pylist():
            yield task.pop("leaf"), RowGroups(**task)


def read_points(part: RowGroups, layout: Layout) -> Iterator[list[pa.Array]]:
    """Yield batches of the columns of the layout, as they are in the file but for arrays of another kind than lists."""
    for arrays in read_columns(part, layout.columns, [None] * len(layout.columns)):
        if layout.is_array and not pa.types.is_list(arrays[0].type):
            arrays[0] = arrays[0].cast(pa.list_(arrays[0].type.value_type))
        yield arrays


def read_columns(
    part: RowGroups, names: Sequence[str], types: Sequence[pa.DataType | None]
) -> Iterator[list[pa.Array]]:
    """Yield batches of the named columns, each cast to its type; None keeps the type of the file."""
    try:
        with fs.LocalFileSystem().open_input_file(part.file) as source:
            reader = pq.ParquetFile(source)
            groups = list(range(part.first, part.last + 1))
            rows = _batch_rows(reader.metadata, groups)
            for batch in reader.iter_batches(rows, row_groups=groups, columns=list(names), use_threads=False):
                arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                yield [
                    array if kind is None or array.type == kind else array.cast(kind)
                    for array, kind in zip(arrays, types, strict=True)
                ]
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(part.file, error) from None


def _batch_rows(footer: pq.FileMetaData, groups: Sequence[int]) -> int:
    """Rows of a batch; fewer than usual if the rows are wide."""
    sizes = [footer.row_group(group) for group in groups]
    width = sum(group.total_byte_size for group in sizes) / max(1, sum(group.num_rows for group in sizes))
    return int(np.clip(_BATCH_BYTES / max(width, 1.0), 1, _BATCH_ROWS))


def _unreadable(file: str, error: Exception) -> DataError:
    return DataError(f"{file} is not a readable Parquet file ({error}). Write it again, or remove it from the input.")


def can_read(kind: DataType) -> bool:
    """Return whether pyarrow reads a feature column of this Spark type as Spark does: numbers and arrays of them."""
    return isinstance(kind, ArrayType) or kind.typeName() in _NUMBERS


def can_copy(kind: DataType) -> bool:
    """Return whether a column of this Spark type can be copied as it is in the file: no calendar, no time zone."""
    if isinstance(kind, ArrayType):
        return can_copy(kind.elementType)
    return kind.typeName() in (*_NUMBERS, "string", "boolean", "binary")
