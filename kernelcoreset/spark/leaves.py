"""Leaf coresets, built on the executors: one for each partition, or for each part of some Parquet files, as one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import Part
from kernelcoreset.coresets.tree import CoresetTree, reduction_seed
from kernelcoreset.errors import DataError
from kernelcoreset.features.arrays import to_arrow, view
from kernelcoreset.kernels.evaluator import as_columns
from kernelcoreset.models.rehearsal import is_large
from kernelcoreset.spark.columns import BadRows, BatchReader, Layout, refuse_bad_rows, selection
from kernelcoreset.spark.row_counts import counted
from kernelcoreset.spark.scan import RowGroups, read_points, task_frame, tasks_of
from kernelcoreset.spark.tasks import MOST_TASKS, Batches, map_batches, partition_number
from kernelcoreset.spectral.degrees import Degrees


@dataclass(frozen=True)
class LeafSettings:
    """What a task that builds a leaf needs to know. Plain data and a kernel: it is sent to the executors."""

    recipe: Recipe
    leaf_size: int
    layout: Layout
    degrees: Degrees | None = None
    """For spectral clustering: what gives a row its degree, as one more coordinate."""

    def seed_of(self, level: int, place: int) -> int:
        """Return the seed of one reduction. It depends on its level and place, so a task that runs again gets the same.

        Leaves are level 0. Each level has different seeds: sampling from a sample needs independent random numbers.
        """
        return reduction_seed(self.recipe.seed, level, place)

    @property
    def is_large(self) -> bool:
        """Whether tasks call what many columns or many clusters need."""
        return is_large(self.recipe.k, self.layout.most_dimension)

    @property
    def is_short(self) -> bool:
        """Whether float32 holds the coordinates exactly: those of rows that are used as they are."""
        return self.layout.is_short and self.layout.preparation is None and self.degrees is None

    @property
    def leaf_bytes(self) -> int:
        """Size of a full leaf row: coordinates, weights and ids."""
        coordinates = (self.layout.dimension or 1) + (self.degrees is not None)
        return self.leaf_size * ((4 if self.is_short else 8) * coordinates + 16)

    def full_leaves(self, rows: Iterable[int]) -> int:
        """Return how many full leaves hold as much as the leaves of so many rows each."""
        return -(-sum(min(self.leaf_size, each) for each in rows) // self.leaf_size)


def leaf_schema(id_type: DataType | None) -> StructType:
    """Return the schema of leaf rows: the coreset of one part of the data, and its numbers of rows and bad rows.

    Points are bytes, of float32 numbers if that holds them exactly, else of float64: Java would take the numbers of an
    array out of a batch, and put them into the next one, one by one.
    """
    fields = [
        StructField("leaf", LongType(), False),
        StructField("leaves", LongType(), False),
        StructField("rows", LongType(), False),
        StructField("bad_rows", LongType(), False),
        StructField("bad_columns", MapType(StringType(), LongType(), False), False),
        StructField("dimension", LongType(), False),
        StructField("points", BinaryType(), False),
        StructField("weights", ArrayType(DoubleType(), False), False),
    ]
    if id_type is not None:
        fields.append(StructField("ids", ArrayType(id_type), False))
    return StructType(fields)


def leaf_schema_of(frame: DataFrame, settings: LeafSettings) -> StructType:
    """Return the schema of leaf rows of a frame."""
    id_col = settings.layout.id_col
    return leaf_schema(None if id_col is None else frame.schema[id_col].dataType)


def leaves_by_spark(frame: DataFrame, settings: LeafSettings) -> DataFrame:
    """Return leaf rows, one for each partition, read by Spark. The same partitions give the same leaves."""
    schema = leaf_schema_of(frame, settings)
    arrow_schema = to_arrow_schema(schema)

    def build(batches: Batches) -> Batches:
        yield leaf_row(partition_number(), (batch.columns for batch in counted(batches)), settings, arrow_schema)

    selected = frame.select(*selection(frame, settings.layout)).coalesce(MOST_TASKS)
    return map_batches(selected, build, schema, large=settings.is_large)


def leaves_by_files(
    spark: SparkSession, groups: Sequence[Sequence[RowGroups]], settings: LeafSettings, id_type: DataType | None = None
) -> DataFrame:
    """Return leaf rows, one for each group of row groups: tasks open the Parquet files themselves.

    Which rows a leaf has depends on the groups alone, not on how Spark divides them among tasks.
    """
    schema = leaf_schema(id_type)
    arrow_schema = to_arrow_schema(schema)

    def build(batches: Batches) -> Batches:
        for task, row_groups in tasks_of(batches):
            yield leaf_row(task["leaf"], read_points(row_groups, settings.layout), settings, arrow_schema)

    return map_batches(task_frame(spark, groups), build, schema, large=settings.is_large)


class LeafBuilder:
    """Builds one leaf from batches, in bounded memory."""

    def __init__(
        self, leaf: int, settings: LeafSettings, seed: int | None = None, reader: BatchReader | None = None
    ) -> None:
        self.leaf = leaf
        self.settings = settings
        self.rows = 0
        self._reader = reader or BatchReader(settings.layout)
        seed = settings.seed_of(0, leaf) if seed is None else seed
        self._tree = CoresetTree.from_recipe(settings.recipe.varied(seed=seed), settings.leaf_size)

    def add(self, arrays: Sequence[pa.Array]) -> None:
        """Add the columns of a batch; bad rows are counted and left out."""
        self.add_rows(arrays, *self._reader.read_rows(arrays))

    def add_rows(
        self,
        arrays: Sequence[pa.Array],
        points: NDArray[Any],
        weights: Floats | None,
        good: NDArray[np.bool_] | None,
    ) -> None:
        """Add a batch that the reader has read already."""
        layout = self.settings.layout
        self.rows += len(arrays[0])
        ids = None if layout.id_col is None else _read_ids(arrays[-1], layout.id_col, self.leaf)
        if good is not None:
            points = points[good]
            weights = None if weights is None else weights[good]
            ids = None if ids is None else ids[good]
        if self.settings.degrees is not None:
            columns, weights = self.settings.degrees.lift(as_columns(points.astype(np.float64, copy=False)), weights)
            points = columns.T
        self._tree.add(points, weights, ids)

    def row(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the row of the leaf."""
        tree = self._tree
        part = tree.last_part(self.settings.leaf_size, refine=False) if tree.n_weighted else None
        return as_row(self.leaf, 1, self.rows, self._reader.bad, part, schema)


