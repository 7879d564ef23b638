"""The bundle against the published schema, and the notebooks on a Connect server with nothing but pyspark-client."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pyspark
import pytest
import yaml
from databricks.bundles.jobs import Job

from kernelcoreset.jobs.cli import JOBS
from kernelcoreset.jobs.settings.settings import Settings
from tests.faults.followers import connect_server

# Clusters that a notebook finds in the rows it makes, all its rows, and less than the rows of the smallest cluster.
CLUSTERS = {"segment": (3, 20_000, 6_000), "customers": (3, 20_000, 6_000), "places": (5, 300_000, 50_000)}
PLATFORM = "Databricks bundle", "jobs against the published schema; notebooks on Spark Connect with pyspark-client only"
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
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True)
    return folder / "bin" / "python"


def test_notebooks_run_top_to_bottom_with_only_the_client(client_python, tmp_path):
    (tmp_path / "server").mkdir()
    (tmp_path / "runner.py").write_text(NOTEBOOK)  # a file: pyspark takes a program without one for a doctest
    with connect_server(tmp_path / "server", "local[2]") as server:
        for notebook in sorted((ROOT / "notebooks").glob("*.py")):
            assert notebook.read_text().startswith("# Databricks notebook source\n")
            environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KERNELCORESET_PLACE": str(tmp_path)}
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
