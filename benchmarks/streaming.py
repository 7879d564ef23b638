"""Structured Streaming over many micro-batches: rows per second, time per batch, memory over time, error.

Run from the project's root: python benchmarks/streaming.py --data DIR --measured FILE
The stream is a folder of Parquet files, one per micro-batch, read by the job itself. What was measured goes to FILE
(--only-measure ends there). If FILE exists already, only the errors are computed and the table is written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from benchmarks import datasets, tables
from kernelcoreset import Coreset, CoresetStore, Gaussian, build_coreset, empirical_error
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.rehearsal import rehearse
from kernelcoreset.store.store import LeafUpdate

K, SIZE, SIGMA = 5, 1000, 50.0
CENTER_SETS, SEEDS = 100, 2


def make_files(folder: Path, points: np.ndarray, batches: int) -> None:
    folder.mkdir()
    for number, part in enumerate(np.array_split(points, batches)):
        path = folder / f"{number:06}.parquet"
        pq.write_table(pa.table({"longitude": part[:, 0], "latitude": part[:, 1]}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # files are taken in the order of their times


def settings_for(folder: Path, refit: int) -> Settings:
    return Settings.from_dict(
        {
            "input": {
                "path": str(folder / "in"),
                "features": ["longitude", "latitude"],
                "schema": "longitude double, latitude double",
                "options": {"maxFilesPerTrigger": 1},
            },
            "kernel": {"name": "Gaussian", "sigma": SIGMA},
            "coreset": {"k": K, "coreset_size": SIZE},
            "store": {"path": str(folder / "store")},
            "stream": {"checkpoint": str(folder / "checkpoint"), "refit_batches": refit},
            "output": {"path": str(folder / "out")},
        }
    )


class Watch(threading.Thread):
    """Resident memory of this process, of Java and of Spark's Python workers, every second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, dict[str, float]]] = []
        self.running = True

    def run(self) -> None:
        while self.running:
            self.samples.append((time.time(), _megabytes(os.getpid())))
            time.sleep(1.0)


def _megabytes(root: int) -> dict[str, float]:
    children: dict[int, list[int]] = {}
    about: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
            except OSError:
                continue
            if "VmRSS" in status:
                about[int(entry.name)] = (status["Name"].strip(), float(status["VmRSS"].split()[0]) / 1024)
                children.setdefault(int(status["PPid"]), []).append(int(entry.name))
    found = {"driver": about[root][1], "java": 0.0, "workers": 0.0}
    left = list(children.get(root, []))
    while left:
        process = left.pop()
        left += children.get(process, [])
        name, size = about[process]
        found["java" if name.startswith("java") else "workers"] += size
    return found


def follow(settings: Settings, folder: Path, more_conf: dict[str, str] | None = None) -> tuple[list[dict], Watch]:
    """Run the job to its end; return the progress of every micro-batch, and the memory."""
    from pyspark.sql import SparkSession

    from kernelcoreset.spark.jobs.stop import StopRequest
    from kernelcoreset.spark.jobs.stream import follow as follow_stream

    builder = SparkSession.builder.master("local[2]").appName("streaming benchmark")
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in {**conf, **(more_conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rehearse()  # as the session of the job does, while Java starts: else the first micro-batch would compile
    progress: list[dict] = []
    own = _Listener.on(progress)
    spark.streams.addListener(own)
    watch = Watch()
    watch.start()
    with StopRequest() as stop:
        follow_stream(spark, settings, RunRecord("stream", settings, str(folder / "record.json")), stop)
    watch.running = False
    time.sleep(2)
    spark.streams.removeListener(own)
    spark.stop()
    return progress, watch


class _Listener:
    @staticmethod
    def on(progress: list[dict]):
        from pyspark.sql.streaming.listener import StreamingQueryListener

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event):  # noqa: N802
                pass

            def onQueryIdle(self, event):  # noqa: N802
                pass

            def onQueryTerminated(self, event):  # noqa: N802
                pass

            def onQueryProgress(self, event):  # noqa: N802
                found = event.progress
                if found.numInputRows:
                    own = {"batch": found.batchId, "rows": found.numInputRows, "at": time.time()}
                    progress.append({**own, **found.durationMs})

        return Listener()


def replayed(points: np.ndarray, batches: int, seed: int) -> Coreset:
    """The same store without Spark: what the stream keeps depends on rows, numbers of batches and seed alone."""
    from kernelcoreset.spark.jobs.compaction import compacted, key_of

    with tempfile.TemporaryDirectory() as folder:
        store = CoresetStore.create(f"{folder}/store", K, Gaussian(SIGMA), SIZE, seed=seed)
        for number, part in enumerate(np.array_split(points, batches)):
            key = key_of(0, number, number)
            leaf = build_coreset(part, K, store.kernel, store.leaf_size, seed=store.leaf_seed(key))
            put, expired = compacted(store, key, LeafUpdate(leaf, rows=len(part)), 16)
            store.change(put, expired)
        return store.result()


def error_of(points: np.ndarray, coreset: Coreset) -> float:
    return empirical_error(points, coreset, K, Gaussian(SIGMA), n_center_sets=CENTER_SETS, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--out", type=Path, default=Path("docs/results/streaming.md"))
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=2000, help="rows of a micro-batch")
    parser.add_argument("--refit", type=int, default=50)
    parser.add_argument("--measured", type=Path, required=True, help="file for what was measured")
    parser.add_argument("--only-measure", action="store_true", help="leave the errors, and the table, for another time")
    options = parser.parse_args()
    points = datasets.twitter_like(options.data, options.batches * options.rows)
    if not options.measured.exists():
        options.measured.write_text(json.dumps(measure(options, points)))
    if options.only_measure:
        return
    report(options, json.loads(options.measured.read_text()), points)


def measure(options: argparse.Namespace, points: np.ndarray) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder / "in", points, options.batches)
        progress, watch = follow(settings_for(folder, options.refit), folder)
        store = CoresetStore.open(folder / "store")
        kept = sum(store.info(key)["rows"] for key in store.keys())  # noqa: SIM118
        labelled = sum(pq.read_metadata(file).num_rows for file in (folder / "out").rglob("*.parquet"))
        if not kept == labelled == len(points):
            sys.exit(f"{len(points):,} rows went in, {kept:,} are in the store and {labelled:,} are labelled.")
        coreset = store.result()
        return {
            "progress": progress,
            "memory": watch.samples,
            "keys": len(store.keys()),
            "points": coreset.points.tolist(),
            "weights": coreset.weights.tolist(),
        }


