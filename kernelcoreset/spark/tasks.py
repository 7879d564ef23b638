"""What all tasks on the executors share: their number, machine code from the driver, a short garbage collection."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType

from kernelcoreset.kernels.machine_code import compile_alone, machine_code
from kernelcoreset.models.rehearsal import rehearse
from kernelcoreset.spark.row_counts import count_rows, counting, listening
from kernelcoreset.spark.worker_memory import return_unused_memory

MOST_TASKS = 2_048
"""Tasks of one job whose results come back to the driver: their number must have a bound."""

Batches = Iterator[pa.RecordBatch]

_lent: set[tuple[str | None, str, bool]] = set()


def map_batches(
    frame: DataFrame, work: Callable[[Batches], Batches], schema: StructType, *, large: bool = False
) -> DataFrame:
    """Return the rows that `work` makes of the Arrow batches of each partition; `large` as in `rehearse`."""
    lend_machine_code(frame.sparkSession, large=large)
    return frame.mapInArrow(_as_task(work), schema)


def has_functions() -> bool:
    """Return whether this pyspark has what `apply_to_columns` needs; 4.0 has not."""
    return hasattr(F, "arrow_udf")


def apply_to_columns(
    frame: DataFrame,
    work: Callable[[Iterator[Sequence[pa.Array]]], Iterator[pa.Array]],
    columns: Sequence[Column],
    kind: DataType,
    *,
    large: bool = False,
) -> Column:
    """Return the column that `work` makes of these columns of each partition, batch by batch; all others stay in Java.

    `work` may return a batch later than it got it. Rows stay in their order.
    """
    task = _as_task(work)

    def run(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:  # Spark reads the types
        yield from task(_columns_of(batches))

    lend_machine_code(frame.sparkSession, large=large)
    functions: Any = F  # the types of pyspark do not know arrow_udf
    # Else Spark would call it once more for every filter of its result.
    found: Column = functions.arrow_udf(run, kind).asNondeterministic()(*columns)
    return found


def _columns_of(batches: Iterator[Any]) -> Iterator[Sequence[pa.Array]]:
    for batch in batches:
        columns = (batch,) if isinstance(batch, pa.Array) else batch  # a single column comes as it is
        count_rows(len(columns[0]))
        yield columns


def _as_task(work: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a Python worker runs for a partition."""
    address = listening()

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        compile_alone()  # Spark decides how many processes run on an executor
        with counting(address):
            yield from work(batches)
        _freeze_loaded_objects()
        return_unused_memory()

    return run


def lend_machine_code(spark: SparkSession, *, large: bool = False) -> None:
    """Let the executors use the machine code of this driver; once per session, and once more for `large` problems.

    The driver compiles all that tasks call, if it has not done so before. On a cluster the code goes to the executors
    as an archive. Each of them uses it if its processor has all the features of the driver's, and compiles otherwise.
    """
    session = (spark.conf.get("spark.app.id", ""), getattr(spark, "session_id", ""), large)
    if session in _lent:
        return
    rehearse(large=large)
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
