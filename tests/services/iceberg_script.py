"""The job run from an Iceberg table to another one, by name; prints what came out as JSON. Usage: FOLDER."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kernelcoreset.jobs import cli

SETTINGS = """
[input]
table = "lake.own.points"
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
[cluster]
n_init = 2
[certificate]
center_sets = 0
[output]
table = "lake.own.labels"
format = "iceberg"
[run]
record = "run.json"
"""


def main(folder):
    os.chdir(folder)
    Path("job.toml").write_text(SETTINGS)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE SCHEMA lake.own")
    rows = spark.read.parquet(f"{folder}/points.parquet")
    rows.writeTo("lake.own.points").create()

    def run(*options):
        return cli.run_main(["--config", "job.toml", *(part for text in options for part in ("--set", text))])

    found = {"spark": spark.version, "codes": [run(), run(), run("output.mode=overwrite")]}
    rows.limit(100).writeTo("lake.own.points").append()
    found["codes"].append(run("output.mode=append"))
    found["record"] = json.loads(Path("run.json").read_text())
    labels = spark.table("lake.own.labels")
    found["columns"], found["rows"] = labels.columns, labels.count()
    snapshots = spark.sql(
        "SELECT operation, snapshot_id FROM lake.own.labels.snapshots ORDER BY committed_at"
    ).collect()
    found["snapshots"] = [row.operation for row in snapshots]
    second = spark.read.option("versionAsOf", snapshots[-2].snapshot_id).table("lake.own.labels").orderBy("id")
    found["labels"] = [row.prediction for row in second.collect()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
