"""The parts of the experiments that use Spark: coresets, and MLlib's k-means on random features."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.kernels.families import Gaussian
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.spark.columns import Layout
from kernelcoreset.spark.jobs.session import session_of
from kernelcoreset.spark.leaves import LeafSettings, leaves_by_files
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.ml.kernel_kmeans import KernelKMeans
from kernelcoreset.spark.scan import Footers

_LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # it would overwrite ours
    "spark.driver.memory": "4g",  # local tasks live in the driver
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # fewer calls for rows of few numbers
}


def local_session() -> AbstractContextManager[SparkSession]:
    """Return the active session, or a local one on two cores that is stopped at the end."""
    return session_of("experiments", _LOCAL if SparkSession.getActiveSession() is None else {})


def column_names(d: int) -> list[str]:
    """Return names for the columns of points."""
    return [f"x{i}" for i in range(d)]


def write_parts(points: Floats, folder: Path, parts: int) -> None:
    """Write points as `parts` Parquet files of one row group each."""
    names = column_names(points.shape[1])
    for place, part in enumerate(np.array_split(points, parts)):
        table = pa.table({name: part[:, i] for i, name in enumerate(names)})
        pq.write_table(table, folder / f"part-{place:04d}.parquet", row_group_size=max(1, len(part)))


def spark_coresets(
    spark: SparkSession, points: Floats, k: int, kernel: Kernel, size: int, seeds: Sequence[int], *, leaves: int
) -> list[Coreset]:
    """Return coresets of the points, one per seed, each built by Spark from one Parquet file per leaf."""
    names = tuple(column_names(points.shape[1]))
    with tempfile.TemporaryDirectory() as folder:
        write_parts(points, Path(folder), leaves)
        row_groups = Footers().row_groups(sorted(map(str, Path(folder).glob("*.parquet"))), names)
        if row_groups is None:
            raise RuntimeError("Files written just now lack their columns.")
        found = []
        for seed in seeds:
            layout = Layout(names, is_array=False, dimension=len(names))
            settings = LeafSettings(Recipe(k, kernel, size, seed=seed), leaf_size_of(size), layout)
            leaf_rows = leaves_by_files(spark, [[part] for part in row_groups], settings)
            found.append(merge_leaves(gather(leaf_rows, settings, most_leaves=len(row_groups)), settings))
        return found


def fit_and_label(
    spark: SparkSession,
    points: Floats,
    k: int,
    kernel: Gaussian,
    size: int,
    features: int,
    *,
    parts: int = 8,
    every: int = 1,
) -> dict[str, tuple[float, Floats]]:
    """Return seconds and labelled rows, by the coreset through Spark and by MLlib on random Fourier features.

    Both read the same Parquet files and label every row. About one row in `every`, the same for both, is collected on
    the driver; that time is not measured.
    """
    names = column_names(points.shape[1])
    with tempfile.TemporaryDirectory() as folder:
        write_parts(points, Path(folder), parts)
        frame = spark.read.parquet(folder)

        def ours() -> DataFrame:
            model = KernelKMeans(k=k, kernel=kernel, coresetSize=size, seed=0, inputCols=names).fit(frame)
            labelled: DataFrame = model.transform(frame)
            return labelled

        def theirs() -> DataFrame:
            # Not cached here: MLlib caches its input itself, and then checks its numbers once and not in every pass.
            vectors = random_features(frame, names, kernel.sigma, features)
            labelled: DataFrame = KMeans(k=k, seed=0, featuresCol="features").fit(vectors).transform(vectors)
            return labelled

        return {"ours, Spark": _timed(ours, names, every), "MLlib on random features": _timed(theirs, names, every)}


def _timed(work: Callable[[], DataFrame], names: Sequence[str], every: int) -> tuple[float, Floats]:
    begin = time.perf_counter()
    labelled = work()
    labelled.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - begin
    sampled = labelled.where(F.pmod(F.xxhash64(*names), F.lit(every)) == 0)
    table = sampled.select(*names, "prediction").toArrow()
    return seconds, np.column_stack([table[name].to_numpy().astype(np.float64) for name in (*names, "prediction")])


def random_features(frame: DataFrame, names: Sequence[str], sigma: float, count: int, seed: int = 0) -> DataFrame:
    """Return the rows with an additional vector of random Fourier features of the Gaussian kernel."""
    generator = np.random.default_rng(seed)
    directions = generator.normal(scale=1.0 / sigma, size=(len(names), count))
    phases = generator.uniform(0.0, 2.0 * np.pi, size=count)

    def lift(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            points = np.column_stack([batch.column(name).to_numpy() for name in names])
            values = np.sqrt(2.0 / count) * np.cos(points @ directions + phases)
            offsets = np.arange(0, values.size + 1, count, dtype=np.int32)
            lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))
            yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in names), lists], names=[*names, "list"])

    schema = ", ".join([*(f"{name} double" for name in names), "list array<double>"])
    lifted = frame.select(*names).mapInArrow(lift, schema)
    return lifted.select(*names, array_to_vector(F.col("list")).alias("features"))
