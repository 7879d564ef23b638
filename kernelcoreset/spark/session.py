"""The Spark session of a job: the one that is there, or a new one with the settings' own configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from kernelcoreset.settings import Settings


@contextmanager
def open_session(settings: Settings, opening: AbstractContextManager[None] | None = None) -> Iterator[SparkSession]:
    """Give a session, classic or Connect, whichever the environment has; one that was started here is stopped at last.

    `opening` is entered while the session opens, to time it for example.
    """
    # Workers take the system's Python unless told: it would not have this package's dependencies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with opening or nullcontext():
        is_lent = SparkSession.getActiveSession() is not None or "DATABRICKS_RUNTIME_VERSION" in os.environ
        builder = SparkSession.builder.appName(settings.spark.app_name)
        for name, value in settings.spark.conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        if not is_lent:
            spark.stop()
