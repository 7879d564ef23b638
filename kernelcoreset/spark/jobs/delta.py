"""Delta tables: what changed since a version, and writes of one commit each that a retried run does not repeat."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.jobs.record import log
from kernelcoreset.jobs.settings.rows import InputSettings, OutputSettings
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.hadoop import qualified_path

FORMAT = "delta"
_TIME_TRAVEL = ("versionasof", "timestampasof")
_ACTION = "struct<partitionValues:map<string,string>,dataChange:boolean>"
_LOOK_BACK = 50  # commits of other writers that may come between a write and the look at the history


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeltaSource:
    """The Delta table that a job reads, at its newest version.

    Delta counts all files of the table to describe it (`DESCRIBE DETAIL`), which takes seconds. So it is asked to only
    if something has changed: the newest commit is known by its number and time.

    Parameters
    ----------
    spark : SparkSession
    settings : InputSettings
    name : str
        For SQL.
    version : int
    committed : int
        When that version was made, in microseconds since 1970.
    known_id : str, optional
        The id of the table, if it is known.
    """

    spark: SparkSession
    settings: InputSettings
    name: str
    version: int
    committed: int
    known_id: str | None = None

    @staticmethod
    def find(spark: SparkSession, settings: InputSettings, seen: Mapping[str, Any] | None = None) -> DeltaSource | None:
        """Return the table that the settings name; None if it is no Delta table, or a version of it is asked for.

        `seen` is what an earlier run noted: its `moment`, and the id as `table`.
        """
        if any(name.lower() in _TIME_TRAVEL for name in settings.options):
            return None
        if settings.path is not None and settings.format == FORMAT:
            name = name_of_path(spark, settings.path)
        elif settings.table is not None and _provider(spark, settings.table) == FORMAT:
            name = settings.table
        else:
            return None
        newest = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").select("version", F.unix_micros("timestamp")).collect()
        found = DeltaSource(spark, settings, name, *newest[0])
        if seen is None or seen.get("moment") != found.moment:
            return found
        return replace(found, known_id=seen["table"])

    @property
    def moment(self) -> list[Any]:
        """What no other table has, and this one at no other version: plain data."""
        return [self.name, self.version, self.committed]

    @property
    def id(self) -> str:
        """The id that Delta gave the table; a table that is dropped and created again has another."""
        return self.known_id or str(self.detail.id)

    @property
    def location(self) -> str:
        """The folder of the table."""
        return str(self.detail.location)

    @cached_property
    def detail(self) -> Row:
        """The table as Delta describes it."""
        return self.spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0]

    @property
    def pinned_options(self) -> dict[str, str]:
        """Options of the reader that read this version, whatever is written meanwhile."""
        return {**self.settings.options, "versionAsOf": str(self.version)}

    def can_tell_changes(self, key_col: str) -> bool:
        """Return whether `changes` can work: by the change data feed, or because keys are partitions of the table."""
        return self._has_feed or self._has_partitions_of(key_col)

    def changes(self, since: int, key_col: str) -> dict[str | None, int] | None:
        """Return the keys that changed after a version, each with the version of its last change.

        Commits that only move rows, such as OPTIMIZE and VACUUM, change no key. None if the table no longer has the
        commits, or is not allowed to be asked.
        """
        for is_possible, read in (
            (self._has_feed, self._changes_by_feed),
            (self._has_partitions_of(key_col), self._changes_by_log),
        ):
            if not is_possible:
                continue
            try:
                rows = read(since, key_col).groupBy("key").agg(F.max("version").alias("version")).collect()
                return {row["key"]: row["version"] for row in rows}
            except Exception as error:  # of py4j's classes, which Spark Connect does not have; the next way may work
                log.debug("The changes since version %d cannot be read.", since, exc_info=error)
        log.warning("The Delta log no longer tells what changed since version %d: all keys are read again.", since)
        return None

    @property
    def _has_feed(self) -> bool:
        return str(self.detail.properties.get("delta.enableChangeDataFeed")).lower() == "true"

    def _has_partitions_of(self, key_col: str) -> bool:
        # With column mapping the log has other names for columns.
        is_mapped = self.detail.properties.get("delta.columnMapping.mode", "none") != "none"
        return key_col in self.detail.partitionColumns and not self.settings.select and not is_mapped

    def _changes_by_feed(self, since: int, key_col: str) -> DataFrame:
        between = {"readChangeFeed": "true", "startingVersion": str(since + 1), "endingVersion": str(self.version)}
        reader = self.spark.read.format(FORMAT).options(**between)
        table = self.settings.table
        frame = reader.table(table) if table is not None else reader.load(self.settings.path)
        frame = frame.selectExpr(*self.settings.select, "_commit_version") if self.settings.select else frame
        # No `input.where`: a row that no longer meets it has changed too.
        return frame.select(
            F.col(quoted(key_col)).cast("string").alias("key"), F.col("_commit_version").alias("version")
        )

    def _changes_by_log(self, since: int, key_col: str) -> DataFrame:
        files = [f"{self.location}/_delta_log/{version:020d}.json" for version in range(since + 1, self.version + 1)]
        actions = self.spark.read.schema(f"add {_ACTION}, remove {_ACTION}").json(files)
        version = F.regexp_extract("_metadata.file_name", r"^(\d+)", 1).cast("long").alias("version")
        action = F.coalesce("add", "remove")
        key = action["partitionValues"][key_col]
        # As Spark shows a value of the column's type: the log may write it otherwise.
        key = key.cast(self.spark.read.format(FORMAT).load(self.location).schema[key_col].dataType).cast("string")
        return actions.select(key.alias("key"), version, action["dataChange"].alias("changed")).where("changed")


def name_of_path(spark: SparkSession, path: str) -> str:
    """Return the name by which SQL knows the Delta table at a path."""
    return f"{FORMAT}.{quoted(qualified_path(spark, path))}"


def _provider(spark: SparkSession, table: str) -> str | None:
    about = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").where("col_name = 'Provider'").collect()
    return str(about[0].data_type).lower() if about else None


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    """What a commit says about the run that made it.

    Parameters
    ----------
    job, run_id : str
        Shown by DESCRIBE HISTORY as userMetadata.
    writer : str, optional
        With `number`, what makes a write idempotent (`txnAppId` and `txnVersion`): Delta does not write again what the
        same writer has written under this number or a later one.
    number : int
    """

    job: str
    run_id: str
    writer: str | None = None
    number: int = 0
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    """Tells the commit of this attempt from that of an earlier one with the same run id."""

    @property
    def options(self) -> dict[str, str]:
        """The options of Delta's writer."""
        shown = {"userMetadata": json.dumps({"job": self.job, "run": self.run_id, "attempt": self.attempt})}
        if self.writer is None:
            return shown
        return {**shown, "txnAppId": f"kernelcoreset-{self.writer}", "txnVersion": str(self.number)}

    def is_in(self, spark: SparkSession, name: str) -> bool:
        """Return whether this attempt has made its commit; Delta does not say that it has skipped one."""
        history = spark.sql(f"DESCRIBE HISTORY {name} LIMIT {_LOOK_BACK}")
        return history.where(F.col("userMetadata").contains(self.attempt)).count() > 0


