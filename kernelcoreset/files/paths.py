"""Paths and URIs: their scheme, the place on this machine that they name, and the file system that holds them.

A path means what it means to Spark, because a job gives the same text to Spark and to this package. So a percent sign
in `file:///data/50%25` is part of the name. Only the addresses that Spark reports are percent-encoded (`decoded_path`).
The address of an object store may end in a query, such as `?region=eu-west-1`, for this package alone.
"""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import fs

from kernelcoreset.errors import SettingError

_REMOTE = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
SCHEMES = ("file", *_REMOTE, "dbfs")
"""Schemes of the file systems that this package can open without Spark; `dbfs` only where it is mounted."""

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?=/)(//(?P<host>[^/]*))?(?P<path>.*)", re.DOTALL)
_NO_SLASH = re.compile(rf"({'|'.join(SCHEMES)}):(?!/)", re.IGNORECASE)
_VOLUMES = "/Volumes/"
DBFS_MOUNT = "/dbfs"
"""Where Databricks shows `dbfs:/` as local files."""


def scheme_of(path: str) -> str:
    """Return the scheme of a path, "file" if it has none.

    Examples
    --------
    >>> scheme_of("s3a://bucket/labels"), scheme_of("file:/data/labels"), scheme_of("data/labels")
    ('s3a', 'file', 'file')
    """
    uri = _URI.match(path)
    return uri["scheme"].lower() if uri else "file"


def has_scheme(path: str) -> bool:
    """Return whether a path says by its scheme which file system it is on.

    Examples
    --------
    >>> has_scheme("file:/data/labels"), has_scheme("/data/labels")
    (True, False)
    """
    return _URI.match(path) is not None


def is_known(path: str) -> bool:
    """Whether this package can open a path without Spark: its scheme is one of `SCHEMES`, and DBFS is mounted."""
    scheme = scheme_of(path)
    return _mounted(path) is not None if scheme == "dbfs" else scheme in SCHEMES


def path_within(path: str) -> str:
    """Return a path without scheme and host: its place on its file system.

    Examples
    --------
    >>> path_within("s3a://bucket/labels"), path_within("file:///data/labels"), path_within("data/labels")
    ('/labels', '/data/labels', 'data/labels')
    """
    uri = _URI.match(path)
    return uri["path"] if uri else path


def split_query(path: str) -> tuple[str, str]:
    """Return a path without its query, and the query with its question mark. Local names may have question marks.

    Examples
    --------
    >>> split_query("s3://bucket/labels?region=eu-west-1"), split_query("data/labels?")
    (('s3://bucket/labels', '?region=eu-west-1'), ('data/labels?', ''))
    """
    if scheme_of(path) not in _REMOTE:
        return path, ""
    base, mark, query = path.partition("?")
    return base, mark + query


def extend_path(path: str, ending: str, *, without: str = "") -> str:
    """Return a path with an ending, before its query if it has one.

    Parameters
    ----------
    path : str
    ending : str
    without : str
        An ending that is taken off first, if it is there.

    Examples
    --------
    >>> extend_path("s3://bucket/store?region=eu-west-1", "/models")
    's3://bucket/store/models?region=eu-west-1'
    >>> extend_path("labels.run.json", ".failed.json", without=".json")
    'labels.run.failed.json'
    """
    base, query = split_query(path)
    return f"{base.removesuffix(without)}{ending}{query}"


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
        if _NO_SLASH.match(text):
            raise SettingError(
                f"A path with a scheme has a slash after the colon, such as file:///data/x or s3://bucket/x; got "
                f"{text!r}. Write it so, or ./{text} for a file of that name."
            )
        return Path(text)
    if uri["scheme"].lower() != "file":
        return None
    if uri["host"]:
        raise SettingError(
            f"A file: path must not name a host; got {text!r}. Write file:///{uri['host']}... or a mount."
        )
    return Path("/" + uri["path"].lstrip("/"))


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
    """Return the file system of a path or URI, and the path on it. SettingError if there is no such file system.

    Parameters
    ----------
    path : path-like
        A local path, or a URI of one of `SCHEMES`.
    filesystem : pyarrow.fs.FileSystem, optional
        Where to look `path` up, for storage that a URI cannot describe.
    """
    if filesystem is not None:
        return _without_subtree(filesystem, os.fspath(path))
    text = os.fspath(path)
    local = local_path(text)
    if local is not None:
        return fs.LocalFileSystem(), os.path.abspath(local)
    scheme = scheme_of(text)
    if scheme == "dbfs":
        mounted = _mounted(text)
        if mounted is None:
            raise SettingError(
                f"{text!r} can be opened only where Databricks mounts DBFS at {DBFS_MOUNT}; it is not mounted here. "
                "Use a path in a volume, /Volumes/..., or in an object store."
            )
        return fs.LocalFileSystem(), mounted
    if scheme not in SCHEMES:
        raise SettingError(
            f"A path must be local or start with one of {', '.join(SCHEMES)}; got {text!r}. Choose another path, or "
            f"write ./{text} for a local file of that name."
        )
    return _open_remote(text, scheme)


def _open_remote(text: str, scheme: str) -> tuple[fs.FileSystem, str]:
    base, query = split_query(text)
    parts = _URI.match(base)
    host, path = (parts["host"] or "", parts["path"]) if parts else ("", "")
    if not host and scheme not in ("hdfs", "viewfs"):
        raise SettingError(f"A {scheme} path must name a bucket, such as {scheme}://bucket/x; got {text!r}.")
    # Hadoop calls S3 s3a, pyarrow calls it s3. pyarrow decodes the path, which is text here.
    scheme = "s3" if scheme == "s3a" else scheme
    try:
        system, place = fs.FileSystem.from_uri(f"{scheme}://{host}{quote(path)}{query}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SettingError(f"pyarrow cannot open {base!r}: {error}. Correct the path.") from None
    return system, place


def _mounted(path: str) -> str | None:
    """Where Databricks shows a `dbfs:/` path as a local file; None if it does not."""
    within = "/" + path_within(path).lstrip("/")
    if within.startswith(_VOLUMES):
        return within if os.path.isdir(_VOLUMES) else None
    return os.path.normpath(DBFS_MOUNT + within) if os.path.isdir(DBFS_MOUNT) else None


def _without_subtree(system: fs.FileSystem, path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system below, so that all ways to one place are known to lead to one place."""
    while isinstance(system, fs.SubTreeFileSystem):
        system, path = system.base_fs, f"{system.base_path.rstrip('/')}/{path.lstrip('/')}"
    return system, path
