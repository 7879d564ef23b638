"""Jobs that follow an input, killed at every write step and started again: nothing is lost, nothing counts twice.

One Spark Connect server stays up for all of them; the jobs are processes of their own that end by SIGKILL. In the last
test Spark itself is killed, in the middle of its writing.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from kernelcoreset import CoresetStore
from tests.faults.followers import (
    STREAM,
    connect_server,
    environment,
    first_night,
    log_of,
    passed,
    put_rows,
    second_night,
    settings_of,
    start,
    what_is_there,
)


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """The address of a Spark Connect server."""
    with connect_server(tmp_path_factory.mktemp("server"), "local[2]") as server:
        yield server.address


# --- update ----------------------------------------------------------------------------------------------------------


def test_an_update_killed_at_every_write(remote, tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    for folder in (quiet, killed):
        first_night(folder)
        assert start("update", folder, remote=remote) == 0, log_of(folder)
        passed(folder)
        second_night(folder)
    assert start("update", quiet, remote=remote) == 0, log_of(quiet)
    steps = passed(quiet)
    # Leaves, model and labels, each followed by its commit.
    assert steps == [
        *("leaf", "leaf done", "leaf 2", "leaf done 2", "commit", "commit done"),
        *("model", "model done", "coreset", "coreset done", "commit 2", "commit done 2"),
        *("removal", "removal done", "labels", "labels done", "commit 3", "commit done 3"),
    ]
    # Each run is killed one step farther than the one before; what was done already is not done again, so that
    # commits are counted from 1 again.
    for point in (
        *("leaf 2", "commit", "commit done"),
        *("model", "coreset", "commit", "commit done"),
        *("removal", "labels", "labels done", "commit done"),
    ):
        assert start("update", killed, point, remote=remote) == -signal.SIGKILL, (point, log_of(killed))
    assert start("update", killed, remote=remote) == 0, log_of(killed)
    assert json.loads((killed / "out.run.json").read_text())["outcome"] == "nothing to do"
    assert what_is_there(killed) == what_is_there(quiet)
    there = what_is_there(killed)
    assert there["rows"] == len(set(there["labels"]["id"])) == len(there["labels"]["id"]) == 3 * 150 + 90
    # Half-written models and the like are not left for ever: the next change removes them.
    put_rows(killed / "in" / "date=2026-01-06" / "rows.parquet", 6)
    assert start("update", killed, remote=remote) == 0, log_of(killed)
    assert len(list((killed / "store" / "models").iterdir())) == 2


# --- stream ----------------------------------------------------------------------------------------------------------

KILLS = (
    (0, "commit done"),  # an empty store, and nothing in it
    (1, "leaf"),
    (2, "commit"),
    (2, "commit done"),
    (2, "coreset"),  # half a model
    (2, "commit done 2"),  # a model, and labels by the one before
    (3, "labels"),
    (4, "labels done"),  # all is done but Spark does not know
)


def test_a_stream_killed_at_every_write(remote, tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    for folder in (quiet, killed):
        folder.mkdir()
        (folder / "job.toml").write_text(settings_of(folder, STREAM))
        for number in range(6):
            path = folder / "in" / f"{number}.parquet"
            put_rows(path, number)
            os.utime(path, (1_700_000_000 + number,) * 2)
    assert start("stream", quiet, remote=remote) == 0, log_of(quiet)
    for batch, point in KILLS:
        assert start("stream", killed, point, remote=remote, batch=batch) == 4, (batch, point, log_of(killed))
        assert passed(killed)[-1] == point
    assert start("stream", killed, remote=remote) == 0, log_of(killed)
    assert what_is_there(killed) == what_is_there(quiet)
    there = what_is_there(killed)
    assert there["rows"] == len(set(there["labels"]["id"])) == len(there["labels"]["id"]) == 6 * 150
    assert start("stream", killed, remote=remote) == 0, log_of(killed)
    assert json.loads((killed / "out.run.json").read_text())["outcome"] == "nothing to do"


# --- Spark itself ----------------------------------------------------------------------------------------------------

WITH_SPARK = """
import os, signal, sys, threading, time
from pathlib import Path
from kernelcoreset.jobs import cli
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
java = spark.sparkContext._gateway.proc.pid

def strike():
    # Once tasks have begun to write labels, before the job that writes them is done.
    while not list(Path("out").rglob("_temporary/**/*.parquet")) and not list(Path("out").glob(".spark-staging*")):
        time.sleep(0.001)
    os.kill(java, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=strike, daemon=True).start()
sys.exit(cli.update_main(["--config", "job.toml"]))
"""


def test_spark_killed_while_it_writes(remote, tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    for folder in (quiet, killed):
        first_night(folder)
    assert start("update", quiet, remote=remote) == 0, log_of(quiet)
    done = subprocess.run(
        [sys.executable, "-c", WITH_SPARK], cwd=killed, env=environment(), capture_output=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert CoresetStore.open(killed / "store").state["pending"]
    assert start("update", killed, remote=remote) == 0, log_of(killed)
    assert what_is_there(killed) == what_is_there(quiet)
    assert not list((killed / "out").glob(".*"))
