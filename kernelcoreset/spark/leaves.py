"""Leaf coresets on the executors: each partition, or each run of Parquet row groups, becomes one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, MapType, StringType, StructField, StructType

from kernelcoreset.coreset import Coreset
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.base import Kernel
from kernelcoreset.spark.columns import BatchReader, Layout, selection
from kernelcoreset.tree import CoresetTree

MOST_TASKS = 4_096


@dataclass(frozen=True)
class LeafSettings:
    """What a task needs to know. Plain data and a kernel: it travels to the executors."""

    k: int
    kernel: Kernel
    size: int
    z: float
    seed: int
    leaf_size: int
    layout: Layout
    weight_name: str = "weight"

    def tree(self, *stable_id: int) -> CoresetTree:
        """Return an empty tree whose seed comes from the settings and the input's own id, never from the attempt."""
        seed = int(np.random.SeedSequence([self.seed, *stable_id]).generate_state(1, np.uint64)[0])
        return CoresetTree(self.k, self.kernel, self.size, z=self.z, leaf_size=self.leaf_size, seed=seed)


def leaf_schema(id_type: DataType | None) -> StructType:
    """Return the schema of leaf rows: a coreset of one part of the data, and what was seen of it."""
    fields = [
        StructField("leaf", LongType(), False),
        StructField("rows", LongType(), False),
        StructField("bad_rows", LongType(), False),
        StructField("bad_columns", MapType(StringType(), LongType(), False), False),
        StructField("dimension", LongType(), False),
        StructField("points", ArrayType(DoubleType(), False), False),
        StructField("weights", ArrayType(DoubleType(), False), False),
    ]
    if id_type is not None:
        fields.append(StructField("ids", ArrayType(id_type), False))
    return StructType(fields)


def leaves_by_spark(
    frame: DataFrame, settings: LeafSettings, weight_col: str | None = None, id_col: str | None = None
) -> DataFrame:
    """Return leaf rows, one for each partition, read through Spark. The same layout gives the same leaves."""
    schema = leaf_schema(frame.schema[id_col].dataType if id_col is not None else None)
    arrow_schema = to_arrow_schema(schema)

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        yield leaf_row(partition, (batch.columns for batch in batches), settings, arrow_schema)

    # Leaves come back to the driver, or to a second round: their number must have a bound.
    selected = frame.select(*selection(frame, settings.layout, weight_col, id_col)).coalesce(MOST_TASKS)
    return selected.mapInArrow(build, schema)


def leaf_row(
    leaf: int, batches: Iterable[Sequence[pa.Array]], settings: LeafSettings, schema: pa.Schema
) -> pa.RecordBatch:
    """Stream the batches of one leaf through a tree, in bounded memory, and return its row."""
    layout = settings.layout
    reader = BatchReader(layout, settings.weight_name)
    tree = settings.tree(leaf)
    rows = 0
    for arrays in batches:
        rows += len(arrays[0])
        columns, weights, good = reader.read(arrays)
        ids = arrays[layout.width + layout.with_weights].to_numpy(zero_copy_only=False) if layout.with_ids else None
        if good is not None:
            columns = columns[:, good]
            weights = None if weights is None else weights[good]
            ids = None if ids is None else ids[good]
        tree.add(columns.T, weights, ids)
    coreset = tree.result(settings.leaf_size, refine=False) if tree.n_weighted else None
    return _as_row(leaf, rows, reader, coreset, schema)


def _as_row(leaf: int, rows: int, reader: BatchReader, coreset: Coreset | None, schema: pa.Schema) -> pa.RecordBatch:
    values: dict[str, Any] = {
        "leaf": leaf,
        "rows": rows,
        "bad_rows": reader.bad.rows,
        "bad_columns": list(reader.bad.counts.items()),
        "dimension": 0 if coreset is None else coreset.points.shape[1],
        "points": np.empty(0) if coreset is None else coreset.points.ravel(),
        "weights": np.empty(0) if coreset is None else coreset.weights,
    }
    if "ids" in schema.names:
        values["ids"] = [] if coreset is None or coreset.ids is None else coreset.ids
    return pa.RecordBatch.from_arrays(
        [pa.array([values[name]], schema.field(name).type) for name in schema.names], schema=schema
    )


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaf rows back on the driver: coresets in the order of their leaves, and what was seen of the data."""

    coresets: list[Coreset]
    rows: int
    bad_rows: int
    bad_columns: dict[str, int]
    leaves: int


def collect_leaves(table: pa.Table, settings: dict[str, Any]) -> Leaves:
    """Return the leaves of collected leaf rows. `settings` go into the coresets, to be checked when they are merged."""
    coresets, bad_columns = [], dict[str, int]()
    for row in sorted(_rows(table), key=lambda row: row["leaf"]):
        for name, count in row["bad_columns"]:
            bad_columns[name] = bad_columns.get(name, 0) + count
        if len(row["weights"]):
            points = row["points"].reshape(len(row["weights"]), row["dimension"])
            coresets.append(Coreset(points, row["weights"], row.get("ids"), settings))
    dimensions = {coreset.points.shape[1] for coreset in coresets}
    if len(dimensions) > 1:
        raise DataError(f"All rows must have the same number of features; partitions have {sorted(dimensions)}.")
    return Leaves(
        coresets,
        rows=_total(table, "rows"),
        bad_rows=_total(table, "bad_rows"),
        bad_columns=bad_columns,
        leaves=table.num_rows,
    )


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    arrays = ("points", "weights", "ids")
    for batch in table.to_batches():
        for i in range(batch.num_rows):
            row = {}
            for name in batch.schema.names:
                value = batch[name][i]
                row[name] = value.values.to_numpy(zero_copy_only=False) if name in arrays else value.as_py()
            yield row


def _total(table: pa.Table, name: str) -> int:
    return sum(value.as_py() for value in table[name])
