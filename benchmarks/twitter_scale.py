"""The whole pipeline at the size of the paper's Twitter data, compared with bare Spark passes and MLlib's k-means.

Run from the project's root: python benchmarks/twitter_scale.py --data DIR --scratch DIR
All in one Spark session on local[2]; ratios are between things measured in this one run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
from pyspark.ml.clustering import KMeans
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

from benchmarks import datasets, tables
from benchmarks.memory import Memory
from kernelcoreset import Coreset, Gaussian, build_coreset, center_set_costs, draw_center_sets
from kernelcoreset.jobs.cluster import cluster_coreset
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.jobs.batch import write_labels
from kernelcoreset.spark.jobs.coreset import build
from kernelcoreset.spark.jobs.input import Input

ROWS = 21_040_936
FILES = 16
K, SIZE, KERNEL = 5, 1000, Gaussian(sigma=50.0)
DRAWS = 5
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
TURNS = 3
WIDE_ROWS, WIDE_COLUMNS, WIDE_VALUES = 1_000_000, 30, 500


def write_data(data: Path, folder: Path, rows: int) -> None:
    """Write Twitter-like rows as Parquet, one row group per file."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    for i, count in enumerate(np.diff(np.linspace(0, rows, FILES + 1).astype(int))):
        points = datasets.twitter_like(data, int(count), seed=i)
        table = pa.table({"longitude": points[:, 0], "latitude": points[:, 1]})
        pq.write_table(table, folder / f"part-{i:02d}.parquet", row_group_size=int(count))


