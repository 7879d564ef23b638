"""Days of input for the update job, and what its runs leave behind."""

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from tests.spark.job_runs import run as run_job

PLACES = np.array([[0.0, 0.0], [9.0, 1.0], [3.0, 20.0]])


def points_of(seed, n=200):
    generator = np.random.default_rng(seed)
    return PLACES[generator.integers(3, size=n)] + generator.normal(size=(n, 2))


def put_day(day, seed, n=200, *, name="part-0.parquet", bad=0):
    """Write a day of n rows around three places; ids say which day and which version of it a row is from."""
    points = points_of(seed, n)
    points[:bad, 0] = np.nan
    folder = Path(f"days/date=2026-01-{day:02}")
    folder.mkdir(parents=True, exist_ok=True)
    ids = pa.array(1000 * seed + np.arange(n), pa.int64())
    pq.write_table(pa.table({"id": ids, "x": points[:, 0], "y": points[:, 1]}), folder / name)


run = functools.partial(run_job, cli.update_main)


def counts_of(record):
    return tuple(record["keys"][name] for name in ("new", "changed", "vanished", "left_window"))


def labels():
    """Label by id of every row of the output."""
    table = pq.read_table("out")
    return dict(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


def snapshot(folder):
    return {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


def content_of(path="store"):
    """All that a store holds, whatever its history."""
    store = kc.CoresetStore.open(path)
    leaves = {key: store.leaf(key) for key in sorted(store.keys())}
    return {key: (store.info(key), leaf and leaf.to_arrow().to_pydict()) for key, leaf in leaves.items()}


def states_of():
    store = kc.CoresetStore.open("store")
    return store.version, store.keys(), store.state
