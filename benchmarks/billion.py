"""A billion rows on two cores: rows per second and memory, compared with 21 million rows in the same run.

Run from the project's root: python benchmarks/billion.py --scratch DIR
Spark makes the rows while it reads them, builds a coreset of them and labels them into a sink that writes nothing. What
is measured is kept in DIR: a run that was stopped goes on after the last measurement that was finished.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.sql import SparkSession

from benchmarks import tables
from benchmarks.memory import Memory
from benchmarks.twitter_scale import KERNEL, ROWS, SIZE, K, record, session
from kernelcoreset import Coreset
from kernelcoreset.jobs.cluster import cluster_coreset
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.jobs.coreset import build
from kernelcoreset.spark.jobs.input import Input
from kernelcoreset.spark.jobs.labels import label_input, measurement_of

MANY_ROWS = 1_000_000_000
PARTITION_ROWS = 1_000_000
VIEW = "made_rows"
QUARTERS = 4
PROGRESS_SECONDS = 20.0


def settings_for() -> Settings:
    return Settings.from_dict(
        {
            "input": {"query": f"select * from {VIEW}", "features": ["longitude", "latitude"]},
            "kernel": KERNEL.to_dict(),
            "coreset": {"k": K, "coreset_size": SIZE},
            "output": {"path": "not-written"},
        }
    )


def make_rows(spark: SparkSession, rows: int) -> None:
    """Make a view of rows around five places; a row depends on its number alone."""
    numbers = spark.range(0, rows, 1, -(-rows // PARTITION_ROWS))
    shares = [f"shiftright(xxhash64(id, {seed}), 11) / pow(2D, 52)" for seed in range(4)]  # from -1 to 1
    numbers.selectExpr(
        f"80D * pmod(id, {K}) - 160D + 12D * ({shares[0]} + {shares[1]}) longitude",
        f"15D * pmod(7 * id, {K}) - 30D + 9D * ({shares[2]} + {shares[3]}) latitude",
    ).createOrReplaceTempView(VIEW)


class Progress:
    """Prints how many tasks are done and how much memory is used, while something runs."""

    def __init__(self, spark: SparkSession, name: str, memory: Memory) -> None:
        self.tracker, self.name, self.memory = spark.sparkContext.statusTracker(), name, memory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(PROGRESS_SECONDS):
            stages = [self.tracker.getStageInfo(stage) for stage in self.tracker.getActiveStageIds()]
            tasks = ", ".join(f"{stage.numCompletedTasks:,} of {stage.numTasks:,} tasks" for stage in stages if stage)
            after, *used = self.memory.samples[-1] if self.memory.samples else (0.0, 0, 0, 0)
            sizes = ", ".join(f"{n} {b / 1e6:.0f} MB" for n, b in zip(("worker", "driver", "Java"), used, strict=True))
            print(f"{self.name}: {after:.0f} s, {tasks or 'no task'}; {sizes}", flush=True)


def measured(spark: SparkSession, name: str, work: Callable[[], Any]) -> dict[str, Any]:
    """Run something; return its seconds and the largest memory in MB in each quarter of its time."""
    with Memory(1.0) as memory, Progress(spark, name, memory):
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
    samples = np.array(memory.samples)
    quarters = [part for part in np.array_split(samples, QUARTERS) if len(part)]
    peaks = {
        process: [round(float(part[:, i].max()) / 1e6) for part in quarters]
        for i, process in enumerate(("worker", "driver", "Java"), 1)
    }
    largest = {"worker": memory.worker, "driver": memory.driver, "Java": memory.java}
    print(f"{name}: {seconds:.1f} s", flush=True)
    return {"seconds": seconds, "quarters": peaks, "largest": {k: round(v / 1e6) for k, v in largest.items()}}


class Kept:
    """Measurements that are kept in a file as soon as they are made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if name not in self.found:
            self.found[name] = make()
            self.path.write_text(json.dumps(self.found, indent=1))
        return dict(self.found[name])


