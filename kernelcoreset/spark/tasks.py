"""What all tasks on the executors share: how many there are, which one is running, and a short garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

MOST_TASKS = 2_048
"""Tasks of one job whose results come back to the driver: their number must have a bound."""

Batches = Iterator[pa.RecordBatch]


def map_batches(frame: DataFrame, work: Callable[[Batches], Batches], schema: StructType) -> DataFrame:
    """Return the rows that `work` makes of the Arrow batches of each partition."""

    def run(batches: Batches) -> Batches:
        yield from work(batches)
        _freeze_loaded_objects()

    return frame.mapInArrow(run, schema)


def partition_number() -> int:
    """Return the number of the partition that the running task works on."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


@cache
def _freeze_loaded_objects() -> None:
    """Exclude all that a worker has loaded from garbage collection; once, after its first task.

    Spark's workers collect garbage after every task. With numba loaded this takes longer than a small task itself.
    """
    gc.collect()
    gc.freeze()
