"""Spark Connect gives what classic Spark gives. Both cannot live in one process, so each has its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import table_of

ROOT = Path(__file__).parents[2]
JOB = """
[input]
path = "rows.parquet"
features = ["x", "y"]
bad_rows = "quarantine"
quarantine_path = "aside"
[kernel]
name = "Gaussian"
sigma = "median"
[coreset]
k = 3
coreset_size = 60
[cluster]
n_init = 3
[output]
mode = "overwrite"
"""


def found(kind, points, folder):
    """What the script prints; files are named alike, so that leaves and samples are too."""
    folder.mkdir()
    holed = points.copy()
    holed[5, 0] = np.nan
    pq.write_table(table_of(holed), folder / "rows.parquet", row_group_size=200)
    pq.write_table(table_of(points), folder / "good.parquet", row_group_size=200)
    (folder / "job.toml").write_text(JOB)
    # SPARK_TESTING lets the Connect server take any free port: the usual one may be taken.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    command = [sys.executable, str(ROOT / "tests" / "spark" / "connect_script.py"), kind, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def both(points, tmp_path_factory):
    folder = tmp_path_factory.mktemp("connect")
    return found("classic", points, folder / "classic"), found("connect", points, folder / "connect")


def test_they_are_two_kinds_of_session(both):
    assert [one["session"] for one in both] == ["pyspark.sql.session", "pyspark.sql.connect.session"]


def test_jobs_give_the_same(both):
    classic, connect = both
    assert classic["jobs"] == connect["jobs"]
    for scan in ("spark", "direct"):
        assert connect["jobs"][scan]["code"] == 0
        assert (connect["jobs"][scan]["record"]["rows"], connect["jobs"][scan]["record"]["bad_rows"]) == (600, 1)
    assert connect["jobs"]["aside"] == 1
    assert [connect["jobs"][name] for name in ("missing", "wrong", "bad")] == [3, 2, 3]


def test_the_estimator_gives_the_same(both):
    classic, connect = both
    assert classic["estimator"] == connect["estimator"]
    own = connect["estimator"]
    assert own["labels"] == own["loaded"]
    assert own["pipeline"] == own["loaded pipeline"]
    assert sorted(own["summary"][1]) == [200, 200, 200]
    assert set(own["refitted"][0]) == {0, 1}


def test_spectral_clustering_gives_the_same(both):
    classic, connect = both
    assert classic["spectral"] == connect["spectral"]
    own = connect["spectral"]
    assert own["codes"] == [0, 0]
    assert own["neighbors"] == own["loaded neighbors"]
    assert own["explored"][0] == 3
    assert own["labels"] == own["loaded"]
    assert own["sizes"] == [200, 200, 200]


def test_a_function_of_sql_gives_the_same(both):
    classic, connect = both
    assert classic["sql"] == connect["sql"]
    own = connect["sql"]
    assert own["a"] == own["b"] == own["labels"]
    assert set(own["a"]) == {0, 1, 2}
    assert own["c"] == [None] * 600


def test_rows_reach_the_client_where_it_can_be_reached(both):
    assert [one["counts"]["line"] for one in both] == ["leaves: 5,000 of 5,000 rows (100%), 1,000 rows/s"] * 2
