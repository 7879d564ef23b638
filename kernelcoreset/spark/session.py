"""The Spark session of a job: the one that is there, or a new one with the settings' own configuration."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from kernelcoreset.settings import Settings


def open_session(settings: Settings) -> SparkSession:
    """Return a session, classic or Connect, whichever the environment gives."""
    # Workers take the system's Python unless told: it would not have this package's dependencies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(settings.spark.app_name)
    for name, value in settings.spark.conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
