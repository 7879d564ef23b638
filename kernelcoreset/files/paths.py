"""Paths and URIs: their scheme, the place on this machine that they name, and the file system that holds them.

A path means what it means to Spark, because a job gives the same text to Spark and to this package. So a percent sign
in `file:///data/50%25` is part of the name. Only the addresses that Spark reports are percent-encoded (`decoded_path`).
"""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from urllib.parse import unquote

from pyarrow import fs

SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes of the file systems that this package can open without Spark."""

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?=/)(//[^/]*)?(?P<path>.*)", re.DOTALL)


def scheme_of(path: str) -> str:
    """Return the scheme of a path, "file" if it has none.

    Examples
    --------
    >>> scheme_of("s3a://bucket/labels"), scheme_of("file:/data/labels"), scheme_of("data/labels")
    ('s3a', 'file', 'file')
    """
    uri = _URI.match(path)
    return uri["scheme"] if uri else "file"


def is_known(path: str) -> bool:
    """Whether the scheme of a path is one that this package can open without Spark."""
    return scheme_of(path) in SCHEMES


def path_within(path: str) -> str:
    """Return a path without scheme and host: its place on its file system.

    Examples
    --------
    >>> path_within("s3a://bucket/labels"), path_within("file:///data/labels"), path_within("data/labels")
    ('/labels', '/data/labels', 'data/labels')
    """
    uri = _URI.match(path)
    return uri["path"] if uri else path


def local_path(path: str | PathLike[str]) -> Path | None:
    """Return the place on this machine that a path or a `file:` URI names, None if it is on another file system.

    Examples
    --------
    >>> local_path("file:///data/labels").as_posix(), local_path("data/labels").as_posix()
    ('/data/labels', 'data/labels')
    >>> local_path("s3a://bucket/labels") is None
    True
    """
    text = os.fspath(path)
    uri = _URI.match(text)
    if uri is None:
        return Path(text)
    if uri["scheme"] != "file":
        return None
    return Path("/" + text.removeprefix("file:").lstrip("/"))


def decoded_path(address: str) -> Path | None:
    """Return the local path of a percent-encoded address, as Spark reports files; None if the file is elsewhere.

    Examples
    --------
    >>> decoded_path("file:///data/new%20york.parquet").as_posix()
    '/data/new york.parquet'
    """
    found = local_path(address)
    return None if found is None else Path(unquote(str(found)))


def open_path(path: str | PathLike[str], filesystem: fs.FileSystem | None = None) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path on it.

    Parameters
    ----------
    path : path-like
        A local path, or a URI of one of `SCHEMES`.
    filesystem : pyarrow.fs.FileSystem, optional
        Where to look `path` up, for storage that a URI cannot describe.
    """
    if filesystem is not None:
        return filesystem, os.fspath(path)
    local = local_path(path)
    if local is not None:
        return fs.LocalFileSystem(), os.path.abspath(local)
    # Hadoop calls S3 s3a, pyarrow calls it s3.
    system, place = fs.FileSystem.from_uri(re.sub("^s3a:", "s3:", os.fspath(path)))
    return system, place
