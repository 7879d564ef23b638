"""Folders of rows that a job or Spark has written, and how to tell them from what a user put there.

A folder is an output if its files have the names that Spark's writers give, and one of them says that a writer made it.
Only such a folder may be replaced.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from os import PathLike

from pyarrow import fs

from kernelcoreset.files.atomic import is_local, write_file
from kernelcoreset.files.paths import open_path

MARKER = "_kernelcoreset.json"
"""A file that says that a job wrote a folder. Spark skips names that start with an underscore."""

# Names that only writers give. A slash ends the name of a folder.
_MARKERS = re.compile(
    r"_SUCCESS|_started_[^/]+|_temporary/|_delta_log/|_spark_metadata/|\.spark-staging-[^/]+/|" + re.escape(MARKER)
)
# What Spark, Delta and Databricks name the files of a table, and what this package leaves when it is killed.
_DATA = re.compile(
    r"part-[^/]+|[^=/]+=[^=/]*/|deletion_vector_[^/]+|_change_data/|_committed_[^/]+|_(common_)?metadata|"
    r"\.[^/]+\.crc|\.[^/]+\.[0-9a-f]{32}(\.old)?(/|\.tmp)|\.DS_Store|\.nfs[^/]+"
)
_FILE, _FOLDER = "a file", "a folder"
_PARTITION = re.compile(r"[^=/]+=[^=/]*")


def mark_output(path: str | PathLike[str]) -> None:
    """Say in a folder that a job writes it; the folder is created if it is not there."""
    system, place = open_path(path)
    if system.get_file_info(f"{place}/{MARKER}").type == fs.FileType.NotFound:
        write_file(system, f"{place}/{MARKER}", b'{"written by": "kernelcoreset"}\n')


def why_no_folder(system: fs.FileSystem, place: str) -> str | None:
    """Return why a job cannot write a folder at a place: something else is there; None if it can."""
    kind = _kind(system, place)
    return None if kind in (None, _FOLDER) else f"it is {kind}"


def why_no_file(system: fs.FileSystem, place: str) -> str | None:
    """Return why a job cannot write a file at a place: something else is there; None if it can."""
    kind = _kind(system, place)
    return None if kind in (None, _FILE) else f"it is {kind}"


def _kind(system: fs.FileSystem, place: str) -> str | None:
    """What is at a place, None if nothing is. A link stands for what it leads to."""
    if not is_local(system):
        return {fs.FileType.File: _FILE, fs.FileType.Directory: _FOLDER}.get(system.get_file_info(place).type)
    if not os.path.lexists(place):
        return None
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return "a link that leads nowhere"
    if stat.S_ISDIR(mode):
        return _FOLDER
    return _FILE if stat.S_ISREG(mode) else "a device, a pipe or a socket"


def why_no_output(path: str | PathLike[str], *, needs_marker: bool = True) -> str | None:
    """Return why what is at a path is not an output of a job; None if it is one, is empty or is not there.

    Without `needs_marker` it is enough that all names are those that Spark's writers give.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> why_no_output(folder.name) is None
    True
    >>> Path(folder.name, "notes.txt").touch()
    >>> why_no_output(folder.name)
    "it holds notes.txt, which Spark's writers do not write"
    >>> folder.cleanup()
    """
    system, place = open_path(path)
    reason = why_no_folder(system, place)
    if reason is not None:
        return reason
    found = system.get_file_info(fs.FileSelector(place, allow_not_found=True, recursive=True))
    names = [f"{info.path}/" if info.type == fs.FileType.Directory else info.path for info in found]
    return why_foreign([name[len(place) :].lstrip("/") for name in names], needs_marker=needs_marker)


def why_foreign(names: Iterable[str], *, needs_marker: bool = True) -> str | None:
    """Return why a folder with these files and folders at any depth is not an output of a job; None if it is one.

    Parameters
    ----------
    names : iterable of str
        Relative to the folder; a slash ends the name of a folder.
    needs_marker : bool
        As in `why_no_output`.

    Examples
    --------
    >>> why_foreign(["_SUCCESS", "day=1/", "day=1/part-00000.parquet"]) is None
    True
    """
    is_marked, first = not needs_marker, ""
    for name in sorted(names):
        under, _, last = name.removesuffix("/").rpartition("/")
        if not all(_PARTITION.fullmatch(part) for part in under.split("/") if part):
            continue  # in a folder that a writer keeps for itself; any other has been refused before
        last += "/" if name.endswith("/") else ""
        if _MARKERS.fullmatch(last):
            is_marked = True
        elif not _DATA.fullmatch(last):
            return f"it holds {name}, which Spark's writers do not write"
        first = first or name
    return None if is_marked or not first else f"it holds {first}, but no _SUCCESS and no {MARKER}"
