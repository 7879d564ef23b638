"""The wheel, installed in an environment without the sources of this project, runs the same jobs."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kernelcoreset
from benchmarks.new_user import STEPS, at_terminal, commands, environment_of, install, prepare
from kernelcoreset.jobs.cli import JOBS

ROOT = Path(__file__).parents[2]
DATA = os.environ.get("KERNELCORESET_DATA")  # of the data sets of docs/data.md
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
SETTINGS = """
[input]
demo_rows = 3_000
[kernel]
name = "Gaussian"
sigma = 50.0
[coreset]
k = 3
coreset_size = 100
[output]
path = "labels"
"""


def call(*command, cwd):
    """Run a command and return its output; no environment variable points to this project."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with the wheel; it uses the packages of this one, because installing them takes minutes."""
    return install(tmp_path_factory.mktemp("wheel")).parent


def test_the_installed_package_is_the_wheel(installed, tmp_path):
    where = call(installed / "bin" / "python", "-c", "import kernelcoreset as kc; print(kc.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)
    version = call(installed / "bin" / "kernelcoreset-run", "--version", cwd=tmp_path)
    assert version.strip() == f"kernelcoreset {kernelcoreset.__version__}"


def test_the_wheel_has_all_entry_points_of_the_project(installed):
    assert {path.name for path in (installed / "bin").glob("kernelcoreset*")} == SCRIPTS.keys()
    assert SCRIPTS.keys() == {"kernelcoreset", *(f"kernelcoreset-{job}" for job in JOBS)}


@pytest.mark.parametrize("script", sorted(SCRIPTS.keys() - {"kernelcoreset"}))
def test_an_entry_point_starts_its_job(script, installed, tmp_path):
    assert JOBS[script.removeprefix("kernelcoreset-")].description in call(
        installed / "bin" / script, "--help", cwd=tmp_path
    )


def test_a_whole_run_from_the_wheel(installed, tmp_path):
    (tmp_path / "demo.toml").write_text(SETTINGS)
    said = call(installed / "bin" / "kernelcoreset-run", "--config", "demo.toml", cwd=tmp_path)
    assert "rows         3,000\n" in said
    rows = pq.read_table(tmp_path / "labels")
    assert rows.column_names == ["longitude", "latitude", "prediction", "distance"]
    assert (len(rows), set(rows["prediction"].to_pylist())) == (3_000, {0, 1, 2})
    record = json.loads((tmp_path / "labels.run.json").read_text())
    assert (record["status"], record["rows"], sum(record["cluster_sizes"])) == ("done", 3_000, 3_000)
    assert record["versions"]["kernelcoreset"] == kernelcoreset.__version__
    page = (tmp_path / "labels.report.html").read_bytes()
    program = installed / "bin" / "kernelcoreset"
    call(program, "report", "labels.run.json", "--output", "again.html", cwd=tmp_path)
    assert (tmp_path / "again.html").read_bytes() == page
    assert JOBS["run"].description in call(program, "run", "--help", cwd=tmp_path)


@pytest.mark.skipif(
    not DATA, reason="no real data: set KERNELCORESET_DATA to a folder of the data sets of docs/data.md"
)
def test_the_path_of_a_new_user(installed, tmp_path):
    """At a terminal, on the bank's customers: every step says what it does while it does it, and ends well.

    benchmarks/new_user.py measures how long nothing is shown. Here beats are so frequent that each step has some.
    """
    prepare(Path(DATA), tmp_path)
    # The code that this checkout has compiled is the wheel's: only the benchmark compiles again.
    environment = {name: value for name, value in environment_of(tmp_path).items() if name != "NUMBA_CACHE_DIR"}
    often = "import kernelcoreset.heartbeat as h; h.EVERY = 0.02\n"
    said = {}
    for name, command in commands(installed / "bin").items():
        code = [often + part if name in STEPS and part == STEPS[name] else part for part in command]
        seen = at_terminal(code, tmp_path, environment)
        assert seen.code == 0, f"{name}: {seen.text}"
        said[name] = seen.text
    assert "kernelcoreset: exploring a sample of the rows, " in said["explore"]
    assert "Take k = " in said["explore"]
    for name in STEPS:
        if name != "explore":
            assert "Cluster 0: " in said[name]
            assert "kernelcoreset: describing the clusters, " in said[name]
    assert "kernelcoreset: building a coreset of 40,188 points" in said["five lines"]
    assert "building a coreset of 40,188 points" in said["fit, describe, label new rows"]
    page = (tmp_path / "labels.report.html").read_text()
    assert "Cluster quality" in page
    assert (tmp_path / "again.html").read_text() == page
    assert "session" in said["the job, with its report"]
    labels = pq.read_table(tmp_path / "new-labels")
    assert (len(labels), set(labels["prediction"].to_pylist()) <= {0, 1, 2}) == (1_000, True)
