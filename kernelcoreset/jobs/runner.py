"""The command line that all jobs share: read the settings, run or plan the job, return an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import kernelcoreset
from kernelcoreset.jobs.experiment import ExperimentRun
from kernelcoreset.jobs.explain import BAD_ENVIRONMENT, DONE, FAILED, explain
from kernelcoreset.jobs.places import check_places
from kernelcoreset.jobs.progress import LineHandler, alive
from kernelcoreset.jobs.record import RunRecord, failed_path, is_watched, log, report_place
from kernelcoreset.jobs.report import Warnings, add_history, write_report
from kernelcoreset.jobs.secrets import Secrets
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.jobs.summary import summary_of

_EPILOG = """\
examples:
  %(prog)s --config conf/demo.toml
  %(prog)s --config conf/demo.toml --set coreset.k=8 --set kernel.sigma=median
  %(prog)s --config conf/demo.toml --dry-run

conf/reference.toml lists every setting with its default and reason.

exit codes: 0 done, 2 bad settings, 3 bad data, 4 environment (disk, memory, network, a missing package),
            5 another job was faster, or interrupted: run it again, 1 anything else
"""


@dataclass(frozen=True)
class Options:
    """The options of a command line."""

    settings: Settings
    dry_run: bool
    check: bool
    level: int
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
        Names of the sections of the settings that the job uses; "kernel?" is used only if the file has it.
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
    parser.add_argument(
        "--check", action="store_true", help="check the settings and end: exit code 0 if they can be used; no Spark"
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also log tracebacks of all errors, and what Java logs with its stack traces",
    )
    parser.add_argument("--version", action="version", version=f"kernelcoreset {kernelcoreset.__version__}")
    given = parser.parse_args(argv)
    level = logging.DEBUG if given.verbose else logging.INFO
    log.setLevel(level)
    settings = Settings.load(given.config, given.overrides, job.sections)
    return Options(settings, given.dry_run, given.check, level, given.config)


def run_job(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job with command line arguments (by default those of the process) and return its exit code.

    Returns
    -------
    int
        0 done, 2 bad settings, 3 bad data, 4 environment, 5 conflict or interrupted, 1 anything else.
    """
    log_to_stderr()
    code = _run_parsed(job, argv)
    if code != DONE and "DATABRICKS_RUNTIME_VERSION" in os.environ:
        raise SystemExit(code)  # a wheel task there ignores the return value and would report success
    return code


def _run_parsed(job: Job, argv: Sequence[str] | None) -> int:
    try:
        options = parse(job, argv)
        settings = options.settings
        settings.require(job.name, *job.needs)
        record = RunRecord(job.name, settings, settings.record_path(job.record_beside))
        check_places(settings, options.config, record.path, job.writes)
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    if options.check:
        return DONE
    log_to_stderr(Secrets.of(settings), options.level)
    return _dry_run(job, settings) if options.dry_run else _run(job, settings, record)


def _dry_run(job: Job, settings: Settings) -> int:
    try:
        with _stopped_by_sigterm():
            plan: Mapping[str, Any] = resolve_name(job.plan)(settings)
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    print(Secrets.of(settings).hide(_plan_text(plan)))
    return DONE


def _run(job: Job, settings: Settings, record: RunRecord) -> int:
    experiment = ExperimentRun(record)
    try:
        with _stopped_by_sigterm(), _kept_warnings(record), alive(record):
            experiment.start()
            resolve_name(job.work)(settings, record)
    except (Exception, KeyboardInterrupt) as error:
        _write_failure(record, error)
        _try(experiment.fail, "The failure could not be logged.", level=logging.WARNING)
        return report(error)
    _try(lambda: add_history(record), "The runs before are not known.", level=logging.WARNING)
    print(Secrets.of(settings).hide(summary_of(record)))
    # Whatever fails here, the output is there.
    unwritten = f"Done, but the run record could not be written to {record.path}."
    is_written = _try(record.write, unwritten, " Set run.record.")
    place = report_place(settings, record.path)
    if is_written and place is not None:  # the rows and their record are there: no reason to fail
        unwritten = f"The report could not be written to {place}."
        _try(lambda: write_report(record.path, place), unwritten, level=logging.WARNING)
    is_logged = _try(experiment.finish, "Done, but the run could not be logged.")
    return DONE if is_written and is_logged else BAD_ENVIRONMENT


@contextmanager
def _kept_warnings(record: RunRecord) -> Iterator[None]:
    """Add what is logged as a warning to the record."""
    kept = Warnings()
    log.addHandler(kept)
    try:
        yield
    finally:
        log.removeHandler(kept)
        record.add(warnings=kept.texts)


def _try(action: Callable[[], Any], message: str, remedy: str = "", level: int = logging.ERROR) -> bool:
    """Return whether an action that is not the work of a job succeeded; if not, log why."""
    try:
        action()
    except Exception as error:
        _, reason = explain(error)
        log.debug("Traceback of the error below:", exc_info=error)
        log.log(level, "%s %s%s", message, reason, remedy)
        return False
    return True


def report(error: BaseException) -> int:
    """Log an error in one line and return its exit code.

    The traceback of an unexpected one is logged before it; those of others, with the text of Java, at level DEBUG.
    """
    code, message = explain(error)
    log.log(logging.ERROR if code == FAILED else logging.DEBUG, "Traceback of the error below:", exc_info=error)
    log.error("%s", message)
    return code


def _write_failure(record: RunRecord, error: BaseException) -> None:
    """Write the record of a failed run. If that fails too, warn: the first error is the one to report."""
    unwritten = f"The run record could not be written to {record.path}."
    if _try(lambda: record.write(error), unwritten, " Set run.record.", logging.WARNING):
        log.info("The record of this failed run is %s", failed_path(record.path))


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM, which schedulers send to end a job, like Ctrl-C: the job cleans up and writes its record."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = []

    def interrupt(*_: Any) -> None:
        received.append(signal.SIGTERM)
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except Exception as error:
        if received:  # the signal ended Spark too, and its error came second
            raise KeyboardInterrupt("SIGTERM") from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _plan_text(plan: Mapping[str, Any]) -> str:
    lines = ["Dry run: nothing is written."]
    for name, value in plan.items():
        for shown in _plan_values(value):
            lines.append(f"{name.replace('_', ' '):<20} {shown}")
    return "\n".join(lines)


def _plan_values(value: Any) -> list[str]:
    """The lines of one value of a plan: one for each warning, one for the shares of all features."""
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        largest = sorted(value.items(), key=lambda pair: -pair[1])
        return [", ".join(f"{name}: {share:.1%}" for name, share in largest)]
    return [f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else str(value)]


class _Formatter(logging.Formatter):
    """Formats lines without secrets, those of tracebacks included."""

    def __init__(self, form: str, secrets: Secrets) -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.hide(super().format(record))


def log_to_stderr(secrets: Secrets | None = None, level: int = logging.INFO) -> None:
    """Log to stderr: plain lines for a person at a terminal, with timestamps for a log file. The last call wins.

    Parameters
    ----------
    secrets : Secrets, optional
        What no line may show.
    level : int
        What is logged; at `logging.DEBUG` also the tracebacks of all errors.
    """
    handler = LineHandler(sys.stderr)
    form = "%(message)s" if is_watched() else "%(asctime)s %(levelname)s %(message)s"
    handler.setFormatter(_Formatter(form, secrets or Secrets()))
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False
