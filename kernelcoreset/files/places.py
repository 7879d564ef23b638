"""Where a path leads: whether two paths name the same place, or one a place inside the other.

A path is resolved in every way that a file system could read it: links followed, `..` taken out by the text as Hadoop
does or by the file system as the operating system does, percent-escapes and a query string of a URI taken literally or
not. Two paths overlap if they do in one of these ways. So the answer errs on the safe side.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, product
from os import PathLike
from pathlib import Path
from urllib.parse import unquote

from kernelcoreset.errors import SettingError

SAME, INSIDE, AROUND = "the same as", "inside", "around"
"""What `Place.relation` may return: where the first place is, seen from the second."""

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?=/)(//(?P<host>[^/]*))?(?P<path>.*)", re.DOTALL)
_WILD = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ONE_STORE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
_MOST_MATCHES = 1_000


@dataclass(frozen=True)
class _Step:
    """One part of a resolved path: a folder or file that is there has an id, a part that is not there only a name."""

    name: str
    id: tuple[object, ...] | None = None
    is_pattern: bool = False

    def matches(self, other: _Step) -> bool:
        if self.is_pattern or other.is_pattern:
            return _name_matches(self, other) or _name_matches(other, self)
        if self.id is None or other.id is None:
            return self.id is other.id and self.name == other.name
        return self.id == other.id or _is_same_store(self.id, other.id)


_Steps = tuple[_Step, ...]


class Place:
    """Where a path leads.

    Parameters
    ----------
    path : path-like
        A local path, or a URI of any scheme. It need not exist.
    is_pattern : bool
        Whether it is read by Spark, to which `*`, `?`, `[a]` and `{a,b}` stand for several places.

    Examples
    --------
    >>> Place("data/./in/../in/labels").relation(Place("data/in"))
    'inside'
    >>> Place("s3a://bucket/data").relation(Place("s3://bucket/data/in?region=eu-west-1"))
    'around'
    >>> Place("data/2.parquet").relation(Place("data/*.parquet", is_pattern=True))
    'the same as'
    """

    def __init__(self, path: str | PathLike[str], *, is_pattern: bool = False) -> None:
        self._forms = _forms(os.fspath(path), is_pattern)

    def relation(self, other: Place) -> str | None:
        """Return where this place is, seen from another: SAME, INSIDE or AROUND; None if they are apart."""
        found = {
            where
            for own, its in product(self._forms, other._forms)
            if (where := _align(own, its) or _turned(_align(its, own)))
        }
        return next((where for where in (SAME, INSIDE, AROUND) if where in found), None)


def _align(own: _Steps, its: _Steps) -> str | None:
    """Compare two resolved paths from the last part of `its` that has an id, wherever `own` passes through it."""
    anchor = max(i for i, step in enumerate(its) if step.id is not None)
    for start, step in enumerate(own):
        if step.id is not None and step.matches(its[anchor]):
            below, rest = own[start + 1 :], its[anchor + 1 :]
            if all(a.matches(b) for a, b in zip(below, rest, strict=False)):
                return SAME if len(below) == len(rest) else INSIDE if len(below) > len(rest) else AROUND
    return None


def _turned(where: str | None) -> str | None:
    return {INSIDE: AROUND, AROUND: INSIDE}.get(where or "", where)


def _forms(text: str, is_pattern: bool) -> list[_Steps]:
    """Every way to read a path, without repetition."""
    if "\0" in text:
        raise SettingError(f"A path must not hold a null character; got {text!r}. Take it out.")
    uri = _URI.match(text)
    if uri is None:
        found = [*_local_forms(text, is_pattern), *_remote_forms("", "", text, is_pattern)]
    else:
        scheme, host, path = uri["scheme"].lower(), uri["host"] or "", uri["path"]
        paths = dict.fromkeys(form(part) for part in (path, _without_query(path)) for form in (str, unquote))
        if scheme == "file":
            hosts = dict.fromkeys(["", host and f"/{host}"])
            found = [form for name in paths for host in hosts for form in _local_forms(f"{host}{name}", is_pattern)]
        else:
            found = [form for name in paths for form in _remote_forms(scheme, host, name, is_pattern)]
            if scheme == "dbfs":  # the same storage as files of this machine
                found += [form for name in paths for form in _local_forms(f"/dbfs{name}", is_pattern)]
                found += [form for name in paths for form in _local_forms(name, is_pattern)]
    return list(dict.fromkeys(found))


def _without_query(path: str) -> str:
    return re.split(r"[?#]", path, maxsplit=1)[0]


# --- this machine ----------------------------------------------------------------------------------------------------


def _local_forms(text: str, is_pattern: bool) -> Iterator[_Steps]:
    for path in dict.fromkeys([text, os.path.normpath(text)]):
        yield _local_steps(path)
        if is_pattern:
            yield from _read_forms(path)


def _read_forms(path: str) -> Iterator[_Steps]:
    """What Spark also reads under a path: what a pattern stands for, and what links in a folder lead to."""
    if not _WILD.search(path):
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                yield from (_local_steps(entry.path) for entry in entries if entry.is_symlink())
        return
    for one in _without_braces(path):
        parts = Path(one).parts
        plain = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
        yield (*_local_steps(os.path.join(".", *parts[:plain])), *(_pattern(part) for part in parts[plain:]))
        yield from (_local_steps(match) for match in islice(glob.iglob(_python_pattern(one)), _MOST_MATCHES))


def _local_steps(path: str) -> _Steps:
    real = Path(os.path.realpath(path))
    steps: list[_Step] = []
    ignores_case = False
    for part in [*reversed(real.parents), real]:
        found = _id_of(part)
        if found is not None:
            ignores_case = _ignores_case(part)
        name = unicodedata.normalize("NFC", part.name)
        steps.append(_Step(name.casefold() if ignores_case and found is None else name, found))
    return tuple(steps)


def _id_of(path: Path) -> tuple[object, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return ("inode", found.st_dev, found.st_ino)


def _ignores_case(folder: Path) -> bool:
    """Whether the file system of a folder takes `A` and `a` for one name; found out without writing."""
    for part in [folder, *folder.parents]:
        if part.name.swapcase() != part.name:
            swapped = _id_of(part.with_name(part.name.swapcase()))
            return swapped is not None and swapped == _id_of(part)
    return False


# --- other file systems ----------------------------------------------------------------------------------------------


def _remote_forms(scheme: str, host: str, path: str, is_pattern: bool) -> Iterator[_Steps]:
    """A path on another file system; without a scheme, on the default one of a cluster, which may be any."""
    store = _ONE_STORE.get(scheme, scheme)
    host = host.lower().replace(".blob.", ".dfs.")
    if store in ("hdfs", "viewfs"):
        host = host.partition(":")[0]
    root = _Step("", ("store", store, host))
    if not scheme:
        path = os.path.abspath(path)
    for one in _without_braces(path) if is_pattern else [path]:
        parts = [part for part in posixpath.normpath(f"/{one}").split("/") if part]
        steps = (_pattern(part) if is_pattern and _WILD.search(part) else _Step(part) for part in parts)
        yield (root, *steps)


def _is_same_store(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two stores may be the same: HDFS without a host, or a path without a scheme, is that of the cluster."""
    if one[0] != "store" or other[0] != "store":
        return False
    may_be_default = {"", "hdfs", "viewfs", "dbfs"}
    alike = one[1] == other[1] or "" in (one[1], other[1])
    return alike and {one[1], other[1]} <= may_be_default and "" in (one[2], other[2])


# --- patterns --------------------------------------------------------------------------------------------------------


def _without_braces(path: str) -> list[str]:
    """The paths that `{a,b}` stands for."""
    found = _BRACES.search(path)
    if found is None:
        return [path]
    return [
        one
        for choice in found[1].split(",")
        for one in _without_braces(f"{path[: found.start()]}{choice}{path[found.end() :]}")
    ]


def _pattern(part: str) -> _Step:
    return _Step(_python_pattern(part), is_pattern=True)


def _python_pattern(path: str) -> str:
    return path.replace("[^", "[!")


def _name_matches(pattern: _Step, other: _Step) -> bool:
    if not pattern.is_pattern:
        return False
    # Two patterns are taken to have a match in common.
    return other.is_pattern or fnmatchcase(other.name, pattern.name)
