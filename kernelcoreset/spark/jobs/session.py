"""The Spark session of a job: the one that is there, or a new one with the settings' own configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pyspark.sql import SparkSession

from kernelcoreset.jobs.settings.settings import Settings


def open_session(
    settings: Settings, opening: AbstractContextManager[None] | None = None
) -> AbstractContextManager[SparkSession]:
    """Give a session, classic or Connect, whichever the environment has; one that was started here is stopped at last.

    `opening` is entered while the session opens, to time it for example.
    """
    return session_of(settings.spark.app_name, settings.spark.conf, opening)


@contextmanager
def session_of(
    app_name: str, conf: Mapping[str, Any], opening: AbstractContextManager[None] | None = None
) -> Iterator[SparkSession]:
    """Give the same by its name and configuration."""
    # Workers take the system's Python unless told: it would not have this package's dependencies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with opening or nullcontext():
        is_lent = SparkSession.getActiveSession() is not None or "DATABRICKS_RUNTIME_VERSION" in os.environ
        builder = SparkSession.builder.appName(app_name)
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        if not is_lent:
            spark.stop()
