"""Where a row is from: additional columns of the quarantine, by which a bad row is found again in its source.

A row that cannot be parsed, or whose selected expressions all fail, is a row of nulls; it says nothing about itself.

=====================  ============================================================================================
`source_file`          for files: the file
`source_row`           for Parquet files: the number of the row in its file, from 0
`source_text`          for CSV, JSON and XML files: the text of a row that cannot be parsed
`source_` and a name   with `input.select`: every column of the source; for Kafka `source_topic`, `source_partition`,
                       `source_offset`, `source_value`, ...
=====================  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from kernelcoreset.jobs.settings.rows import InputSettings
from kernelcoreset.spark.columns import quoted

_FILES = ("parquet", "orc", "csv", "json", "text", "avro", "xml", "delta")
_PARSED = ("csv", "json", "xml")
_OPTION = "columnNameOfCorruptRecord"

Reload = Callable[[StructType, Mapping[str, str]], DataFrame]
"""Opens a source again, with this schema and these options besides its own."""


def traced(
    source: DataFrame, settings: InputSettings, taken: Iterable[str], reload: Reload
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return a source with the columns that say where each row is from, and the names of these columns.

    Parameters
    ----------
    source : DataFrame
        The input as it is, before `input.select`.
    settings : InputSettings
    taken : iterable of str
        Names that the columns must not have: those of the selected columns.
    reload : function
        Opens the source again.
    """
    names = _Names({*source.columns, *taken})
    own, is_file = source.columns, settings.path is not None and settings.format in _FILES
    if is_file and settings.format in _PARSED and _unparsed_column(settings) not in own:
        text = names.add("source_text")
        schema = StructType([*source.schema.fields, StructField(text, StringType())])
        source = reload(schema, {_OPTION: text})
    columns = []
    if is_file and "_metadata" not in own:
        columns.append(F.col("_metadata.file_path").alias(names.add("source_file")))
        if settings.format == "parquet":
            columns.append(F.col("_metadata.row_index").alias(names.add("source_row")))
    if settings.select:
        columns += [F.col(quoted(name)).alias(names.add(f"source_{name}")) for name in own]
    return source.select("*", *columns), tuple(names.added)


def _unparsed_column(settings: InputSettings) -> str:
    """The column in which Spark puts the text of a row that it cannot parse, if the schema has it."""
    given = {name.lower(): text for name, text in settings.options.items()}
    return given.get(_OPTION.lower(), "_corrupt_record")


class _Names:
    """Names of new columns, different from all that are taken; Spark does not tell capital letters from small ones."""

    def __init__(self, taken: set[str]) -> None:
        self.added: list[str] = []
        self._taken = {name.lower() for name in taken}

    def add(self, name: str) -> str:
        while name.lower() in self._taken:
            name += "_"
        self._taken.add(name.lower())
        self.added.append(name)
        return name
