"""Spectral clustering on Spark at the size of the paper's Twitter data, compared with the plain pipeline.

Run from the project's root: python benchmarks/spectral_spark.py --data DIR --scratch DIR
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from pyspark.sql import SparkSession

from benchmarks import tables
from benchmarks.twitter_scale import KERNEL, ROWS, record, session, settings_for, whole_job, write_data
from kernelcoreset.jobs.cluster import cluster_spectral
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.jobs import batch, coreset
from kernelcoreset.spark.jobs.input import Input

SIZE = 2_000


def spectral_job(spark: SparkSession, settings: Settings) -> dict[str, float]:
    """Seconds of each step of the job."""
    story, seconds, last = record(settings), {}, time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        seconds[name], last = time.perf_counter() - last, time.perf_counter()

    data = Input(spark, settings.input)
    degrees = coreset.estimate_degrees(data, settings, story)
    lap("degrees")
    found = coreset.build(data, settings, story, degrees)
    lap("build")
    model = cluster_spectral(found, settings, story, degrees)
    lap("cluster")
    batch.write_labels(data, model, settings, story)
    lap("label and write")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for data and output, emptied after")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--out", type=Path, default=Path("docs/results/spectral_spark.md"))
    options = parser.parse_args()
    scratch, out = options.scratch, options.scratch / "out"
    folder = scratch / f"rows-{options.rows}"
    write_data(options.data, folder, options.rows)
    write_data(options.data, scratch / "small", 200_000)
    spark = session()
    sections = []
    for scan, repeats in (("direct", 2), ("spark", 1)):
        jobs: dict[str, list[dict[str, float]]] = {"plain": [], "spectral": []}
        for path, keep in ((scratch / "small", False), *[(folder, True)] * repeats):
            plain = settings_for(path, out, scan)
            tables_of = plain.to_dict()
            spectral = Settings.from_dict({**tables_of, "coreset": {**tables_of["coreset"], "coreset_size": SIZE}})
            both = {"plain": whole_job(spark, plain), "spectral": spectral_job(spark, spectral)}
            for name in jobs if keep else ():
                jobs[name].append(both[name])
        best = {name: min(runs, key=lambda run: sum(run.values())) for name, runs in jobs.items()}
        totals = {name: sum(run.values()) for name, run in best.items()}
        steps = ["degrees", "build", "cluster", "label and write"]
        rows = [
            [name, *(f"{best[name][step]:.1f} s" if step in best[name] else "" for step in steps), f"{total:.1f} s"]
            for name, total in totals.items()
        ]
        ratio = totals["spectral"] / totals["plain"]
        how = "tasks read the Parquet files themselves" if scan == "direct" else "rows come through Spark"
        sections += [
            f"## scan = {scan!r}: {how}",
            tables.table(["job", *steps, "whole job"], rows),
            f"Spectral over plain: {ratio:.2f}x, required at most 3x.",
        ]
    spark.stop()
    shutil.rmtree(scratch)
    about = (
        f"{options.rows:,} x 2 float64 in 16 Parquet files, local[2], k = 5, {KERNEL!r}; a coreset of 1,000 points for "
        f"the plain pipeline and of {SIZE:,} for the spectral one, degrees from 1,000 rows; in turn, best of 2 by "
        "the direct scan, once through Spark."
    )
    tables.write_results(options.out, "Spectral clustering on Spark", [about, *sections])


if __name__ == "__main__":
    main()
