"""Centers that are vectors, moved to the means of all rows of a DataFrame: iterations of Lloyd, one pass each.

A task returns the sum of the rows nearest to each center. Sums are added in the order of the parts of the rows, so the
result does not depend on which task ends first, or runs twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from kernelcoreset.checks import Floats
from kernelcoreset.features.arrays import to_arrow
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.labelling.written_out import RowSums
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.models.rehearsal import is_large
from kernelcoreset.spark.columns import BatchReader, Layout, selection
from kernelcoreset.spark.merge import DRIVER_BUDGET
from kernelcoreset.spark.row_counts import counted
from kernelcoreset.spark.scan import RowGroups, read_points, task_frame, tasks_of
from kernelcoreset.spark.tasks import MOST_TASKS, Batches, map_batches, partition_number

_SCHEMA = StructType([StructField("part", LongType(), False), StructField("numbers", BinaryType(), False)])
_ADDED_BYTES = 512 * 1024**2  # of sums that a task adds up, one after another


def move_centers(
    frame: DataFrame,
    layout: Layout,
    model: KernelKMeansModel,
    steps: int | None = None,
    *,
    groups: Sequence[Sequence[RowGroups]] | None = None,
) -> KernelKMeansModel:
    """Return the model with its centers moved by iterations of Lloyd over all good rows, as `refine` does.

    Parameters
    ----------
    frame : DataFrame
    layout : Layout
        Where the points are, with its dimension and the preparation of the model.
    model : KernelKMeansModel
    steps : int, optional
        Iterations, each a pass over the rows; by default as many as pay usually. Models whose centers are no vectors
        stay as they are.
    groups : list of lists of RowGroups, optional
        All the Parquet files that the frame reads, if tasks may open them themselves; one list per task.
    """
    steps = model.usual_refinements if steps is None else steps
    for _ in range(steps if model.can_be_refined else 0):
        before = model.written_out()
        means = _moved(frame, layout, RowSums(before, model.kernel), groups)
        if not np.isfinite(means).all() or np.array_equal(means, before):
            break  # labelling says which rows are too large
        model = model.with_means(means)
    return model


def _moved(
    frame: DataFrame, layout: Layout, whole: RowSums, groups: Sequence[Sequence[RowGroups]] | None = None
) -> Floats:
    """The centers after one iteration."""
    means, kernel = whole.means, whole.kernel
    if groups is None:
        found, most = _sums_by_spark(frame, layout, means, kernel), MOST_TASKS
    else:
        found, most = _sums_by_files(frame, layout, means, kernel, groups), len(groups)
    size = means.nbytes + whole.mass.nbytes
    if most * size > DRIVER_BUDGET:
        found = _added_up(found, max(1, min(DRIVER_BUDGET // size, -(-most * size // _ADDED_BYTES))))
    for row in found.toArrow().sort_by("part")["numbers"]:
        sums, mass = np.split(_numbers(row), [means.size])
        whole.sums += sums.reshape(means.shape)
        whole.mass += mass
    return whole.moved()


def _sums_by_spark(frame: DataFrame, layout: Layout, means: Floats, kernel: Kernel) -> DataFrame:
    def add_up(batches: Batches) -> Batches:
        yield _sums_of((batch.columns for batch in counted(batches)), partition_number(), layout, means, kernel)

    return map_batches(
        frame.select(*selection(frame, layout)).coalesce(MOST_TASKS), add_up, _SCHEMA, large=is_large(*means.shape)
    )


def _sums_by_files(
    frame: DataFrame, layout: Layout, means: Floats, kernel: Kernel, groups: Sequence[Sequence[RowGroups]]
) -> DataFrame:
    def add_up(batches: Batches) -> Batches:
        for task, row_groups in tasks_of(batches):
            yield _sums_of(read_points(row_groups, layout), task["leaf"], layout, means, kernel)

    return map_batches(task_frame(frame.sparkSession, groups), add_up, _SCHEMA, large=is_large(*means.shape))


def _sums_of(
    batches: Iterable[Sequence[pa.Array]], part: int, layout: Layout, means: Floats, kernel: Kernel
) -> pa.RecordBatch:
    """The row of one part of the rows."""
    reader, found = BatchReader(layout), RowSums(means, kernel)
    for arrays in batches:
        rows, weights, good = reader.read_rows(arrays)
        if good is not None:
            rows, weights = rows[good], None if weights is None else weights[good]
        found.add(rows, weights)
    return _row(part, np.concatenate([found.sums.ravel(), found.mass]))


def _added_up(found: DataFrame, groups: int) -> DataFrame:
    """The rows of so many groups of parts, added up by the executors in the order of the parts."""

    def add_up(batches: Batches) -> Batches:
        rows = itertools.chain.from_iterable(zip(batch["group"], batch["numbers"], strict=True) for batch in batches)
        for group, own in itertools.groupby(rows, lambda row: row[0].as_py()):
            yield _row(group, reduce(np.add, (_numbers(numbers) for _, numbers in own)))

    grouped = found.withColumn("group", F.col("part") % F.lit(groups)).repartition(groups, "group")
    return map_batches(grouped.sortWithinPartitions("group", "part"), add_up, _SCHEMA)


def _row(part: int, numbers: Floats) -> pa.RecordBatch:
    arrays = [to_arrow(np.array([part])), pa.array([numbers.tobytes()], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=to_arrow_schema(_SCHEMA))


def _numbers(value: pa.Scalar) -> Floats:
    return np.frombuffer(value.as_buffer(), dtype=np.float64)
