"""The input of the update job by key, and what shows whether the rows of a key have changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from kernelcoreset.checks import check_columns
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.paths import path_within
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.jobs.input import Input, selected_rows
from kernelcoreset.spark.jobs.output import NO_VALUE
from kernelcoreset.spark.keyed_leaves import KEY

FILE_KEY = "key"
"""The partition column of the output if every file is a key."""
_OF_LISTING = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath")
_SEGMENT = re.compile("([^=/]+)=([^/]*)")
_SLASH = "%2F"
_SAFE = "/=:,+@!$&'()*;~-._"
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Part:
    """The rows of a key, as they are now."""

    tag: Any
    """Plain data that changes when the rows change. Tags are compared for equality, never for order: clocks differ."""
    files: tuple[str, ...] = ()
    size: int = 0


class KeyedInput:
    """The input of a job by key."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings
        self.data = Input(spark, settings.input, settings.coreset.seed)
        self.key_col = settings.update.key_col
        if self.key_col is None and (settings.input.path is None or settings.input.format == "delta"):
            raise SettingError(
                "`update.key_col` is required if the input is not a folder of files: the column by which rows are "
                'replaced together, such as "day".'
            )
        wanted = {"update.key_col": self.key_col, "update.version_col": settings.update.version_col}
        check_columns({setting: [name] for setting, name in wanted.items() if name}, self.data.frame.columns)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The keys of the input."""
        return self._parts_by_column() if self.key_col else self._parts_by_file()

    @property
    def columns(self) -> list[str]:
        """The columns of `rows_of` without `KEY`."""
        by_file = self.key_col is None and not self._folder_columns
        return [*self.data.frame.columns, *([FILE_KEY] if by_file else [])]

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by which the output is partitioned, so that the labels of a key have their own folder."""
        if self.key_col:
            return (self.key_col,)
        return self._folder_columns or (FILE_KEY,)

    def partition_of(self, key: str) -> dict[str, str]:
        """Return the values of these columns for a key, as strings."""
        if self.key_col or not self._folder_columns:
            return {self.partition_by[0]: key}
        return {name: value.replace(_SLASH, "/") for name, value in _SEGMENT.findall(key)}

    def rows_of(self, keys: Iterable[str]) -> DataFrame:
        """Return the rows of some keys, with the additional column `KEY`. Files are read with the known schema."""
        keys = list(keys)
        if self.key_col:
            key = F.col(quoted(self.key_col)).cast("string")
            return self.data.frame.withColumn(KEY, key).where(F.col(KEY).isin(keys))
        options = {"basePath": self._root, **self.settings.input.options}
        reader = self.spark.read.format(self.settings.input.format).options(**options).schema(self._schema)
        raw = reader.load([file for key in keys for file in self.parts[key].files])
        if self._folder_columns:
            key = F.concat_ws("/", *[_segment(name) for name in self._folder_columns])
        else:
            key = F.substring("_metadata.file_path", len(self._encoded_root) + 1, 1_000_000)
        keyed = selected_rows(raw.select("*", key.alias(KEY)), self.settings.input, KEY)
        return keyed if self._folder_columns else keyed.withColumn(FILE_KEY, F.col(KEY))

    def key_of_file(self, path: str) -> str:
        """Return the key of a local file."""
        return self._key_of(self._encoded_root + quote(path, safe=_SAFE).partition(path_within(self._encoded_root))[2])

    # --- by file -----------------------------------------------------------------------------------------------------

    def _parts_by_file(self) -> dict[str, Part]:
        found: dict[str, list[tuple[str, str, int, int]]] = {}
        for row in self._files:
            found.setdefault(self._key_of(row["address"]), []).append(
                (row["address"], row["path"], row["length"], row["changed"])
            )
        parts = {}
        for key, files in sorted(found.items()):
            tag = [[address.rpartition("/")[2], length, changed] for address, _, length, changed in sorted(files)]
            parts[key] = Part(tag, tuple(path for _, path, _, _ in sorted(files)), sum(file[2] for file in files))
        shapes = {tuple(name for name, _ in _SEGMENT.findall(key)) for key in parts}
        if self._folder_columns and len(shapes) > 1:
            raise DataError(
                f"The partition folders of {self.settings.input.path} must have the same columns everywhere; "
                f"got {', '.join('/'.join(shape) or 'none' for shape in sorted(shapes))}."
            )
        return parts

    @cached_property
    def _files(self) -> list[Mapping[str, Any]]:
        """All files of the input with size and time. Spark lists them, on any file system, and opens none."""
        wanted = self.settings.input
        options = {name: text for name, text in wanted.options.items() if name.lower() in _OF_LISTING}
        listing = self.spark.read.format("binaryFile").options(**options).load(str(wanted.path))
        changed = F.unix_micros("modificationTime").alias("changed")
        rows = listing.select(F.col("_metadata.file_path").alias("address"), "path", "length", changed).toArrow()
        return list(rows.to_pylist())

    def _key_of(self, address: str) -> str:
        relative = address.removeprefix(self._encoded_root)
        segments = _SEGMENT.findall(unquote(relative).rpartition("/")[0])
        return "/".join(f"{name}={unquote(value).replace('/', _SLASH)}" for name, value in segments) or relative

    @cached_property
    def _folder_columns(self) -> tuple[str, ...]:
        address: str = min(row["address"] for row in self._files)
        folders = unquote(address.removeprefix(self._encoded_root)).rpartition("/")[0]
        return tuple(name for name, _ in _SEGMENT.findall(folders))

    @cached_property
    def _encoded_root(self) -> str:
        """The start that all addresses share: the path of the input up to its first pattern, and a slash."""
        path = str(self.settings.input.path)
        pattern = _PATTERN.search(path)
        base = path if pattern is None else path[: pattern.start()].rpartition("/")[0]
        base = quote(path_within(base) or base, safe=_SAFE).strip("/").removeprefix("./")
        address: str = min(row["address"] for row in self._files)
        place = address.find(f"/{base}/")
        if place < 0:  # the input is one file
            return address.rpartition("/")[0] + "/"
        return address[: place + len(base) + 2]

    @property
    def _root(self) -> str:
        return unquote(self._encoded_root)

    @cached_property
    def _schema(self) -> StructType:
        """The schema of the source with partition columns as strings: 01 stays 01, as in the name of its folder."""
        wanted = self.settings.input
        taken = sorted(set(self._folder_columns) & {*wanted.feature_columns, wanted.weight_col})
        if taken:
            raise SettingError(f"A partition column cannot be a feature or the weight here; got {', '.join(taken)}.")
        return StructType(
            [
                StructField(field.name, StringType()) if field.name in self._folder_columns else field
                for field in self.data.source.schema.fields
            ]
        )

    # --- by column ---------------------------------------------------------------------------------------------------

    def _parts_by_column(self) -> dict[str, Part]:
        """Count and sum of hashes per key, of the version column or else of all columns; the order of rows is free."""
        frame, update = self.data.frame, self.settings.update
        names = [update.version_col] if update.version_col else frame.columns
        key = F.col(quoted(str(self.key_col))).cast("string").alias(KEY)
        mark = F.xxhash64(*[F.col(quoted(str(name))) for name in names]).cast("decimal(38,0)")
        marked = frame.select(key, mark.alias("mark"))
        found = marked.groupBy(KEY).agg(F.count("*").alias("rows"), F.sum("mark").cast("string").alias("mark"))
        rows = sorted(found.toArrow().to_pylist(), key=lambda row: str(row[KEY]))
        if any(row[KEY] is None for row in rows):
            raise DataError(f"Column {self.key_col} must have no nulls to be the key. Fill them, or set input.where.")
        return {row[KEY]: Part([row["rows"], row["mark"]], (), row["rows"]) for row in rows}


def _segment(name: str) -> Column:
    """The part of a key from a partition column, as `KeyedInput._key_of` takes it from the name of a folder."""
    value = F.coalesce(F.col(quoted(name)), F.lit(NO_VALUE))
    return F.concat(F.lit(f"{name}="), F.replace(value, F.lit("/"), F.lit(_SLASH)))


def natural_order(key: str) -> list[Any]:
    """Return a sort key that puts batch-9 before batch-10; dates are in the usual order."""
    return [(0, int(text), "") if text.isdigit() else (1, 0, text) for text in re.findall(r"\d+|\D+", key)]
