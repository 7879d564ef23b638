"""The example of Spark Declarative Pipelines, run by the real spark-pipelines: labels as a materialized view."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

import kernelcoreset as kc
from tests.spark.nights import PLACES

PLATFORM = "Spark Declarative Pipelines", "labels as a materialized view, by spark-pipelines run"
ROOT = Path(__file__).parents[2]


def test_labels_are_a_materialized_view(tmp_path):
    points = PLACES[np.arange(300) % 3] + np.random.default_rng(0).normal(size=(300, 2))
    table = pa.table({"id": np.arange(300), "longitude": points[:, 0], "latitude": points[:, 1]})
    pq.write_table(table, tmp_path / "places.parquet")
    kernel = kc.Gaussian(sigma=5.0)
    model = kc.KernelKMeans(n_clusters=3, kernel=kernel, coreset_size=60, random_state=0).fit(points).model_
    model.save(tmp_path / "model")
    home = Path(pyspark.__file__).parent
    conf = {
        "spark.kernelcoreset.places": tmp_path / "places.parquet",
        "spark.kernelcoreset.model": tmp_path / "model",
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [
        str(home / "bin" / "spark-pipelines"),
        "run",
        "--spec",
        str(ROOT / "examples/pipeline/spark-pipeline.yml"),
    ]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_TESTING": "1",  # lets the Connect server take any free port
    }
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = pq.read_table(tmp_path / "warehouse" / "labelled_places").sort_by("id")
    assert rows.column_names == ["id", "longitude", "latitude", "prediction", "distance"]
    assert rows["prediction"].to_pylist() == model.predict(points).tolist()
    assert len(set(rows["prediction"].to_pylist())) == 3
