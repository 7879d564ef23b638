"""Embeddings of thousands of columns as Spark jobs: the memory of Python workers, and MLlib's k-means on the same rows.

Run from the project's root: python benchmarks/wide_spark.py {memory,mllib} --scratch DIR
`memory` runs whole jobs on 200,000 x 1,536 float32. `mllib` is MLlib's published shape, scaled to 100,000 x 3,000 with
k = 100. MLlib is stopped after `--patience` seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks import tables, wide_data
from benchmarks.memory import Memory
from kernelcoreset import Gaussian, Linear
from kernelcoreset.jobs.cluster import cluster_coreset
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.spark.jobs.batch import write_labels
from kernelcoreset.spark.jobs.coreset import build, refined
from kernelcoreset.spark.jobs.input import Input

FILES = 8
GROUP_ROWS = 2_048
MEMORY_SHAPE, MEMORY_K = (200_000, 1_536), 10
MLLIB_SHAPE, MLLIB_K, MLLIB_SIZE = (100_000, 3_000), 100, 2_500
CONF = tables.ROOT / "conf" / "spark-defaults.conf"


def write_rows(folder: Path, n: int, d: int) -> None:
    """Write embeddings as arrays of float32, with an id."""
    if folder.exists():
        return
    rows = wide_data.embeddings(n, d)
    folder.mkdir(parents=True)
    for i, (part, ids) in enumerate(zip(np.array_split(rows, FILES), np.array_split(np.arange(n), FILES), strict=True)):
        lists = pa.ListArray.from_arrays(np.arange(0, part.size + 1, d, dtype=np.int32), pa.array(part.ravel()))
        table = pa.table({"id": ids, "x": lists})
        pq.write_table(table, folder / f"part-{i}.parquet", row_group_size=GROUP_ROWS)


def settings_for(folder: Path, out: Path, scan: str, kernel: Kernel, k: int, **coreset: int) -> Settings:
    return Settings.from_dict(
        {
            "input": {"path": str(folder), "features": ["x"], "scan": scan},
            "kernel": kernel.to_dict(),
            "coreset": {"k": k, **coreset},
            "output": {"path": str(out), "mode": "overwrite", "columns": ["id"]},
        }
    )


def session(memory: str) -> SparkSession:
    """Return a session with the configuration of ./spark-submit.sh."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for line in CONF.read_text().splitlines():
        if line and not line.startswith("#"):
            builder = builder.config(*line.split(None, 1))
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    return builder.config("spark.driver.memory", memory).config("spark.log.level", "ERROR").getOrCreate()


class Job:
    """A whole job: its seconds step by step, and the largest memory of workers and driver in each step."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        story = RunRecord("run", settings, settings.record_path())
        times = [time.perf_counter()]
        with Memory(0.05) as building:
            data = Input(spark, settings.input)
            coreset = build(data, settings, story)
        times.append(time.perf_counter())
        model = cluster_coreset(coreset, settings, story, partial(refined, data, settings, story))
        times.append(time.perf_counter())
        with Memory(0.05) as labelling:
            write_labels(data, model, settings, story)
        times.append(time.perf_counter())
        self.story: dict[str, Any] = story.to_dict()
        self.seconds = [after - before for before, after in pairwise(times)]
        self.workers = [building.worker, labelling.worker]
        self.driver = max(building.driver, labelling.driver)


def memory_rows(folder: Path, out: Path, cases: Sequence[tuple[Kernel, str]]) -> list[list[str]]:
    """Run jobs one after another in a new session; return their rows of a table of memory."""
    spark, rows = session("2g"), []
    for kernel, scan in cases:
        job = Job(spark, settings_for(folder, out, scan, kernel, MEMORY_K, coreset_size=1_000))
        seconds = (f"{each:.1f} s" for each in job.seconds)
        sizes = (f"{used / 1e6:.0f} MB" for used in (*job.workers, job.driver))
        rows.append([repr(kernel), scan, str(job.story["leaves"]), *seconds, *sizes])
        print(*rows[-1], flush=True)
    spark.stop()
    return rows


def in_own_process(folder: Path, out: Path, cases: Sequence[tuple[Kernel, str]]) -> list[list[str]]:
    """Return the rows of jobs in one session, measured in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own_process:
        return own_process.submit(memory_rows, folder, out, cases).result()


