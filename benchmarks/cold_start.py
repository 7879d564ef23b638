"""How long the first call takes: with an empty cache, a full one, lent machine code, and without a home folder.

Run from the project's root: python benchmarks/cold_start.py
Every row is a new process. The executors are real ones, of a local cluster (`local-cluster`), with a folder for machine
code that is empty.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables

ROOT = Path(__file__).resolve().parent.parent
N, K, SIZE = 100_000, 5, 1000
MANY_COLUMNS = 64

LIBRARY = f"""
import json, sys, time
begin = time.perf_counter()
import numpy as np
import kernelcoreset as kc
from kernelcoreset.clustering.solve import solve
from kernelcoreset.labelling.centers import Centers
marks, busy = [time.perf_counter()], time.process_time()
points = np.random.default_rng(0).normal(size=({N}, 2))
kernel = kc.Gaussian(sigma=1.0)
coreset = kc.build_coreset(points, k={K}, kernel=kernel, size={SIZE}, seed=0)
marks.append(time.perf_counter())
solution = solve(coreset, {K}, kernel, seed=0)
marks.append(time.perf_counter())
Centers(coreset.points, solution.coefficients, kernel).label(points)
marks.append(time.perf_counter())
print(json.dumps([*np.diff([begin, *marks]).tolist(), time.process_time() - busy]))
"""

SESSION = f"""
import json, os, sys, time
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
import kernelcoreset as kc
from kernelcoreset.models.rehearsal import rehearse
from kernelcoreset.spark import KernelKMeans

kind, d, kept, log = sys.argv[1:]
rehearse(large=True)
master = "local-cluster[1,1,1024]"
builder = SparkSession.builder.remote(master) if kind == "connect" else SparkSession.builder.master(master)
for name, value in {{
    "spark.ui.enabled": "false",
    "spark.executorEnv.NUMBA_CACHE_DIR": kept,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": log,
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
d = int(d)
points = np.random.default_rng(0).normal(size=({N}, d)).astype(np.float64 if d == 2 else np.float32)
lists = pa.FixedSizeListArray.from_arrays(points.ravel(), d).cast(pa.list_(pa.from_numpy_dtype(points.dtype)))
columns = {{"x": points[:, 0], "y": points[:, 1]}} if d == 2 else {{"x": lists}}
frame = spark.createDataFrame(pa.table(columns)).coalesce(1).cache()
assert frame.count() == {N}  # the executor is up
"""

FITS = f"""
marks = [time.perf_counter()]
rows = {{"inputCols": ["x", "y"]}} if d == 2 else {{"featuresCol": "x"}}
clusterer = KernelKMeans(k={K}, kernel=kc.Gaussian(sigma=d / 2), coresetSize={SIZE}, nInit=1, **rows)
model = clusterer.fit(frame)
marks.append(time.perf_counter())
clusterer.fit(frame)
marks.append(time.perf_counter())
model.transform(frame).toArrow()
marks.append(time.perf_counter())
model.transform(frame).toArrow()
marks.append(time.perf_counter())
spark.stop()
print(json.dumps(np.diff(marks).tolist()))
"""

NOTHING = f"""
for _ in range(2):
    assert frame.mapInArrow(lambda batches: batches, frame.schema).count() == {N}
spark.stop()
print([])
"""


def run(program: str, *arguments: object, **environment: object) -> list[float]:
    """Run a program in a new process and return the seconds it prints."""
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR")}
    own = {"PYTHONPATH": ROOT, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **environment}
    for name in ("OMP", "OPENBLAS"):
        own[f"{name}_NUM_THREADS"] = 1
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**kept, **{name: str(value) for name, value in own.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def library_row(name: str, **environment: object) -> list[object]:
    """One row of the table of library calls."""
    seconds = run(LIBRARY, **environment)
    print(name, *(f"{each:.2f}" for each in seconds), flush=True)
    *steps, busy = seconds
    return [name, *(f"{each:.1f}" for each in (*steps, sum(steps[1:]), busy))]


def executor_row(name: str, kind: str, work: str, folder: Path, d: int = 2) -> list[object]:
    """One row of the table of executors."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        kept, log = Path(own) / "code", Path(own) / "log"
        log.mkdir()
        home = folder / "home"
        seconds = run(SESSION + work, kind, d, kept, log, HOME=home, NUMBA_CACHE_DIR=home / "code")
        compiled = len(list(kept.rglob("*.code")))
        tasks = task_seconds(next(log.iterdir()))
    print(name, *(f"{each:.2f}" for each in (*seconds, *tasks)), compiled, flush=True)
    steps = [f"{each:.1f}" for each in seconds] or ["-"] * 4
    return [name, *(f"{each:.1f}" for each in tasks[:2]), *steps, compiled]


def task_seconds(log: Path) -> list[float]:
    """Return how long each task with Python took, by the event log of Spark, in their order."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    submitted = [event["Stage Info"] for event in events if event["Event"] == "SparkListenerStageSubmitted"]
    stages = {stage["Stage ID"] for stage in submitted if "MapInArrow" in json.dumps(stage)}
    ended = [event for event in events if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in stages]
    times = [event["Task Info"] for event in ended]
    return [
        (each["Finish Time"] - each["Launch Time"]) / 1000 for each in sorted(times, key=lambda t: t["Launch Time"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/cold_start.md"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "tmp").mkdir()
        home = {"HOME": folder / "home", "XDG_CACHE_HOME": folder / "home" / ".cache"}
        none = {"XDG_CACHE_HOME": "/dev/null", "TMPDIR": folder / "tmp"}
        library = [
            library_row("empty cache", **home),
            library_row("warm cache", **home),
            library_row("HOME cannot be written, first process", HOME="/dev/null", **none),
            library_row("HOME cannot be written, second process", HOME="/dev/null", **none),
            library_row("no HOME, third process", **none),
        ]
        executors = [
            executor_row("lent code, classic session", "classic", FITS, folder),
            executor_row("lent code, Spark Connect", "connect", FITS, folder),
            executor_row(f"lent code, classic session, {MANY_COLUMNS} columns", "classic", FITS, folder, MANY_COLUMNS),
            executor_row("Spark alone, classic session", "classic", NOTHING, folder),
        ]
    header = ("", "import", "build", "solve", "label", "build + solve + label", "of it busy")
    words = (
        f"Seconds of the first calls in a new process: a coreset of {N:,} x 2 points (k = {K}, {SIZE} draws, "
        "Gaussian), its clusters (`solve`, 10 starts), labels of all points. One thread; with an empty cache "
        "a second process compiles what solves and labels meanwhile. Required: at most 10 s with an empty cache. "
        "`busy` are processor seconds of the first process."
    )
    spark_header = (
        *("", "first task", "second task", "first fit", "second fit", "first labels", "second labels", "compiled"),
    )
    spark_words = (
        "Seconds on a new executor, whose folder for machine code is empty: `KernelKMeans.fit` and `transform` of "
        f"{N:,} rows in one partition, of two columns or of a list of float32. The first task "
        "of a process starts Python, imports and loads the code that the "
        "driver lends. Required: under 3 s. The first fit is also the first query of the session: the driver packs its "
        "code, and Java starts to compile its own. `compiled` counts the functions that the executor compiled itself. "
        "The last row is a task that returns its batches as they are: what Spark itself takes for a first task."
    )
    sections = [words, tables.table(header, library), spark_words, tables.table(spark_header, executors)]
    tables.write_results(arguments.out, "The first call", sections)


if __name__ == "__main__":
    main()
