"""The keys into which a job's input falls, and what tells whether the rows of a key have changed."""

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

from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.paths import path_within
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.jobs.batch import Input
from kernelcoreset.spark.jobs.input import chosen_rows, open_input
from kernelcoreset.spark.jobs.output import NO_VALUE

KEY = "__kc_key"
FILE_KEY = "key"
"""The output's partition column where every file is a key of its own."""
_OF_LISTING = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath")
_SEGMENT = re.compile("([^=/]+)=([^/]*)")
_SLASH = "%2F"
_SAFE = "/=:,+@!$&'()*;~-._"
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Part:
    """What a key's rows were found to be."""

    tag: Any
    """Plain data that differs once the rows have changed. Compared for difference, never for order: clocks differ."""
    files: tuple[str, ...] = ()
    size: int = 0


class KeyedInput:
    """The input of a job by key."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings
        self.data = Input(spark, settings)
        self.key_col = settings.update.key_col
        if self.key_col is None and (settings.input.path is None or settings.input.format == "delta"):
            raise SettingError(
                "`update.key_col` is required where the input is not a folder of files: the column whose values are "
                'renewed as a whole, such as "day".'
            )
        there = self.data.frame.columns
        wanted = [name for name in (self.key_col, settings.update.version_col) if name is not None]
        missing = [name for name in wanted if name not in there]
        if missing:
            raise SettingError(f"Columns missing: {', '.join(missing)}. There are: {', '.join(there)}.")

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The keys that are there now."""
        return self._parts_by_column() if self.key_col else self._parts_by_file()

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by whose folders a key's labels are found in the output."""
        if self.key_col:
            return (self.key_col,)
        return self._folder_columns or (FILE_KEY,)

    def partition_of(self, key: str) -> dict[str, str]:
        """Return the values of these columns for a key, as texts."""
        if self.key_col or not self._folder_columns:
            return {self.partition_by[0]: key}
        return {name: value.replace(_SLASH, "/") for name, value in _SEGMENT.findall(key)}

    def rows_of(self, keys: Iterable[str]) -> DataFrame:
        """Return the rows of some keys, with one more column, `KEY`."""
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
        keyed = chosen_rows(raw.select("*", key.alias(KEY)), self.settings.input, KEY)
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
        """All files of the input, with size and time: listed by Spark, so on any file system, and not opened."""
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
        """The part of all addresses that the input's path stands for, up to its first pattern, with a slash."""
        path = str(self.settings.input.path)
        pattern = _PATTERN.search(path)
        base = path if pattern is None else path[: pattern.start()].rpartition("/")[0]
        base = quote(path_within(base) or base, safe=_SAFE).strip("/").removeprefix("./")
        address: str = min(row["address"] for row in self._files)
        place = address.find(f"/{base}/")
        if place < 0:  # one file, which is its own input
            return address.rpartition("/")[0] + "/"
        return address[: place + len(base) + 2]

    @property
    def _root(self) -> str:
        return unquote(self._encoded_root)

    @cached_property
    def _schema(self) -> StructType:
        """The input's own schema, partition columns as texts: 01 stays 01, as in the name of its folder."""
        wanted = self.settings.input
        whole = open_input(self.spark, wanted)
        taken = sorted(set(self._folder_columns) & {*wanted.feature_columns, wanted.weight_col})
        if taken:
            raise SettingError(f"A partition column cannot be a feature or the weight here; got {', '.join(taken)}.")
        return StructType(
            [
                StructField(field.name, StringType()) if field.name in self._folder_columns else field
                for field in whole.schema.fields
            ]
        )

    # --- by column ---------------------------------------------------------------------------------------------------

    def _parts_by_column(self) -> dict[str, Part]:
        """Count and sum of hashes a key: of the version column, or else of all columns, whatever the order of rows."""
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
    """The part of a key that a partition column makes, as `KeyedInput._key_of` finds it in the name of a folder."""
    value = F.coalesce(F.col(quoted(name)), F.lit(NO_VALUE))
    return F.concat(F.lit(f"{name}="), F.replace(value, F.lit("/"), F.lit(_SLASH)))


def natural_order(key: str) -> list[Any]:
    """Sort key under which batch-9 comes before batch-10, and dates as ever."""
    return [(0, int(text), "") if text.isdigit() else (1, 0, text) for text in re.findall(r"\d+|\D+", key)]
