"""Jobs that follow an input, killed at every write step and started again: nothing is lost, nothing counts twice.

One Spark Connect server stays up for all of them; the jobs are processes of their own that end by SIGKILL. In the last
test Spark itself is killed, in the middle of its writing.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from kernelcoreset import CoresetStore, KernelKMeansModel
from tests.faults.standalone import ROOT, free_ports, wait_until

SETTINGS = """
[input]
path = "{folder}/in"
features = ["x", "y"]
{input}
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
leaf_size = 100
[cluster]
n_init = 2
[certificate]
center_sets = 0
[store]
path = "{folder}/store"
[stream]
checkpoint = "{folder}/checkpoint"
refit_batches = 2
fan_in = 3
[output]
path = "{folder}/out"
"""
CHILD = """
import os, sys
job, point, log, batch, wait = sys.argv[1:]
from tests.faults import killing
from kernelcoreset.jobs import cli
if job == "stream":
    from kernelcoreset.spark.jobs import stream as streaming
    streaming.MicroBatchHandler = lambda settings, names: killing.KillingHandler(settings, int(batch), point, log)
else:
    killing.arm(point, log)
sys.exit({"update": cli.update_main, "stream": cli.stream_main}[job](["--config", "job.toml"]))
"""


def environment(**own):
    return os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | own


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """The address of a Spark Connect server."""
    folder, (port,) = tmp_path_factory.mktemp("server"), free_ports(1)
    conf = {
        "spark.connect.grpc.binding.port": port,
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": 2,
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", *options]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, env=environment(), cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Spark Connect server started" in (folder / "log").read_text(), "the server")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=60)


def start(job, folder, point="", *, remote=None, batch=-1):
    """Run a job to its end and return its exit code; with a point it ends there."""
    own = {} if remote is None else {"SPARK_REMOTE": remote}
    command = [sys.executable, "-c", CHILD, job, point, str(folder / "points"), str(batch), ""]
    done = subprocess.run(command, cwd=folder, env=environment(**own), capture_output=True, text=True, timeout=300)
    (folder / "last.log").write_text(done.stderr)
    return done.returncode


def log_of(folder):
    return (folder / "last.log").read_text()[-3000:]


def passed(folder):
    """The points of all runs so far, in order; forgotten once read."""
    points = (folder / "points").read_text().split("\n")[:-1]
    (folder / "points").unlink()
    return points


def put_rows(path, seed, n=150):
    generator = np.random.default_rng(seed)
    points = np.array([[0.0, 0.0], [9.0, 1.0], [3.0, 20.0]])[generator.integers(3, size=n)]
    points += generator.normal(size=(n, 2))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": 1000 * seed + np.arange(n), "x": points[:, 0], "y": points[:, 1]}), path)


def what_is_there(folder):
    """Store, model and labels, all that does not depend on when and how often a job ran."""
    store = CoresetStore.open(folder / "store")
    state = store.state
    model = KernelKMeansModel.load(folder / "store" / state.pop("model"))
    for name in ("fit_time", "checkpoint", "root"):
        state.pop(name, None)
    leaves = {key: store.leaf(key).to_arrow().to_pydict() for key in sorted(store.keys())}
    infos = {key: store.info(key) for key in leaves}
    for info in infos.values():
        info.pop("tag")  # holds the times of the files
    labels = pq.read_table(folder / "out").sort_by("id")
    return {
        "state": state,
        "rows": sum(info["rows"] for info in infos.values()),
        "weight": sum(info["weight"] for info in infos.values()),
        "infos": infos,
        "leaves": leaves,
        "model": (model.solution.labels.tolist(), model.solution.coefficients.tolist()),
        "labels": labels.select(["id", "prediction", "distance"]).to_pydict(),
    }


# --- update ----------------------------------------------------------------------------------------------------------


def first_night(folder):
    folder.mkdir()
    (folder / "job.toml").write_text(SETTINGS.format(folder=folder, input=""))
    for day in range(1, 5):
        put_rows(folder / "in" / f"date=2026-01-{day:02}" / "rows.parquet", day)


def second_night(folder):
    put_rows(folder / "in" / "date=2026-01-05" / "rows.parquet", 5)
    put_rows(folder / "in" / "date=2026-01-02" / "rows.parquet", 12, n=90)
    shutil.rmtree(folder / "in" / "date=2026-01-03")


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
        source = 'schema = "id long, x double, y double"\noptions = {maxFilesPerTrigger = 1}'
        (folder / "job.toml").write_text(SETTINGS.format(folder=folder, input=source))
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
