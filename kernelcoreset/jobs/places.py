"""The places that a job reads and writes: all of them apart, and nothing replaced that no job has written.

Everything here is checked before Spark starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from os import PathLike, fspath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from kernelcoreset.coresets.coreset import why_no_coreset
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.files.atomic import read_file
from kernelcoreset.files.documents import parse_json
from kernelcoreset.files.folder import Folder
from kernelcoreset.files.outputs import why_no_file, why_no_folder, why_no_output
from kernelcoreset.files.paths import is_known, open_path
from kernelcoreset.files.places import AROUND, Place
from kernelcoreset.jobs.record import failed_path, report_place
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.folder import why_no_model
from kernelcoreset.reporting.page import is_report
from kernelcoreset.store.manifest import versions, why_no_store

_CONFIG = "--config"
_INPUT = ("input.path", "input.options.path")
# In the order in which a message names them: the one to change first.
_WRITTEN = (
    "run.record",
    "run.report",
    "stream.checkpoint",
    "input.quarantine_path",
    "output.path",
    "output.options.path",
    "store.path",
)
_PER_JOB = ("coreset.path", "cluster.model_path")
FILE_FORMATS = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
"""Formats whose writer deletes files. Table formats such as Delta keep them."""


@dataclass(frozen=True)
class _Setting:
    """A setting that names a place."""

    key: str
    path: str
    is_written: bool
    place: Place

    def __str__(self) -> str:
        return self.key if self.key == _CONFIG else f"`{self.key}`"


def check_places(
    settings: Settings, config: str | PathLike[str] | None, record: str, writes: Sequence[str] = ()
) -> None:
    """Raise SettingError if a job would write into what it reads or keeps, or replace what no job has written.

    Parameters
    ----------
    settings : Settings
    config : path-like or None
        The settings file.
    record : str
        The path of the run record.
    writes : sequence of str
        Which of "coreset.path" and "cluster.model_path" the job writes. It writes all others that it uses.
    """
    check_apart(settings, config, record, writes)
    for one in _places(settings, config, record, writes):
        if one.is_written:
            _check_own(one, settings)


def check_apart(
    settings: Settings, config: str | PathLike[str] | None, record: str, writes: Sequence[str] = ()
) -> None:
    """Do the first half of `check_places`: compare all paths with each other. No file is opened."""
    for one, other in combinations(_places(settings, config, record, writes), 2):
        if one.key != other.key and (one.is_written or other.is_written):
            _check_pair(one, other)


def check_locations(settings: Settings, key: str, paths: Iterable[str], *, is_written: bool) -> None:
    """Compare places that only Spark knows, such as the folder of a table, with the paths of the settings.

    Parameters
    ----------
    settings : Settings
    key : str
        The setting that stands for these places, such as "input.table".
    paths : iterable of str
        As Spark reports them.
    is_written : bool
        Whether the job writes there.
    """
    others = [other for other in _places(settings, None, None, _PER_JOB) if other.key not in _INPUT or is_written]
    for path in paths:
        found = _Setting(key, path, is_written, Place(path))
        for other in others:
            _check_pair(found, other)


def _places(
    settings: Settings, config: str | PathLike[str] | None, record: str | None, writes: Sequence[str]
) -> Iterator[_Setting]:
    """The places of a job, those that a user would rather change first."""
    for key in (*_WRITTEN, *_PER_JOB, *_INPUT):
        section, _, name = key.partition(".")
        if not settings.has(section):
            continue
        path = _of_run(settings, key, record) if section == "run" else _value(settings, section, name)
        if path is not None:
            place = Place(path, is_pattern=key in _INPUT)
            yield _Setting(key, path, key in _WRITTEN or key in writes, place)
            if key == "run.record":
                failed = failed_path(path)
                yield _Setting(key, failed, is_written=True, place=Place(failed))
    if config is not None:
        yield _Setting(_CONFIG, fspath(config), is_written=False, place=Place(config))


def _of_run(settings: Settings, key: str, record: str | None) -> str | None:
    """The record of the run, or the report beside it."""
    return record if record is None or key == "run.record" else report_place(settings, record)


def _value(settings: Settings, section: str, name: str) -> Any:
    if name == "options.path":
        options = settings.get(f"{section}.options")
        return next((text for option, text in options.items() if option.lower() == "path"), None)
    return settings.get(f"{section}.{name}")


# --- apart -----------------------------------------------------------------------------------------------------------


def _check_pair(one: _Setting, other: _Setting) -> None:
    wrong, kept = (one, other) if one.is_written else (other, one)
    where = wrong.place.relation(kept.place)
    if where is None:
        return
    where = "a folder around" if where == AROUND else where
    raise SettingError(
        f"{wrong} must not be {where} {kept}; got {wrong.path!r} and {kept.path!r}. The job would destroy what "
        f"is there, or read what it writes. Set {wrong} to a path of its own, beside {kept.path!r} for example."
    )


# --- own -------------------------------------------------------------------------------------------------------------


def _check_own(place: _Setting, settings: Settings) -> None:
    """Raise SettingError if something is at a place that this job must not replace."""
    if not is_known(place.path):  # only Spark can look there, and does before the job works
        return
    refuse = _CHECKS[place.key]
    try:
        reason = refuse(place.path, settings)
    except PermissionError as error:  # of the environment, not of the settings
        raise PermissionError(f"{place} cannot be looked at. {error}") from None
    except (OSError, pa.ArrowException):
        return  # an object store that only Spark has the keys of, or that is not there: the job will say
    if reason is not None:
        raise SettingError(not_own(str(place), place.path, reason))


def not_own(name: str, path: str, reason: str) -> str:
    """Return the message about a path at which something is that no job wrote."""
    return f"{name}: {path} is not an output of a job: {reason}. Remove it yourself, or choose another path."


def _output(path: str, settings: Settings) -> str | None:
    output = settings.output
    only_adds = output.mode in ("error", "append") and not settings.has("store")
    if only_adds or output.format not in FILE_FORMATS:
        return why_no_folder(*open_path(path))
    return why_no_output(path, needs_marker=not _has_run(settings))


def _quarantine(path: str, settings: Settings) -> str | None:
    return why_no_output(path, needs_marker=not _has_run(settings))


def _has_run(settings: Settings) -> bool:
    """Whether a store says that there were runs before. Earlier versions wrote their partitions without a marker."""
    path = settings.store.path if settings.has("store") else None
    return path is not None and is_known(path) and bool(versions(Folder(path)))


def _record(path: str, _: Settings) -> str | None:
    return why_no_record(path)


def _report(path: str, _: Settings) -> str | None:
    return why_no_report(path)


def _checkpoint(path: str, _: Settings) -> str | None:
    system, place = open_path(path)
    reason = why_no_folder(system, place)
    if reason is not None:
        return reason
    found = system.get_file_info(fs.FileSelector(place, allow_not_found=True))
    names = sorted(info.base_name for info in found if not info.base_name.startswith("."))
    if names and not {"metadata", "offsets", "commits"} & set(names):
        return f"it holds {names[0]}, but no metadata of a stream"
    return None


def why_no_report(path: str) -> str | None:
    """Return why a file is not a report of a run; None if it is one, is empty or is not there."""
    reason, content = _file_at(path)
    return "it is not a report of a run" if reason is None and content and not is_report(content) else reason


def why_no_record(path: str) -> str | None:
    """Return why a file is not a run record; None if it is one, is empty or is not there."""
    reason, content = _file_at(path)
    if reason is not None or content is None:
        return reason
    try:
        found = parse_json(content or b"{}", path)
    except FormatError:
        return "it is not a run record"
    is_record = isinstance(found, dict) and (not found or {"job", "status", "settings"} <= found.keys())
    return None if is_record else "it is not a run record"


def _file_at(path: str) -> tuple[str | None, bytes | None]:
    """Why there can be no file at a path, and the content of the file that is there."""
    system, place = open_path(path)
    reason = why_no_file(system, place)
    if reason is not None or system.get_file_info(place).type == fs.FileType.NotFound:
        return reason, None
    return None, read_file(system, place)


_CHECKS: dict[str, Callable[[str, Settings], str | None]] = {
    "run.report": _report,
    "run.record": _record,
    "stream.checkpoint": _checkpoint,
    "input.quarantine_path": _quarantine,
    "output.path": _output,
    "output.options.path": lambda path, _: why_no_folder(*open_path(path)),
    "store.path": lambda path, _: why_no_store(Folder(path)),
    "coreset.path": lambda path, _: why_no_coreset(path),
    "cluster.model_path": lambda path, _: why_no_model(path),
}
