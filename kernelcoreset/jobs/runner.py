"""The command line that all jobs share: settings in, a run record and an exit code out."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa

import kernelcoreset
from kernelcoreset.errors import DataError, FormatError, KernelCoresetError, KernelError, SettingError
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings

DONE, FAILED, BAD_SETTINGS, BAD_DATA, BAD_ENVIRONMENT = 0, 1, 2, 3, 4

_EPILOG = """\
examples:
  %(prog)s --config conf/demo.toml
  %(prog)s --config conf/demo.toml --set coreset.k=8 --set kernel.sigma=median
  %(prog)s --config conf/demo.toml --dry-run

conf/reference.toml lists every setting with its default and reason.

exit codes: 0 done, 2 bad settings, 3 bad data, 4 something is missing on this machine, 1 anything else
"""
_FROM_EXECUTOR = re.compile(r"kernelcoreset\.errors\.(\w+): (.+)")
_NOT_ON_EXECUTOR = re.compile(r"(?:ModuleNotFound|Import)Error: No module named '(\w+)")
_FROM_PYTHON_WORKER = re.compile(r"thrown from the Python worker.*^(\w[\w.]*: .+)", re.DOTALL | re.MULTILINE)
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] (.+)")
_EXTRAS = {"matplotlib": "plots", "sklearn": "scikit-learn"}
_log = logging.getLogger("kernelcoreset")


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    settings: Settings
    dry_run: bool


@dataclass(frozen=True)
class Job:
    """A job as the command line knows it.

    Parameters
    ----------
    name : str
        Its name in the record and in messages.
    description : str
        What `--help` says first.
    work : str
        The function that does the work, `work(settings, record)`, as "module:function".
    plan : str
        The function that returns what `--dry-run` prints, `plan(settings)`, as "module:function".
    needs : tuple of str
        Keys that must be set, as `Settings.require` takes them.
    record_beside : str, optional
        Key of the path beside which the run record is written; by default it is written beside the output.
    """

    name: str
    description: str
    work: str
    plan: str
    needs: tuple[str, ...]
    record_beside: str | None = None


def parse(argv: Sequence[str] | None, description: str) -> Options:
    """Return the checked options of a command line; `--help` and `--version` end the process as usual."""
    parser = argparse.ArgumentParser(
        description=description,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="TOML file with the settings of the job")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help="change one setting of the file; may be given several times",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the settings, look at the input and print the plan: rows, memory, kernel evaluations, time",
    )
    parser.add_argument("--version", action="version", version=f"kernelcoreset {kernelcoreset.__version__}")
    given = parser.parse_args(argv)
    return Options(Settings.load(given.config, given.overrides), given.dry_run)


def run_job(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job from its command line (by default the process's own) and return its exit code.

    Returns
    -------
    int
        0 done, 2 bad settings, 3 bad data, 4 environment, 1 anything else.
    """
    log_to_stderr()
    try:
        options = parse(argv, job.description)
        options.settings.require(job.name, *job.needs)
    except SettingError as error:
        _log.error("Bad settings: %s", error)
        code = BAD_SETTINGS
    else:
        code = _dry_run(job, options.settings) if options.dry_run else _run(job, options.settings)
    if code != DONE and "DATABRICKS_RUNTIME_VERSION" in os.environ:
        raise SystemExit(code)  # a wheel task there ignores what its function returns, and would call this a success
    return code


def _dry_run(job: Job, settings: Settings) -> int:
    try:
        plan: Mapping[str, Any] = resolve_name(job.plan)(settings)
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    print(_plan_text(plan))
    return DONE


def _run(job: Job, settings: Settings) -> int:
    record = RunRecord(job.name, settings, settings.record_path(job.record_beside))
    try:
        resolve_name(job.work)(settings, record)
    except (Exception, KeyboardInterrupt) as error:
        _write_failure(record, error)
        return report(error)
    print(record.summary())
    try:
        record.write()
    except (OSError, pa.ArrowException) as error:
        _log.error("Done, but the run record could not be written to %s: %s. Set run.record.", record.path, error)
        return BAD_ENVIRONMENT
    return DONE


