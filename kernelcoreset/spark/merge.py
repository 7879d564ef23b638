"""From leaf rows to one coreset: merged on the driver, and before that on the executors if there are many."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.kernels.machine_code import compile_alone
from kernelcoreset.spark.leaves import LeafSettings, Leaves, as_row, collect_leaves
from kernelcoreset.spark.tasks import MOST_TASKS, lend_machine_code

DRIVER_BUDGET = 256 * 1024**2
"""Bytes of leaves that the driver holds at once."""
TASK_BUDGET = 64 * 1024**2
"""Bytes of leaves that one task merges."""


class Round(NamedTuple):
    """One round of merges on the executors: each group of `fan_in` leaves becomes one of at most `size` points."""

    fan_in: int
    groups: int
    size: int


def merge_rounds(most_leaves: int, leaf_size: int, leaf_bytes: int) -> list[Round]:
    """Return the rounds after which at most `most_leaves` leaves fit on the driver; none if they fit as they are."""
    fitting = max(2, DRIVER_BUDGET // leaf_bytes)
    fan_in = max(2, TASK_BUDGET // leaf_bytes)
    rounds = []
    while most_leaves > fitting:
        most_leaves = -(-most_leaves // fan_in)
        # Each group may keep its share of what fits on the driver.
        rounds.append(Round(fan_in, most_leaves, leaf_size * max(1, fitting // most_leaves)))
    return rounds


def gather(leaves: DataFrame, settings: LeafSettings, most_leaves: int = MOST_TASKS) -> Leaves:
    """Return the leaves on the driver; if `most_leaves` leaves would not fit there, the executors merge them first.

    The number of leaves is not known before they are built, so the largest possible number decides. If there are fewer
    in the end, merging only concatenates them, which loses no accuracy.
    """
    # Level 0 are the leaves, level 1 is the last merge.
    for level, step in enumerate(merge_rounds(most_leaves, settings.leaf_size, settings.leaf_bytes), 2):
        leaves = _merged_on_executors(leaves, settings, step, level)
    return collect_leaves(leaves.toArrow(), {"k": settings.recipe.k, "z": settings.recipe.z})


def _merged_on_executors(leaves: DataFrame, settings: LeafSettings, step: Round, level: int) -> DataFrame:
    """The leaf rows after one round; a group are consecutive leaves."""
    schema = leaves.schema
    arrow_schema = to_arrow_schema(schema)

    def merge(table: pa.Table) -> pa.Table:
        compile_alone()
        group = table["leaf"][0].as_py() // step.fan_in
        found = collect_leaves(table.select(arrow_schema.names), {})
        coreset = None
        if found.coresets:
            recipe = settings.recipe.varied(size=step.size, seed=settings.seed_of(level, group))
            # Refined: merges are few, and one that is not refined more than doubles the error.
            coreset = reduce_union(found.coresets, recipe)
        return pa.Table.from_batches([as_row(group, found.leaves, found.rows, found.bad, coreset, arrow_schema)])

    lend_machine_code(leaves.sparkSession)
    grouped = leaves.withColumn("group", F.floor(F.col("leaf") / step.fan_in)).repartition(step.groups, "group")
    return grouped.groupBy("group").applyInArrow(merge, schema)


def merge_leaves(found: Leaves, settings: LeafSettings) -> Coreset:
    """Return the coreset of all leaves, refined."""
    merged = reduce_union(found.coresets, settings.recipe.varied(seed=settings.seed_of(1, 0)))
    return replace(merged, settings=settings.recipe.settings).with_preparation(settings.layout.preparation)