def write_delta(frame: DataFrame, settings: OutputSettings, commit: Commit, replaced: str | None = None) -> bool:
    """Write rows to a Delta table, by path or name, in one commit; return False if an earlier attempt has done it.

    Parameters
    ----------
    frame : DataFrame
    settings : OutputSettings
    commit : Commit
    replaced : str, optional
        SQL condition: the rows that the new ones replace, whatever the mode. All new rows must meet it.
    """
    spark = frame.sparkSession
    options = {**settings.options, **commit.options}
    if settings.table is not None:
        name = settings.table
        _write_table(frame, settings, options, replaced)
    else:
        writer = _partitioned(frame, settings).options(**options)
        _in_mode(writer, settings.mode, replaced).save(settings.path)
        name = name_of_path(spark, str(settings.path)) if commit.writer else ""
    return commit.writer is None or commit.is_in(spark, name)


def existing_rows(spark: SparkSession, settings: OutputSettings) -> DataFrame | None:
    """Return the rows of a Delta output; None if there is no table yet."""
    try:
        frame = (
            spark.table(settings.table)
            if settings.table is not None
            else spark.read.format(FORMAT).load(str(settings.path))
        )
        frame.schema  # noqa: B018  Spark Connect looks nothing up before this
    except Exception as error:  # of py4j's classes, which Spark Connect does not have
        if any(text in str(error) for text in ("PATH_NOT_FOUND", "PATH_DOES_NOT_EXIST", "TABLE_OR_VIEW_NOT_FOUND")):
            return None
        raise
    return frame


