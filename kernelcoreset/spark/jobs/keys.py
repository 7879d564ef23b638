"""The input of the update job by key, and what shows whether the rows of a key have changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from kernelcoreset.checks import check_columns
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.paths import path_within
from kernelcoreset.jobs.settings.rows import InputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.jobs.delta import DeltaSource
from kernelcoreset.spark.jobs.input import Input, located, selected_rows
from kernelcoreset.spark.jobs.output import NO_VALUE
from kernelcoreset.spark.jobs.trace import traced
from kernelcoreset.spark.keyed_leaves import KEY

FILE_KEY = "key"
"""The partition column of the output if every file is a key."""
_OF_LISTING = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath")
_SEGMENT = re.compile("([^=/]+)=([^/]*)")
_SLASH = "%2F"
_SAFE = "/=:,+@!$&'()*;~-._"
_PATTERN = re.compile(r"[*?\[{]")
# Options that change from run to run, and not the rows: of the file system, and credentials.
_NOT_OF_ROWS = re.compile(
    r"^fs\.|^spark\.|secret|password|pwd|token|credential|(access|account|api).?key|\bsas\b", re.IGNORECASE
)
_OF_THE_MOMENT = re.compile(
    r"\b(current_date|current_timestamp|localtimestamp)\b|\b(now|curdate|rand|randn|random|uuid)\s*\(", re.IGNORECASE
)


@dataclass(frozen=True)
class Part:
    """The rows of a key, as they are now."""

    tag: Any
    """Plain data that changes when the rows change, or what the settings select of them (`input`).

    Tags are compared for equality, never for order: clocks differ.
    """
    files: tuple[str, ...] = ()
    size: int = 0


class KeyedInput:
    """The input of a job by key.

    Parameters
    ----------
    spark : SparkSession
    settings : Settings
    tags : mapping, optional
        The tags of the keys that the store has, as an earlier run got them from `parts`.
    seen : mapping, optional
        What `seen_now` returned then.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        tags: Mapping[str, Any] | None = None,
        seen: Mapping[str, Any] | None = None,
    ) -> None:
        self.spark = spark
        self.settings = settings
        self.key_col = settings.update.key_col
        self._tags, self._seen = tags or {}, seen
        if self.key_col is None and (settings.input.path is None or settings.input.format == "delta"):
            raise SettingError(
                "`update.key_col` is required if the input is not a folder of files: the column by which rows are "
                'replaced together, such as "day".'
            )
        with located(settings.input):
            self.table = DeltaSource.find(spark, settings.input, seen) if self.key_col else None
        wanted_input = settings.input
        if self.table is not None:  # the same rows in every step, whatever is written meanwhile
            wanted_input = replace(settings.input, options=self.table.pinned_options)
        self.data = Input(spark, wanted_input, settings.coreset.seed, settings.wanted_features)
        wanted = {"update.key_col": self.key_col, "update.version_col": settings.update.version_col}
        check_columns({setting: [name] for setting, name in wanted.items() if name}, self.data.frame.columns)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The keys of the input; there is at least one."""
        found = self._parts_by_column() if self.key_col else self._parts_by_file()
        if not found:
            raise DataError(
                f"The input {self._place!r} has no {'rows' if self.key_col else 'files'}: all keys would be "
                "removed from the store. Nothing was changed."
            )
        return found

    @property
    def root(self) -> str | None:
        """The folder that holds the files of all keys; None if keys are values of a column."""
        return None if self.key_col else self._root

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
        if self.key_col:
            return self._rows_by_column(self.data.frame, keys)
        return self._with_key(self._read_files(list(keys), self._schema))

    def traced_rows_of(self, keys: Iterable[str]) -> DataFrame:
        """Return the same with the columns that say where each row is from."""
        if self.key_col:
            return self._rows_by_column(self.data.traced, keys)
        keys = list(keys)
        source, names = traced(
            self._read_files(keys, self._schema),
            self.settings.input,
            [*self.columns, KEY],
            lambda schema, options: self._read_files(keys, schema, options),
        )
        return self._with_key(source, *names)

    def _rows_by_column(self, frame: DataFrame, keys: Iterable[str]) -> DataFrame:
        key = F.col(quoted(str(self.key_col))).cast("string")
        return frame.withColumn(KEY, key).where(F.col(KEY).isin(list(keys)))

    def _read_files(self, keys: list[str], schema: StructType, more: Mapping[str, str] | None = None) -> DataFrame:
        options = {"basePath": self._root, **self.settings.input.options, **(more or {})}
        reader = self.spark.read.format(self.settings.input.format).options(**options).schema(schema)
        return reader.load([file for key in keys for file in self.parts[key].files])

    def _with_key(self, raw: DataFrame, *also: str) -> DataFrame:
        if self._folder_columns:
            key = F.concat_ws("/", *[_segment(name) for name in self._folder_columns])
        else:
            key = F.substring("_metadata.file_path", len(self._encoded_root) + 1, 1_000_000)
        keyed = selected_rows(raw.select("*", key.alias(KEY)), self.settings.input, KEY, *also)
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
            named = [[address.rpartition("/")[2], length, changed] for address, _, length, changed in sorted(files)]
            tag = {"input": self.selection, "files": named}
            parts[key] = Part(tag, tuple(path for _, path, _, _ in sorted(files)), sum(file[2] for file in files))
        shapes = {tuple(name for name, _ in _SEGMENT.findall(key)) for key in parts}
        if len(shapes) > 1 and self._folder_columns:
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
        if self.table is None or self.settings.update.version_col is not None:
            return self._parts_by_hash()
        seen = self._seen if self._fits(self._seen) else None
        if seen is not None and seen["version"] == self.table.version:
            return {key: Part(self._tags[key]) if key in self._tags else self._now for key in self._keys_of(seen)}
        if not self.table.can_tell_changes(str(self.key_col)):
            return self._parts_by_hash()
        return self._parts_by_version(self.table, seen)

    def _parts_by_version(self, table: DeltaSource, seen: Mapping[str, Any] | None) -> dict[str, Part]:
        """The keys with the version of the table at which each was read; only new commits of its log are read."""
        known = {key: tag["version"] for key, tag in self._tags.items() if self._fits(tag)}
        since = seen["version"] if seen else min(known.values(), default=table.version)
        changes = table.changes(since, str(self.key_col)) if since < table.version else {}
        if changes is None:
            known, changes, seen = {}, {}, None
        self._refuse_no_key(changes)
        if seen is None:
            here = self._keys_in(self.data.frame)
        else:
            changed = [str(key) for key in changes]
            here = sorted(self._keys_of(seen) - set(changed))
            here += self._keys_in(self._rows_by_column(self.data.frame, changed)) if changed else []
        return {
            key: Part(self._tags[key]) if changes.get(key, -1) <= known.get(key, -2) else self._now
            for key in sorted(here)
        }

    def _keys_in(self, frame: DataFrame) -> list[str]:
        rows = frame.select(F.col(quoted(str(self.key_col))).cast("string").alias(KEY)).distinct().toArrow().to_pylist()
        self._refuse_no_key([row[KEY] for row in rows])
        return [row[KEY] for row in rows]

    def _refuse_no_key(self, keys: Iterable[str | None]) -> None:
        if None in keys:
            raise DataError(f"Column {self.key_col} must have no nulls to be the key. Fill them, or set input.where.")

    def _fits(self, one: Any) -> bool:
        """Whether a tag, or what was seen, is of the same table and selection."""
        return (
            isinstance(one, Mapping)
            and self.table is not None
            and (one.get("table"), one.get("input")) == (self.table.id, self.selection)
            and one["version"] <= self.table.version
        )

    @property
    def _now(self) -> Part:
        """A key that is read at the current version of the table."""
        if self.table is None:
            raise TypeError("Only a Delta table has versions.")
        return Part({"input": self.selection, "table": self.table.id, "version": self.table.version})

    def _keys_of(self, seen: Mapping[str, Any]) -> set[str]:
        return ({*self._tags, *seen["others"]}) - set(seen["gone"])

    def seen_now(self, stored: Iterable[str]) -> dict[str, Any] | None:
        """Return what the next run needs to know to read only new commits of a Delta table; None for other inputs.

        Parameters
        ----------
        stored : iterable of str
            The keys of the store, all of them compared with the input.
        """
        if self.table is None or self.settings.update.version_col is not None:
            return None
        stored = set(stored)
        return {
            **self._now.tag,
            "moment": self.table.moment,
            "others": sorted(self.parts.keys() - stored),
            "gone": sorted(stored - self.parts.keys()),
        }

    def _parts_by_hash(self) -> dict[str, Part]:
        """Count and sum of hashes per key, of the version column or else of all columns; the order of rows is free."""
        frame, update = self.data.frame, self.settings.update
        names = [update.version_col] if update.version_col else frame.columns
        key = F.col(quoted(str(self.key_col))).cast("string").alias(KEY)
        mark = F.xxhash64(*[F.col(quoted(str(name))) for name in names]).cast("decimal(38,0)")
        marked = frame.select(key, mark.alias("mark"))
        found = marked.groupBy(KEY).agg(F.count("*").alias("rows"), F.sum("mark").cast("string").alias("mark"))
        rows = sorted(found.toArrow().to_pylist(), key=lambda row: str(row[KEY]))
        self._refuse_no_key([row[KEY] for row in rows])
        return {
            row[KEY]: Part({"input": self.selection, "rows": row["rows"], "hash": row["mark"]}, (), row["rows"])
            for row in rows
        }

    # --- the settings ------------------------------------------------------------------------------------------------

    @property
    def _place(self) -> str:
        wanted = self.settings.input
        return str(wanted.path or wanted.table or wanted.query or wanted.format)

    @cached_property
    def selection(self) -> str:
        """A digest of the settings that decide which rows and values the files or the table give."""
        wanted = self.settings.input
        options = {
            name.lower(): text
            for name, text in wanted.options.items()
            if name.lower() not in _OF_LISTING and not _NOT_OF_ROWS.search(name)
        }
        parts = [wanted.where, wanted.select, wanted.format, wanted.schema, sorted(options.items()), wanted.id_col]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def check_input(settings: Settings) -> None:
    """Raise SettingError if the input, by its settings alone, cannot be followed from run to run."""
    _refuse_one_partition(settings.input)
    if settings.update.label == "none" and settings.input.bad_rows == "quarantine":
        raise SettingError(
            '`input.bad_rows` = "quarantine" needs labels: bad rows are put aside while rows are labelled; got '
            '`update.label` = "none". Use "drop" or "fail", or another label.'
        )
    if settings.update.key_col is None or settings.update.version_col is not None:
        for text in (settings.input.where or "", *settings.input.select):
            if _OF_THE_MOMENT.search(text):
                raise SettingError(
                    f"`input.where` and `input.select` must give the same rows in every run; got {text!r}. A key is "
                    "read again only if it changes. Use update.until or update.window for keys up to a date."
                )


def _refuse_one_partition(wanted: InputSettings) -> None:
    """Each run would take all other partitions for removed ones, and remove them from the store."""
    segments = [segment for segment in path_within(wanted.path or "").split("/") if segment]
    while segments and not _SEGMENT.fullmatch(segments[-1]) and re.search(r"[*?\[{.]", segments[-1]):
        segments.pop()  # files, or a pattern of them
    found = _SEGMENT.fullmatch(segments[-1]) if segments else None
    if found is None:
        return
    folder = str(wanted.path).partition(f"/{segments[-1]}")[0]
    key = "KEYS" if _PATTERN.search(found[2]) else found[2]
    raise SettingError(
        f"`input.path` must be the folder of all partitions; got the partition {segments[-1]} in {wanted.path!r}: the "
        f"others would be removed from the store. Set input.path={folder}, and update.keys={key} to read one partition "
        f"or update.until={key} to read all up to it."
    )


def _segment(name: str) -> Column:
    """The part of a key from a partition column, as `KeyedInput._key_of` takes it from the name of a folder."""
    value = F.coalesce(F.col(quoted(name)), F.lit(NO_VALUE))
    return F.concat(F.lit(f"{name}="), F.replace(value, F.lit("/"), F.lit(_SLASH)))
