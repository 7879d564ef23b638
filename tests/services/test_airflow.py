"""The DAG of examples/, parsed and run by a real Airflow."""

import sqlite3
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from tests.services.airflow import ROOT, Airflow

PLATFORM = "Airflow 3", "the DAG of examples/, parsed, run and backfilled"

DAG = "kernelcoreset_update"
JOB = """
[input]
path = "HERE/days"
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 2
coreset_size = 30
[cluster]
n_init = 2
[certificate]
center_sets = 0
[store]
path = "HERE/store"
[output]
path = "HERE/out"
[spark]
conf = {"spark.ui.enabled" = "false"}
"""
# Ends with the codes that are listed in a file, one per call.
FAKE_JOB = """#!/usr/bin/env python3
import pathlib, sys
codes = pathlib.Path(__file__).with_name("codes")
first, *rest = codes.read_text().split()
codes.write_text(" ".join(rest))
print("Environment: this is only a test")
sys.exit(int(first))
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    found = Airflow(tmp_path_factory.mktemp("airflow") / "home")
    text = (ROOT / "examples" / "airflow_dag.py").read_text()
    assert text.count("timedelta(minutes=5)") == 1
    (found.dags / "airflow_dag.py").write_text(text.replace("timedelta(minutes=5)", "timedelta(seconds=1)"))
    return found


def last_task(airflow):
    """State and number of tries of the task that ran last."""
    with sqlite3.connect(airflow.home / "airflow.db") as database:
        query = "SELECT state, try_number FROM task_instance ORDER BY start_date DESC LIMIT 1"
        (row,) = database.execute(query).fetchall()
    database.close()
    return row


def test_the_dag_is_parsed_without_errors(airflow):
    assert "No data found" in airflow.call("dags", "list-import-errors").stdout


def put_days(folder, days):
    for day in days:
        points = np.random.default_rng(day).normal(size=(60, 2)) + np.repeat([[0.0], [9.0]], 30, axis=0)
        path = folder / "days" / f"date=2026-01-{day:02}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), path)


def test_nights_and_a_backfill(airflow, tmp_path):
    """The date of the run decides, in any order."""
    put_days(tmp_path, range(1, 6))
    (tmp_path / "job.toml").write_text(JOB.replace("HERE", str(tmp_path)))
    variables = {
        "kernelcoreset_command": f"{sys.executable} {ROOT}/jobs/update.py",
        "kernelcoreset_config": str(tmp_path / "job.toml"),
    }
    for night, known in ((3, 3), (2, 3), (5, 5)):
        done = airflow.call("dags", "test", DAG, f"2026-01-0{night}", **variables)
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
        assert last_task(airflow) == ("success", 1)
        assert f"update.until=2026-01-0{night}" in done.stdout + done.stderr
        keys = kc.CoresetStore.open(tmp_path / "store").keys()
        assert keys == [f"date=2026-01-0{day}" for day in range(1, known + 1)]
    assert pq.read_table(tmp_path / "out").num_rows == 300


@pytest.mark.parametrize(
    ("codes", "state", "tries"),
    [("5 4 137 0", "success", 4), ("2 0", "failed", 1), ("3 0", "failed", 1), ("1 0", "failed", 1)],
    ids=["try again", "bad settings", "bad data", "unforeseen"],
)
def test_exit_codes_say_whether_to_try_again(airflow, tmp_path, codes, state, tries):
    program = tmp_path / "job"
    program.write_text(FAKE_JOB)
    program.chmod(0o755)
    (tmp_path / "codes").write_text(codes)
    variables = {"kernelcoreset_command": str(program), "kernelcoreset_config": "job.toml"}
    done = airflow.call("dags", "test", DAG, "2026-01-05", **variables)
    said = done.stdout + done.stderr
    assert last_task(airflow) == (state, tries), said[-5000:]
    assert f"The job ended with exit code {codes.split()[0]}: Environment: this is only a test" in said
    assert Path(tmp_path / "codes").read_text().split() == codes.split()[tries:]
