"""The sections of a settings file for rows: [input], where they are read, and [output], where they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelcoreset.checks import check_choice, check_count, shown
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.settings.fields import check_texts, column_names, flat_options, set_field

_FORMATS_OF_FILES = ("parquet", "orc", "csv", "json", "text", "avro", "delta", "xml", "binaryFile")
_DEMO_FEATURES = ("longitude", "latitude")


@dataclass(frozen=True)
class InputSettings:
    """[input]: the rows to cluster.

    Exactly one of `path`, `table`, `query` and `demo_rows` says where they are. A `format` without files, such as kafka
    or rate, needs none of them: its `options` say where the rows are.

    Parameters
    ----------
    path : str, optional
        File, folder or pattern that Spark can read; relative to the working directory.
    table : str, optional
        Table name, with catalog and schema where needed.
    query : str, optional
        A SQL query.
    demo_rows : int, optional
        Generate this many geo-like points from the seed, with the columns longitude and latitude.
    format : str
        Format of `path`: parquet, csv, json, orc, delta, ...; or a source without a path: kafka, rate, ...
    options : mapping
        Options of Spark's reader, such as `{header = true}`.
    schema : str, optional
        Columns and types, such as "x double, y double", if the files do not have them. Streams of files need it.
    select : list of str
        SQL expressions to select instead of all columns, such as "CAST(value AS DOUBLE) AS x".
    features : list of str or str
        Numeric columns, or the name of one array or vector column. Required by all jobs but graph, which has edges
        instead of points; the default for `demo_rows` is its two columns.
    weight_col, id_col : str, optional
        Column of row weights; column of row ids, which the coreset keeps.
    where : str, optional
        SQL condition; only rows for which it holds are read.
    bad_rows : {"fail", "drop", "quarantine"}
        What to do with rows that have a null, NaN, infinity or a wrong length among features or weight.
    quarantine_path : str, optional
        Where bad rows are written, with the reason, under "quarantine".
    scan : {"auto", "spark", "direct"}
        "direct": tasks open the Parquet files themselves, which is faster; "auto": "direct" if possible, else "spark".
    """

    path: str | None = None
    table: str | None = None
    query: str | None = None
    demo_rows: int | None = None
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    select: tuple[str, ...] = ()
    features: tuple[str, ...] | str = ()
    weight_col: str | None = None
    id_col: str | None = None
    where: str | None = None
    bad_rows: str = "fail"
    quarantine_path: str | None = None
    scan: str = "auto"

    def __post_init__(self) -> None:
        check_texts("input", self, "path", "table", "query", "format", "weight_col", "id_col", "where")
        check_texts("input", self, "quarantine_path", "schema")
        if not self.has_no_place or self.format in _FORMATS_OF_FILES:
            _exactly_one("input", self, "path", "table", "query", "demo_rows")
        if self.demo_rows is not None:
            check_count("input.demo_rows", self.demo_rows)
        set_field(self, "options", flat_options("input.options", self.options))
        set_field(self, "select", column_names("input.select", self.select))
        features = self.features or (_DEMO_FEATURES if self.demo_rows else ())
        if not isinstance(features, str):
            features = column_names("input.features", features)
        set_field(self, "features", features)
        check_choice("input.bad_rows", self.bad_rows, ("fail", "drop", "quarantine"))
        if (self.bad_rows == "quarantine") != (self.quarantine_path is not None):
            raise SettingError(
                '`input.quarantine_path` goes with `input.bad_rows` = "quarantine": give both or neither; '
                f"got {self.quarantine_path!r} with {self.bad_rows!r}."
            )
        check_choice("input.scan", self.scan, ("auto", "spark", "direct"))
        if self.scan == "direct" and not self.is_whole_files:
            raise SettingError(
                '`input.scan` = "direct" reads whole Parquet files: it needs `input.path`, format "parquet" and no '
                '`input.where` or `input.select`. Use "auto", which reads directly if it can.'
            )
        if self.weight_col is not None and self.weight_col in self.feature_columns:
            raise SettingError(f"`input.weight_col` must not be one of the features; got {self.weight_col!r}.")

    @property
    def has_no_place(self) -> bool:
        """Whether `options` alone say where the rows are."""
        return all(place is None for place in (self.path, self.table, self.query, self.demo_rows))

    @property
    def is_whole_files(self) -> bool:
        """Whether the rows are all rows of Parquet files, unchanged."""
        return self.path is not None and self.format == "parquet" and self.where is None and not self.select

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The names of the feature columns; one name for an array or vector column."""
        return (self.features,) if isinstance(self.features, str) else self.features


