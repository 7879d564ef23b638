"""One leaf coreset per key, for many keys in one Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.coresets.tree import reduction_seed
from kernelcoreset.spark.columns import BadRows, selection
from kernelcoreset.spark.leaves import LeafBuilder, LeafSettings, collect_leaves, leaf_row, leaf_schema, leaf_schema_of
from kernelcoreset.spark.row_counts import counted
from kernelcoreset.spark.scan import LEAF_ROWS, RowGroups, group_by_rows, read_points, task_frame, tasks_of
from kernelcoreset.spark.tasks import MOST_TASKS, Batches, map_batches, partition_number

KEY = "__kc_key"
"""The column with the key of a row."""

# The number of a leaf holds the number of its key, in sorted order, in the upper 32 bits, and its part in the lower.
_PARTS = 2**32
_TASK_PARTS = 2**21


@dataclass(frozen=True, eq=False)
class KeyLeaf:
    """The leaf of one key, and its numbers of rows and bad rows."""

    coreset: Coreset | None
    rows: int
    bad: BadRows


def leaves_by_files(
    spark: SparkSession,
    row_groups: Mapping[str, Sequence[RowGroups]],
    seeds: Mapping[str, int],
    settings: LeafSettings,
    id_type: DataType | None = None,
) -> DataFrame:
    """Return leaf rows of every key, from its row groups: tasks open the Parquet files themselves."""
    schema = leaf_schema(id_type)
    arrow_schema = to_arrow_schema(schema)
    tasks = [
        # The seed as text: it can be larger than Spark's integers.
        (number * _PARTS + part, str(reduction_seed(seeds[key], 0, part)), group)
        for number, key in enumerate(sorted(row_groups))
        for part, group in enumerate(group_by_rows(row_groups[key], LEAF_ROWS))
    ]
    leaves, texts, groups = zip(*tasks, strict=True)

    def build(batches: Batches) -> Batches:
        for task, items in tasks_of(batches):
            arrays = read_points(items, settings.layout)
            yield leaf_row(task["leaf"], arrays, settings, arrow_schema, int(task["seed"]))

    return map_batches(
        task_frame(spark, groups, leaf=pa.array(leaves), seed=pa.array(texts)), build, schema, large=settings.is_large
    )


def leaves_by_spark(
    frame: DataFrame, seeds: Mapping[str, int], settings: LeafSettings, *, gather_keys: bool
) -> DataFrame:
    """Return leaf rows of every key of a frame with the column `KEY`, read by Spark.

    With `gather_keys` a shuffle brings the rows of a key together first, so that the key gets one leaf. Without it, a
    leaf ends wherever the key changes from one row to the next: good for rows that are read file by file.
    """
    schema = leaf_schema_of(frame, settings)
    arrow_schema = to_arrow_schema(schema)
    numbers = {key: number for number, key in enumerate(sorted(seeds))}

    def build(batches: Batches) -> Batches:
        first = partition_number() * _TASK_PARTS
        current, builder, parts = None, None, 0
        for batch in counted(batches):
            for key, piece in _split_by_key(batch):
                if key != current or builder is None:
                    if builder is not None:
                        yield builder.row(arrow_schema)
                    seed = reduction_seed(seeds[key], 0, first + parts)
                    builder = LeafBuilder(numbers[key] * _PARTS + first + parts, settings, seed)
                    current, parts = key, parts + 1
                builder.add(piece.columns[:-1])
        if builder is not None:
            yield builder.row(arrow_schema)

    selected = frame.select(*selection(frame, settings.layout), F.col(KEY))
    if gather_keys:
        selected = selected.repartition(min(len(seeds), MOST_TASKS), KEY).sortWithinPartitions(*selected.columns[::-1])
    else:
        selected = selected.coalesce(MOST_TASKS)
    return map_batches(selected, build, schema, large=settings.is_large)


def _split_by_key(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Consecutive rows of a batch with the same key, which is the last column."""
    runs = pc.run_end_encode(batch.column(batch.num_columns - 1))
    start = 0
    for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield key, batch.slice(start, end - start)
        start = end


def collect_keys(leaves: DataFrame, seeds: Mapping[str, int], settings: LeafSettings) -> dict[str, KeyLeaf]:
    """Run the job and return the leaf of every key; a key without rows has no coreset."""
    table = leaves.toArrow()
    numbers = pc.shift_right(table["leaf"], 32)
    found = {}
    for number, key in enumerate(sorted(seeds)):
        rows = table.filter(pc.equal(numbers, number))
        leaves_of_key = collect_leaves(rows, {"k": settings.recipe.k, "z": settings.recipe.z})
        coreset = leaves_of_key.coresets[0] if len(leaves_of_key.parts) == 1 else None
        if len(leaves_of_key.parts) > 1:
            recipe = settings.recipe.varied(size=settings.leaf_size, seed=reduction_seed(seeds[key], 1, 0))
            coreset = reduce_union(leaves_of_key.parts, recipe, refine=False)
        found[key] = KeyLeaf(coreset, leaves_of_key.rows, leaves_of_key.bad)
    return found
