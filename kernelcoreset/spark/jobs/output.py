"""Writing the output, so that a job that fails leaves the old output as it was."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.utils import is_remote

from kernelcoreset.errors import SettingError
from kernelcoreset.files.atomic import new_folder
from kernelcoreset.files.outputs import mark_output, why_foreign, why_no_output
from kernelcoreset.files.paths import local_path, open_path, scheme_of
from kernelcoreset.files.places import Place
from kernelcoreset.jobs.places import FILE_FORMATS, check_locations, not_own
from kernelcoreset.jobs.settings.rows import OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.hadoop import exists, names_below
from kernelcoreset.spark.jobs.delta import FORMAT as DELTA
from kernelcoreset.spark.jobs.delta import Commit, existing_rows, partition_condition, write_delta

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of a partition column's nulls."""
# What Spark escapes in the names of partition folders.
_ESCAPED = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_BUILT_IN = ("parquet", "orc", "csv", "json", "text")
_UNKNOWN = re.compile("Failed to find (the )?data source|No FileSystem for scheme|Class org.apache.hadoop.fs")
_PARTITION_MODE = "spark.sql.sources.partitionOverwriteMode"


def check_output(spark: SparkSession, settings: OutputSettings) -> None:
    """Raise SettingError before any work is done if the output exists and must not be overwritten.

    An error of Spark is raised if it does not know the format of the output or its file system.
    """
    _refuse_unknown(spark, settings)
    if settings.mode == "overwrite" and settings.path is not None and settings.format in FILE_FORMATS:
        refuse_foreign(spark, settings.path, "output.path")
    if settings.mode != "error":
        return
    if settings.format == DELTA:
        _refuse_delta_rows(spark, settings)
        return
    if settings.path is not None and _is_there(spark, settings.path):
        raise SettingError(f"`output.path` already exists: {settings.path}. Set output.mode to overwrite or append.")
    if settings.table is not None and spark.catalog.tableExists(settings.table):
        raise SettingError(f"`output.table` already exists: {settings.table}. Set output.mode to overwrite or append.")


def _is_there(spark: SparkSession, path: str) -> bool:
    folder = local_path(path)
    if folder is not None and folder.exists():
        return True
    # Only Spark can look at other file systems, and at the disks of a Spark Connect server.
    return (folder is None or is_remote()) and exists(spark, path)


def _refuse_delta_rows(spark: SparkSession, settings: OutputSettings) -> None:
    """A Delta table without rows counts as new: it was made for the job, or by one that was killed."""
    rows = existing_rows(spark, settings)
    if rows is not None and not rows.isEmpty():
        key = "output.path" if settings.table is None else "output.table"
        place = settings.table or settings.path
        raise SettingError(f"`{key}` already exists: {place}. Set output.mode to overwrite or append.")


def check_tables(spark: SparkSession, settings: Settings, source: DataFrame | None = None) -> None:
    """Raise SettingError if a table or a query reads what the job writes, or the output's table is what it reads.

    Where tables are is known only to Spark, so this is checked after it has started.

    Parameters
    ----------
    spark : SparkSession
    settings : Settings
    source : DataFrame, optional
        The input as it is; None for a stream, whose files are not known before they are read.
    """
    read: list[str] = []
    if source is not None and (settings.input.table or settings.input.query):
        read = sorted({file.rpartition("/")[0] for file in source.inputFiles()})
        key = "input.table" if settings.input.table else "input.query"
        check_locations(settings, key, read, is_written=False)
    table = settings.output.table if settings.has("output") else None
    if table is None or not spark.catalog.tableExists(table):
        return
    about = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").where("col_name = 'Location'").collect()
    places = [row.data_type for row in about]
    check_locations(settings, "output.table", places, is_written=True)
    for path in read:
        if any(Place(path).relation(Place(place)) for place in places):
            raise SettingError(
                f"`output.table` must not be where the input is; {table} is at {places[0]}, and the job reads {path}. "
                "Choose another table."
            )


def _refuse_unknown(spark: SparkSession, settings: OutputSettings) -> None:
    """Let Spark look up format and file system: it reads a path beside the output that does not exist."""
    if settings.path is None or (settings.format in _BUILT_IN and scheme_of(settings.path) == "file"):
        return
    try:
        absent = f"{settings.path.rstrip('/')}-absent"
        spark.read.format(settings.format).schema("x int").load(absent).schema  # noqa: B018
    except Exception as error:  # some errors of Spark are of py4j's classes, which Spark Connect does not have
        if _UNKNOWN.search(str(error)):
            raise


