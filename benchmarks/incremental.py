"""Coresets kept up to date: what one more day costs, what a year of changes does to the error, and a long stream.

Run from the project's root: python benchmarks/incremental.py --data DIR
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import datasets, tables
from kernelcoreset import (
    Coreset,
    CoresetStore,
    Gaussian,
    StreamingKernelKMeans,
    build_coreset,
    center_set_costs,
    draw_center_sets,
)

K, SIZE, KERNEL = 5, 1000, Gaussian(sigma=50.0)
DAYS, RESTATED, EXPIRED = 365, 30, 100
BATCH, REFIT = 10_000, 50
KINDS = {"uniform": 200, "spread": 100, "crowded": 100}
ABOUT_ERRORS = (
    f"Largest relative error of the cost over {', '.join(f'{n} {kind}' for kind, n in KINDS.items())} center sets"
)


def key_of(day: int) -> str:
    return str(np.datetime64("2023-01-01") + day)


def cut_into_days(rows: np.ndarray, days: int) -> list[np.ndarray]:
    """Return the rows in days of different lengths, the longest about three times the shortest."""
    shares = np.random.default_rng(1).uniform(0.5, 1.5, size=days)
    return np.split(rows, (np.cumsum(shares) / shares.sum() * len(rows)).astype(int)[:-1])


def new_store(path: Path, seed: int) -> CoresetStore:
    return CoresetStore.create(path, k=K, kernel=KERNEL, size=SIZE, seed=seed)


def build_all(store: CoresetStore, days: dict[str, Callable[[], np.ndarray]]) -> Coreset:
    """A full build: every day read and reduced to its leaf, one commit, one result."""
    store.change({key: store.build_leaf(key, read()) for key, read in days.items()})
    return store.result()


def write_day(folder: Path, name: str, rows: np.ndarray) -> Callable[[], np.ndarray]:
    """Write a day as a Parquet file and return a function that reads it."""
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"longitude": rows[:, 0], "latitude": rows[:, 1]}), path)

    def read() -> np.ndarray:
        table = pq.read_table(path, use_threads=False)
        return np.stack([table[name].to_numpy() for name in table.column_names]).T

    return read


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class Errors:
    """Largest relative error over center sets, of each kind, against the cost on all rows."""

    def __init__(self, rows: np.ndarray) -> None:
        some = rows[:: max(1, len(rows) // 200_000)]
        self.sets = {
            kind: draw_center_sets(some, K, KERNEL, kind=kind, n_center_sets=count, seed=1)
            for kind, count in KINDS.items()
        }
        self.truth = {kind: center_set_costs(rows, sets, KERNEL) for kind, sets in self.sets.items()}

    def measure_single(self, rows: np.ndarray, draws: int) -> None:
        """Measure the baseline: coresets of the same rows built at once."""
        self.single = [self(build_coreset(rows, K, KERNEL, SIZE, seed=10_000 + seed)) for seed in range(draws)]

    def __call__(self, coreset: Coreset) -> list[float]:
        found = []
        for kind, sets in self.sets.items():
            costs = center_set_costs(coreset.points, sets, KERNEL, weights=coreset.weights)
            found.append(float(np.abs(costs / self.truth[kind] - 1).max()))
        return found


def costs_of_changes(folder: Path, days: list[np.ndarray], more: list[np.ndarray]) -> str:
    (folder / "days").mkdir()
    year = {key_of(i): write_day(folder / "days", key_of(i), rows) for i, rows in enumerate(days)}
    news = [write_day(folder / "days", f"new-{i}", rows) for i, rows in enumerate(more)]
    read_all = lambda: np.concatenate([read() for read in year.values()])  # noqa: E731
    stores = [new_store(folder / f"full-{seed}", seed) for seed in range(2)]
    fulls = [timed(lambda store=store: build_all(store, year)) for store in stores]
    at_once = [timed(lambda: build_coreset(read_all(), K, KERNEL, SIZE)) for _ in range(2)]
    full, single, store = min(fulls), min(at_once), stores[0]
    seconds: dict[str, list[tuple[float, float]]] = {"add": [], "restate": [], "expire": []}
    generator = np.random.default_rng(2)
    for i, read in enumerate(news):
        changed, gone = (key_of(int(day)) for day in (generator.integers(100, DAYS), i))
        for name, change in (
            ("add", lambda i=i, read=read: store.add(key_of(DAYS + i), read())),
            ("restate", lambda key=changed, read=read: store.replace(key, read())),
            ("expire", lambda key=gone: store.expire(key)),
        ):
            seconds[name].append((timed(change), timed(store.result)))
    lines = []
    for name, own in seconds.items():
        commit, result = np.median(own, axis=0)
        both = float(np.median(np.sum(own, axis=1)))
        lines.append(
            [
                f"{name} one day",
                f"{1e3 * commit:.0f} ms",
                f"{1e3 * result:.0f} ms",
                f"1/{full / commit:.0f}",
                f"1/{full / both:.0f}",
                f"1/{single / both:.0f}",
            ]
        )
    about = (
        f"A full build of the store from {len(days)} daily Parquet files with {sum(map(len, days)):,} rows in all "
        f"takes {full:.2f} s: reading, leaves, one commit, the result. One coreset of all rows at once, without a "
        f"store, takes {single:.2f} s with reading. A change (reading the day, its leaf, a durable commit) and the "
        f"result after it, medians of {len(more)}:"
    )
    header = ["", "change", "result", "change / full build", "change and result / full build", "both / at once"]
    return f"## What a change costs\n\n{about}\n\n" + tables.table(header, lines)


def live_through_a_year(store: CoresetStore, days: list[np.ndarray], restated: dict[int, np.ndarray]) -> None:
    """Daily adds, restatements soon after their days, expiries in the second half of the year; a result every week."""
    for i, rows in enumerate(days):
        store.add(key_of(i), rows)
        if i - 7 in restated:
            store.replace(key_of(i - 7), restated[i - 7])
        if i >= DAYS - EXPIRED:
            store.expire(key_of(i - (DAYS - EXPIRED)))
        if i % 7 == 0:
            store.result()


def after_a_year(
    folder: Path, days: list[np.ndarray], more: list[np.ndarray], draws: int
) -> tuple[str, np.ndarray, Errors]:
    restatable = np.random.default_rng(3).choice(DAYS - 7, size=RESTATED, replace=False)
    restated = dict(zip(map(int, restatable), more, strict=True))
    final = {key_of(i): restated.get(i, days[i]) for i in range(EXPIRED, DAYS)}
    rows = np.concatenate(list(final.values()))
    errors = Errors(rows)
    kept = []
    for seed in range(draws):
        store = new_store(folder / f"fresh-{seed}", seed)
        result = build_all(store, {key: lambda rows=own: rows for key, own in final.items()})
        if seed == 0:
            lived = new_store(folder / "lived", seed)
            begin = time.perf_counter()
            live_through_a_year(lived, days, restated)
            seconds = time.perf_counter() - begin
            if lived.result().to_bytes() != result.to_bytes():
                sys.exit("The store that lived through the year differs from a fresh one of the same content.")
            removed = len(lived.vacuum(older_than=0))
            files = [path.stat().st_size for path in (folder / "lived").rglob("*") if path.is_file()]
        kept.append(errors(result))
    errors.measure_single(rows, draws)
    about = (
        f"{DAYS} daily adds, {RESTATED} restatements and {EXPIRED} expiries, each in a separate commit, with a result "
        f"every week, took {seconds:.1f} s. The result equals, byte by byte, that of a new store of the remaining rows "
        f"({len(rows):,} rows). After vacuum ({removed} files removed) the store has {len(files)} files, "
        f"{sum(files) / 1e6:.0f} MB.\n\n{ABOUT_ERRORS}, mean of {draws} seeds ± its standard error:"
    )
    text = f"## After a year\n\n{about}\n\n" + error_table("store after the year", kept, errors.single)
    return text, rows, errors


def error_table(name: str, own: list[list[float]], single: list[list[float]]) -> str:
    lines = []
    for kind, a, b in zip(KINDS, np.transpose(own), np.transpose(single), strict=True):
        cells = [f"{100 * x.mean():.2f} ± {100 * x.std(ddof=1) / np.sqrt(len(x)):.2f} %" for x in (a, b)]
        lines.append([kind, *cells, f"{a.mean() / b.mean():.2f}x"])
    return tables.table(["center sets", name, f"single-shot, {SIZE} points", "ratio"], lines)


def memory() -> float:
    """Resident memory of this process in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def long_stream(rows: np.ndarray, errors: Errors, draws: int) -> str:
    batches = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
    model = StreamingKernelKMeans(K, kernel=KERNEL, coreset_size=SIZE, refit_every=REFIT, n_init=3, random_state=0)
    model.partial_fit(batches[0]).predict(batches[0])  # compiled
    model = StreamingKernelKMeans(K, kernel=KERNEL, coreset_size=SIZE, refit_every=REFIT, n_init=3, random_state=0)
    taken, labelled, resident = [], [], []
    for batch in batches:
        taken.append(timed(lambda batch=batch: model.partial_fit(batch)))
        labelled.append(timed(lambda batch=batch: model.predict(batch)))
        resident.append(memory())
    lines = []
    for part in np.array_split(np.arange(len(batches)), 8):
        own, read = np.array(taken)[part], np.array(labelled)[part]
        lines.append(
            [
                f"{part[0] + 1:,} to {part[-1] + 1:,}",
                f"{1e3 * own.mean():.1f} ms",
                f"{1e3 * own.max():.0f} ms",
                f"{1e3 * read.mean():.1f} ms",
                f"{BATCH * len(part) / (own.sum() + read.sum()):,.0f}",
                f"{resident[part[-1]]:,.0f} MB",
            ]
        )
    streamed = []
    for seed in range(draws):
        tree = StreamingKernelKMeans(K, kernel=KERNEL, coreset_size=SIZE, random_state=seed)
        for batch in batches:
            tree.partial_fit(batch)
        streamed.append(errors(tree.tree_.result()))
    about = (
        f"`StreamingKernelKMeans`, {len(batches):,} micro-batches of {BATCH:,} rows, each added and then labelled, "
        f"clusters found again every {REFIT} batches: {len(rows) / (sum(taken) + sum(labelled)):,.0f} rows/s. Memory "
        "is that of the whole process, with all rows of this benchmark."
    )
    header = ["batches", "take in, mean", "slowest (with a fit)", "label, mean", "rows/s", "memory at the end"]
    return (
        f"## A stream in one process\n\n{about}\n\n{tables.table(header, lines)}\n\nErrors as above, mean of {draws} "
        f"seeds, the single-shot ones the same:\n\n{error_table('stream', streamed, errors.single)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the year (20,000,000)")
    parser.add_argument("--draws", type=int, default=20, help="coresets an error is the mean of, at least 2 (20)")
    parser.add_argument("--out", type=Path, default=Path("docs/results/incremental.md"))
    options = parser.parse_args()
    days = cut_into_days(datasets.twitter_like(options.data, options.rows), DAYS)
    more = cut_into_days(datasets.twitter_like(options.data, options.rows * RESTATED // DAYS, seed=1), RESTATED)
    build_coreset(days[0], K, KERNEL, SIZE)  # compiled
    with tempfile.TemporaryDirectory(dir=options.out.parent) as name:
        folder = Path(name)
        sections = [costs_of_changes(folder, days, more)]
        print(sections[-1], file=sys.stderr)
        text, rows, errors = after_a_year(folder, days, more, options.draws)
        sections.append(text)
    print(text, file=sys.stderr)
    del days, more
    sections.append(long_stream(rows, errors, options.draws))
    about = (
        f"Twitter-like rows (longitude, latitude), {KERNEL!r}, k={K}, {SIZE} points, leaves of {4 * SIZE}, one core."
    )
    tables.write_results(options.out, "Coresets kept up to date", [about, *sections])


if __name__ == "__main__":
    main()
