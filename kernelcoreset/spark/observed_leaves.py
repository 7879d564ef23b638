"""Leaves that are built while rows are labelled and written, so that one pass over the rows does both.

The last row of a partition carries its leaf, as text in a column that is observed and not written.
"""

from __future__ import annotations

import base64

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kernelcoreset.spark.leaves import LeafSettings, Leaves, collect_leaves, leaf_schema_of

_LARGEST = 2**20
"""Bytes of a leaf that may travel that way."""


class ObservedLeaves:
    """Collects the leaves of rows that are written. Given to `label_rows`; once they are written, `leaves` has them.

    Parameters
    ----------
    frame : DataFrame
        The rows.
    settings : LeafSettings
    """

    def __init__(self, frame: DataFrame, settings: LeafSettings) -> None:
        self.settings = settings
        self.schema = to_arrow_schema(leaf_schema_of(frame, settings))
        self._observation = Observation()

    @staticmethod
    def can_hold(settings: LeafSettings) -> bool:
        """Return whether leaves are small enough, and of rows as they are labelled."""
        return settings.leaf_bytes <= _LARGEST and settings.degrees is None

    def observe(self, labelled: DataFrame, leaves: Column) -> DataFrame:
        """Return the same rows; the column of leaves is collected when they are written."""
        # As one text with a line per leaf: the Observation of pyspark 4.0 cannot return an array.
        lines = F.concat_ws("\n", F.collect_list(leaves)).alias("leaves")
        return labelled.observe(self._observation, lines)

    def leaves(self) -> Leaves:
        """Return the leaves; the observed rows must have been written."""
        texts = set(self._observation.get["leaves"].splitlines())  # a partition that was read twice has one leaf
        rows = [batch for text in sorted(texts) for batch in pa.ipc.open_stream(base64.b64decode(text))]
        recipe = self.settings.recipe
        return collect_leaves(pa.Table.from_batches(rows, self.schema), {"k": recipe.k, "z": recipe.z})


def leaf_text(row: pa.RecordBatch) -> str:
    """Return the row of a leaf as text."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return base64.b64encode(sink.getvalue()).decode()
