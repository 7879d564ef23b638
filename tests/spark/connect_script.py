"""The whole pipeline and the Estimator in one session, classic or Connect; prints what came out as JSON.

Usage: python connect_script.py classic|connect FOLDER, where FOLDER has rows.parquet and becomes the working directory.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np


def open_session(kind):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    builder = builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def labels_of(frame):
    table = frame.toArrow().sort_by("id")
    return table["prediction"].to_pylist(), np.round(table["distance"].to_numpy(), 9).tolist()


def jobs(spark):
    """All jobs by their settings, through Spark and by the direct scan, and a failing one."""
    from kernelcoreset.jobs import cli

    found = {}
    for scan in ("spark", "direct"):
        options = [f"input.scan={scan}", f"output.path={scan}"]
        code = cli.run_main(["--config", "job.toml", *(part for text in options for part in ("--set", text))])
        record = json.loads(Path(f"{scan}.run.json").read_text())
        kept = ("rows", "bad_rows", "leaves", "cost", "cluster_sizes", "certificate", "coreset_weight")
        found[scan] = {
            "code": code,
            "labels": labels_of(spark.read.parquet(scan)),
            "record": {key: record[key] for key in kept},
        }
    for name, option in (
        ("missing", "input.path=nowhere"),
        ("wrong", "input.where=nope > 1"),
        ("bad", "input.where=x > 1e9"),
    ):
        found[name] = cli.run_main(["--config", "job.toml", "--set", option, "--set", "output.path=never"])
    found["aside"] = spark.read.parquet("aside").count()
    return found


def estimator(spark):
    """Fit, transform, summary, coreset, refit, save and load, alone and in a pipeline."""
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler

    import kernelcoreset as kc
    from kernelcoreset.spark import KernelKMeans, KernelKMeansModel

    rows = spark.read.parquet("good.parquet")
    own = KernelKMeans(k=3, kernel=kc.Gaussian(sigma=5.0), coresetSize=60, nInit=3, inputCols=["x", "y"], idCol="id")
    model = own.fit(rows)
    model.write().overwrite().save("saved")
    model.write().overwrite().save("saved")
    pipeline = Pipeline(
        stages=[
            VectorAssembler(inputCols=["x", "y"], outputCol="features"),
            KernelKMeans(k=3, kernel=kc.Gaussian(sigma=5.0), coresetSize=60, nInit=3),
        ]
    ).fit(rows)
    pipeline.write().overwrite().save("pipeline")
    summary = model.summary
    return {
        "labels": labels_of(model.transform(rows)),
        "loaded": labels_of(KernelKMeansModel.load("saved").transform(rows)),
        "pipeline": labels_of(pipeline.transform(rows)),
        "loaded pipeline": labels_of(PipelineModel.load("pipeline").transform(rows)),
        "summary": [summary.cost, summary.cluster_sizes, summary.certificate],
        "coreset": sorted((row.id, row.weight) for row in model.coreset.collect()),
        "refitted": labels_of(model.refit(2).transform(rows)),
    }


def spectral(spark):
    """Spectral clustering by the job and by the Estimator."""
    import kernelcoreset as kc
    from kernelcoreset.jobs import cli
    from kernelcoreset.spark import SpectralClustering, SpectralClusteringModel

    code = cli.spectral_main(["--config", "job.toml", "--set", "kernel.sigma=3.0", "--set", "output.path=spectral"])
    rows = spark.read.parquet("good.parquet")
    own = SpectralClustering(k=3, kernel=kc.Gaussian(sigma=3.0), coresetSize=60, nInit=3, inputCols=["x", "y"])
    model = own.fit(rows)
    model.write().overwrite().save("saved spectral")
    options = ["--set", "spectral.affinity=nearest_neighbors", "--set", "output.path=neighbors"]
    codes = [code, cli.spectral_main(["--config", "job.toml", *options])]
    neighbors = SpectralClustering(k=3, coresetSize=60, nInit=3, inputCols=["x", "y"]).fit(rows)
    neighbors.write().overwrite().save("saved neighbors")
    explored = kc.explore(rows, inputCols=["x", "y"], ks=[2, 3])
    return {
        "codes": codes,
        "neighbors job": labels_of(spark.read.parquet("neighbors")),
        "neighbors": labels_of(neighbors.transform(rows)),
        "loaded neighbors": labels_of(SpectralClusteringModel.load("saved neighbors").transform(rows)),
        "explored": [explored.findings["SpectralClustering"].trial.k, explored.sentences],
        "job": labels_of(spark.read.parquet("spectral")),
        "labels": labels_of(model.transform(rows)),
        "loaded": labels_of(SpectralClusteringModel.load("saved spectral").transform(rows)),
        "sizes": model.summary.cluster_sizes,
    }


def sql(spark):
    """A model as a function of SQL, by columns and by an array, registered twice."""
    import kernelcoreset as kc
    from kernelcoreset.spark import KernelKMeans, register

    rows = spark.read.parquet("good.parquet")
    rows.createOrReplaceTempView("places")
    model = KernelKMeans(k=3, kernel=kc.Gaussian(sigma=5.0), coresetSize=60, nInit=3, inputCols=["x", "y"]).fit(rows)
    register(spark, "segment", model.refit(2))
    register(spark, "segment", model)
    query = "SELECT segment(x, y) AS a, segment(array(x, y)) AS b, segment(x, NULL) AS c FROM places ORDER BY id"
    found = spark.sql(query).toArrow().to_pydict()
    return {**found, "labels": labels_of(model.transform(rows))[0]}


def counts(spark):
    """What the progress line of a step knows in the end."""
    from kernelcoreset.jobs.progress import Progress
    from kernelcoreset.spark import progress as watching
    from kernelcoreset.spark.row_counts import counted
    from kernelcoreset.spark.tasks import map_batches

    kept = []

    class Kept(Progress):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            kept.append(self)

    watching.Progress = Kept
    frame = spark.range(0, 5_000, numPartitions=3)
    with watching.watched(spark, "leaves", 5_000):
        map_batches(frame, counted, frame.schema).count()
    watching.Progress = Progress
    return {"line": kept[0].line(5.0)}


def main():
    kind, folder = sys.argv[1:]
    os.chdir(folder)
    spark = open_session(kind)
    found = {"jobs": jobs(spark), "estimator": estimator(spark), "spectral": spectral(spark), "sql": sql(spark)}
    found["counts"] = counts(spark)
    print(json.dumps({"session": type(spark).__module__, **found}))
    spark.stop()


if __name__ == "__main__":
    main()
