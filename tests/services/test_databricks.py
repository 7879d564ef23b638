"""The bundle against the published schema; notebooks and jobs on a Connect server with nothing but pyspark-client."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
import yaml
from databricks.bundles.jobs import Job

from kernelcoreset.jobs.cli import JOBS
from kernelcoreset.jobs.settings.settings import Settings
from tests.faults.followers import connect_server

# Clusters that a notebook finds in the rows it makes, all its rows, and less than the rows of the smallest cluster.
CLUSTERS = {"segment": (3, 20_000, 6_000), "customers": (3, 20_000, 6_000), "places": (5, 300_000, 50_000)}
PLATFORM = (
    "Databricks bundle",
    "jobs against the published schema; notebooks and jobs on Spark Connect with pyspark-client only",
)
ROOT = Path(__file__).parents[2]
BUNDLE = yaml.safe_load((ROOT / "databricks.yml").read_text())
RESOURCES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "resources").glob("*.yml"))}
# What a bundle may have, by its reference; the classes of databricks-bundles are those of its resources.
TOP = {"bundle", "include", "artifacts", "variables", "targets"}
KNOWN_REFERENCE = re.compile(r"\$\{(?:var\.(\w+)|workspace\.file_path|bundle\.\w+)\}")
# Started in a Python that has pyspark-client, this package's dependencies, and no pyspark.
NOTEBOOK = """
import importlib.util, sys
from pyspark.sql import SparkSession
assert importlib.util.find_spec("py4j") is None, "this is a whole pyspark"
spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
for cell in open(sys.argv[1]).read().split("# COMMAND ----------"):
    exec(compile(cell, sys.argv[1], "exec"), globals())
