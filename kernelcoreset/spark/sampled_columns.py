"""Columns that Python needs for descriptions alone: they come to it for a sample of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import Floats
from kernelcoreset.describing.tally import ALL_UP_TO, RowTally
from kernelcoreset.features.arrays import to_arrow, view
from kernelcoreset.labelling.centers import Labels
from kernelcoreset.spark.columns import array_column

_SAMPLE, _PLACES = "__kc_sample", "__kc_places"


def sampled(frame: DataFrame, names: Sequence[str]) -> Column:
    """Columns of some rows, as `ALL_UP_TO` says: a list of one struct for these rows, an empty list for all others.

    Not null for the others: after each row Spark asks Arrow for the size of the batch, which passes over nulls again.
    """
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(2**33 - 1))  # below the number of the partition
    row = F.array(F.struct(*[array_column(frame, name).alias(f"c{i}") for i, name in enumerate(names)]))
    kind = frame.select(row.alias("row")).schema["row"].dataType
    return F.when(F.rand(0) * place < ALL_UP_TO, row).otherwise(F.array().cast(kind))


def as_batch(arrays: Sequence[pa.Array], names: Sequence[str]) -> pa.RecordBatch:
    """Return columns with their names."""
    return pa.RecordBatch.from_arrays(list(arrays), names=list(names))


def with_sample(batches: Iterator[Sequence[pa.Array]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a partition, whose last column is that of `sampled`, with the number of each row in it."""
    first = 0
    for arrays in batches:
        last = first + len(arrays[0])
        yield as_batch([*arrays, to_arrow(np.arange(first, last))], [*names, _SAMPLE, _PLACES])
        first = last


def describe(
    tally: RowTally, batch: pa.RecordBatch, found: Labels, weights: Floats | None, names: Sequence[str]
) -> None:
    """Add labelled rows to a tally; `names` are the columns that come with a sample, if any do."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if not names:
        tally.add(columns, found, weights)
        return
    lists, places = columns.pop(_SAMPLE), view(columns.pop(_PLACES))
    rows = np.flatnonzero(np.diff(view(lists.offsets)))
    others = dict(zip(names, lists.flatten().flatten(), strict=True))
    tally.add_sampled(columns, others, rows, places, found, weights)
