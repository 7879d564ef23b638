"""Iceberg tables as input and output of a job, by name, with the real jar.

There is no jar for the Spark of the other tests yet, so this one has a pyspark of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.services.jars import ICEBERG, jars
from tests.services.other_spark import other_pyspark
from tests.spark.nights import PLACES

SERIES = "4.1"
PLATFORM = "Iceberg 1.12.0", f"job run from table to table by name: create, overwrite, append; with pyspark {SERIES}"
ROOT = Path(__file__).parents[2]
CONF = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def test_tables_by_name(tmp_path):
    place = np.arange(300) % 3
    points = PLACES[place] + np.random.default_rng(0).normal(size=(300, 2))
    pq.write_table(pa.table({"id": np.arange(300), "x": points[:, 0], "y": points[:, 1]}), tmp_path / "points.parquet")
    conf = {**CONF, "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake")}
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    arguments = ["--master", "local[2]", "--jars", ",".join(jars(ICEBERG)), *options, "pyspark-shell"]
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "LOG4J_CONFIGURATION_FILE")}
    own = {
        "PYTHONPATH": f"{other_pyspark(SERIES)}:{ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": " ".join(arguments),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(Path(__file__).with_name("iceberg_script.py")), str(tmp_path)]
    done = subprocess.run(command, env=kept | own, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark"].startswith(SERIES + ".")
    assert found["codes"] == [0, 2, 0, 0]  # the second one finds the table, and may not replace it
    assert found["columns"] == ["id", "x", "y", "prediction", "distance"]
    assert (found["record"]["rows"], sum(found["record"]["cluster_sizes"])) == (400, 400)
    assert found["rows"] == 300 + 400
    # One snapshot per run; the one before the last has the labels that the second run wrote.
    assert found["snapshots"][0] == "append"
    assert found["snapshots"][-1] == "append"
    assert len(found["snapshots"]) == 3
    labels = np.array(found["labels"])
    assert len(set(zip(place.tolist(), labels.tolist(), strict=True))) == 3  # each place is one cluster