def measure_memory(options: argparse.Namespace) -> None:
    n, d = MEMORY_SHAPE
    folder, out = options.scratch / f"rows-{n}-{d}", options.scratch / "out"
    write_rows(folder, n, d)
    cases = ((Gaussian(sigma=1.0), "direct"), (Gaussian(sigma=1.0), "spark"), (Linear(), "spark"))
    alone = [row for case in cases for row in in_own_process(folder, out, [case])]
    together = in_own_process(folder, out, [*cases, *cases])
    header = (
        *("kernel", "`input.scan`", "leaves", "build", "cluster", "label and write"),
        *("worker, build", "worker, label", "driver's Python"),
    )
    words = (
        f"{n:,} x {d:,} float32 in an array column, {FILES} Parquet files, local[2], k = {MEMORY_K}, coreset 1,000, "
        "with conf/spark-defaults.conf. Each job has a process and a session of its own, as with spark-submit. The "
        "largest resident memory of a Python worker and of the driver's Python, as the kernel of the machine kept it. "
        "Required: workers under 500 MB."
    )
    several = (
        "Each of these jobs twice, one after another in one session, as in a notebook: Spark keeps its workers from "
        "job to job."
    )
    tables.write_results(
        options.out or Path("docs/results/wide_memory.md"),
        "Memory with many columns",
        [words, tables.table(header, alone), several, tables.table(header, together)],
    )


def mllib(frame: DataFrame, out: Path, patience: float) -> tuple[float, float | None]:
    """Return the seconds of MLlib's k-means with its defaults, and its cost; None if it was stopped."""
    context = frame.sparkSession.sparkContext
    vectors = frame.select("id", array_to_vector(F.col("x").cast("array<double>")).alias("features"))
    timer = threading.Timer(patience, context.cancelAllJobs)
    timer.start()
    begin = time.perf_counter()
    try:
        model = KMeans(k=MLLIB_K, seed=0).fit(vectors)
        model.transform(vectors).select("id", "prediction").write.mode("overwrite").parquet(str(out))
    except Exception as error:
        seconds = time.perf_counter() - begin
        if seconds < patience:
            raise
        print("MLlib was stopped:", str(error).splitlines()[0], flush=True)
        return seconds, None
    finally:
        timer.cancel()
    return time.perf_counter() - begin, float(model.summary.trainingCost)


def reference_cost(folder: Path) -> float:
    """The cost of scikit-learn's k-means with 20 iterations, on all rows."""
    from sklearn.cluster import KMeans as InMemory

    rows = pq.read_table(folder, columns=["x"])["x"].combine_chunks().flatten().to_numpy().reshape(MLLIB_SHAPE)
    return float(InMemory(MLLIB_K, n_init=1, max_iter=20, random_state=0).fit(rows).inertia_)


def measure_mllib(options: argparse.Namespace) -> None:
    n, d = MLLIB_SHAPE
    folder, out = options.scratch / f"rows-{n}-{d}", options.scratch / "out"
    write_rows(folder, n, d)
    spark = session("8g")
    settings = settings_for(folder, out, "auto", Linear(), MLLIB_K, coreset_size=MLLIB_SIZE, leaf_size=MLLIB_SIZE)
    jobs = [Job(spark, settings) for _ in range(3)]
    job = min(jobs, key=lambda job: sum(job.seconds))
    own, cost = sum(job.seconds), job.story["cost"]
    print("ours", job.seconds, cost, flush=True)
    seconds, mllib_cost = mllib(spark.read.parquet(str(folder)), out, options.patience)
    spark.stop()
    print("MLlib", seconds, mllib_cost, flush=True)
    reference = reference_cost(folder)
    at_least = "" if mllib_cost is not None else "more than "
    rows = [
        ["kernelcoreset, Linear", f"{own:.1f} s", f"{cost:,.1f}", f"{cost / reference - 1:+.2%}"],
        [
            "MLlib KMeans, its defaults",
            f"{at_least}{seconds:.1f} s",
            *(["-", "-"] if mllib_cost is None else [f"{mllib_cost:,.1f}", f"{mllib_cost / reference - 1:+.2%}"]),
        ],
        ["scikit-learn KMeans, 20 iterations, in memory", "-", f"{reference:,.1f}", "0"],
    ]
    stages = ", ".join(
        f"{name} {s:.1f} s" for name, s in zip(("build", "cluster", "label and write"), job.seconds, strict=True)
    )
    tables.write_results(
        options.out or Path("docs/results/wide_mllib.md"),
        "MLlib's shape",
        [
            f"{n:,} x {d:,} float32 embeddings in an array column, k = {MLLIB_K}, local[2]. Both read the same Parquet "
            f"files and write an id and a label per row. Coreset {MLLIB_SIZE:,}. Ours best of 3 in the session in "
            "which MLlib ran once"
            + ("." if mllib_cost is not None else f" and was stopped after {options.patience:.0f} s."),
            tables.table(["what", "seconds", "cost", "of scikit-learn's"], rows),
            f"Ours: {stages}. MLlib takes {at_least}{seconds / own:.1f} times as long. Required: 20 times, at a "
            "cost within 1 %.",
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("memory", "mllib"))
    parser.add_argument("--scratch", type=Path, required=True, help="folder for generated rows, which stay, and output")
    parser.add_argument("--patience", type=float, default=400.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    {"memory": measure_memory, "mllib": measure_mllib}[options.what](options)
    shutil.rmtree(options.scratch / "out", ignore_errors=True)


if __name__ == "__main__":
    main()
