"""From leaf rows to one coreset: merged on the driver, and before that on the executors if there are many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.coresets.tree import CoresetTree
from kernelcoreset.spark.columns import BadRows
from kernelcoreset.spark.large_batches import large_batches
from kernelcoreset.spark.leaves import LeafSettings, Leaves, as_row, collect_leaves
from kernelcoreset.spark.tasks import MOST_TASKS, Batches, map_batches

DRIVER_BUDGET = 256 * 1024**2
"""Bytes of leaves that the driver holds at once."""
TASK_BUDGET = 64 * 1024**2
"""Bytes of leaves that a task merges at once."""


class Merging(NamedTuple):
    """How leaves are merged on the executors: into `groups` leaves, in each `fan_in` at once, by so many tasks."""

    groups: int
    fan_in: int
    tasks: int


def merging_of(most_leaves: int, leaf_bytes: int) -> Merging | None:
    """Return how `most_leaves` leaves are merged so that they fit on the driver; None if they do as they are."""
    fitting = max(2, DRIVER_BUDGET // leaf_bytes)
    fan_in = max(2, TASK_BUDGET // leaf_bytes)
    # Mostly there are far fewer leaves than there may be, and a task without any takes time too.
    tasks = min(fitting, -(-most_leaves // fan_in), MOST_TASKS)
    return None if most_leaves <= fitting else Merging(fitting, fan_in, tasks)


def gather(leaves: DataFrame, settings: LeafSettings, most_leaves: int = MOST_TASKS) -> Leaves:
    """Return the leaves on the driver; if `most_leaves` leaves would not fit there, the executors merge them first.

    The number of leaves is not known before they are built, so the largest possible number of full ones decides. If no
    more than fit on the driver are there in the end, each is in a group of its own and stays as it is.
    """
    merging = merging_of(most_leaves, settings.leaf_bytes)
    if merging is not None:
        leaves = _merged_on_executors(leaves, settings, merging)
    with large_batches(leaves.sparkSession, settings.layout.numbers):
        rows = leaves.toArrow()
    return collect_leaves(rows, {"k": settings.recipe.k, "z": settings.recipe.z})


def _merged_on_executors(leaves: DataFrame, settings: LeafSettings, merging: Merging) -> DataFrame:
    """The leaf rows of the groups. Tasks get one leaf after another and hold no more of them than they merge."""
    schema = leaves.schema
    arrow_schema = to_arrow_schema(schema)

    def merge(batches: Batches) -> Batches:
        rows = (batch.slice(i, 1) for batch in batches for i in range(batch.num_rows))
        for group, own in itertools.groupby(rows, lambda row: int(row["group"][0].as_py())):
            yield _merged(group, (row.select(arrow_schema.names) for row in own), settings, merging, arrow_schema)

    group = F.col("leaf") % F.lit(merging.groups)
    grouped = leaves.withColumn("group", group).repartition(merging.tasks, "group")
    return map_batches(grouped.sortWithinPartitions("group", "leaf"), merge, schema, large=settings.is_large)


def _merged(
    group: int, rows: Iterator[pa.RecordBatch], settings: LeafSettings, merging: Merging, schema: pa.Schema
) -> pa.RecordBatch:
    """The row of a group, from the leaf rows of the group in the order of their leaves."""
    # Level 0 are the leaves, level 1 is the last merge.
    recipe = settings.recipe.varied(seed=settings.seed_of(2, group))
    tree = CoresetTree.from_recipe(recipe, settings.leaf_size, merging.fan_in)
    total, bad, leaves = 0, BadRows(), 0
    for row in rows:
        found = collect_leaves(pa.Table.from_batches([row]), {})
        total, leaves = total + found.rows, leaves + found.leaves
        bad = bad.plus(found.bad)
        for leaf in found.parts:
            tree.add_part(leaf)
    # Refined: one merge that is not refined more than doubles the error.
    part = tree.last_part(settings.leaf_size) if tree.n_weighted else None
    return as_row(group, leaves, total, bad, part, schema)


def merge_leaves(found: Leaves, settings: LeafSettings) -> Coreset:
    """Return the coreset of all leaves, refined."""
    merged = reduce_union(found.parts, settings.recipe.varied(seed=settings.seed_of(1, 0)))
    return replace(merged, settings=settings.recipe.settings).with_preparation(settings.layout.preparation)
