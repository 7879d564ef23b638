"""Parquet files that tasks open themselves, row group by row group, with pyarrow: faster than through Spark's reader.

How the files are divided among the tasks depends on their footers alone. The result is therefore the same for any
number of cores and any partitioning.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType

from kernelcoreset.errors import DataError
from kernelcoreset.files.paths import decoded_path
from kernelcoreset.spark.columns import DIMENSION_ROWS, Layout, with_length
from kernelcoreset.spark.row_counts import count_rows
from kernelcoreset.spark.tasks import MOST_TASKS

_BATCH_ROWS = 131_072
_BATCH_BYTES = 8 * 1024**2
_LIST_BYTES = 1024**2  # of a batch with lists as it is decoded: that takes ten times its memory
_LIST_BUFFER = 256 * 1024  # bytes of lists that are read at once; else the column of a row group, which is large
LEAF_ROWS = 1_000_000
"""Small row groups of a file are read together until they have about this many rows, or `LEAF_BYTES`."""
LEAF_BYTES = 128 * 1024**2
_SMALL_PART = 0.25  # of a leaf
SHARED_ROWS = 131_072
"""Small files share a leaf, and a task, as long as they have at most this many rows together: those of a batch."""
SHARED_BYTES = 32 * 1024**2
"""And at most this many bytes."""

_NUMBERS_OF_GROUPS = ("first", "last", "rows", "size")
_GROUPS = pa.list_(pa.struct([("file", pa.string()), *((name, pa.int64()) for name in _NUMBERS_OF_GROUPS)]))
_NUMBERS = ("double", "float", "integer", "long", "short", "byte")


@dataclass(frozen=True)
class RowGroups:
    """Row groups first, ..., last of one file, which are read together."""

    file: str
    first: int
    last: int
    rows: int
    size: int = 0
    """Bytes of the columns that are read, without compression."""


@dataclass(frozen=True)
class _Footer:
    """What is needed of the footer of a Parquet file."""

    columns: frozenset[str]
    rows: tuple[int, ...]
    """Rows of each row group."""
    sizes: tuple[dict[str, int], ...]
    """Bytes of the columns of each row group."""


class Footers:
    """The footers of Parquet files. The footer of a file is read when it is first needed, and then kept."""

    def __init__(self) -> None:
        self._found: dict[str, _Footer] = {}

    def row_groups(self, files: Sequence[str], columns: Sequence[str]) -> list[RowGroups] | None:
        """Return the row groups of the files as tasks read them; None if a file lacks one of the columns."""
        found: list[RowGroups] = []
        for file in files:
            footer = self._footer(file)
            if not footer.columns.issuperset(columns):
                return None
            found += _parts_of(file, footer, columns)
        return found

    def _footer(self, file: str) -> _Footer:
        if file not in self._found:
            try:
                read = pq.read_metadata(file)
            except (OSError, pa.ArrowInvalid) as error:
                raise _unreadable(file, error) from None
            groups = [read.row_group(group) for group in range(read.num_row_groups)]
            names = frozenset(read.schema.to_arrow_schema().names)
            self._found[file] = _Footer(names, tuple(group.num_rows for group in groups), tuple(map(_sizes, groups)))
        return self._found[file]


def _parts_of(file: str, footer: _Footer, columns: Sequence[str]) -> list[RowGroups]:
    """The row groups of a file in parts for a leaf each; a small last one joins the one before, to save a task."""
    parts: list[RowGroups] = []
    first = rows = size = 0
    for group, group_rows in enumerate(footer.rows):
        rows += group_rows
        size += sum(footer.sizes[group].get(name, 0) for name in columns)
        if rows >= LEAF_ROWS or size >= LEAF_BYTES or group == len(footer.rows) - 1:
            parts.append(RowGroups(file, first, group, rows, size))
            first, rows, size = group + 1, 0, 0
    if len(parts) > 1 and max(parts[-1].rows / LEAF_ROWS, parts[-1].size / LEAF_BYTES) < _SMALL_PART:
        last, before = parts.pop(), parts.pop()
        parts.append(RowGroups(file, before.first, last.last, before.rows + last.rows, before.size + last.size))
    return parts


def local_files(frame: DataFrame) -> list[str] | None:
    """Return the local paths of the files a frame reads, sorted; None unless all are plain local Parquet files."""
    files = []
    for address in frame.inputFiles():
        path = decoded_path(address)
        if path is None or not path.name.endswith(".parquet"):
            return None
        files.append(str(path))
    return sorted(files) or None


def _sizes(group: pq.RowGroupMetaData) -> dict[str, int]:
    """Bytes of the columns of a row group; those of a list or struct are under its own name."""
    sizes: dict[str, int] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        name = column.path_in_schema
        for suffix in (".list.element", ".list.item", ".bag.array_element", ".list.array_element", ".array"):
            name = name.removesuffix(suffix)
        sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
    return sizes


def group_by_rows(
    row_groups: Sequence[RowGroups], most_rows: int, most_bytes: int = LEAF_BYTES
) -> list[list[RowGroups]]:
    """Group consecutive items as long as they have at most so many rows and bytes together; a larger one is alone."""
    groups: list[list[RowGroups]] = []
    rows = size = 0
    for part in row_groups:
        if not groups or rows + part.rows > most_rows or size + part.size > most_bytes:
            groups.append([])
            rows = size = 0
        groups[-1].append(part)
        rows += part.rows
        size += part.size
    return groups


def shared(row_groups: Sequence[RowGroups]) -> list[list[RowGroups]]:
    """Return groups of row groups, one for each leaf and task: small files share one."""
    return group_by_rows(row_groups, SHARED_ROWS, SHARED_BYTES)


def task_frame(spark: SparkSession, groups: Sequence[Sequence[RowGroups]], **more: pa.Array) -> DataFrame:
    """Return one row for each group of row groups, with columns `more`; tasks get them back with `tasks_of`."""
    items = pa.array([[vars(item) for item in group] for group in groups], _GROUPS)
    table = pa.table({"leaf": np.arange(len(groups)), **more, "row_groups": items})
    # One task for each: groups differ in size, and an idle core takes the next. Spark deals the rows of each partition
    # out from a place of its own, so rows of several partitions would meet in one task. All in one row are in one.
    rows = table.to_struct_array().combine_chunks()
    whole = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    frame = spark.createDataFrame(pa.table({"tasks": whole})).select(F.inline("tasks"))
    return frame.repartition(min(len(groups), MOST_TASKS))


def tasks_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[dict[str, Any], list[RowGroups]]]:
    """Yield the rows that a task got, as dictionaries, and the row groups that it is to read."""
    for batch in batches:
        for task in batch.to_pylist():
            yield task, [RowGroups(**item) for item in task.pop("row_groups")]


def read_points(row_groups: Sequence[RowGroups], layout: Layout) -> Iterator[list[pa.Array]]:
    """Yield batches of the columns of the layout, as they are in the file but for arrays of another kind than lists."""
    for arrays in read_columns(row_groups, layout.columns, [None] * len(layout.columns)):
        if layout.is_array and not pa.types.is_list(arrays[0].type):
            arrays[0] = arrays[0].cast(pa.list_(arrays[0].type.value_type))
        yield arrays


def with_dimension_of_files(row_groups: Sequence[RowGroups], layout: Layout) -> Layout:
    """Return the layout with its dimension, as `with_dimension`, from the first rows of the files.

    Spark would read thousands of wide rows to show the first ones.
    """
    if layout.dimension is not None:
        return layout
    lengths = np.empty(0, dtype=np.int64)
    for (array,) in read_columns(row_groups, layout.features, [None]):
        own = pc.list_value_length(array).drop_null().to_numpy()
        lengths = np.concatenate([lengths, own[own > 0]])
        if len(lengths) >= DIMENSION_ROWS:
            break
    return with_length(layout, lengths[:DIMENSION_ROWS])


def read_columns(
    row_groups: Sequence[RowGroups], names: Sequence[str], types: Sequence[pa.DataType | None]
) -> Iterator[list[pa.Array]]:
    """Yield batches of the named columns, each cast to its type; None keeps the type of the file.

    The rows of small files come in one batch: what follows has a fixed cost per batch.
    """
    held: list[list[pa.Array]] = []
    rows = size = 0
    for arrays in itertools.chain.from_iterable(_read_file(part, names, types) for part in row_groups):
        if held and [array.type for array in arrays] != [array.type for array in held[0]]:
            yield _joined(held)
            held = []
            rows = size = 0
        held.append(arrays)
        rows += len(arrays[0])
        size += sum(array.nbytes for array in arrays)
        if rows >= _BATCH_ROWS // 2 or size >= _BATCH_BYTES // 2:
            yield _joined(held)
            held = []
            rows = size = 0
    if held:
        yield _joined(held)


def _joined(batches: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """Return the columns of all batches, without a copy if there is only one."""
    if len(batches) == 1:
        return list(batches[0])
    return [pa.concat_arrays(arrays) for arrays in zip(*batches, strict=True)]


def _read_file(part: RowGroups, names: Sequence[str], types: Sequence[pa.DataType | None]) -> Iterator[list[pa.Array]]:
    """Yield the batches of one file."""
    try:
        with fs.LocalFileSystem().open_input_file(part.file) as source:
            reader = pq.ParquetFile(source, pre_buffer=False)  # else it reads all row groups into memory first
            footer = reader.metadata
            if _has_lists(footer):
                reader = pq.ParquetFile(source, metadata=footer, pre_buffer=False, buffer_size=_LIST_BUFFER)
            groups = list(range(part.first, part.last + 1))
            rows = _batch_rows(footer, groups)
            for batch in reader.iter_batches(rows, row_groups=groups, columns=list(names), use_threads=False):
                count_rows(batch.num_rows)
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
    return int(np.clip((_LIST_BYTES if _has_lists(footer) else _BATCH_BYTES) / max(width, 1.0), 1, _BATCH_ROWS))


def _has_lists(footer: pq.FileMetaData) -> bool:
    return any(footer.schema.column(i).max_repetition_level for i in range(len(footer.schema)))


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
