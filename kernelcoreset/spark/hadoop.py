"""Files as Spark sees them: where a path without a scheme leads, and what is there."""

from __future__ import annotations

import re
import uuid
from typing import Any

from pyspark.sql import SparkSession

_NOT_FOUND = re.compile(r"Path does not exist: (?P<path>.+?)\.?(?: SQLSTATE: \w+)?(?:;|\n|$)")


def names_below(spark: SparkSession, path: str) -> list[str] | None:
    """Return all files and folders below a path, relative to it, folders with a slash; None on Spark Connect.

    Examples
    --------
    >>> names_below(spark, "s3a://bucket/labels")  # doctest: +SKIP
    ['_SUCCESS', 'day=1/', 'day=1/part-00000.parquet']
    """
    at = _place(spark, path)
    if at is None:
        return None
    place, system = at
    if not system.exists(place):
        return []
    root = system.getFileStatus(place).getPath().toUri().getPath()
    found, to_do = list[str](), [place]
    while to_do:
        for status in system.listStatus(to_do.pop()):
            name = status.getPath().toUri().getPath()[len(root) :].strip("/")
            if status.isDirectory():
                to_do.append(status.getPath())
                name += "/"
            found.append(name)
    return found


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is anything at a path, as Spark sees it; on Spark Connect the server looks.

    Examples
    --------
    >>> exists(spark, "s3a://bucket/labels")  # doctest: +SKIP
    True
    """
    try:
        spark.read.format("binaryFile").load(path).schema  # noqa: B018  Spark Connect looks nothing up before this
    except Exception as error:  # of py4j's classes, which Spark Connect does not have
        if "PATH_NOT_FOUND" in str(error):
            return False
        raise
    return True


def qualified_path(spark: SparkSession, path: str) -> str:
    """Return a path with scheme and from the root, as Spark takes it; on Spark Connect the server tells.

    Examples
    --------
    >>> qualified_path(spark, "labels")  # doctest: +SKIP
    'file:/home/user/labels'
    """
    found = _place(spark, path)
    if found is None:
        return _qualified_by_server(spark, path)
    place, system = found
    return str(system.makeQualified(place).toString())


def _qualified_by_server(spark: SparkSession, path: str) -> str:
    """The server's own words for a path that does not exist: it has no other way to say where it looks."""
    ending = f"-{uuid.uuid4().hex}"
    try:
        spark.read.format("binaryFile").load(path.rstrip("/") + ending).schema  # noqa: B018
    except Exception as error:  # of grpc's classes
        told = _NOT_FOUND.search(str(error))
        if told is not None and told["path"].endswith(ending):
            return told["path"].removesuffix(ending)
        raise
    raise AssertionError(f"{path}{ending} exists.")


def _place(spark: SparkSession, path: str) -> tuple[Any, Any] | None:
    """A path of Hadoop and its file system; None on Spark Connect, which has no Java on this side."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    place = jvm.org.apache.hadoop.fs.Path(path)
    context: Any = spark.sparkContext
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())
