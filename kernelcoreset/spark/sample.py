"""A uniform sample of the rows of a DataFrame, and the degrees of spectral clustering that come from it."""

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


def sample_rows(frame: DataFrame, layout: Layout, count: int, place: Column) -> tuple[Floats, Floats]:
    """Return points and weights of the first `count` usable rows in the order of `place`.

    `place` is to be random by the seed and by where a row stands, so that a task that runs again gives the same.
    """
    layout = replace(layout, id_col=None)
    columns = [*selection(frame, layout), place.alias("place"), _usable(frame, layout).alias("usable")]
    found = frame.select(*columns).where("usable").orderBy("place").limit(count).drop("place", "usable").toArrow()
    reader = BatchReader(layout)
    points, weights = [np.empty((layout.dimension or 1, 0))], [np.empty(0)]
    for batch in found.to_batches():
        read, own, good = reader.read(batch.columns)
        kept = np.ones(read.shape[1], dtype=bool) if good is None else good
        points.append(read[:, kept])
        weights.append(np.ones(int(kept.sum())) if own is None else own[kept])
    return np.concatenate(points, axis=1).T, np.concatenate(weights)


def sample_degrees(
    frame: DataFrame, layout: Layout, kernel: Kernel, count: int, place: Column, total: float | None = None
) -> Degrees:
    """Return degrees against a uniform sample of the good rows of positive weight; one pass, or two without `total`.

    `total` is the weight of all rows, where it is known already.
    """
    points, weights = sample_rows(frame, layout, count, place)
    if not len(points):
        raise DataError("There is no row to cluster: all are bad or of weight 0. Check the path and the filter.")
    if total is None:
        weight = F.lit(1.0) if layout.weight_col is None else F.col(quoted(layout.weight_col)).cast("double")
        summed = frame.agg(F.sum(F.when(_usable(frame, layout), weight)).alias("total"))
        # Spark adds up in any order: rounded, so that the last bits do not change from run to run.
        total = float(f"{summed.toArrow()['total'][0].as_py():.9g}")
    return Degrees(points, weights, kernel, total, exact=len(points) < count)


def _usable(frame: DataFrame, layout: Layout) -> Column:
    """Whether a row is not bad and has a weight above 0."""
    good = why_bad(frame, layout).isNull()
    return good if layout.weight_col is None else good & (F.col(quoted(layout.weight_col)) > 0)
