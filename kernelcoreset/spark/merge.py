"""From leaf rows to one coreset: on the driver while they fit its budget, on the executors first beyond it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.spark.leaves import LeafSettings, Leaves, as_row, collect_leaves
from kernelcoreset.spark.tasks import MOST_TASKS

DRIVER_BUDGET = 256 * 1024**2
"""Bytes of leaves the driver takes at once."""
TASK_BUDGET = 64 * 1024**2
"""Bytes of leaves that one task merges."""


def gather(leaves: DataFrame, settings: LeafSettings, most_leaves: int = MOST_TASKS) -> Leaves:
    """Return the leaves on the driver, merged on the executors first where as many as there may be would not fit.

    How many leaves there are is not known before they are made, so the bound on their number decides. Where they turn
    out to be few, the merging only puts them side by side: nothing is lost by it.
    """
    fitting = max(2, DRIVER_BUDGET // settings.leaf_bytes)
    fan_in = max(2, TASK_BUDGET // settings.leaf_bytes)
    level = 2  # 0 are the leaves, 1 is the last merge
    while most_leaves > fitting:
        most_leaves = -(-most_leaves // fan_in)
        # Of what the driver can take, each may keep its share.
        size = settings.leaf_size * max(1, fitting // most_leaves)
        leaves = _merged_on_executors(leaves, settings, fan_in, size, most_leaves, level)
        level += 1
    return collect_leaves(leaves.toArrow(), {"k": settings.recipe.k, "z": settings.recipe.z})


def _merged_on_executors(
    leaves: DataFrame, settings: LeafSettings, fan_in: int, size: int, groups: int, level: int
) -> DataFrame:
    """Leaf rows of which there are at most `groups`: each holds `fan_in` leaves in turn, in `size` points at most."""
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

    grouped = leaves.withColumn("group", F.floor(F.col("leaf") / fan_in)).repartition(groups, "group")
    return grouped.groupBy("group").applyInArrow(merge, schema)


def merge_leaves(found: Leaves, settings: LeafSettings) -> Coreset:
    """Return the one coreset of all leaves, refined."""
    merged = reduce_union(found.coresets, settings.recipe.varied(seed=settings.seed_of(1, 0)))
    return replace(merged, settings=settings.recipe.settings)
