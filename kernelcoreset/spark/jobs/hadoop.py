"""Files as Spark sees them, for file systems of which only Spark has the keys. Classic Spark alone can tell."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


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


def qualified_path(spark: SparkSession, path: str) -> str | None:
    """Return a path with scheme and from the root, as Spark takes it; None if only a Spark Connect server knows.

    Examples
    --------
    >>> qualified_path(spark, "labels")  # doctest: +SKIP
    'file:/home/user/labels'
    """
    found = _place(spark, path)
    if found is None:
        return path if path.startswith("/") or "://" in path or path.startswith("dbfs:/") else None
    place, system = found
    return str(system.makeQualified(place).toString())


def _place(spark: SparkSession, path: str) -> tuple[Any, Any] | None:
    """A path of Hadoop and its file system; None on Spark Connect, which has no Java on this side."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    place = jvm.org.apache.hadoop.fs.Path(path)
    context: Any = spark.sparkContext
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())