def partition_condition(partitions: Sequence[Mapping[str, str]], no_value: str) -> str:
    """Return the SQL condition of the rows in some partitions, given by the values of their columns as strings.

    Examples
    --------
    >>> partition_condition([{"day": "2026-01-01"}, {"day": ""}], no_value="")
    "CAST(`day` AS STRING) IN ('2026-01-01') OR `day` IS NULL"
    >>> partition_condition([{"year": "2026", "month": "1"}], no_value="")
    "(CAST(`year` AS STRING) IN ('2026') AND CAST(`month` AS STRING) IN ('1'))"
    """
    columns = list(partitions[0])
    if len(columns) > 1:
        return " OR ".join(
            f"({' AND '.join(partition_condition([{name: value}], no_value) for name, value in partition.items())})"
            for partition in partitions
        )
    column = quoted(columns[0])
    values = [partition[columns[0]] for partition in partitions]
    texts = [_text(value) for value in values if value not in ("", no_value)]
    conditions = [f"CAST({column} AS STRING) IN ({', '.join(texts)})"] if texts else []
    return " OR ".join([*conditions, *([f"{column} IS NULL"] if len(texts) < len(values) else [])])


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _write_table(frame: DataFrame, settings: OutputSettings, options: dict[str, str], replaced: str | None) -> None:
    """Write by name. Only a table that exists can be written in a plan that can be observed, so it is made first."""
    table, spark = str(settings.table), frame.sparkSession
    if not spark.catalog.tableExists(table):
        plain = {name: text for name, text in options.items() if name not in ("txnAppId", "txnVersion")}
        _partitioned(spark.createDataFrame([], frame.schema), settings).options(**plain).saveAsTable(table)
    has_new_schema = options.get("overwriteSchema", "").lower() == "true"
    if settings.mode == "overwrite" and replaced is None and has_new_schema:
        location = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0].location
        _partitioned(frame, settings).options(**options).mode("overwrite").save(location)
    elif replaced is not None:
        ordered = _in_order_of(frame, spark.table(table))
        ordered.write.format(FORMAT).options(**options, replaceWhere=replaced).mode("overwrite").insertInto(table)
    elif settings.mode == "overwrite-partitions":
        frame.writeTo(table).options(**options).overwritePartitions()
    elif settings.mode == "overwrite":
        frame.writeTo(table).options(**options).overwrite(F.lit(True))
    else:
        frame.writeTo(table).options(**options).append()


def _in_order_of(frame: DataFrame, table: DataFrame) -> DataFrame:
    """The columns in the order of a table, by which `insertInto` goes; new ones at the end."""
    own = {name.lower(): name for name in frame.columns}  # Spark ignores case
    known = [own.pop(name.lower()) for name in table.columns if name.lower() in own]
    return frame.select(*[quoted(name) for name in (*known, *own.values())])


def _partitioned(frame: DataFrame, settings: OutputSettings) -> DataFrameWriter:
    writer = frame.write.format(FORMAT)
    return writer.partitionBy(*settings.partition_by) if settings.partition_by else writer


def _in_mode(writer: DataFrameWriter, mode: str, replaced: str | None) -> DataFrameWriter:
    if replaced is not None:
        return writer.mode("overwrite").option("replaceWhere", replaced)
    if mode == "overwrite-partitions":
        return writer.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    return writer.mode(mode)
