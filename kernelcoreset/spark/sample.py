"""Samples of the rows of a DataFrame: for widths, for degrees of spectral clustering, and for means and scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import Floats
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.features.look import Look, look_at
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.spark.columns import BatchReader, Layout, quoted, selection, why_bad
from kernelcoreset.spark.scan import RowGroups, read_points
from kernelcoreset.spark.tasks import Batches, map_batches
from kernelcoreset.spectral.degrees import Degrees

_PARTS = 16  # parts of the data of which the first rows are looked at
_NUMBERS = 16_000_000  # values that come to the driver
_PART_ROWS = 65_536
_FILE_ROWS = 262_144


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


def first_rows(frame: DataFrame, layout: Layout, row_groups: Sequence[RowGroups] | None = None) -> pa.Table:
    """Return the first rows of up to 16 parts of the data, with the columns of the layout in the order of `selection`.

    No pass over all rows: each of the parts is read until it has given its rows, at most 65,536. So all rows are in
    the sample if the data are small.

    Parameters
    ----------
    frame : DataFrame
    layout : Layout
    row_groups : sequence of RowGroups, optional
        All the Parquet files that the frame reads, if they may be opened here.
    """
    layout = replace(layout, id_col=None)
    rows = int(np.clip(_NUMBERS // (_PARTS * (layout.dimension or 1)), 1, _PART_ROWS))
    schema = frame.select(*selection(frame, layout)).schema
    if row_groups is not None:
        chosen = [row_groups[place] for place in np.unique(np.linspace(0, len(row_groups) - 1, _PARTS).astype(int))]
        rows = min(rows, max(1, _FILE_ROWS // len(chosen)))
        batches = [
            pa.RecordBatch.from_arrays(arrays, names=schema.names)
            for part in chosen
            for arrays in _head(read_points([part], layout), rows)
        ]
        # The same column may have another type in another file.
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        return pa.concat_tables(tables, promote_options="permissive")

    def work(batches: Batches) -> Batches:
        for arrays in _head((batch.columns for batch in batches), rows):
            yield pa.RecordBatch.from_arrays(arrays, names=schema.names)

    return map_batches(frame.select(*selection(frame, layout)).coalesce(_PARTS), work, schema).toArrow()


def fit_preparation(
    frame: DataFrame, layout: Layout, wanted: Features | None, row_groups: Sequence[RowGroups] | None = None
) -> Preparation | None:
    """Return the preparation for the rows of a frame, found from their `first_rows`; None if none is wanted."""
    if wanted is None:
        return None
    for name in ("categorical", "log"):
        numbers = [each for each in getattr(wanted, name) if not isinstance(each, str)]
        if numbers:
            raise SettingError(f"`features.{name}` must have names of columns for a DataFrame; got {numbers}.")
    table = first_rows(frame, layout, row_groups)
    weights = None if layout.weight_col is None else _weights(table, layout)
    return Preparation.fit(dict(zip(*_raw(table, layout), strict=True)), wanted, weights)


def look_at_rows(frame: DataFrame, layout: Layout, row_groups: Sequence[RowGroups] | None = None) -> Look:
    """Return what `look_at` sees in the `first_rows` of a frame."""
    names, arrays = _raw(first_rows(frame, layout, row_groups), layout)
    return look_at(names, arrays, layout.preparation)


def _raw(table: pa.Table, layout: Layout) -> tuple[list[str], list[pa.Array]]:
    """Names and values of the features of sampled rows; the elements of an array column count as columns."""
    if not layout.is_array:
        return list(layout.features), [table.column(place).combine_chunks() for place in range(layout.width)]
    name = layout.features[0]
    bare = replace(layout, weight_col=None, dimension=layout.length, preparation=None)
    read, _, good = BatchReader(bare).read([table.column(0).combine_chunks()])
    kept = read if good is None else np.where(good, read, np.nan)
    return [f"{name}[{place}]" for place in range(len(kept))], [pa.array(values) for values in kept]


def _weights(table: pa.Table, layout: Layout) -> Floats:
    """Weights of sampled rows, 0 for those that are not valid: they are reported when all rows are read."""
    weights = table.column(layout.width).combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isfinite(weights) & (weights > 0.0), weights, 0.0)


def _head(batches: Iterator[Sequence[pa.Array]], rows: int) -> Iterator[list[pa.Array]]:
    """The first rows of batches."""
    left = rows
    for arrays in batches:
        yield [array.slice(0, left) for array in arrays]
        left -= len(arrays[0])
        if left <= 0:
            return
