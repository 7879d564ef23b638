"""A uniform sample of the rows of a DataFrame, and degrees for spectral clustering that are estimated from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import Floats
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.spark.columns import BatchReader, Layout, quoted, selection, why_bad
from kernelcoreset.spectral.degrees import Degrees


def random_order(seed: int, *, by_file: bool) -> Column:
    """Return a column by which rows are sorted into random order; it is the same each time the input is read.

    With `by_file` it depends on the file of a row and its place there, so not on the partitions.
    """
    return F.xxhash64(F.lit(seed), "_metadata.file_name", "_metadata.row_index") if by_file else F.rand(seed)


def sample_rows(frame: DataFrame, layout: Layout, count: int, order: Column) -> tuple[Floats, Floats]:
    """Return points and weights of the first `count` usable rows in the order of a column, such as `random_order`."""
    layout = replace(layout, id_col=None)
    columns = [*selection(frame, layout), order.alias("order"), _usable(frame, layout).alias("usable")]
    found = frame.select(*columns).where("usable").orderBy("order").limit(count).drop("order", "usable").toArrow()
    reader = BatchReader(layout)
    points, weights = [np.empty((layout.dimension or 1, 0))], [np.empty(0)]
    for batch in found.to_batches():
        read, read_weights, good = reader.read(batch.columns)
        kept = np.ones(read.shape[1], dtype=bool) if good is None else good
        points.append(read[:, kept])
        weights.append(np.ones(int(kept.sum())) if read_weights is None else read_weights[kept])
    return np.concatenate(points, axis=1).T, np.concatenate(weights)


def sample_degrees(
    frame: DataFrame, layout: Layout, kernel: Kernel, count: int, order: Column, total: float | None = None
) -> Degrees:
    """Return degrees estimated from a uniform sample of the good rows of positive weight.

    `total` is the weight of all rows. If it is None, a second pass over the rows computes it.
    """
    points, weights = sample_rows(frame, layout, count, order)
    if not len(points):
        raise DataError("There is no row to cluster: all are bad or of weight 0. Check the path and the filter.")
    if total is None:
        weight = F.lit(1.0) if layout.weight_col is None else F.col(quoted(layout.weight_col)).cast("double")
        summed = frame.agg(F.sum(F.when(_usable(frame, layout), weight)).alias("total"))
        # Spark adds up in any order. Rounding keeps the last bits the same from run to run.
        total = float(f"{summed.toArrow()['total'][0].as_py():.9g}")
    return Degrees(points, weights, kernel, total, exact=len(points) < count)


def _usable(frame: DataFrame, layout: Layout) -> Column:
    """Whether a row is not bad and has a weight above 0."""
    good = why_bad(frame, layout).isNull()
    return good if layout.weight_col is None else good & (F.col(quoted(layout.weight_col)) > 0)
