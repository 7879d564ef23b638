"""The Spark session of a job: the active one, or a new one with the configuration of the settings."""

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
    """Return a context with a session, classic or Connect as the environment says; it stops a session it started.

    `opening` is a context that is entered while the session opens, for example to time it.
    """
    return session_of(settings.spark.app_name, settings.spark.conf, opening)


@contextmanager
def session_of(
    app_name: str, conf: Mapping[str, Any], opening: AbstractContextManager[None] | None = None
) -> Iterator[SparkSession]:
    """Return the same for a name and a configuration."""
    # By default workers use the Python of the system, which does not have the dependencies of this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with opening or nullcontext():
        is_active = SparkSession.getActiveSession() is not None or "DATABRICKS_RUNTIME_VERSION" in os.environ
        builder = SparkSession.builder.appName(app_name)
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        if not is_active:
            spark.stop()
