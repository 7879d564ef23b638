"""The command line that all jobs share: read the settings, run or plan the job, return an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa

import kernelcoreset
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.explain import BAD_ENVIRONMENT, BAD_SETTINGS, DONE, FAILED, explain
from kernelcoreset.jobs.places import check_places
from kernelcoreset.jobs.record import RunRecord, log
from kernelcoreset.jobs.secrets import Secrets
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.jobs.summary import summary_of

_EPILOG = """\
examples:
  %(prog)s --config conf/demo.toml
  %(prog)s --config conf/demo.toml --set coreset.k=8 --set kernel.sigma=median
  %(prog)s --config conf/demo.toml --dry-run

conf/reference.toml lists every setting with its default and reason.

exit codes: 0 done, 2 bad settings, 3 bad data, 4 something is missing on this machine, 1 anything else
"""


@dataclass(frozen=True)
class Options:
    """The options of a command line."""

    settings: Settings
    dry_run: bool
    config: str


@dataclass(frozen=True)
class Job:
    """A row of the table of jobs in `cli.py`.

    Parameters
    ----------
    name : str
        Its name in the record and in messages.
    description : str
        The first lines of `--help`.
    work : str
        The function that does the work, `work(settings, record)`, as "module:function".
    plan : str
        The function that returns what `--dry-run` prints, `plan(settings)`, as "module:function".
    sections : tuple of str
        Names of the sections of the settings that the job uses.
    needs : tuple of str
        Keys that must be set, as `Settings.require` takes them.
    record_beside : str, optional
        Key of the path beside which the run record is written; by default it is written beside the output.
    writes : tuple of str
        Which of "coreset.path" and "cluster.model_path" it writes.
    """

    name: str
    description: str
    work: str
    plan: str
    sections: tuple[str, ...]
    needs: tuple[str, ...]
    record_beside: str | None = None
    writes: tuple[str, ...] = ()


def parse(job: Job, argv: Sequence[str] | None = None) -> Options:
    """Return the options of a command line, with checked settings; `--help` and `--version` end the process."""
    parser = argparse.ArgumentParser(
        description=job.description,
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
    return Options(Settings.load(given.config, given.overrides, job.sections), given.dry_run, given.config)


def run_job(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job with command line arguments (by default those of the process) and return its exit code.

    Returns
    -------
    int
        0 done, 2 bad settings, 3 bad data, 4 environment, 1 anything else.
    """
    log_to_stderr()
    try:
        options = parse(job, argv)
        settings = options.settings
        settings.require(job.name, *job.needs)
        check_places(settings, options.config, settings.record_path(job.record_beside), job.writes)
    except SettingError as error:
        log.error("Bad settings: %s", error)
        code = BAD_SETTINGS
    else:
        log_to_stderr(Secrets.of(options.settings))
        code = _dry_run(job, options.settings) if options.dry_run else _run(job, options.settings)
    if code != DONE and "DATABRICKS_RUNTIME_VERSION" in os.environ:
        raise SystemExit(code)  # a wheel task there ignores the return value and would report success
    return code


def _dry_run(job: Job, settings: Settings) -> int:
    try:
        plan: Mapping[str, Any] = resolve_name(job.plan)(settings)
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    print(Secrets.of(settings).hide(_plan_text(plan)))
    return DONE


def _run(job: Job, settings: Settings) -> int:
    record = RunRecord(job.name, settings, settings.record_path(job.record_beside))
    try:
        resolve_name(job.work)(settings, record)
    except (Exception, KeyboardInterrupt) as error:
        _write_failure(record, error)
        return report(error)
    print(Secrets.of(settings).hide(summary_of(record)))
    try:
        record.write()
    except (OSError, pa.ArrowException) as error:
        log.error("Done, but the run record could not be written to %s: %s. Set run.record.", record.path, error)
        return BAD_ENVIRONMENT
    return DONE


def report(error: BaseException) -> int:
    """Log an error and return its exit code. An unexpected one is logged with its traceback, the message last."""
    code, message = explain(error)
    if code == FAILED and not isinstance(error, KeyboardInterrupt):
        log.error("Traceback of the error below:", exc_info=error)
    log.error("%s", message)
    return code


def _write_failure(record: RunRecord, error: BaseException) -> None:
    """Write the record of a failed run. If that fails too, warn: the first error is the one to report."""
    try:
        log.info("The record of this failed run is %s", record.write(error))
    except (OSError, pa.ArrowException) as second:
        log.warning("The run record could not be written to %s: %s. Set run.record.", record.path, second)


def _plan_text(plan: Mapping[str, Any]) -> str:
    lines = ["Dry run: nothing is written."]
    for name, value in plan.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else value
        lines.append(f"{name.replace('_', ' '):<20} {shown}")
    return "\n".join(lines)


class _Formatter(logging.Formatter):
    """Formats lines without secrets, those of tracebacks included."""

    def __init__(self, form: str, secrets: Secrets) -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.hide(super().format(record))


def log_to_stderr(secrets: Secrets | None = None) -> None:
    """Log to stderr: plain lines for a person at a terminal, with timestamps for a log file. The last call wins.

    Parameters
    ----------
    secrets : Secrets, optional
        What no line may show.
    """
    handler = logging.StreamHandler(sys.stderr)
    # Under spark-submit the stderr of a job is a pipe; spark-submit.sh says whether a terminal is at the other end.
    watched = sys.stderr.isatty() or "KERNELCORESET_TERMINAL" in os.environ
    form = "%(message)s" if watched else "%(asctime)s %(levelname)s %(message)s"
    handler.setFormatter(_Formatter(form, secrets or Secrets()))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
