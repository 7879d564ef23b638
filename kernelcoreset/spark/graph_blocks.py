"""A graph whose edges stay on the executors, as a DataFrame of blocks of rows.

Tasks pack the edges they read into chunks, one per block, so that the shuffle moves a few large rows instead of one row
per edge. A second task per block makes its rows. All later passes visit the blocks where they are kept, on the disks of
the executors; only the labels of the nodes go there, and only what moved comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from kernelcoreset.errors import DataError
from kernelcoreset.graphs.blocks import (
    Arrays,
    Block,
    Chunk,
    assemble,
    from_bytes,
    pack_block,
    pack_edges,
    to_bytes,
    unpack_block,
)
from kernelcoreset.graphs.csr import Labels
from kernelcoreset.graphs.graph import MOST_NODES
from kernelcoreset.spark.tasks import Batches, map_batches, partition_number

ENTRIES_PER_BLOCK = 2_000_000
"""Entries of a block on the average; an edge has one in each direction. A task holds a few blocks."""
BYTES_PER_NODE = 100
"""Memory per node, in bytes, of the Python process of the driver, if the edges stay on the executors."""

_PACKED_AT_ONCE = 1_000_000
_IDS_PER_PARTITION = 1_000_000
# Ids that fill at least this share of their range are numbers of nodes as they are.
_DENSE = 0.25
_CONTENT = StructType([StructField("block", LongType()), StructField("content", BinaryType())])
_NUMBER = "number"


@dataclass(frozen=True, eq=False)
class Numbering:
    """Nodes of a graph as numbers from 0 to n - 1.

    Parameters
    ----------
    n : int
    low : int
        The id of node 0, if numbers are ids less this one.
    ids : DataFrame, optional
        The columns node and number, if ids have to be looked up.
    """

    n: int
    low: int = 0
    ids: DataFrame | None = None

    def edges(self, edges: DataFrame) -> DataFrame:
        """Return edges between ids as edges between numbers."""
        if self.ids is None:
            ends = [(F.col(name) - self.low).alias(name) for name in ("source", "target")]
            return edges.select(*ends, "weight")
        for name in ("source", "target"):
            numbers = self.ids.select(F.col("node").alias(name), F.col(_NUMBER).alias(f"{name}_number"))
            edges = edges.join(numbers, name).drop(name).withColumnRenamed(f"{name}_number", name)
        return edges.select("source", "target", "weight")

    def label(self, frame: DataFrame, labels: Labels, named: NDArray[np.bool_]) -> DataFrame:
        """Return the columns node and prediction, for the nodes that edges name; `frame` is any of the session."""
        numbered = self.ids
        if numbered is None:
            spark = frame.sparkSession
            numbered = spark.range(self.n).select((F.col("id") + self.low).alias("node"), F.col("id").alias(_NUMBER))
        schema = StructType([numbered.schema["node"], StructField("prediction", IntegerType())])
        arrow_schema = to_arrow_schema(schema)

        def look_up(batches: Batches) -> Batches:
            for batch in batches:
                numbers = batch.column(_NUMBER).to_numpy()
                there = named[numbers]
                nodes = batch.column("node").filter(pa.array(there))
                yield pa.record_batch([nodes, pa.array(labels[numbers[there]])], schema=arrow_schema)

        return map_batches(numbered, look_up, schema)


def number_nodes(edges: DataFrame) -> Numbering:
    """Return numbers for the ids in the columns source and target.

    Whole numbers that fill a good part of their range are taken as they are. All other ids are numbered by the
    partition their hash gives them and their order within it, which is the same whenever it is computed again.
    """
    kind = edges.schema["source"].dataType
    ends = edges.select(F.col("source").alias("node")).union(edges.select(F.col("target").alias("node")))
    least, most, about = _range_of(ends, kind)
    if kind == LongType() and about >= _DENSE * (most - least + 1) and most - least < MOST_NODES:
        return Numbering(most - least + 1, least)
    count = max(1, -(-about // _IDS_PER_PARTITION))
    ids = ends.distinct().repartition(count, "node").sortWithinPartitions("node")
    sizes = np.zeros(count, dtype=np.int64)
    for part, size in map_batches(ids, _count_rows, _counts()).collect():
        sizes[part] += size
    if sizes.sum() > MOST_NODES:
        raise DataError(f"A graph has at most {MOST_NODES:,} nodes; got {sizes.sum():,}.")
    before = np.cumsum(sizes) - sizes
    schema = StructType([ids.schema["node"], StructField(_NUMBER, LongType())])
    arrow_schema = to_arrow_schema(schema)

    def number(batches: Batches) -> Batches:
        following = int(before[partition_number()])
        for batch in batches:
            numbers = np.arange(following, following + batch.num_rows)
            following += batch.num_rows
            yield pa.record_batch([batch.column("node"), pa.array(numbers)], schema=arrow_schema)

    return Numbering(int(sizes.sum()), ids=map_batches(ids, number, schema))


class SparkBlocks:
    """The blocks of a graph on the executors. A context manager: at its end they are dropped from the disks there.

    Parameters
    ----------
    edges : DataFrame
        The columns source and target, numbers of nodes from 0 to n - 1, and weight.
    n, count : int
        Numbers of nodes and of edges.
    """

    def __init__(self, edges: DataFrame, n: int, count: int) -> None:
        number = max(1, min(n, -(-2 * count // ENTRIES_PER_BLOCK)))
        width = -(-n // number)
        chunks = map_batches(edges, _packing(width), _CHUNKS)
        blocks = chunks.repartition(number, "block")
        self._frame = map_batches(blocks, _assembling(width, n), _CONTENT)

    def __enter__(self) -> SparkBlocks:
        self._frame = self._frame.persist(StorageLevel.DISK_ONLY)
        return self

    def __exit__(self, *_: object) -> None:
        self._frame.unpersist()

    def each(self, work: Callable[[Block], Arrays]) -> Iterable[Arrays]:
        """Return the result of `work` for every block."""
        schema = to_arrow_schema(_CONTENT)

        def visit(batches: Batches) -> Batches:
            for batch in batches:
                for number, content in zip(batch.column("block"), batch.column("content"), strict=True):
                    found = to_bytes(work(unpack_block(content.as_buffer())))
                    yield pa.record_batch([pa.array([number.as_py()]), pa.array([found])], schema=schema)

        results = map_batches(self._frame, visit, _CONTENT).toArrow()
        for content in results["content"]:
            yield from_bytes(content.as_buffer())


_CHUNKS = StructType(
    [
        StructField("block", LongType()),
        StructField("places", BinaryType()),
        StructField("neighbours", BinaryType()),
        StructField("weights", BinaryType()),
    ]
)


def _packing(width: int) -> Callable[[Batches], Batches]:
    schema = to_arrow_schema(_CHUNKS)

    def pack(batches: Batches) -> Batches:
        for table in _tables(batches, _PACKED_AT_ONCE):
            source, target, weights = (table[name].to_numpy() for name in ("source", "target", "weight"))
            for chunk in pack_edges(source, target, None if (weights == 1.0).all() else weights, width):
                parts = [None if part is None else part.tobytes() for part in chunk[1:]]
                yield pa.record_batch([pa.array([value]) for value in (chunk.block, *parts)], schema=schema)

    return pack


def _assembling(width: int, n: int) -> Callable[[Batches], Batches]:
    schema = to_arrow_schema(_CONTENT)

    def make(batches: Batches) -> Batches:
        by_block: dict[int, list[Chunk]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                places, neighbours = (np.frombuffer(row[name], np.int32) for name in ("places", "neighbours"))
                weights = None if row["weights"] is None else np.frombuffer(row["weights"])
                by_block.setdefault(row["block"], []).append(Chunk(row["block"], places, neighbours, weights))
        for block in sorted(by_block):
            content = pack_block(assemble(by_block.pop(block), width, n))
            yield pa.record_batch([pa.array([block]), pa.array([content])], schema=schema)

    return make


def _tables(batches: Batches, rows: int) -> Iterable[pa.Table]:
    """Return the rows of the batches in tables of at least `rows` rows; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= rows:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _range_of(ends: DataFrame, kind: DataType) -> tuple[int, int, int]:
    """Return the least and the largest id, 0 and 0 for strings, and about how many different ones there are."""
    about = F.approx_count_distinct("node")
    if kind != LongType():
        return 0, 0, int(ends.agg(about).first()[0])  # type: ignore[index]
    least, most, count = ends.agg(F.min("node"), F.max("node"), about).first()  # type: ignore[misc]
    return int(least), int(most), int(count)


def _counts() -> StructType:
    return StructType([StructField("part", LongType()), StructField("rows", LongType())])


def _count_rows(batches: Batches) -> Batches:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.record_batch([pa.array([partition_number()]), pa.array([rows])], schema=to_arrow_schema(_counts()))
