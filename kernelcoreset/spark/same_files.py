"""One meaning for a path: without a scheme it is on the disks of this process, also for Spark, or it is refused.

Python and Spark both look at the output of a job, at a checkpoint and at the input, and both write a pipeline. Spark
takes a path without a scheme to its default file system, and a server of Spark Connect to its own disks and working
directory. If that is another place, half of the files would be here and half there.
"""

from __future__ import annotations

import os
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from kernelcoreset.errors import SettingError
from kernelcoreset.files.paths import has_scheme, path_within, scheme_of
from kernelcoreset.spark.hadoop import exists, qualified_path

_VOLUMES = "/Volumes/"  # of Databricks: the same files for all its processes, by this name


def refuse_two_meanings(spark: SparkSession, name: str, path: str) -> None:
    """Raise SettingError if a path without a scheme leads Spark to another place than this process.

    Parameters
    ----------
    spark : SparkSession
    name : str
        What the message calls the path.
    path : str
    """
    if has_scheme(path) or path.startswith(_VOLUMES):
        return
    try:
        taken = qualified_path(spark, path)
    except Exception:  # of py4j's classes; no path that Spark can use: it says why when it is to open it
        return
    meant = os.path.abspath(path)
    if scheme_of(taken) != "file" or _without_links(path_within(taken)) != _without_links(meant):
        raise SettingError(
            f"{name} has no scheme and would mean two places: {meant} on this machine, and {taken} for Spark. Write "
            f"the one that you mean with its scheme, such as {taken} or file://{meant}"
        )
    if is_remote() and not sees_these_disks(spark):
        raise SettingError(
            f"{name} has no scheme and would mean two places: {meant} on this machine, and on the Spark Connect "
            "server, which does not see these disks. Write a place that both see, such as /Volumes/... or s3a://..., "
            "or the scheme file: if it is there under the same name on both."
        )


def sees_these_disks(spark: SparkSession) -> bool:
    """Return whether Spark sees the local files of this process."""
    with tempfile.NamedTemporaryFile(prefix="kernelcoreset-") as probe:
        try:
            return exists(spark, f"file://{probe.name}")
        except Exception:  # of py4j's or grpc's classes: some servers refuse to look at local files
            return False


def _without_links(path: str) -> str:
    return os.path.realpath(path.rstrip("/") or "/")