def write_output(
    frame: DataFrame,
    settings: OutputSettings,
    name: str = "output.path",
    *,
    is_part: bool = False,
    commit: Commit | None = None,
    replaced: Sequence[Mapping[str, str]] | None = None,
) -> bool:
    """Write the frame in the mode of the settings; return False if a Delta table has it from an earlier attempt.

    A local folder that is new or is overwritten is written beside its place and gets its name at the end, so that a job
    that is killed leaves the old one, or none. Everything else is left to Spark's writer, which is atomic for table
    formats such as Delta and for dynamic partition overwrite. Only what a job or Spark has written is replaced.

    Parameters
    ----------
    frame : DataFrame
    settings : OutputSettings
    name : str
        What errors call the path.
    is_part : bool
        Whether the path is one partition of an output. Then files that only look like Spark's are replaced too: a
        writer that is killed at its end leaves no marker.
    commit : Commit, optional
        What the history of a Delta table says about the run.
    replaced : sequence of mapping, optional
        For a Delta table: the partitions, by the values of their columns, that the rows replace in the same commit,
        whatever the mode.
    """
    if settings.format == DELTA:
        condition = partition_condition(replaced, NO_VALUE) if replaced else None
        own = replace(settings, mode="append") if settings.mode == "error" else settings  # `check_output` has looked
        return write_delta(frame, own, commit or Commit("", ""), condition)
    if settings.table is not None:
        _write_table(frame, settings, settings.table)
        return True
    path = str(settings.path)
    folder = local_path(path)
    was_there = folder is not None and folder.exists()
    if settings.mode == "overwrite" and settings.format in FILE_FORMATS:
        refuse_foreign(frame.sparkSession, path, name, needs_marker=not is_part)
    replaces = was_there and settings.mode == "overwrite"
    # A server of Spark Connect may have other disks than this process: only it knows what is new there.
    is_new = not was_there and settings.mode in ("overwrite", "error") and not is_remote()
    if folder is not None and settings.format in FILE_FORMATS and (replaces or is_new):
        with new_folder(folder, replace=settings.mode == "overwrite") as fresh:
            _writer(frame, settings).mode("error").save(str(fresh.absolute()))
        return True
    writer = _writer(frame, settings)
    if settings.mode == "overwrite-partitions":
        if folder is not None and settings.format in FILE_FORMATS:
            mark_output(path)  # Spark writes no _SUCCESS in this mode
        writer = writer.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    else:
        writer = writer.mode(settings.mode)
    try:
        writer.save(path)
    except BaseException:
        # An empty folder would stop the next run.
        if folder is not None and not was_there and why_no_output(path) is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return True


def refuse_foreign(spark: SparkSession, path: str, name: str, *, needs_marker: bool = True) -> None:
    """Raise SettingError if something is at a path that no job or Spark has written."""
    if local_path(path) is not None:
        reason = why_no_output(path, needs_marker=needs_marker)
    else:
        reason = _why_no_output_there(spark, path, needs_marker)
    if reason is not None:
        raise SettingError(not_own(f"`{name}`", path, reason))


def _why_no_output_there(spark: SparkSession, path: str, needs_marker: bool) -> str | None:
    """The same for another file system, which Spark may have other keys for than this process."""
    names = names_below(spark, path)
    if names is not None:
        return why_foreign(names, needs_marker=needs_marker)
    try:
        return why_no_output(path, needs_marker=needs_marker)
    except (OSError, pa.ArrowException, SettingError) as error:
        return f"what is there cannot be seen ({str(error).splitlines()[0]})"


def remove_partitions(spark: SparkSession, settings: OutputSettings, partitions: Sequence[Mapping[str, str]]) -> None:
    """Remove the rows of some partitions, given by the values of their columns; partitions may have no rows.

    Temporary folders that a killed job left behind are removed too.
    """
    if settings.format not in FILE_FORMATS:
        place = settings.table or f"{settings.format}.{quoted(str(settings.path))}"
        for partition in partitions:
            spark.sql(f"DELETE FROM {place} WHERE {_condition(partition, ' AND ')}")
    elif settings.table is not None:
        if spark.catalog.tableExists(settings.table):
            for partition in partitions:
                condition = _condition(partition, ", ")
                spark.sql(f"ALTER TABLE {settings.table} DROP IF EXISTS PARTITION ({condition})")
    else:
        system, place = open_path(str(settings.path))
        for info in system.get_file_info(fs.FileSelector(place, allow_not_found=True)):
            if info.base_name.startswith(".spark-staging-"):
                system.delete_dir(info.path)
        for partition in partitions:
            folder = f"{place}/{partition_folder(partition)}"
            if system.get_file_info(folder).type == fs.FileType.Directory:
                system.delete_dir(folder)


def partition_folder(partition: Mapping[str, str]) -> str:
    """Return the folder that Spark writes the rows of a partition to."""
    return "/".join(f"{name}={_escaped(value)}" for name, value in partition.items())


def _escaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value) or NO_VALUE


def _condition(partition: Mapping[str, str], joint: str) -> str:
    texts = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in partition.items()}
    return joint.join(f"{quoted(name)} = '{text}'" for name, text in texts.items())


def _write_table(frame: DataFrame, settings: OutputSettings, table: str) -> None:
    spark = frame.sparkSession
    if settings.mode == "overwrite-partitions" and settings.partition_by and not spark.catalog.tableExists(table):
        # Created empty: a job that is killed while it creates a full table leaves files that stop the next run.
        _writer(spark.createDataFrame([], frame.schema), settings).saveAsTable(table)
    if settings.mode != "overwrite-partitions":
        _writer(frame, settings).mode(settings.mode).saveAsTable(table)
    elif settings.format in FILE_FORMATS:
        _overwrite_partitions(frame, table)
    else:
        frame.writeTo(table).overwritePartitions()


def _overwrite_partitions(frame: DataFrame, table: str) -> None:
    """Spark's tables of files support this by insertInto alone, which goes by the position of columns."""
    spark = frame.sparkSession
    before = spark.conf.get(_PARTITION_MODE, None)
    spark.conf.set(_PARTITION_MODE, "dynamic")
    try:
        ordered = frame.select(*[quoted(name) for name in spark.table(table).columns])
        ordered.write.mode("overwrite").insertInto(table)
    finally:
        if before is None:
            spark.conf.unset(_PARTITION_MODE)
        else:
            spark.conf.set(_PARTITION_MODE, before)


def _writer(frame: DataFrame, settings: OutputSettings) -> DataFrameWriter:
    writer = frame.write.format(settings.format).options(**settings.options)
    return writer.partitionBy(*settings.partition_by) if settings.partition_by else writer
