"""What a run leaves behind for people: a JSON record beside its output, log lines, and a summary."""

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
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import fs

from kernelcoreset.jobs.settings.sections import scheme_of
from kernelcoreset.jobs.settings.settings import Settings

log = logging.getLogger("kernelcoreset")

_PACKAGES = ("kernelcoreset", "numpy", "numba", "pyarrow", "pandas", "pyspark")
_file_system = fs.FileSystem.from_uri
_SECRET = re.compile("secret|password|token|credential|access.?key|account.?key", re.IGNORECASE)


class RunRecord:
    """The story of one run: settings, versions, seconds of each stage, and whatever the stages add.

    Parameters
    ----------
    job : str
        Name of the job.
    settings : Settings
        Kept whole, defaults included; values of options that look like secrets are hidden.
    path : str
        Where the record is to be written: a local path, or one with a scheme that pyarrow can write to. The record of
        a failed run gets another name (`....failed.json`), since the output there is still the one before.

    Notes
    -----
    The summary speaks of these values, where a stage has added them: `rows`, `bad_rows`, `leaves`, `coreset_points`,
    `coreset_weight`, `kernel` (text), `cost` (on all rows), `coreset_cost`, `normalized_cut`, `cluster_sizes` (rows of
    each cluster), `outcome` (text), `keys` (counts by name), `moved` (share of the weight), `certificate`
    (`largest_error`, `center_sets`, `fraction` of the rows, `standard_error`), `coreset`, `model` and `output` (where
    they are).

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
        self.stages: list[dict[str, Any]] = []
        self._values: dict[str, Any] = {}
        self._open: list[str] = []
        self._started = datetime.now(UTC)
        self._clock = time.perf_counter()

    def add(self, **values: Any) -> None:
        """Keep values by name, numpy's included; a name given again is replaced."""
        self._values.update({name: _plain(value) for name, value in values.items()})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage of the work and say so in the log; a stage within a stage is named `outer/inner`."""
        self._open.append(name)
        full_name = "/".join(self._open)
        log.info("%s ...", full_name)
        start, outcome = time.perf_counter(), "failed after"
        try:
            yield
            outcome = "done in"
        finally:
            seconds = time.perf_counter() - start
            self._open.pop()
            self.stages.append({"stage": full_name, "seconds": round(seconds, 3)})
            log.info("%s %s %.1f s", full_name, outcome, seconds)

    def to_dict(self, error: BaseException | None = None) -> dict[str, Any]:
        """Return the record as plain data that survives JSON."""
        return {
            "job": self.job,
            "status": "done" if error is None else "failed",
            "error": None if error is None else f"{type(error).__name__}: {error}",
            "started": self._started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - self._clock, 3),
            "stages": list(self.stages),
            "seed": self.settings.coreset.seed,
            **self._values,
            "settings": _without_secrets(self.settings.to_dict()),
            "versions": _versions(),
        }

    def write(self, error: BaseException | None = None) -> str:
        """Write the record, whole or not at all, and return where; a failed run's record goes beside the good one's."""
        failed_path = f"{self.path.removesuffix('.json')}.failed.json"
        path = self.path if error is None else failed_path
        content = json.dumps(self.to_dict(error), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if scheme_of(path) == "file":
            _write_local(local_path(path), content)
            if error is None:
                local_path(failed_path).unlink(missing_ok=True)
        else:
            # An object store shows a file only once it is whole, so it needs no temporary name.
            system, place = _file_system(re.sub("^s3a:", "s3:", path))
            with system.open_output_stream(place) as stream:
                stream.write(content.encode())
        return path

    def summary(self) -> str:
        """Return what came out, in a few lines for a person."""
        known = self._values
        lines = {
            "outcome": known.get("outcome"),
            "keys": _keys(known.get("keys")),
            "rows": _rows(known),
            "kernel": known.get("kernel"),
            "coreset": _coreset(known),
            "cost": _cost(known),
            "cut": _cut(known.get("normalized_cut")),
            "clusters": _clusters(known.get("cluster_sizes")),
            "moved": _moved(known.get("moved")),
            "certificate": _certificate(known.get("certificate")),
            "coreset at": known.get("coreset"),
            "model at": known.get("model"),
            "output": known.get("output"),
            "record": self.path,
            "seconds": ", ".join(f"{s['stage']} {s['seconds']:.1f}" for s in self.stages if "/" not in s["stage"]),
        }
        return "\n".join(f"{name:<12} {text}" for name, text in lines.items() if text)


def _rows(known: Mapping[str, Any]) -> str | None:
    if "rows" not in known:
        return None
    bad = known.get("bad_rows")
    return f"{known['rows']:,}" + (f" ({bad:,} bad rows left out)" if bad else "")


def _keys(counts: Mapping[str, int] | None) -> str | None:
    found = [f"{count:,} {name.replace('_', ' ')}" for name, count in (counts or {}).items() if count]
    return ", ".join(found)


def _moved(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%} of the weight is in another cluster than before"


def _coreset(known: Mapping[str, Any]) -> str | None:
    if "coreset_points" not in known:
        return None
    weight = f", total weight {known['coreset_weight']:,.0f}" if "coreset_weight" in known else ""
    leaves = f", from {known['leaves']:,} leaves" if "leaves" in known else ""
    return f"{known['coreset_points']:,} points{weight}{leaves}"


def _cost(known: Mapping[str, Any]) -> str | None:
    cost, estimate = known.get("cost"), known.get("coreset_cost")
    if cost is None:
        return None if estimate is None else f"{estimate:.6g} on the coreset"
    if estimate is None:
        return f"{cost:.6g} on all rows"
    off = f" ({abs(estimate - cost) / cost:.2%} off)" if cost > 0 else ""
    return f"{cost:.6g} on all rows; the coreset says {estimate:.6g}{off}"


def _cut(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}, the normalized cut as the coreset estimates it"


def _clusters(sizes: list[int] | None) -> str | None:
    if not sizes:
        return None
    total = sum(sizes) or 1
    shown = ", ".join(f"{label}: {size:,} ({size / total:.1%})" for label, size in enumerate(sizes[:20]))
    return shown + (f", and {len(sizes) - 20} more" if len(sizes) > 20 else "")


def _certificate(found: Mapping[str, Any] | None) -> str | None:
    if not found or found.get("largest_error") is None:
        return None
    text = f"cost within {found['largest_error']:.2%} of the truth"
    if "center_sets" in found:
        text += f" over {found['center_sets']:,} random center sets"
    if found.get("fraction") is not None and found["fraction"] < 1:
        text += f", on {found['fraction']:.1%} of the rows"
    if found.get("standard_error") is not None:
        text += f", standard error {found['standard_error']:.2%}"
    return text


def _write_local(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        fresh.write_text(content, encoding="utf-8")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)  # gone already unless something failed


def local_path(path: str) -> Path:
    """Return the place on this machine that a path of the scheme "file", or of none, names."""
    return Path("/" + path.removeprefix("file:").lstrip("/")) if path.startswith("file:/") else Path(path)


def _plain(value: Any) -> Any:
    """Plain data of any value a stage may add; a number that JSON cannot hold becomes null."""
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
    raise TypeError(f"A run record keeps numbers, texts, lists and mappings; got {type(value).__name__}.")


def _without_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    def hide(options: Mapping[str, str]) -> dict[str, str]:
        return {name: "(hidden)" if _SECRET.search(name) else text for name, text in options.items()}

    for section, key in (("input", "options"), ("output", "options"), ("spark", "conf")):
        settings[section][key] = hide(settings[section][key])
    return settings


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # A runtime's own Spark, or a package shipped as a zip, has no metadata; what is imported knows.
            versions[name] = getattr(sys.modules.get(name), "__version__", None)
    return versions
