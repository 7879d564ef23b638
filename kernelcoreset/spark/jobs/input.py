"""The input of a job: opened once, as a DataFrame, with what the steps of the job need to know about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kernelcoreset.errors import DataError, KernelCoresetError, SettingError
from kernelcoreset.features.look import Look
from kernelcoreset.features.wanted import Features
from kernelcoreset.jobs.explain import BAD_DATA, explain_text
from kernelcoreset.jobs.settings.rows import InputSettings
from kernelcoreset.spark.columns import Layout, layout_of, quoted, with_dimension
from kernelcoreset.spark.jobs.demo import demo_frame
from kernelcoreset.spark.jobs.trace import traced
from kernelcoreset.spark.sample import fit_preparation, look_at_rows
from kernelcoreset.spark.scan import (
    Footers,
    RowGroups,
    can_copy,
    can_read,
    local_files,
    shared,
    with_dimension_of_files,
)

_CONDITION = re.compile(r"(?m)\[([A-Z0-9_.]+)\] (.+)$")  # the start of Spark's messages
_STATE = re.compile(r"\s*SQLSTATE: \w{5};?")
_MISSING = (
    *("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "SCHEMA_NOT_FOUND"),
    *("DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION"),
)


class Input:
    """The rows of a job. All steps of a run share one `Input`: the source is opened once, every footer is read once.

    Parameters
    ----------
    spark : SparkSession
    settings : InputSettings
    seed : int
        For the generated rows of the demo.
    features : Features, optional
        How columns become points; by default numbers are used as they are.

    Attributes
    ----------
    source : DataFrame
        The input as it is.
    frame : DataFrame
        The columns and rows of it that the settings select.
    layout : Layout
        Which columns hold the points.
    """

    def __init__(
        self, spark: SparkSession, settings: InputSettings, seed: int = 0, features: Features | None = None
    ) -> None:
        self.spark = spark
        self.settings = settings
        self.source, self.frame = _open(spark, settings, seed)
        self.features = features
        self.layout = input_layout(self.frame, settings, features)
        self._footers = Footers()

    @cached_property
    def sized_layout(self) -> Layout:
        """The layout with the number of coordinates and the preparation, which a sample of the rows gives."""
        if self.row_groups is None:
            layout = with_dimension(self.frame, self.layout)
        else:
            layout = with_dimension_of_files(self.row_groups, self.layout)
        return layout.prepared_by(fit_preparation(self.frame, layout, self.features, self.row_groups))

    def look(self) -> Look:
        """Return what a look at a sample of the features says."""
        return look_at_rows(self.frame, self.sized_layout, self.row_groups)

    @cached_property
    def traced(self) -> DataFrame:
        """The rows of `frame` with the columns that say where each is from."""

        def reload(schema: StructType, options: Mapping[str, str]) -> DataFrame:
            reader = self.spark.read.format(self.settings.format).options(**{**self.settings.options, **options})
            return reader.schema(schema).load(self.settings.path)

        source, names = traced(self.source, self.settings, self.frame.columns, reload)
        return selected_rows(source, self.settings, *names)

    @cached_property
    def row_groups(self) -> list[RowGroups] | None:
        """What tasks read that open the files themselves; None if Spark is to read the rows."""
        return self.row_groups_of(self.frame)

    @cached_property
    def leaf_groups(self) -> list[list[RowGroups]] | None:
        """The same, one list for each leaf: small files share a leaf."""
        return None if self.row_groups is None else shared(self.row_groups)

    @property
    def known_rows(self) -> int | None:
        """How many rows there are, if that is known without reading them; bad ones are counted."""
        if self.settings.demo_rows is not None and self.settings.where is None:
            return self.settings.demo_rows
        return None if self.row_groups is None else sum(part.rows for part in self.row_groups)

    def row_groups_of(self, frame: DataFrame) -> list[RowGroups] | None:
        """Return the same for another frame that reads all or some of the files."""
        categorical = self.layout.categorical
        readable = all(
            (can_copy if name in categorical else can_read)(self.frame.schema[name].dataType)
            for name in self.layout.features
        )
        found = self._row_groups(frame, self.layout.columns) if readable else None
        if found is None and self.settings.scan == "direct":
            raise DataError(
                f'`input.scan` = "direct" needs plain local Parquet files that hold all columns; {self.settings.path} '
                'does not. Use "auto" or "spark".'
            )
        return found

    def groups_to_copy(self, frame: DataFrame) -> list[list[RowGroups]] | None:
        """Return groups for a pass that copies all columns of a frame; None if pyarrow cannot copy one of them."""
        if not all(can_copy(field.dataType) for field in frame.schema.fields):
            return None
        found = self._row_groups(frame, frame.columns)
        return None if found is None else shared(found)

    def with_columns(self, columns: Sequence[str] | None) -> DataFrame:
        """Return the rows with these columns and those of the points, so that no others are read; None for all."""
        if not columns:
            return self.frame
        return self.frame.select(*[quoted(name) for name in dict.fromkeys([*columns, *self.layout.columns])])

    def _row_groups(self, frame: DataFrame, columns: Sequence[str]) -> list[RowGroups] | None:
        if self.settings.scan == "spark" or not self.settings.is_whole_files:
            return None
        # Local files are known to be there for the workers too only if the workers run on this machine.
        is_local = (self.spark.conf.get("spark.master", None) or "").startswith("local")
        files = local_files(frame) if is_local or self.settings.scan == "direct" else None
        return (self._footers.row_groups(files, columns) or None) if files else None


def input_layout(frame: DataFrame, settings: InputSettings, features: Features | None = None) -> Layout:
    """Return which columns of a frame hold the points, by the settings of the input."""
    names = ("input.features", "input.weight_col", "input.id_col")
    categorical = () if features is None else [str(name) for name in features.categorical]
    return layout_of(frame, settings.features, settings.weight_col, settings.id_col, names, categorical)


def read_input(spark: SparkSession, settings: InputSettings, seed: int = 0) -> DataFrame:
    """Return the columns and rows of the input that the settings select, for rows that are not points."""
    return _open(spark, settings, seed)[1]


def selected_rows(frame: DataFrame, settings: InputSettings, *also: str) -> DataFrame:
    """Return the columns and rows of a frame that the settings select, and the columns `also`."""
    frame = frame.selectExpr(*settings.select, *map(quoted, also)) if settings.select else frame
    return frame if settings.where is None else frame.where(settings.where)


def _open(spark: SparkSession, settings: InputSettings, seed: int) -> tuple[DataFrame, DataFrame]:
    """The source, and what the settings select of it; or an error of one line if Spark cannot find or read it."""
    with located(settings):
        source = open_source(spark, settings, seed)
        frame = selected_rows(source, settings)
        frame.schema  # noqa: B018  Spark Connect looks nothing up before this
    return source, frame


@contextmanager
def located(settings: InputSettings) -> Iterator[None]:
    """Turn errors of Spark about the input into errors of one line."""
    try:
        yield
    except Exception as error:  # some errors of Spark are of py4j's classes, which Spark Connect does not have
        known = in_one_line(error, settings)
        if known is None:
            raise
        raise known from None


def open_source(spark: SparkSession, settings: InputSettings, seed: int = 0) -> DataFrame:
    """Return all columns and rows of the input."""
    if settings.table is not None:
        return spark.read.options(**settings.options).table(settings.table)  # options such as versionAsOf
    if settings.query is not None:
        return spark.sql(settings.query)
    if settings.demo_rows is not None:
        return demo_frame(spark, settings.demo_rows, seed)
    reader = spark.read.format(settings.format).options(**settings.options)
    return (reader if settings.schema is None else reader.schema(settings.schema)).load(settings.path)


def in_one_line(error: Exception, settings: InputSettings) -> KernelCoresetError | None:
    """Return an error of Spark about the input as an error of this package; None if it is about something else."""
    found = _CONDITION.search(str(error))
    if found is None:
        return None
    condition, line = found[1], _STATE.sub("", found[2])
    if condition == "DATA_SOURCE_NOT_FOUND":  # `explain` says which package has it
        return None
    if condition.startswith(_MISSING):
        place = settings.path or settings.table or settings.query
        return DataError(f"The input {place!r} was not found or is empty. {line}")
    if condition.startswith("FAILED_READ_FILE"):
        if (explain_text(str(error)) or (BAD_DATA, ""))[0] != BAD_DATA:  # no permission, for example
            return None
        return DataError(f"A file of the input {settings.path!r} cannot be read: {line}")
    return SettingError(f"Spark cannot read the input: {line}")
