"""Rows of a few numbers go to Python in large batches, whatever the session says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_DEFAULT_RECORDS, _MANY_RECORDS = 10_000, 131_072
_NO_LIMIT = 2**31 - 1
_MOST_BYTES = 16 * 2**20  # of a batch: a Python worker holds a few
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

_lock = Lock()
_open: dict[int, tuple[int, dict[str, str | None]]] = {}


@contextmanager
def large_batches(spark: SparkSession, numbers: int | None) -> Iterator[None]:
    """Let Spark send rows of so many numbers in batches of 131,072 rows that it does not measure, if they are small.

    After each row Spark asks Arrow for the size of the batch, if that has a limit (Spark 4.1 and newer). That takes
    longer than sending the numbers of a narrow row. Batches that cannot reach the limit need none. A number of rows
    that somebody has chosen stays, as does all else where the platform does not let a session set it.

    The settings are those of the session, also for what other threads start in it meanwhile. They are as before when
    the last of several such blocks ends.

    Parameters
    ----------
    spark : SparkSession
    numbers : int or None
        How many of up to 8 bytes each a row has; None if rows may be of any size, so that nothing is changed.
    """
    wanted = {} if numbers is None else _wanted(spark, 8 * numbers)
    if not wanted:
        yield
        return
    _enter(spark, wanted)
    try:
        yield
    finally:
        _leave(spark)


def _wanted(spark: SparkSession, row_bytes: int) -> dict[str, str]:
    records = int(spark.conf.get(_RECORDS, None) or _DEFAULT_RECORDS)
    limit = _bytes_of(spark.conf.get(_BYTES, None) or "")
    largest = _MOST_BYTES if limit is None else min(limit, _MOST_BYTES)
    if records == _DEFAULT_RECORDS and _MANY_RECORDS * row_bytes <= largest:
        return {_RECORDS: str(_MANY_RECORDS), _BYTES: str(_NO_LIMIT)}
    return {_BYTES: str(_NO_LIMIT)} if 0 < records * row_bytes <= largest else {}


def _bytes_of(text: str) -> int | None:
    """Return the number of bytes that Spark reads in a text such as 16m; None if it is not one of these."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return None if found is None else int(found[1]) << _UNITS[found[2]]


def _enter(spark: SparkSession, wanted: dict[str, str]) -> None:
    with _lock:
        users, before = _open.get(id(spark), (0, {}))
        try:
            for name, value in wanted.items():
                found = spark.conf.get(name, None)
                spark.conf.set(name, value)
                before.setdefault(name, found)
        except PySparkException:  # a platform that has its own: the pass takes longer, and gives the same
            pass
        _open[id(spark)] = users + 1, before


def _leave(spark: SparkSession) -> None:
    with _lock:
        users, before = _open.pop(id(spark))
        if users > 1:
            _open[id(spark)] = users - 1, before
            return
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