print("SIZES", sorted(sizes.values()))
"""
FEATURES = [f"x{i}" for i in range(20)]
JOB = f"""
[input]
path = "HERE/in"
schema = "{", ".join(f"{name} double" for name in FEATURES)}, day string"
features = {json.dumps(FEATURES)}
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
[store]
path = "HERE/NAME_store"
[stream]
checkpoint = "HERE/checkpoint"
[output]
path = "HERE/NAME_labels"
[run]
record = "HERE/NAME.json"
"""
LARGEST_WORKER = 2**30
"""Bytes that user code may take on serverless compute."""


def jobs():
    return {name: job for resource in RESOURCES.values() for name, job in resource["resources"]["jobs"].items()}


def filled(text):
    """A text of the bundle with the defaults of its variables."""
    return KNOWN_REFERENCE.sub(lambda found: BUNDLE["variables"][found[1]]["default"] if found[1] else "/x", text)


def test_the_bundle_has_targets_variables_and_every_reference_is_known():
    assert set(BUNDLE) == TOP
    assert set(BUNDLE["targets"]) == {"dev", "prod"}
    assert {"catalog", "schema", "volume"} <= set(BUNDLE["variables"])
    text = json.dumps([BUNDLE, RESOURCES])
    assert "${" not in filled(text)
    for target in BUNDLE["targets"].values():
        assert set(target.get("variables", {})) <= set(BUNDLE["variables"])


@pytest.mark.parametrize("name", sorted(jobs()))
def test_jobs_fit_the_published_schema_and_the_settings(name):
    job = Job.from_dict(jobs()[name])  # refuses unknown fields and wrong types
    assert job.as_dict()["max_concurrent_runs"] == 1
    plain = jobs()[name]
    (task,) = plain["tasks"]
    own = {point.name for point in entry_points(group="console_scripts") if point.value.startswith("kernelcoreset.")}
    wheel_task = task["python_wheel_task"]
    assert wheel_task["entry_point"] in own
    _, config, *rest = wheel_task["parameters"]
    assert config == "${workspace.file_path}/conf/databricks.toml"
    assert rest[::2] == ["--set"] * (len(rest) // 2)
    sets = [filled(text) for text in rest[1::2]]
    wanted = JOBS[wheel_task["entry_point"].removeprefix("kernelcoreset-")]
    settings = Settings.load(ROOT / "conf" / "databricks.toml", sets, wanted.sections)
    settings.require(wanted.name, *wanted.needs)
    # Nothing is written to a working directory, and no Spark conf is set that serverless compute refuses.
    assert settings.run.record.startswith("/Volumes/")
    assert len(settings.output.table.split(".")) == 3
    assert settings.spark.conf == {}
    if "environment_key" in task:
        assert [each["spec"]["environment_version"] for each in plain["environments"]] == ["4"]
    if wanted.name == "stream":
        assert settings.stream.trigger == "available-now"


@pytest.fixture(scope="module")
def client_python(tmp_path_factory):
    """A Python with the wheel, its dependencies and pyspark-client, as a notebook on serverless compute has them."""
    folder = tmp_path_factory.mktemp("client")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    series = pyspark.__version__.rpartition(".")[0]
    packages = [str(ROOT), f"pyspark-client=={series}.*", "pandas<3"]
    options = ["--quiet", "--disable-pip-version-check", "--no-compile"]  # modules are compiled when they are imported
    subprocess.run([str(folder / "bin" / "pip"), "install", *options, *packages], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home of all users, in which nothing should be written."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home, tmp_path_factory):
    variables = {"HOME": str(home), "DATABRICKS_RUNTIME_VERSION": "client.4"}
    with connect_server(tmp_path_factory.mktemp("server"), "local[2]", variables) as server:
        yield server


def test_notebooks_run_top_to_bottom_with_only_the_client(client_python, server, tmp_path):
    (tmp_path / "runner.py").write_text(NOTEBOOK)  # a file: pyspark takes a program without one for a doctest
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KERNELCORESET_PLACE": str(tmp_path)}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "machine code")  # the first notebook compiles for all
    for notebook in sorted((ROOT / "notebooks").glob("*.py")):
        assert notebook.read_text().startswith("# Databricks notebook source\n")
        done = subprocess.run(
            [str(client_python), str(tmp_path / "runner.py"), str(notebook), server.address],
            env=environment, cwd="/", capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert "labels that differ: 0\n" in done.stdout, notebook.name
        sizes = json.loads(done.stdout.partition("SIZES ")[2])
        clusters, rows, least = CLUSTERS[notebook.stem]
        assert (len(sizes), sum(sizes)) == (clusters, rows), notebook.name
        assert min(sizes) > least, notebook.name


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    """A folder with rows of two days, for all that is kept."""
    folder = tmp_path_factory.mktemp("volume")
    for day in (1, 2):
        points = np.random.default_rng(day).normal(size=(50_000, len(FEATURES)))
        points[:, 0] += 20 * (np.arange(len(points)) % 3)
        place = folder / "in" / f"day=2026-01-0{day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table(dict(zip(FEATURES, points.T, strict=True))), place / "rows.parquet")
    return folder


def python_workers(server):
    """Most memory that each Python process of a server has had, in bytes, by their numbers."""
    parents, peaks = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(lines["PPid"])
        if lines["Name"].strip().startswith("python") and "VmHWM" in lines:  # one that has just ended has no memory
            peaks[int(entry.name)] = 1024 * int(lines["VmHWM"].split()[0])

    def is_of_server(process):
        return process == server.process or (process in parents and is_of_server(parents[process]))

    return {process: peak for process, peak in peaks.items() if is_of_server(process)}


@pytest.mark.parametrize("name", ["run", "update", "stream"])
def test_jobs_write_to_the_volume_alone_and_their_tasks_stay_small(name, client_python, server, home, volume, tmp_path):
    (volume / f"{name}.toml").write_text(JOB.replace("HERE", str(volume)).replace("NAME", name))
    variables = {"HOME": str(home), "DATABRICKS_RUNTIME_VERSION": "client.4", "SPARK_REMOTE": server.address}
    program = client_python.with_name(f"kernelcoreset-{name}")
    done = subprocess.run(
        [str(program), "--config", str(volume / f"{name}.toml")],
        env={"PATH": os.environ["PATH"], **variables}, cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((volume / f"{name}.json").read_text())["rows"] == 100_000
    assert [list(home.rglob("*")), list(tmp_path.rglob("*"))] == [[], []]
    peaks = python_workers(server)
    assert len(peaks) > 1, "the daemon and its workers"
    assert max(peaks.values()) < LARGEST_WORKER, peaks
