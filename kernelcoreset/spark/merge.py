"""From leaf rows to one coreset: merged on the driver, and before that on the executors if there are many."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.spark.leaves import LeafSettings, Leaves, as_row, collect_leaves
from kernelcoreset.spark.tasks import MOST_TASKS, lend_machine_code

DRIVER_BUDGET = 256 * 1024**2
"""Bytes of leaves that the driver holds at once."""
TASK_BUDGET = 64 * 1024**2
"""Bytes of leaves that one task merges."""


def gather(leaves: DataFrame, settings: LeafSettings, most_leaves: int = MOST_TASKS) -> Leaves:
    """Return the leaves on the driver; if `most_leaves` leaves would not fit there, the executors merge them first.

    The number of leaves is not known before they are built, so the largest possible number decides. If there are fewer
    in the end, merging only concatenates them, which loses no accuracy.
    """
    fitting = max(2, DRIVER_BUDGET // settings.leaf_bytes)
    fan_in = max(2, TASK_BUDGET // settings.leaf_bytes)
    level = 2  # 0 are the leaves, 1 is the last merge
    while most_leaves > fitting:
        most_leaves = -(-most_leaves // fan_in)
        # Each group may keep its share of what fits on the driver.
        size = settings.leaf_size * max(1, fitting // most_leaves)
        leaves = _merged_on_executors(leaves, settings, fan_in, size, most_leaves, level)
        level += 1
    return collect_leaves(leaves.toArrow(), {"k": settings.recipe.k, "z": settings.recipe.z})


def _merged_on_executors(
    leaves: DataFrame, settings: LeafSettings, fan_in: int, size: int, groups: int, level: int
) -> DataFrame:
    """At most `groups` leaf rows, each merged from `fan_in` consecutive leaves and of at most `size` points."""
    schema = leaves.schema
    arrow_schema = to_arrow_schema(schema)

    def merge(table: pa.Table) -> pa.Table:
        group = table["leaf"][0].as_py() // fan_in
        found = collect_leaves(table.select(arrow_schema.names), {})
        coreset = None
        if found.coresets:
            recipe = settings.recipe.varied(size=size, seed=settings.seed_of(level, group))
            # Refined: merges are few, and one that is not refined more than doubles the error.
            coreset = reduce_union(found.coresets, recipe)
        return pa.Table.from_batches([as_row(group, found.leaves, found.rows, found.bad, coreset, arrow_schema)])

    lend_machine_code(leaves.sparkSession)
    grouped = leaves.withColumn("group", F.floor(F.col("leaf") / fan_in)).repartition(groups, "group")
    return grouped.groupBy("group").applyInArrow(merge, schema)


def merge_leaves(found: Leaves, settings: LeafSettings) -> Coreset:
    """Return the coreset of all leaves, refined."""
    merged = reduce_union(found.coresets, settings.recipe.varied(seed=settings.seed_of(1, 0)))
    return replace(merged, settings=settings.recipe.settings)
