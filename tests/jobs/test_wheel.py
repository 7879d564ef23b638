"""The wheel, installed in an environment without the sources of this project, runs the same jobs."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kernelcoreset
from kernelcoreset.jobs.cli import JOBS
from tests.environments import lend_packages, make_environment

ROOT = Path(__file__).parents[2]
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
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    call(*pip, "wheel", ROOT, "--no-deps", "--wheel-dir", folder, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    python = make_environment(folder / "environment")
    # Before the packages are added: pip must not find this project among them and replace it.
    call(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    lend_packages(folder / "environment")
    return folder / "environment"


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