def write_wide_data(data: Path, folder: Path) -> None:
    """Write the same kind of rows with many columns of texts."""
    folder.mkdir(parents=True)
    words = np.array([f"value number {number}" for number in range(WIDE_VALUES)])
    generator = np.random.default_rng(0)
    for i in range(4):
        points = datasets.twitter_like(data, WIDE_ROWS // 4, seed=i)
        texts = {f"text{j}": words[generator.integers(WIDE_VALUES, size=len(points))] for j in range(WIDE_COLUMNS)}
        table = pa.table({"longitude": points[:, 0], "latitude": points[:, 1], **texts})
        pq.write_table(table, folder / f"part-{i}.parquet")


def settings_for(path: Path, out: Path, scan: str, seed: int = 0) -> Settings:
    return Settings.from_dict(
        {
            "input": {"path": str(path), "features": ["longitude", "latitude"], "scan": scan},
            "kernel": KERNEL.to_dict(),
            "coreset": {"k": K, "coreset_size": SIZE, "seed": seed},
            "output": {"path": str(out), "mode": "overwrite"},
        }
    )


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(cases: dict[str, Callable[[], float | None]], turns: int) -> dict[str, float]:
    """Run the cases in turn, several times, and return the best seconds of each.

    Java and the page cache change while a benchmark runs: cases that are measured one after the other are measured in
    different states. A case that returns seconds has measured itself.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(turns):
        for name, work in cases.items():
            begin = time.perf_counter()
            own = work()
            found[name].append(time.perf_counter() - begin if own is None else own)
            print(name, f"{found[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: min(seconds) for name, seconds in found.items()}


def unmeasured(spark: SparkSession, work: Callable[[], None]) -> Callable[[], None]:
    """The same with the setting that jobs make while narrow rows go to Python: batches without a limit of bytes."""

    def run() -> None:
        spark.conf.set(BATCH_BYTES, str(2**31 - 1))
        try:
            work()
        finally:
            spark.conf.unset(BATCH_BYTES)

    return run


def sum_pass(frame: DataFrame) -> None:
    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = 0.0
        for batch in batches:
            total += sum(float(column.to_numpy().sum()) for column in batch.columns)
        yield pa.RecordBatch.from_arrays([pa.array([total])], names=["total"])

    frame.mapInArrow(add, "total double").collect()


def identity_write(frame: DataFrame, out: Path) -> None:
    frame.mapInArrow(lambda batches: batches, frame.schema).write.mode("overwrite").parquet(str(out))


def identity_with_labels_write(frame: DataFrame, out: Path) -> None:
    """Write all rows and two columns that take no work: what a label and a distance cost Spark alone."""

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            number = batch.column(0)
            label = pa.array(np.signbit(number.to_numpy()).view(np.int8).astype(np.int32))
            yield pa.RecordBatch.from_arrays([*batch.columns, label, number], names=[*batch.schema.names, "a", "b"])

    schema = StructType([*frame.schema.fields, StructField("a", IntegerType()), StructField("b", DoubleType())])
    frame.mapInArrow(add, schema).write.mode("overwrite").parquet(str(out))


def record(settings: Settings) -> RunRecord:
    return RunRecord("run", settings, settings.record_path())


def whole_job(spark: SparkSession, settings: Settings) -> dict[str, float]:
    story = record(settings)
    seconds = {}
    begin = time.perf_counter()
    data = Input(spark, settings.input)
    coreset = build(data, settings, story)
    seconds["build"] = time.perf_counter() - begin
    begin = time.perf_counter()
    model = cluster_coreset(coreset, settings, story)
    seconds["cluster"] = time.perf_counter() - begin
    begin = time.perf_counter()
    write_labels(data, model, settings, story)
    seconds["label and write"] = time.perf_counter() - begin
    return seconds


def mllib(frame: DataFrame, out: Path) -> tuple[float, float]:
    vectors = VectorAssembler(inputCols=["longitude", "latitude"], outputCol="features").transform(frame)
    begin = time.perf_counter()
    model = KMeans(k=K, seed=0).fit(vectors)
    fit = time.perf_counter() - begin
    begin = time.perf_counter()
    model.transform(vectors).drop("features").write.mode("overwrite").parquet(str(out))
    return fit, time.perf_counter() - begin


def _only_seconds(_: object) -> None:
    """A case of `in_turns` that is timed and whose result is not needed."""


def mean_errors(points: np.ndarray, distributed: list[Coreset]) -> tuple[float, float]:
    """Return the mean largest error of distributed coresets and of as many single-shot ones, on one list of sets."""
    sets = draw_center_sets(points, K, KERNEL, n_center_sets=100, seed=1)
    truth = center_set_costs(points, sets, KERNEL)

    def error(coreset: Coreset) -> float:
        costs = center_set_costs(coreset.points, sets, KERNEL, weights=coreset.weights)
        return float(np.abs(costs / truth - 1).max())

    single = [error(build_coreset(points, K, KERNEL, SIZE, seed=seed)) for seed in range(len(distributed))]
    return float(np.mean([error(coreset) for coreset in distributed])), float(np.mean(single))


def session(memory: str = "4g") -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", memory)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "131072")
        .config("spark.python.unix.domain.socket.enabled", "true")  # as ./spark-submit.sh has it
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument(
        "--scratch", type=Path, required=True, help="folder for generated data and output, emptied after"
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--out", type=Path, default=Path("docs/results/twitter_scale.md"))
    options = parser.parse_args()
    scratch, data, rows = options.scratch, options.data, options.rows
    folder, out = scratch / f"rows-{rows}", scratch / "out"
    write_data(data, folder, rows)
    write_data(data, scratch / "small", 200_000)
    spark = session()
    frame = spark.read.parquet(str(folder))

    # Once on few rows: workers started, machine code on disk.
    sum_pass(spark.read.parquet(str(scratch / "small")))
    for scan in ("spark", "direct"):
        whole_job(spark, settings_for(scratch / "small", out, scan))

    by_spark, by_files = (settings_for(folder, out, scan) for scan in ("spark", "direct"))
    built = in_turns(
        {
            "sum": lambda: sum_pass(frame),
            "sum, unmeasured": unmeasured(spark, lambda: sum_pass(frame)),
            "by spark": lambda: _only_seconds(build(Input(spark, by_spark.input), by_spark, record(by_spark))),
            "direct": lambda: _only_seconds(build(Input(spark, by_files.input), by_files, record(by_files))),
        },
        TURNS,
    )
    jobs: list[dict[str, float]] = []

    def job_by_files() -> float:
        with memory:
            jobs.append(whole_job(spark, by_files))
        return jobs[-1]["label and write"]

    memory = Memory()
    labelled = in_turns(
        {
            "identity": lambda: identity_write(frame, out),
            "identity, unmeasured": unmeasured(spark, lambda: identity_write(frame, out)),
            "two columns": lambda: identity_with_labels_write(frame, out),
            "direct": job_by_files,
            "by spark": lambda: whole_job(spark, by_spark)["label and write"],
        },
        TURNS,
    )
    job = min(jobs, key=lambda seconds: sum(seconds.values()))
    write_wide_data(data, scratch / "wide")
    wide, wide_settings = spark.read.parquet(str(scratch / "wide")), settings_for(scratch / "wide", out, "spark")
    texts_written = in_turns(
        {
            "identity": lambda: identity_write(wide, out),
            "by spark": lambda: whole_job(spark, wide_settings)["label and write"],
        },
        TURNS,
    )
    fit, transform = mllib(frame, out)
    shutil.rmtree(out, ignore_errors=True)

    one = spark.read.parquet(str(folder)).coalesce(1)
    one.createOrReplaceTempView("one_partition")
    tables_in_one = Settings.from_dict(
        {**by_spark.to_dict(), "input": {"query": "select * from one_partition", "features": ["longitude", "latitude"]}}
    )
    with Memory() as single_memory:
        single_partition = whole_job(spark, tables_in_one)
    shutil.rmtree(out, ignore_errors=True)

    distributed = []
    for seed in range(DRAWS):
        seeded = settings_for(folder, out, "direct", seed)
        distributed.append(build(Input(spark, seeded.input), seeded, record(seeded)))
    growth = []
    for part in (rows // 16, rows // 4, rows):
        few = scratch / f"rows-{part}"
        write_data(data, few, part)
        growth.append((part, whole_job(spark, settings_for(few, out, "direct"))))
        shutil.rmtree(out, ignore_errors=True)
    spark.stop()
    points = np.column_stack([pq.read_table(folder)[name].to_numpy() for name in ("longitude", "latitude")])
    own_error, single_error = mean_errors(points, distributed)
    shutil.rmtree(scratch)

    job_total, mllib_total = sum(job.values()), fit + transform
    summing_pass, identity_pass = "mapInArrow that only sums", "identity mapInArrow and write"
    texts = f"{WIDE_COLUMNS} texts"
    by_reader = "label and write, read through Spark"
    compared = [
        ("build, read through Spark", built["by spark"], summing_pass, built["sum"], "at most 1.15x"),
        ("the same", built["by spark"], f"{summing_pass}, batches not measured", built["sum, unmeasured"], "-"),
        ("build, direct scan", built["direct"], summing_pass, built["sum"], "at most 0.6x"),
        ("label and write, direct scan", labelled["direct"], identity_pass, labelled["identity"], "at most 1.25x"),
        (by_reader, labelled["by spark"], identity_pass, labelled["identity"], "at most 1.25x"),
        (
            "the same",
            labelled["by spark"],
            f"{identity_pass}, batches not measured",
            labelled["identity, unmeasured"],
            "-",
        ),
        ("the same", labelled["by spark"], "identity with two more columns, and write", labelled["two columns"], "-"),
        (
            f"label and write, {texts}, read through Spark",
            texts_written["by spark"],
            f"{identity_pass}, {texts}",
            texts_written["identity"],
            "at most 1.15x",
        ),
        ("whole job", job_total, "MLlib KMeans(k=5) fit, transform, write", mllib_total, "at most 0.4x"),
    ]
    speed = tables.table(
        ["what", "seconds", "compared with", "seconds", "ratio", "required"],
        [
            [what, f"{own:.1f}", beside, f"{other:.1f}", f"{own / other:.2f}x", required]
            for what, own, beside, other, required in compared
        ],
    )
    memory_table = tables.table(
        ["run", "largest Python worker", "driver's Python"],
        [
            [run, f"{used.worker / 1e6:.0f} MB", f"{used.driver / 1e6:.0f} MB"]
            for run, used in (("whole job", memory), ("all rows in one partition", single_memory))
        ],
    )
    growth_table = tables.table(
        ["rows", "build", "label and write", "whole job", "a million rows"],
        [
            [f"{n:,}", *(f"{x:.1f} s" for x in (s["build"], s["label and write"], total)), f"{1e6 * total / n:.2f} s"]
            for n, s, total in ((n, s, sum(s.values())) for n, s in growth)
        ],
    )
    in_one = ", ".join(f"{name} {value:.1f} s" for name, value in single_partition.items())
    stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in job.items())
    tables.write_results(
        options.out,
        "Twitter scale on Spark",
        [
            f"{rows:,} x 2 float64 in {FILES} Parquet files, local[2], k={K}, {KERNEL!r}, coreset {SIZE}. Best of "
            f"{TURNS} times that all cases of a kind are run in turn; MLlib once. With {WIDE_COLUMNS} columns of "
            f"texts, of {WIDE_VALUES} values each: {WIDE_ROWS:,} rows.",
            speed,
            "Spark asks Arrow for the size of a batch after each row. Jobs turn that off while rows of a few numbers "
            "go to Python; passes with batches that are not measured have the same setting.",
            f"The whole job: {stages}. MLlib: fit {fit:.1f} s, transform and write {transform:.1f} s.",
            "## Memory\n\nThe largest resident memory that the kernel of the machine kept. Required: workers under 500 "
            "MB, the driver under 1 GB.",
            memory_table,
            f"With all rows in one partition: {in_one}.",
            "## Growth",
            growth_table,
            "## Error",
            f"Largest relative error over 100 random center sets, mean of {DRAWS} draws: {own_error:.2%} for coresets "
            f"built by Spark, {single_error:.2%} for single-shot ones of the same size: "
            f"{own_error / single_error:.2f}x, required at most 1.2x.",
        ],
    )


if __name__ == "__main__":
    main()