def between(samples: list, start: float, end: float, what: str) -> float:
    return float(np.median([found[what] for at, found in samples if start <= at <= end] or [np.nan]))


def report(options: argparse.Namespace, found: dict, points: np.ndarray) -> None:
    progress, keys = found["progress"], found["keys"]
    streamed = error_of(points, Coreset(found["points"], found["weights"]))
    tenth = max(1, len(progress) // 10)
    rows = []
    for part in range(10):
        own = progress[part * tenth : (part + 1) * tenth] if part < 9 else progress[9 * tenth :]
        before = progress[part * tenth - 1]["at"] if part else own[0]["at"] - own[0]["triggerExecution"] / 1000
        times = [one["triggerExecution"] for one in own]
        megabytes = [between(found["memory"], before, own[-1]["at"], what) for what in ("driver", "workers", "java")]
        rows.append(
            [
                f"{own[0]['batch']:,} to {own[-1]['batch']:,}",
                f"{np.median(times):.0f} ms",
                f"{np.max(times):.0f} ms",
                f"{np.median([one['addBatch'] for one in own]):.0f} ms",
                f"{len(own) * options.rows / (own[-1]['at'] - before):,.0f}",
                *(f"{size:.0f} MB" for size in megabytes),
            ]
        )
    seconds = progress[-1]["at"] - progress[0]["at"] + progress[0]["triggerExecution"] / 1000
    shots = [error_of(points, build_coreset(points, K, Gaussian(SIGMA), SIZE, seed=seed)) for seed in range(SEEDS)]
    streams = [error_of(points, replayed(points, options.batches, seed)) for seed in range(SEEDS)]
    about = (
        f"{options.batches:,} micro-batches of {options.rows:,} Twitter-like rows (one Parquet file each), Gaussian "
        f"sigma={SIGMA:g}, k={K}, N={SIZE}, a refit every {options.refit} batches, local[2]. Each micro-batch is taken "
        "into the store, labelled and written. Median and largest time of a micro-batch as Spark reports it "
        "(triggerExecution), the part of it spent in the job's own function (addBatch), and median resident memory of "
        "the driver's Python, of Spark's Python workers together and of Java (heap at most 1 GB)."
    )
    header = ["micro-batches", "median", "largest", "addBatch", "rows/s", "driver", "workers", "Java"]
    sums = (
        f"**{len(points) / seconds:,.0f} rows/s sustained over {len(progress):,} micro-batches**, "
        f"{1000 * seconds / len(progress):.0f} ms each; {keys} keys in the store at the end. Every row is in the store "
        "once and labelled once."
    )
    errors = tables.table(
        ["coreset of all rows", "largest error, mean of seeds", "ratio"],
        [
            ["single shot", f"{np.mean(shots):.4f}", "1.00x"],
            [
                "the stream's store (same steps without Spark)",
                f"{np.mean(streams):.4f}",
                f"{np.mean(streams) / np.mean(shots):.2f}x",
            ],
            ["the stream itself, one seed", f"{streamed:.4f}", f"{streamed / np.mean(shots):.2f}x"],
        ],
    )
    of_errors = f"Largest error over {CENTER_SETS} random center sets on all {len(points):,} rows, {SEEDS} seeds:"
    sections = [about, tables.table(header, rows), sums, of_errors, errors]
    tables.write_results(options.out, "A stream of many micro-batches", sections)


if __name__ == "__main__":
    main()
