"""Small jobs that follow an input, as processes that tests kill, and what they leave behind."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from kernelcoreset import CoresetStore, KernelKMeansModel
from tests.faults.standalone import HOST, ROOT, free_ports, wait_until

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
job, point, log, batch, *options = sys.argv[1:]
from tests.faults import killing
from kernelcoreset.jobs import cli
if job == "stream":
    from kernelcoreset.spark.jobs import stream as streaming
    streaming.MicroBatchHandler = lambda settings, *_: killing.KillingHandler(settings, int(batch), point, log)
elif job == "run":
    killing.arm_files(point, log)
else:
    killing.arm(point, log)
sys.exit(cli.run_job(cli.JOBS[job], ["--config", "job.toml", *options]))
"""


STREAM = 'schema = "id long, x double, y double"\noptions = {maxFilesPerTrigger = 1}'


OPTIONS = {
    "run": [
        part
        for setting in ("output.mode=overwrite", "coreset.path=coreset.parquet", "cluster.model_path=model")
        for part in ("--set", setting)
    ]
}


def settings_of(folder, source=""):
    """The text of a settings file; `source` are more lines of the section of the input."""
    return SETTINGS.format(folder=folder, input=source)


def environment(**own):
    """The environment of servers and jobs; a job that ran in this process may have told Java to log less."""
    kept = {name: value for name, value in os.environ.items() if name != "LOG4J_CONFIGURATION_FILE"}
    return kept | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | own


class Server(NamedTuple):
    """A Spark Connect server."""

    address: str
    page: str
    """Where its REST API answers."""
    process: int
    """Its number."""


@contextmanager
def connect_server(folder, master, variables=None, **conf):
    """Start a Spark Connect server, which stays up while jobs come and go; `variables` are of its environment."""
    port, page = free_ports(2)
    conf = {
        "spark.connect.grpc.binding.port": port,
        "spark.master": master,
        "spark.ui.port": page,
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": 2,
        **conf,
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", *options]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with open(folder / "log", "w") as log:
        own = environment(**(variables or {}))
        server = subprocess.Popen(command, env=own, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Spark Connect server started" in (folder / "log").read_text(), "the server")
        yield Server(f"sc://{HOST}:{port}", f"http://{HOST}:{page}/api/v1/applications", server.pid)
    finally:
        server.terminate()
        server.wait(timeout=60)


def start(job, folder, point="", *, remote=None, batch=-1):
    """Run a job to its end and return its exit code; with a point it ends there."""
    process = begin(job, folder, point, remote=remote, batch=batch)
    try:
        return process.wait(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def begin(job, folder, point="", *, remote=None, batch=-1):
    """Start a job and return its process; what it says goes to last.log."""
    own = {} if remote is None else {"SPARK_REMOTE": remote}
    command = [sys.executable, "-c", CHILD, job, point, str(folder / "points"), str(batch), *OPTIONS.get(job, ())]
    with open(folder / "last.log", "w") as log:
        return subprocess.Popen(command, cwd=folder, env=environment(**own), stdout=subprocess.DEVNULL, stderr=log)


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
    for name in ("fit_time", "checkpoint", "root", "writer", "stamp"):
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


def first_night(folder):
    folder.mkdir()
    (folder / "job.toml").write_text(settings_of(folder))
    for day in range(1, 5):
        put_rows(folder / "in" / f"date=2026-01-{day:02}" / "rows.parquet", day)


def second_night(folder):
    put_rows(folder / "in" / "date=2026-01-05" / "rows.parquet", 5)
    put_rows(folder / "in" / "date=2026-01-02" / "rows.parquet", 12, n=90)
    shutil.rmtree(folder / "in" / "date=2026-01-03")
