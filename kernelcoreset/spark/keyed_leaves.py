"""One leaf coreset a key, for many keys in one Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.coresets.tree import reduction_seed
from kernelcoreset.spark import scan as direct
from kernelcoreset.spark.columns import BadRows, selection
from kernelcoreset.spark.jobs.keys import KEY
from kernelcoreset.spark.leaves import (
    MOST_TASKS,
    LeafBuilder,
    LeafSettings,
    collect_leaves,
    leaf_row,
    leaf_schema,
    spare_collector,
)

# A leaf's number is that of its key, and below that of its part. Keys are numbered in sorted order.
_PARTS = 2**32
_TASK_PARTS = 2**21


@dataclass(frozen=True, eq=False)
class KeyLeaf:
    """The leaf of one key, and what was seen of its rows."""

    coreset: Coreset | None
    rows: int
    bad: BadRows


def group_runs(runs: Sequence[direct.Run]) -> list[list[direct.Run]]:
    """Put the runs of one key together until they hold about as many rows as a leaf is made from."""
    groups: list[list[direct.Run]] = []
    rows = 0
    for run in runs:
        if not groups or rows + run.rows > direct.LEAF_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(run)
        rows += run.rows
    return groups


def leaves_by_files(
    spark: SparkSession,
    groups: Mapping[str, Sequence[Sequence[direct.Run]]],
    seeds: Mapping[str, int],
    settings: LeafSettings,
    id_type: DataType | None = None,
) -> DataFrame:
    """Return leaf rows, one for each group of runs: tasks open the Parquet files themselves."""
    schema = leaf_schema(id_type)
    arrow_schema = to_arrow_schema(schema)
    tasks = [
        {
            "leaf": number * _PARTS + part,
            # Text, since a seed may be beyond the integers of Spark.
            "seed": str(reduction_seed(seeds[key], 0, part)),
            "runs": [vars(run) for run in group],
        }
        for number, key in enumerate(sorted(groups))
        for part, group in enumerate(groups[key])
    ]
    run_type = pa.struct([("file", pa.string()), *((name, pa.int64()) for name in ("first", "last", "rows"))])
    task_schema = pa.schema([("leaf", pa.int64()), ("seed", pa.string()), ("runs", pa.list_(run_type))])

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                parts = (
                    arrays for run in task["runs"] for arrays in direct.read_points(direct.Run(**run), settings.layout)
                )
                yield leaf_row(task["leaf"], parts, settings, arrow_schema, int(task["seed"]))
        spare_collector()

    frame = spark.createDataFrame(pa.Table.from_pylist(tasks, schema=task_schema))
    return frame.repartition(min(len(tasks), MOST_TASKS)).mapInArrow(build, schema)


def leaves_by_spark(
    frame: DataFrame, seeds: Mapping[str, int], settings: LeafSettings, *, gather_keys: bool
) -> DataFrame:
    """Return leaf rows of a frame with the column `KEY`, read through Spark.

    With `gather_keys` the rows of a key are brought together first, so that it has one leaf, at the price of a shuffle.
    Without, there is a leaf wherever the key changes from one row to the next: right for rows that come file by file.
    """
    id_col = settings.layout.id_col
    schema = leaf_schema(None if id_col is None else frame.schema[id_col].dataType)
    arrow_schema = to_arrow_schema(schema)
    numbers = {key: number for number, key in enumerate(sorted(seeds))}

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        first = (context.partitionId() if context is not None else 0) * _TASK_PARTS
        current, builder, parts = None, None, 0
        for batch in batches:
            for key, piece in _runs_of_keys(batch):
                if key != current or builder is None:
                    if builder is not None:
                        yield builder.row(arrow_schema)
                    seed = reduction_seed(seeds[key], 0, first + parts)
                    builder = LeafBuilder(numbers[key] * _PARTS + first + parts, settings, seed)
                    current, parts = key, parts + 1
                builder.add(piece.columns[:-1])
        if builder is not None:
            yield builder.row(arrow_schema)
        spare_collector()

    selected = frame.select(*selection(frame, settings.layout), F.col(KEY))
    if gather_keys:
        selected = selected.repartition(min(len(seeds), MOST_TASKS), KEY).sortWithinPartitions(*selected.columns[::-1])
    else:
        selected = selected.coalesce(MOST_TASKS)
    return selected.mapInArrow(build, schema)


def _runs_of_keys(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Pieces of a batch within which the key, its last column, is the same."""
    runs = pc.run_end_encode(batch.column(batch.num_columns - 1))
    start = 0
    for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield key, batch.slice(start, end - start)
        start = end


def collect_keys(leaves: DataFrame, seeds: Mapping[str, int], settings: LeafSettings) -> dict[str, KeyLeaf]:
    """Run the job and return the leaf of every key; a key without rows has none."""
    table = leaves.toArrow()
    numbers = pc.shift_right(table["leaf"], 32)
    found = {}
    for number, key in enumerate(sorted(seeds)):
        own = collect_leaves(table.filter(pc.equal(numbers, number)), {"k": settings.recipe.k, "z": settings.recipe.z})
        coreset = own.coresets[0] if own.coresets else None
        if len(own.coresets) > 1:
            recipe = settings.recipe.varied(size=settings.leaf_size, seed=reduction_seed(seeds[key], 1, 0))
            coreset = reduce_union(own.coresets, recipe, refine=False)
        found[key] = KeyLeaf(coreset, own.rows, own.bad)
    return found