@dataclass(frozen=True)
class OutputSettings:
    """[output]: where the rows are written with their labels, to one of `path` and `table`.

    Parameters
    ----------
    path, table : str, optional
        Folder or table to write.
    format : str
        Format of the files or the table: parquet, csv, json, orc, delta, ...
    mode : {"error", "overwrite", "append", "overwrite-partitions"}
        What to do if the output exists; "error" leaves it as it is and stops before any work.
        "overwrite-partitions" replaces only the partitions that have new rows.
    partition_by : list of str
        Columns by whose values the output is divided into folders.
    prediction_col, distance_col : str
        Names of the new columns: the cluster (0, 1, ...) and the distance to its center in the kernel's feature space.
    margin_col : str, optional
        Name of a third new column: how much farther the second nearest center is. Not written unless named.
    outlier_col : str, optional
        Name of a further new column: the distance by the typical one in the cluster. Not written unless named.
    describe : bool
        Whether the record of the run says what the clusters are, by the columns that are written.
    columns : list of str, optional
        Input columns to write; all by default.
    options : mapping
        Options of Spark's writer, such as `{compression = "zstd"}`.
    """

    path: str | None = None
    table: str | None = None
    format: str = "parquet"
    mode: str = "error"
    partition_by: tuple[str, ...] = ()
    prediction_col: str = "prediction"
    distance_col: str = "distance"
    margin_col: str | None = None
    outlier_col: str | None = None
    describe: bool = True
    columns: tuple[str, ...] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_texts("output", self, "path", "table", "format", "prediction_col", "distance_col", "margin_col")
        check_texts("output", self, "outlier_col")
        if not isinstance(self.describe, bool):
            raise SettingError(f"`output.describe` must be true or false; got {shown(self.describe)}.")
        if self.path is not None and self.table is not None:
            raise SettingError("Give one of `output.path` and `output.table`; got both.")
        check_choice("output.mode", self.mode, ("error", "overwrite", "append", "overwrite-partitions"))
        set_field(self, "partition_by", column_names("output.partition_by", self.partition_by))
        if self.columns is not None:
            set_field(self, "columns", column_names("output.columns", self.columns))
            lost = sorted(set(self.partition_by) - {*self.columns, *self.new_columns})
            if lost:
                raise SettingError(f"`output.columns` must hold the columns of `output.partition_by`; missing: {lost}.")
        if self.mode == "overwrite-partitions" and self.path is not None and not self.partition_by:
            raise SettingError('`output.mode` = "overwrite-partitions" needs `output.partition_by`; it is empty.')
        if len({name.lower() for name in self.new_columns}) < len(self.new_columns):  # Spark ignores case
            raise SettingError(
                f"The new columns of `output` must have different names, also without case; got "
                f"{list(self.new_columns)}. Set output.prediction_col, output.distance_col or output.margin_col."
            )
        set_field(self, "options", flat_options("output.options", self.options))

    @property
    def new_columns(self) -> tuple[str, ...]:
        """Names of the columns that labelling adds."""
        further = [name for name in (self.margin_col, self.outlier_col) if name is not None]
        return (self.prediction_col, self.distance_col, *further)


def _exactly_one(section_name: str, section: Any, *names: str) -> None:
    given = [name for name in names if getattr(section, name) is not None]
    if len(given) != 1:
        listed = ", ".join(f"`{section_name}.{name}`" for name in names)
        raise SettingError(f"Give exactly one of {listed}; got {' and '.join(given) or 'none'}.")