def build_and_label(spark: SparkSession, kept: Kept, name: str, rows: int) -> list[dict[str, Any]]:
    """Return what was measured of the build and of the labels."""
    settings = settings_for()
    make_rows(spark, rows)
    data, story = Input(spark, settings.input), record(settings)
    place = kept.path.parent / f"{name}.parquet"
    built = kept.get(
        f"{name}, build",
        lambda: measured(spark, f"{name}, build", lambda: build(data, settings, story).write_parquet(place)),
    )
    model = cluster_coreset(Coreset.read_parquet(place), settings, story)

    def label() -> dict[str, Any]:
        measurement = measurement_of(model, settings)
        labelled = label_input(data.frame, data.layout, model, settings, measurement=measurement)
        found = measured(spark, f"{name}, labels", lambda: labelled.write.format("noop").mode("overwrite").save())
        summary = measurement.summary()
        if summary.rows != rows:
            raise RuntimeError(f"{rows:,} rows were made, and {summary.rows:,} were labelled.")
        return {**found, "coreset_cost": summary.coreset_cost / summary.cost}

    return [built, kept.get(f"{name}, labels", label)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for what was measured so far")
    parser.add_argument("--rows", type=int, default=MANY_ROWS)
    parser.add_argument("--few", type=int, default=ROWS, help="rows to compare with")
    parser.add_argument("--out", type=Path, default=Path("docs/results/billion.md"))
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.scratch / f"measured-{options.rows}-{options.few}.json")
    spark = session("3g")
    warm = Kept(options.scratch / "warm-up.json")
    warm.found.clear()
    build_and_label(spark, warm, "warm-up", 2 * PARTITION_ROWS)
    runs = [
        (count, build_and_label(spark, kept, name, count))
        for name, count in (("before", options.few), ("many", options.rows), ("after", options.few))
    ]
    spark.stop()
    write_page(options.out, runs)


def write_page(out: Path, runs: list[tuple[int, list[dict[str, Any]]]]) -> None:
    """Write the page of a run: few rows, many rows, and few rows again."""
    steps = ("build", "label")
    speeds = [[count / each["seconds"] for each in found] for count, found in runs]
    speed = tables.table(
        ["rows", *(f"{step}, {what}" for step in steps for what in ("seconds", "million rows/s"))],
        [
            [
                f"{count:,}",
                *(x for e, s in zip(found, own, strict=True) for x in (f"{e['seconds']:.1f}", f"{s / 1e6:.2f}")),
            ]
            for (count, found), own in zip(runs, speeds, strict=True)
        ],
    )
    ratios = [speeds[1][i] / np.mean([speeds[0][i], speeds[2][i]]) for i in range(2)]
    many, found = runs[1]
    memory = tables.table(
        ["step", "process", *(f"quarter {i + 1}" for i in range(QUARTERS)), "largest"],
        [
            [step, process, *(f"{mb:,} MB" for mb in each["quarters"][process]), f"{each['largest'][process]:,} MB"]
            for step, each in zip(steps, found, strict=True)
            for process in ("worker", "driver", "Java")
        ],
    )
    tables.write_results(
        out,
        "A billion rows on two cores",
        [
            f"{many:,} x 2 float64, made by Spark in partitions of {PARTITION_ROWS:,} rows while they are read; "
            f"local[2], k={K}, {KERNEL!r}, coreset {SIZE}. Labels, distances, certificate and descriptions of all "
            f"rows go to a sink that writes nothing. Compared with {runs[0][0]:,} rows before and "
            "after it, in the same session.",
            speed,
            f"Rows per second of {many:,} rows, of those of {runs[0][0]:,} rows (mean of before and after): build "
            f"{ratios[0]:.2f}, labels {ratios[1]:.2f}. Required: at least 0.9.",
            "## Memory\n\nThe largest resident memory in each quarter of the time, of the largest Python worker, of "
            "the driver's Python, and of Java (driver and executor in one, 3 GB of heap allowed). The last column is "
            "the peak that the kernel of the machine kept.",
            memory,
            f"The cost on the coreset is {found[1]['coreset_cost']:.4f} of the cost of the same centers on all rows.",
        ],
    )


if __name__ == "__main__":
    main()
