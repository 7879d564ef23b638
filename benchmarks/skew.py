"""Skewed files: thousands of tiny ones beside a huge one, compared with the same rows in even files.

Run from the project's root: python benchmarks/skew.py --scratch DIR
All in one Spark session on local[2]. `--rows` are the rows of the huge file. `--write-only` writes the files and ends;
the next run finds them, measures and removes them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.sql import SparkSession

from benchmarks import tables
from kernelcoreset.jobs.cluster import cluster_coreset
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.rehearsal import rehearse
from kernelcoreset.spark.jobs.batch import write_labels
from kernelcoreset.spark.jobs.coreset import build
from kernelcoreset.spark.jobs.input import Input

TINY_FILES, TINY_ROWS = 5_000, 200
GROUP_ROWS = 1_000_000
ASKED_ROWS = 100_000_000


def rows_of(count: int, seed: int) -> pa.Table:
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(count, 2)) + 6.0 * generator.integers(5, size=(count, 1))
    return pa.table({"x": points[:, 0], "y": points[:, 1]})


def write_tiny(folder: Path) -> None:
    table = rows_of(TINY_FILES * TINY_ROWS, seed=0)
    for number in range(TINY_FILES):
        pq.write_table(table.slice(number * TINY_ROWS, TINY_ROWS), folder / f"tiny-{number:04}.parquet")


def write_huge(folder: Path, rows: int) -> None:
    """Write one file in row groups of a million rows, as writers of large files make them."""
    with pq.ParquetWriter(folder / "huge.parquet", rows_of(0, 0).schema) as file:
        for seed, low in enumerate(range(0, rows, GROUP_ROWS), 1):
            file.write_table(rows_of(min(GROUP_ROWS, rows - low), seed))


def write_even(folder: Path, tiny: bool, rows: int) -> None:
    """Write the same rows as files of a million rows."""
    if tiny:
        pq.write_table(rows_of(TINY_FILES * TINY_ROWS, seed=0), folder / "even-0000.parquet")
    for seed, low in enumerate(range(0, rows, GROUP_ROWS), 1):
        pq.write_table(rows_of(min(GROUP_ROWS, rows - low), seed), folder / f"even-{seed:04}.parquet")


def run(spark: SparkSession, folder: Path, out: Path, scan: str) -> list[float]:
    """Return rows, leaves, and seconds of the build and of labels with the write."""
    settings = Settings.from_dict(
        {
            "input": {"path": str(folder), "features": ["x", "y"], "scan": scan},
            "kernel": {"name": "Gaussian", "sigma": 2.0},
            "coreset": {"k": 5, "coreset_size": 1000},
            "output": {"path": str(out), "mode": "overwrite"},
        }
    )
    record = RunRecord("run", settings, settings.record_path())
    begin = time.perf_counter()
    data = Input(spark, settings.input)
    coreset = build(data, settings, record)
    built = time.perf_counter()
    model = cluster_coreset(coreset, settings, record)
    solved = time.perf_counter()
    write_labels(data, model, settings, record)
    labelled = time.perf_counter()
    shutil.rmtree(out)
    story = record.to_dict()
    return [story["rows"], story["leaves"], built - begin, labelled - solved]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=ASKED_ROWS)
    parser.add_argument("--write-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs/results/skew.md"))
    arguments = parser.parse_args()
    layouts = {
        "5,000 tiny files": lambda folder: write_tiny(folder),
        "the same in one file": lambda folder: write_even(folder, True, 0),
        "5,000 tiny files and a huge one": lambda folder: (write_tiny(folder), write_huge(folder, arguments.rows)),
        "the same in even files": lambda folder: write_even(folder, True, arguments.rows),
    }
    folders = [arguments.scratch / f"skew-{arguments.rows}-{number}" for number in range(len(layouts))]
    for folder, write in zip(folders, layouts.values(), strict=True):
        if not folder.exists():
            unfinished = folder.with_suffix(".tmp")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            write(unfinished)
            unfinished.rename(folder)
    if arguments.write_only:
        return
    rehearse()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows: list[list[object]] = []
    for name, folder in zip(layouts, folders, strict=True):
        if not rows:
            run(spark, folder, arguments.scratch / "skew-out", "auto")  # a warm-up: Java and the workers start
        for scan in ("auto", "spark"):
            count, leaves, *seconds = run(spark, folder, arguments.scratch / "skew-out", scan)
            print(name, scan, *seconds, flush=True)
            cells = (f"{each:.1f}" for each in (*seconds, sum(seconds)))
            rows.append([name, scan, len(list(folder.iterdir())), f"{count:,}", leaves, *cells])
    spark.stop()
    for folder in folders:
        shutil.rmtree(folder)
    ratios = [float(str(rows[i][-1])) / float(str(rows[i + 2][-1])) for i in (0, 1, 4, 5)]
    scaled = f" Asked were {ASKED_ROWS:,} rows in that file." if arguments.rows != ASKED_ROWS else ""
    words = (
        f"{TINY_FILES:,} files of {TINY_ROWS} rows, alone and beside one file of {arguments.rows:,} rows, compared "
        f"with the same rows in even files of a million rows.{scaled} Seconds of the build and of labels with the "
        "write, on local[2]."
    )
    result = (
        f"Tiny files take {ratios[0]:.2f} times as long as the same rows in one file "
        f'(`scan = "spark"`: {ratios[1]:.2f}), and beside the huge file all rows take {ratios[2]:.2f} times as long as '
        f'in even files (`scan = "spark"`: {ratios[3]:.2f}). Required beside the huge file: at most 1.5.'
    )
    header = ("files", "`input.scan`", "number", "rows", "leaves", "build", "label and write", "both")
    tables.write_results(arguments.out, "Skewed files", [words, tables.table(header, rows), result])


if __name__ == "__main__":
    main()
