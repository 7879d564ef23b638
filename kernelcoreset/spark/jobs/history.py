"""The history of runs as a table (`run.history_table`): a row per run, beside its JSON record, to query by SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from kernelcoreset.jobs.explain import explain
from kernelcoreset.jobs.record import RunRecord, log
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.jobs.session import open_session

COLUMNS = (
    "id string, job string, status string, error string, started timestamp, finished timestamp, seconds double, "
    "rows bigint, bad_rows bigint, cost double, outcome string, output string, record string"
)
"""The columns of the table; `record` is the whole record as JSON."""


@contextmanager
def recorded_session(settings: Settings, record: RunRecord) -> Iterator[SparkSession]:
    """Return a context with the session of a job; at its end the run is added to the table of `run.history_table`."""
    with open_session(settings, record.stage("session")) as spark:
        try:
            yield spark
        except (Exception, KeyboardInterrupt) as error:
            _add_run(spark, record, error)
            raise
        _add_run(spark, record, None)


def _add_run(spark: SparkSession, record: RunRecord, error: BaseException | None) -> None:
    """Add a row. If that fails the run is what it was, and its JSON record says all of it."""
    table = record.settings.run.history_table
    if table is None:
        return
    try:
        plain = spark.createDataFrame([_row(record.to_dict(error))], COLUMNS.replace(" timestamp", " string"))
        frame = plain.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in _columns()))
        frame.write.mode("append").saveAsTable(table)
    except Exception as second:  # of py4j's classes, which Spark Connect does not have
        log.warning("The run could not be added to run.history_table = %s. %s", table, explain(second)[1])


def _columns() -> list[tuple[str, str]]:
    pairs = [column.strip().split(" ") for column in COLUMNS.split(",")]
    return [(name, kind) for name, kind in pairs]


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    values = {**record, "record": json.dumps(record)}
    return tuple(values.get(name) for name, _ in _columns())
