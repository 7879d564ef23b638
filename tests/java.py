"""Options for every Java that the tests start, with an archive of Spark's classes: it takes half the processor time.

Called by tests/run.sh: python -m tests.java makes the archive once for an environment. Without it all tests run too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Quick to start, and both cores are left to the work instead of to optimising it.
PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = """
[input]
path = "{folder}/in"
schema = "x double, y double"
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 2
[store]
path = "{folder}/store"
[stream]
checkpoint = "{folder}/checkpoint"
[output]
path = "{folder}/{job}"
[spark.conf]
"spark.ui.enabled" = "false"
"""


def _spark() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ImportError("There is no pyspark.")
    return Path(os.path.realpath(found.origin)).parent  # as pyspark names it: a class path counts by its letters


def archive() -> Path:
    """Return the file of the classes for this Java and this Spark, which may not exist."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    parts = (os.path.realpath(java), version("pyspark"), str(_spark()))
    return ROOT / ".venv" / f"classes-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.jsa"


def options() -> str:
    """Return the value of JAVA_TOOL_OPTIONS."""
    file = archive()
    if not file.exists() or " " in str(file):
        return PLAIN
    # A Java with another class path, such as the one that finds out how to start Spark, cannot use it and would say so.
    return f"{PLAIN} -XX:SharedArchiveFile={file} -Xlog:disable -Xlog:all=error:stderr"


def make_archive() -> None:
    """Run two small jobs in a Java that keeps the classes it has loaded; if it cannot, there is no archive."""
    file = archive()
    if file.exists():
        return
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        command = [_spark() / "bin" / "spark-submit", "--master", "local[2]", "--driver-java-options"]
        command += [f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable", __file__, folder]
        own = {"JAVA_TOOL_OPTIONS": PLAIN, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        own |= {"SPARK_HOME": str(_spark()), "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(command, env=os.environ | own, capture_output=True, check=False)
        if fresh.exists():
            fresh.rename(file)


def run_jobs(folder: Path) -> None:
    """Run jobs that read and write, with tasks in Python and as a stream."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kernelcoreset.jobs import cli

    points = np.random.default_rng(0).normal(size=(500, 2))
    (folder / "in").mkdir()
    pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), folder / "in" / "rows.parquet")
    for job, main in (("run", cli.run_main), ("stream", cli.stream_main)):
        (folder / f"{job}.toml").write_text(SETTINGS.format(folder=folder, job=job))
        main(["--config", str(folder / f"{job}.toml")])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_jobs(Path(sys.argv[1]))
    else:
        make_archive()