def report(error: BaseException) -> int:
    """Log an error, with its traceback where nobody foresaw it, and return its exit code. The last line is clear."""
    code, message = explain(error)
    if code == FAILED and not isinstance(error, KeyboardInterrupt):
        _log.error("The traceback of what follows:", exc_info=error)
    _log.error("%s", message)
    return code


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error and one line that says what to do."""
    if isinstance(error, KeyboardInterrupt):
        return FAILED, "Interrupted."
    text = str(error).strip() or type(error).__name__
    if isinstance(error, KernelCoresetError):
        return _explain_ours(type(error).__name__, text)
    if isinstance(error, ImportError):
        missing = (error.name or text).partition(".")[0]
        wanted = f"Environment: {missing} cannot be imported ({text}). Install it with pip install 'kernelcoreset"
        if missing in _EXTRAS:
            return BAD_ENVIRONMENT, f"{wanted}[{_EXTRAS[missing]}]'."
        return BAD_ENVIRONMENT, f"{wanted}[spark]', or use ./spark-submit.sh, which brings it along."
    if isinstance(error, FileExistsError):
        return BAD_SETTINGS, f"Bad settings: {text}"
    if isinstance(error, FileNotFoundError):
        return BAD_DATA, f"Bad data: {text}"
    return _explain_spark(text) or (FAILED, f"Failed: {type(error).__name__}: {text.splitlines()[0]}")


def _explain_spark(text: str) -> tuple[int, str] | None:
    """The same for an error that Spark hands on as text, where it is one we know."""
    ours = _FROM_EXECUTOR.search(text)
    if ours:
        return _explain_ours(ours[1], ours[2])
    not_there = _NOT_ON_EXECUTOR.search(text)
    if not_there:
        return BAD_ENVIRONMENT, (
            f"Environment: the Python of the executors has no module {not_there[1]!r}. Set PYSPARK_PYTHON to one that "
            "has it, or submit with ./spark-submit.sh --ship-environment."
        )
    if "JAVA_GATEWAY_EXITED" in text or "JAVA_HOME is not set" in text:
        return BAD_ENVIRONMENT, (
            "Environment: Spark could not start Java. Install Java 17 or 21 and set JAVA_HOME, "
            "or use ./spark-submit.sh, which brings one along."
        )
    unreadable = _UNREADABLE.search(text)
    if unreadable:
        return BAD_DATA, f"Bad data: {unreadable[1]}"
    worker = _FROM_PYTHON_WORKER.search(text)
    if worker:  # its traceback ends with what went wrong
        return FAILED, f"Failed on an executor: {worker[1].splitlines()[0]}"
    return None


def _explain_ours(kind: str, text: str) -> tuple[int, str]:
    if kind == SettingError.__name__:
        return BAD_SETTINGS, f"Bad settings: {text}"
    if kind in (DataError.__name__, KernelError.__name__, FormatError.__name__):
        return BAD_DATA, f"Bad data: {text}"
    return FAILED, f"Failed: {text}"


def _write_failure(record: RunRecord, error: BaseException) -> None:
    """Leave the record of a failed run; where that fails too, the first error stays the one that counts."""
    try:
        _log.info("The record of this failed run is %s", record.write(error))
    except (OSError, pa.ArrowException) as second:
        _log.warning("The run record could not be written to %s: %s. Set run.record.", record.path, second)


def _plan_text(plan: Mapping[str, Any]) -> str:
    lines = ["Dry run: nothing is written."]
    for name, value in plan.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else value
        lines.append(f"{name.replace('_', ' '):<20} {shown}")
    return "\n".join(lines)


def log_to_stderr() -> None:
    """Bare lines for a person at a terminal, timestamps for a log file. The last call wins."""
    handler = logging.StreamHandler(sys.stderr)
    # Under spark-submit a job's own stderr is a pipe; spark-submit.sh knows who is at the other end.
    watched = sys.stderr.isatty() or "KERNELCORESET_TERMINAL" in os.environ
    form = "%(message)s" if watched else "%(asctime)s %(levelname)s %(message)s"
    formatter = logging.Formatter(form, "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    _log.handlers[:] = [handler]
    _log.setLevel(logging.INFO)
    _log.propagate = False
