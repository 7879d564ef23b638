"""The record of a run: a JSON file beside the output, and log lines while the run goes on."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import math
import os
import platform
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np

from kernelcoreset.files.atomic import read_file, remove_file, write_file
from kernelcoreset.files.documents import Fields, parse_json, signed, unsigned
from kernelcoreset.files.paths import extend_path, open_path, split_query
from kernelcoreset.jobs.explain import text_of
from kernelcoreset.jobs.secrets import Secrets, shown_settings
from kernelcoreset.jobs.settings.settings import Settings

log = logging.getLogger("kernelcoreset")

_FORMAT_VERSION = 1
_PACKAGES = ("kernelcoreset", "numpy", "scipy", "numba", "pyarrow", "pandas", "pyspark")


def is_watched() -> bool:
    """Whether a person reads stderr at a terminal.

    Under spark-submit the stderr of a job is a pipe; spark-submit.sh says whether a terminal is at the other end.
    """
    return sys.stderr.isatty() or "KERNELCORESET_TERMINAL" in os.environ


class RunRecord:
    """What happened in one run: settings, versions, seconds of each stage, and the values that stages add.

    Parameters
    ----------
    job : str
        Name of the job.
    settings : Settings
        All of them are recorded, defaults included, but options only if they are known to be no secrets.
    path : str
        File to write: a local path, or a URI that pyarrow can write to. The record of a failed run gets another name
        (`....failed.json`), because the record at `path` still describes the output that is there.

    Attributes
    ----------
    status : str
        What the record says of a run without an error: "done", or "stopped" if it was stopped on request.
    stages : list of dict
        Name and seconds of each stage that has ended.
    values : dict
        What the stages have added, by name.
    current : tuple of str and float, or None
        Name of the stage that is going on, and when it began by `time.perf_counter()`.
    model : model or None
        The model that the run has fitted, if it is not kept in a store; not part of the record.

    Examples
    --------
    >>> settings = Settings.from_dict(
    ...     {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}, "run": {"record": "r.json"}}
    ... )
    >>> record = RunRecord("build-coreset", settings, settings.record_path())
    >>> with record.stage("build"):
    ...     record.add(rows=9, coreset_points=9)
    >>> [stage["stage"] for stage in record.to_dict()["stages"]], record.to_dict()["rows"]
    (['build'], 9)
    """

    def __init__(self, job: str, settings: Settings, path: str) -> None:
        self.job = job
        self.settings = settings
        self.path = path
        self.id = settings.run.id or uuid.uuid4().hex
        self.status = "done"
        self.stages: list[dict[str, Any]] = []
        self.values: dict[str, Any] = {}
        self.model: Any = None
        self.current: tuple[str, float] | None = None
        self._open: list[str] = []
        self._started = datetime.now(UTC)
        self._clock = time.perf_counter()

    def add(self, **values: Any) -> None:
        """Add values by name, as plain data; a value added again under the same name replaces the first."""
        self.values.update({name: _plain(value) for name, value in values.items()})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure and log the time of a stage. A stage within a stage is named `outer/inner`."""
        self._open.append(name)
        full_name = "/".join(self._open)
        log.info("%s ...", full_name)
        start, outcome, outer = time.perf_counter(), "failed after", self.current
        self.current = full_name, start
        try:
            yield
            outcome = "done in"
        finally:
            seconds = time.perf_counter() - start
            self._open.pop()
            self.current = outer
            self.stages.append({"stage": full_name, "seconds": round(seconds, 3)})
            log.info("%s %s %.1f s", full_name, outcome, seconds)

    def to_dict(self, error: BaseException | None = None) -> dict[str, Any]:
        """Return the record as plain data that can be written as JSON."""
        secrets = Secrets.of(self.settings)
        return {
            "format": _FORMAT_VERSION,
            "job": self.job,
            "id": self.id,
            "status": self.status if error is None else "failed",
            "error": None if error is None else secrets.hide(f"{type(error).__name__}: {text_of(error)}"),
            "started": self._started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - self._clock, 3),
            "stages": list(self.stages),
            "seed": self.settings.coreset.seed,
            **secrets.hide_all(self.values),
            "settings": shown_settings(self.settings),
            "versions": _versions(),
        }

    def write(self, error: BaseException | None = None) -> str:
        """Write the record, whole or not at all, and return its path; a good run removes the record of a failed one."""
        path = self.path if error is None else failed_path(self.path)
        write_file(*open_path(path), _as_text(signed(self.to_dict(error))).encode())
        if error is None:
            remove_file(*open_path(failed_path(self.path)))
        return path


def failed_path(path: str) -> str:
    """Return where the record of a failed run is written, for the path of the record.

    Examples
    --------
    >>> failed_path("labels.run.json")
    'labels.run.failed.json'
    """
    return extend_path(path, ".failed.json", without=".json")


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the record of a run as plain data, or raise a FormatError if the file is damaged.

    Parameters
    ----------
    path : path-like
        A local path, or a URI that pyarrow can open.

    Examples
    --------
    >>> import tempfile
    >>> tables = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = RunRecord("run", Settings.from_dict(tables), folder + "/out.run.json").write()
    ...     read_record(path)["status"]
    'done'
    """
    name = os.fspath(path)
    content = parse_json(read_file(*open_path(path)), name)
    for field in ("job", "status"):
        Fields(content, name).text(field)
    if "format" not in content and "checksum" not in content:  # an earlier version wrote it
        return content
    Fields(content, name).version(_FORMAT_VERSION)
    return unsigned(content, name)


def report_path(record: str) -> str:
    """Return where the report of a run is written, for the path of its record.

    Examples
    --------
    >>> report_path("labels.run.json"), report_path("tonight.json")
    ('labels.report.html', 'tonight.report.html')
    """
    base, query = split_query(record)
    base = base.rstrip("/")
    ending = next((ending for ending in (".run.json", ".json") if base.endswith(ending)), "")
    return f"{base.removesuffix(ending)}.report.html{query}"


def report_place(settings: Settings, record: str) -> str | None:
    """Return where the report of a run is written, None if the settings want none."""
    wanted = settings.run.report
    return wanted if isinstance(wanted, str) else report_path(record) if wanted else None


def _as_text(record: dict[str, Any]) -> str:
    """The record as JSON, a line per value; a list of numbers is one line."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    # A line break within a text is written as \n, so what is matched here is never part of one.
    return re.sub(r"\[\n[\s\d.,eE+-]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n"


def _plain(value: Any) -> Any:
    """Return a value as plain data; a number that JSON cannot hold becomes null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"A run record holds numbers, texts, lists and mappings; got {type(value).__name__}.")


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # A cluster's own Spark, or a package shipped as a zip, has no metadata: ask the imported module.
            versions[name] = getattr(sys.modules.get(name), "__version__", None)
    return versions
