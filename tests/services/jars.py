"""Jars from the Maven registry, downloaded once by mvn and kept. What cannot be had is an error."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0",)
DELTA_GROUPS = ("io.delta", "io.unitycatalog")
"""What Spark does not bring itself."""
YARN = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.apache.hadoop:hadoop-client-runtime:3.5.0",
    "org.junit.jupiter:junit-jupiter-api:5.12.2",
    "org.junit.platform:junit-platform-commons:1.12.2",
    "org.opentest4j:opentest4j:1.3.0",
    "org.apiguardian:apiguardian-api:1.1.2",
    "ch.qos.reload4j:reload4j:1.2.25",
    "org.bouncycastle:bcprov-jdk18on:1.82",
    "org.bouncycastle:bcpkix-jdk18on:1.82",
    "org.bouncycastle:bcutil-jdk18on:1.82",
)
KAFKA_BROKER = ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1")
KAFKA_SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""All that Spark's connector needs; what it names itself is not all on every registry."""
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
"""The newest; one for Spark 4.2 is not there yet, and this one does not run on it."""
S3A = ("org.apache.hadoop:hadoop-aws:3.5.0",)
S3A_GROUPS = ("org.apache.hadoop", "software.amazon.awssdk", "software.amazon.s3.analyticsaccelerator")
_ATTEMPTS = 4
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>jars</artifactId>"
    "<version>1</version><dependencies>{}</dependencies></project>"
)


def jars(coordinates: Sequence[str], groups: Sequence[str] = (), *, alone: bool = False) -> list[str]:
    """Return the jars of these artifacts and, unless `alone`, of all they need; of some groups only, if given."""
    wanted = [*coordinates, "/", *groups, *(["alone"] if alone else [])]
    digest = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelcoreset" / "jars"
    folder = cache / digest
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock, tempfile.TemporaryDirectory(dir=cache) as place:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two test processes may want the same jars
            if not folder.exists():
                _download(Path(place), coordinates, groups, _ALONE if alone else "")
                (Path(place) / "jars").rename(folder)
    return sorted(map(str, folder.glob("*.jar")))


def _download(place: Path, coordinates: Sequence[str], groups: Sequence[str], without: str) -> None:
    dependencies = "".join(_DEPENDENCY.format(*each.split(":"), without) for each in coordinates)
    (place / "pom.xml").write_text(_POM.format(dependencies))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={place / 'jars'}", *([f"-DincludeGroupIds={','.join(groups)}"] if groups else [])]
    for attempt in range(_ATTEMPTS):
        found = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if found.returncode == 0:
            return
        time.sleep(5 * attempt)
    raise RuntimeError(f"mvn cannot download {', '.join(coordinates)}:\n{found.stdout[-3000:]}{found.stderr[-1000:]}")
