"""What all tasks on the executors share: their number, machine code from the driver, a short garbage collection."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kernelcoreset.kernels.machine_code import compile_alone, machine_code
from kernelcoreset.models.rehearsal import rehearse
from kernelcoreset.spark.row_counts import counting, listening

MOST_TASKS = 2_048
"""Tasks of one job whose results come back to the driver: their number must have a bound."""

Batches = Iterator[pa.RecordBatch]

_lent: set[tuple[str | None, str]] = set()


def map_batches(frame: DataFrame, work: Callable[[Batches], Batches], schema: StructType) -> DataFrame:
    """Return the rows that `work` makes of the Arrow batches of each partition."""
    address = listening()

    def run(batches: Batches) -> Batches:
        compile_alone()  # Spark decides how many processes run on an executor
        with counting(address):
            yield from work(batches)
        _freeze_loaded_objects()

    lend_machine_code(frame.sparkSession)
    return frame.mapInArrow(run, schema)


def lend_machine_code(spark: SparkSession) -> None:
    """Let the executors use the machine code of this driver; once per session.

    The driver compiles all that tasks call, if it has not done so before. On a cluster the code goes to the executors
    as an archive. Each of them uses it if its processor has all the features of the driver's, and compiles otherwise.
    """
    session = (spark.conf.get("spark.app.id", ""), getattr(spark, "session_id", ""))
    if session in _lent:
        return
    rehearse()
    if not re.fullmatch(r"local(\[.*\])?", spark.conf.get("spark.master", "") or ""):  # local workers share the folder
        archive = machine_code().pack()
        if archive is not None:
            spark.addArtifacts(str(archive), pyfile=True)
    _lent.add(session)


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
