"""The Spark session of a job: the active one, or a new one with the configuration of the settings."""

from __future__ import annotations

import logging
import os
import socketserver
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from shutil import which
from typing import Any

from pyspark import accumulators
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.explain import explain_text
from kernelcoreset.jobs.record import log
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.rehearsal import rehearse
from kernelcoreset.spark.same_files import refuse_two_meanings

_OF_SPARK = ("input.path", "input.quarantine_path", "output.path", "stream.checkpoint")
_ONE_LINE_PER_EVENT = Path(__file__).with_name("log4j2.properties")


@contextmanager
def open_session(settings: Settings, opening: AbstractContextManager[None] | None = None) -> Iterator[SparkSession]:
    """Return a context with a session, classic or Connect as the environment says; it stops a session it started.

    `opening` is a context that is entered while the session opens, for example to time it. SettingError if a path of
    the settings would mean another place to Spark than to this process.
    """
    with session_of(settings.spark.app_name, settings.spark.conf, opening) as spark:
        _check_paths(spark, settings)
        yield spark


def _check_paths(spark: SparkSession, settings: Settings) -> None:
    """Raise SettingError if a path that Spark uses has no scheme and would mean another place to it."""
    # On Spark Connect a stream uses its store beside the server.
    keys = [*_OF_SPARK, *(["store.path"] if settings.has("stream") and is_remote() else [])]
    for key in keys:
        path = settings.get(key) if settings.has(key.partition(".")[0]) else None
        if path is not None:
            refuse_two_meanings(spark, f"`{key}`", path)


@contextmanager
def session_of(
    app_name: str, conf: Mapping[str, Any], opening: AbstractContextManager[None] | None = None
) -> Iterator[SparkSession]:
    """Return the same for a name and a configuration."""
    # By default workers use the Python of the system, which does not have the dependencies of this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with opening or nullcontext(), nullcontext() if log.isEnabledFor(logging.DEBUG) else _log_briefly():
        is_active = SparkSession.getActiveSession() is not None or "DATABRICKS_RUNTIME_VERSION" in os.environ
        builder = SparkSession.builder.appName(app_name)
        if not is_active:  # the session of a managed platform may refuse it
            # Errors tell their causes, such as a full disk, in the text of Java alone.
            builder = builder.config("spark.sql.pyspark.jvmStacktrace.enabled", "true")
        for name, value in conf.items():
            builder = builder.config(name, value)
        try:
            with ThreadPoolExecutor(1) as ahead:
                ahead.submit(rehearse)  # while Java starts; what it raises, the first task raises again
                spark = builder.getOrCreate()
        except Exception as error:  # of py4j's classes, which Spark Connect does not have
            _refuse_conf(error, conf)
            raise
    try:
        yield spark
    except BaseException:
        if not is_active:
            with suppress(Exception):  # Java may be gone; the first error is the one to report
                spark.stop()
        raise
    if not is_active:
        spark.stop()


@contextmanager
def _log_briefly() -> Iterator[None]:
    """Let a Spark that starts in this context log one line per event, and no errors that the job reports itself.

    Java reads the variable when it starts. Other programs that this process starts later must not.
    """
    is_ours = "LOG4J_CONFIGURATION_FILE" not in os.environ and _ONE_LINE_PER_EVENT.exists()  # in a zip it is no file
    if is_ours:
        os.environ["LOG4J_CONFIGURATION_FILE"] = str(_ONE_LINE_PER_EVENT)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # If Java ends or a command is interrupted, py4j and the server of accumulators show tracebacks of their own.
    for logger in ("root", "py4j.clientserver", "py4j.java_gateway"):  # a filter does not reach loggers below
        logging.getLogger(logger).addFilter(_is_not_of_py4j)
    for server in vars(accumulators).values():
        if isinstance(server, type) and issubclass(server, socketserver.BaseServer):
            setattr(server, "handle_error", _say_nothing)  # noqa: B010
    try:
        yield
    finally:
        if is_ours:
            del os.environ["LOG4J_CONFIGURATION_FILE"]


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _say_nothing(*_: Any) -> None:
    """In place of a traceback."""


def _refuse_conf(error: Exception, conf: Mapping[str, Any]) -> None:
    """Raise SettingError if Spark did not start, and the settings configure it, and nothing else is known."""
    text = str(error)
    has_java = which("java") is not None or "JAVA_HOME" in os.environ
    if not conf or (explain_text(text) is not None and not (has_java and "JAVA_GATEWAY_EXITED" in text)):
        return
    lines = [line.lstrip(": ") for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    why = lines[1 if len(lines) > 1 and lines[0].startswith("An error occurred while") else 0]
    raise SettingError(f"Spark does not start with `spark.conf` ({', '.join(conf)}): {why}") from error
