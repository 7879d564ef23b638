"""One small local Spark for all tests of this folder, and points to feed it."""

import os
import sys

import numpy as np
import pyarrow as pa
import pytest

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from tests.spark.job_runs import write_config
from tests.spark.nights import put_day

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "128",  # small, so that every partition has several batches
}


@pytest.fixture(scope="session")
def session(tmp_path_factory):
    builder = SparkSession.builder.master("local[2]").appName("tests")
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture
def spark(session, tmp_path, monkeypatch):
    """The session, in a working directory of the test's own; settings a test changes are put back.

    Java keeps the working directory it was started in: paths that Spark reads and writes must be absolute.
    """
    monkeypatch.chdir(tmp_path)
    yield session
    for name in ("spark.sql.files.maxPartitionBytes", "spark.sql.execution.arrow.maxRecordsPerBatch"):
        session.conf.unset(name)
        if name in CONF:
            session.conf.set(name, CONF[name])


@pytest.fixture(scope="session")
def points():
    """600 points around three places, two of them near."""
    generator = np.random.default_rng(0)
    return np.repeat([[0.0, 0.0], [9.0, 1.0], [3.0, 20.0]], 200, axis=0) + generator.normal(size=(600, 2))


@pytest.fixture
def frame(spark, points):
    """The points as columns x and y, a weight w, an id and a name, in two partitions."""
    return spark.createDataFrame(table_of(points)).coalesce(2)


@pytest.fixture
def days(spark):
    """Five days of input and the settings of a job that follows them."""
    for day in range(1, 6):
        put_day(day, day)
    write_config(
        '[input]\npath = "HERE/days"\nfeatures = ["x", "y"]\n'
        '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
        "[coreset]\nk = 3\ncoreset_size = 60\nleaf_size = 100\nseed = 3\n"
        "[cluster]\nn_init = 3\n[certificate]\ncenter_sets = 20\n"
        '[store]\npath = "HERE/store"\n[output]\npath = "HERE/out"\n'
    )


def table_of(points):
    """Points as an Arrow table with a weight, an id and a name for every row."""
    n = len(points)
    return pa.table(
        {
            "id": pa.array(range(n), pa.int64()),
            "x": points[:, 0],
            "y": points[:, 1],
            "w": 0.5 + np.arange(n) % 3,
            "name": [f"row {i}" for i in range(n)],
        }
    )
