"""From leaf rows to one coreset: on the driver while they fit its budget, on the executors first beyond it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kernelcoreset.coreset import Coreset, concatenate, reduce_points
from kernelcoreset.spark.leaves import MOST_TASKS, LeafSettings, Leaves, collect_leaves

DRIVER_BUDGET = 256 * 1024**2
"""Bytes of leaves the driver takes at once."""


def leaf_bytes(settings: LeafSettings, dimension: int) -> int:
    """Return the size of a full leaf row."""
    return 8 * settings.leaf_size * (dimension + 2)


def gather(
    leaves: DataFrame,
    settings: LeafSettings,
    dimension: int,
    most_leaves: int = MOST_TASKS,
    budget: int = DRIVER_BUDGET,
) -> Leaves:
    """Return the leaves on the driver, merged on the executors first where as many as there may be would not fit.

    How many leaves there are is not known before they are made, so the bound on their number decides.
    """
    fitting = max(2, budget // leaf_bytes(settings, dimension))
    if most_leaves > fitting:
        leaves = _merged_on_executors(leaves, settings, fitting)
    about = {"k": settings.k, "z": settings.z}
    return collect_leaves(leaves.toArrow(), about)


def _merged_on_executors(leaves: DataFrame, settings: LeafSettings, groups: int) -> DataFrame:
    """Leaf rows of which there are at most `groups`: leaves of one group are merged and reduced to one."""
    schema = leaves.schema
    arrow_schema = to_arrow_schema(schema)

    def merge(table: pa.Table) -> pa.Table:
        group = table["leaf"][0].as_py() % groups
        found = collect_leaves(table.select(arrow_schema.names), {})
        row = {
            "leaf": group,
            "rows": found.rows,
            "bad_rows": found.bad_rows,
            "bad_columns": list(found.bad_columns.items()),
            "dimension": 0,
            "points": [],
            "weights": [],
            "ids": [],
        }
        if found.coresets:
            points, weights, ids = concatenate(found.coresets)
            reduced = reduce_points(
                points,
                weights,
                ids,
                k=settings.k,
                kernel=settings.kernel,
                size=settings.leaf_size,
                z=settings.z,
                seed=settings.seed + group,
                refine=False,
            )
            row |= {"dimension": points.shape[1], "points": reduced.points.ravel(), "weights": reduced.weights}
            if reduced.ids is not None:
                row["ids"] = reduced.ids
        return pa.table({name: pa.array([row[name]], arrow_schema.field(name).type) for name in arrow_schema.names})

    grouped = leaves.withColumn("group", F.col("leaf") % groups).repartition(groups, "group")
    return grouped.groupBy("group").applyInArrow(merge, schema)


def merge_leaves(found: Leaves, settings: LeafSettings) -> Coreset:
    """Return the one coreset of all leaves, refined."""
    points, weights, ids = concatenate(found.coresets)
    seed = int(np.random.SeedSequence([settings.seed, 1]).generate_state(1, np.uint64)[0])
    return reduce_points(
        points, weights, ids, k=settings.k, kernel=settings.kernel, size=settings.size, z=settings.z, seed=seed
    )
