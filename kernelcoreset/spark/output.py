"""Writing the result so that a failed job leaves the old one as it was."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, DataFrameWriter

from kernelcoreset.errors import SettingError
from kernelcoreset.sections import OutputSettings


def check_output(settings: OutputSettings) -> None:
    """Refuse what would fail at the very end, before any work is done."""
    folder = _local(settings.path)
    if settings.mode == "error" and folder is not None and folder.exists():
        raise SettingError(f"`output.path` is there already: {settings.path}. Set output.mode to overwrite or append.")


def write_output(frame: DataFrame, settings: OutputSettings) -> None:
    """Write the frame by the mode of the settings.

    Overwriting a local folder writes beside it and swaps at the end. Everywhere else Spark's own writer is relied on:
    it is atomic for table formats such as Delta, and for dynamic partition overwrite.
    """
    if settings.table is not None:
        _write_table(frame, settings, settings.table)
        return
    folder = _local(settings.path)
    if settings.mode == "overwrite" and folder is not None and settings.format != "delta" and folder.exists():
        fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        old = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        try:
            _writer(frame, settings).mode("error").save(str(fresh))
            folder.rename(old)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # gone already unless something failed
            if folder.exists():
                shutil.rmtree(old, ignore_errors=True)
        return
    writer = _writer(frame, settings)
    if settings.mode == "overwrite-partitions":
        writer = writer.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    else:
        writer = writer.mode(settings.mode)
    writer.save(settings.path)


def _write_table(frame: DataFrame, settings: OutputSettings, table: str) -> None:
    if settings.mode == "overwrite-partitions":
        frame.writeTo(table).overwritePartitions()
    else:
        _writer(frame, settings).mode(settings.mode).saveAsTable(table)


def _writer(frame: DataFrame, settings: OutputSettings) -> DataFrameWriter:
    writer = frame.write.format(settings.format).options(**settings.options)
    return writer.partitionBy(*settings.partition_by) if settings.partition_by else writer


def _local(path: str | None) -> Path | None:
    """The folder on this machine that a path names, or None where it is elsewhere."""
    if path is None:
        return None
    parts = urlparse(path)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else path)
