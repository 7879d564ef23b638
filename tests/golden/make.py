"""Writes the files of this folder with the version that is installed: python -m tests.golden.make FOLDER."""

import json
import sys
from pathlib import Path

import numpy as np

import kernelcoreset as kc
from tests.golden import values


def make(folder: Path) -> None:
    folder.mkdir(parents=True)
    data, kernel = values.points(400, 2), values.KERNELS["gaussian"]
    coreset = kc.build_coreset(data, 3, kernel, 40, seed=1, ids=np.arange(400))
    coreset.write_parquet(folder / "coreset.parquet")
    model = kc.KernelKMeansModel.fit_coreset(coreset, 3, kernel, seed=1)
    model.save(folder / "kernel_kmeans")
    spectral = kc.fit_spectral(data, 3, kernel, 40, degree_sample=60, seed=1)
    spectral.save(folder / "spectral")
    graph = kc.fit_graph(values.some_graph(), 3, seed=0)
    graph.save(folder / "graph")
    store = kc.CoresetStore.create(folder / "store", k=3, kernel=kernel, size=20, leaf_size=40)
    for day in range(1, 6):
        store.add(f"2024-01-{day:02}", data[(day - 1) * 80 : day * 80])
    store.replace("2024-01-02", data[:50])
    store.expire("2024-01-01")
    store.change(state={"night": 7})
    result = store.result()
    pipeline_labels, summary = save_pipeline(folder, data, kernel)
    expected = {
        "coreset weights": coreset.weights.tolist(),
        "kernel_kmeans": model.predict(data).tolist(),
        "spectral": spectral.predict(data).tolist(),
        "graph": graph.labels.tolist(),
        "store": {"keys": store.keys(), "version": store.version, "weights": result.weights.tolist()},
        "pipeline": pipeline_labels,
        "pipeline cost": summary,
        "version": kc.__version__,
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


def save_pipeline(folder, data, kernel):
    """A PipelineModel with both Spark models, and an estimator; the labels of the first, by row."""
    import pyarrow as pa
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    from kernelcoreset.spark import KernelKMeans, SpectralClustering

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.createDataFrame(pa.table({"id": np.arange(len(data)), "x": data[:, 0], "y": data[:, 1]})).coalesce(1)
    assembler = VectorAssembler(inputCols=["x", "y"], outputCol="features")
    first = KernelKMeans(k=3, kernel=kernel, coresetSize=40, seed=1)
    second = SpectralClustering(
        k=3, kernel=kernel, coresetSize=40, degreeSample=60, seed=1, predictionCol="cut", distanceCol="cut_distance"
    )
    fitted = Pipeline(stages=[assembler, first, second]).fit(frame)
    fitted.write().save(str(folder / "pipeline_model"))
    first.write().save(str(folder / "estimator"))
    rows = fitted.transform(frame).orderBy("id").select("prediction", "cut").toArrow().to_pydict()
    cost = fitted.stages[1].evaluate(fitted.stages[0].transform(frame)).cost
    spark.stop()
    return rows, cost


if __name__ == "__main__":
    make(Path(sys.argv[1]))