def leaf_row(
    leaf: int,
    batches: Iterable[Sequence[pa.Array]],
    settings: LeafSettings,
    schema: pa.Schema,
    seed: int | None = None,
) -> pa.RecordBatch:
    """Return the row of a leaf from its batches; by default its seed depends on its number."""
    builder = LeafBuilder(leaf, settings, seed)
    for arrays in batches:
        builder.add(arrays)
    return builder.row(schema)


def _read_ids(array: pa.Array, name: str, leaf: int) -> NDArray[Any]:
    if array.null_count:
        raise DataError(f"Column {name} must have no nulls to be the id; got {array.null_count} in leaf {leaf}.")
    return view(array)


def as_row(leaf: int, leaves: int, rows: int, bad: BadRows, part: Part | None, schema: pa.Schema) -> pa.RecordBatch:
    """Return the row of one leaf, or of several merged ones."""
    if part is None:
        part = Part(np.empty((0, 0)), np.empty(0))
    numbers = {
        "leaf": leaf,
        "leaves": leaves,
        "rows": rows,
        "bad_rows": bad.rows,
        "dimension": part.points.shape[1],
    }
    lists: dict[str, Any] = {"weights": part.weights, "ids": [] if part.ids is None else part.ids}
    arrays = []
    for name in schema.names:
        kind = schema.field(name).type
        if name == "points":
            arrays.append(_one_binary(part.points))
        elif name in lists:
            arrays.append(_one_list(lists[name], kind))
        elif name in numbers:
            arrays.append(to_arrow(np.array([numbers[name]]), kind))
        else:
            arrays.append(_one_map(bad.counts, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _one_binary(points: NDArray[Any]) -> pa.Array:
    """The bytes of points as the only element of an array; points of float32 or float64 are not copied."""
    own = np.ascontiguousarray(points, dtype=np.float32 if np.can_cast(points.dtype, np.float32) else np.float64)
    return pa.Array.from_buffers(pa.binary(), 1, [None, _one_range(own.nbytes).buffers()[1], pa.py_buffer(own)])


def _points_of(content: pa.Buffer, count: int, dimension: int) -> NDArray[Any]:
    """The points of such bytes."""
    width = content.size // (count * dimension)
    return np.frombuffer(content, dtype=f"f{width}").reshape(count, dimension)


def _one_list(values: NDArray[Any] | list[Any], kind: pa.ListType) -> pa.Array:
    """A list as the only element of an array; numbers that have its type are not copied."""
    own = to_arrow(np.asarray(values), kind.value_type) if len(values) else pa.nulls(0, kind.value_type)
    return pa.ListArray.from_arrays(_one_range(len(values)), own, kind)


def _one_map(counts: dict[str, int], kind: pa.MapType) -> pa.Array:
    """A dictionary as the only element of an array."""
    if counts:
        return pa.array([list(counts.items())], kind)
    entries = pa.nulls(0, pa.struct([kind.key_field, kind.item_field]))
    return pa.Array.from_buffers(kind, 1, [None, _one_range(0).buffers()[1]], children=[entries])


def _one_range(length: int) -> pa.Array:
    """Where the only list of an array starts and ends."""
    return to_arrow(np.array([0, length], dtype=np.int32))


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaves that were read from their rows: parts in the order of their leaves, and numbers of rows and bad rows."""

    parts: list[Part]
    rows: int
    bad: BadRows
    leaves: int
    settings: dict[str, Any]

    @cached_property
    def coresets(self) -> list[Coreset]:
        """The parts as coresets. They have the settings that are compared in a merge."""
        return [Coreset(part.points, part.weights, part.ids, self.settings) for part in self.parts]


def collect_leaves(table: pa.Table, settings: dict[str, Any]) -> Leaves:
    """Return the leaves of collected leaf rows, in the memory of the table. Their coresets get the `settings`."""
    parts, bad_columns = [], dict[str, int]()
    for row in sorted(_rows(table), key=lambda row: row["leaf"]):
        for name, count in row["bad_columns"]:
            bad_columns[name] = bad_columns.get(name, 0) + count
        if len(row["weights"]):
            points = _points_of(row["points"], len(row["weights"]), row["dimension"])
            parts.append(Part(points, row["weights"], row.get("ids")))
    bad = BadRows(bad_columns, _total(table, "bad_rows"))
    return Leaves(parts, _total(table, "rows"), bad, _total(table, "leaves"), settings)


def refuse_unusable(found: Leaves, bad_rows: str) -> None:
    """Raise DataError if there are bad rows and `bad_rows` is "fail", or if no row is left."""
    if bad_rows == "fail":
        refuse_bad_rows(found.bad, found.rows)
    if not found.parts:
        raise DataError(
            f"There is no row to cluster: {found.rows:,} rows read, {found.bad.rows:,} of them bad, the rest of weight "
            "0. Check the path and the filter."
        )


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches():
        for i in range(batch.num_rows):
            yield {name: _read(name, batch[name][i]) for name in batch.schema.names}


def _read(name: str, value: Any) -> Any:
    if name == "points":
        return value.as_buffer()
    return view(value.values) if name in ("weights", "ids") else value.as_py()


def _total(table: pa.Table, name: str) -> int:
    return sum(value.as_py() for value in table[name])
