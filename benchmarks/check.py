"""Small versions of the committed ratios, on generated data, in under five minutes on a quiet machine.

Every figure is a ratio of two times or errors of this run, and larger is better. `check` prints each one next to that
of docs/results/check.md and marks those that are more than 20 % worse. It uses only public names, so that the same file
can measure an older version of the package.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import tables
from kernelcoreset import (
    Centers,
    CoresetStore,
    Gaussian,
    Graph,
    Polynomial,
    build_coreset,
    center_set_costs,
    empirical_error,
    fit_graph,
    fit_spectral,
    solve,
)

RESULT = Path(__file__).parent.parent / "docs" / "results" / "check.md"
WORSE = 0.8  # a figure below this share of the committed one is marked
REPEATS = 5
HEADER = ("group", "figure", "now", "committed", "now / committed", "")

Figure = tuple[str, float]


def run(only: list[str] | None = None, write: bool = False) -> int:
    """Measure and print the table; return 1 if a figure is more than 20 % worse than the committed one.

    If only some groups are measured, `write` keeps the committed rows of the others.
    """
    committed = read_committed(RESULT.read_text() if RESULT.exists() else "")
    rows, worse = [], 0
    for group, measure in GROUPS.items():
        if only and group not in only:
            continue
        for name, value in measure():
            before = float(committed[name][2]) if name in committed else None
            share = value / before if before else None
            is_worse = share is not None and share < WORSE
            worse += is_worse
            rows.append(
                [group, name, f"{value:.3g}", f"{before:.3g}" if before else "-", f"{share:.2f}" if share else "-",
                 "**worse**" if is_worse else ""]
            )  # fmt: skip
            print(" | ".join(map(str, rows[-1])), file=sys.stderr, flush=True)
    about = (
        "Every figure is a ratio of two times or errors of one run; larger is better. The column committed has the "
        "figures of this table in the commit before."
    )
    if write:
        found = committed | {row[1]: row for row in rows}
        ordered = sorted(found.values(), key=lambda row: list(GROUPS).index(row[0]))
        tables.write_results(
            RESULT, "Check: small versions of the committed ratios", [about, tables.table(HEADER, ordered)]
        )
    else:
        print(tables.table(HEADER, rows))
    return int(worse > 0)


def read_committed(text: str) -> dict[str, list[str]]:
    """Return the rows of a committed table by the names of their figures."""
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    return {row[1]: row for row in rows if row[0] in GROUPS}


def faster(slow: Callable[[], object], fast: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return how many times faster `fast` is: the median over `repeats`, after one call of each to compile."""
    slow(), fast()
    ratios = []
    for _ in range(repeats):
        start = time.perf_counter()
        slow()
        middle = time.perf_counter()
        fast()
        ratios.append((middle - start) / (time.perf_counter() - middle))
    return float(np.median(ratios))


def blobs(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return points of twelve clusters of different sizes and widths, with some far ones."""
    generator = np.random.default_rng(seed)
    middles = generator.normal(scale=4.0, size=(12, d))
    which = np.minimum(generator.geometric(0.2, size=n) - 1, 11)
    return middles[which] + generator.normal(size=(n, d)) * (0.1 + 0.1 * which[:, None])


def error() -> Iterator[Figure]:
    """Error of the paper's draw over that of the default draw."""
    for d in (2, 10):
        points, kernel = blobs(20_000, d), Gaussian(sigma=3.0)
        for size in (100, 1000):
            mean = {
                draw: np.mean(
                    [
                        empirical_error(
                            points,
                            build_coreset(points, 5, kernel, size, seed=seed, draw=draw),
                            5, kernel, n_center_sets=60, seed=seed,
                        )
                        for seed in range(8)
                    ]
                )
                for draw in ("iid", "ordered")
            }  # fmt: skip
            yield f"error of iid / ordered, d = {d}, N = {size}", float(mean["iid"] / mean["ordered"])


def labels() -> Iterator[Figure]:
    """Direct evaluation over `label` and `predict`."""
    points = blobs(60_000, 2)
    for kernel in (Gaussian(sigma=5.0), Polynomial(degree=4)):
        coreset = build_coreset(points, 5, kernel, 1000)
        centers = Centers(coreset.points, solve(coreset, 5, kernel, n_init=2).coefficients, kernel)
        direct = lambda c=centers: c.label(points, exact_distances=True)  # noqa: E731
        yield f"label, {type(kernel).__name__}", faster(direct, lambda c=centers: c.label(points))
        yield f"predict, {type(kernel).__name__}", faster(direct, lambda c=centers: c.predict(points))


def build() -> Iterator[Figure]:
    """The kernel evaluations of a build (4k pivots per point) over the build itself."""
    kernel = Gaussian(sigma=3.0)
    for d in (2, 10):
        points = blobs(1_000_000, d)
        pivots = points[:20][None]
        yield (
            f"evaluations / build, d = {d}",
            faster(
                lambda p=points, c=pivots: center_set_costs(p, c, kernel),
                lambda p=points: build_coreset(p, 5, kernel, 1000),
            ),
        )


def clusters() -> Iterator[Figure]:
    """Gram matrix in numpy over a whole solve on the same coreset."""
    points, kernel = blobs(50_000, 2), Gaussian(sigma=3.0)
    for size, k in ((1000, 5), (1000, 20)):
        coreset = build_coreset(points, k, kernel, size)

        def gram(own: np.ndarray = coreset.points) -> np.ndarray:
            norms = (own**2).sum(axis=1)
            return np.exp(-(norms[:, None] + norms - 2 * own @ own.T) / 18.0)

        yield (
            f"Gram matrix / solve, s = {size}, k = {k}",
            faster(gram, lambda c=coreset, k=k: solve(c, k, kernel, n_init=3)),
        )


def spectral() -> Iterator[Figure]:
    """scikit-learn's spectral clustering over ours, 3,000 points."""
    from sklearn.cluster import SpectralClustering

    points, kernel = blobs(3_000, 2), Gaussian(sigma=1.0)
    theirs = SpectralClustering(5, affinity="rbf", gamma=0.5, random_state=0)
    yield (
        "scikit-learn / ours, 3,000 points",
        faster(lambda: theirs.fit(points), lambda: fit_spectral(points, 5, kernel, 1000).predict(points), 3),
    )


def graph() -> Iterator[Figure]:
    """Twenty products of the sparse matrix with a vector over `fit_graph`."""
    from scipy import sparse

    generator = np.random.default_rng(0)
    n, k = 100_000, 20
    source = generator.integers(n, size=1_000_000)
    inside = generator.random(len(source)) < 0.9
    target = np.where(inside, (source // (n // k)) * (n // k) + generator.integers(n // k, size=len(source)),
                      generator.integers(n, size=len(source)))  # fmt: skip
    matrix = sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(n, n)).tocsr()
    matrix = (matrix + matrix.T).tocsr()
    own, vector = Graph.from_matrix(matrix), np.ones(n)

    def products() -> None:
        for _ in range(20):
            matrix @ vector

    yield "20 sparse products / fit_graph, 100,000 nodes", faster(products, lambda: fit_graph(own, k))


def store() -> Iterator[Figure]:
    """A build from all rows over one more day in a store of 60 days, with its result."""
    kernel = Gaussian(sigma=3.0)
    days = [blobs(50_000, 2, seed) for seed in range(60)]
    everything = np.concatenate(days)
    with tempfile.TemporaryDirectory() as folder:
        kept = CoresetStore.create(f"{folder}/store", k=5, kernel=kernel, size=500)
        for number, day in enumerate(days):
            kept.add(f"{number:04}", day)
        kept.result()
        names = iter(range(1000, 2000))

        def one_day() -> None:
            kept.add(f"{next(names)}", days[0])
            kept.result()

        yield (
            "full build / one more day and its result",
            faster(lambda: build_coreset(everything, 5, kernel, 500), one_day),
        )


def scan() -> Iterator[Figure]:
    """A Spark pass that only sums, over `fit`; and a pass that only copies, over `transform`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    from kernelcoreset.spark import KernelKMeans

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "131072")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        points = blobs(1_000_000, 2)
        for part in range(4):
            pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), f"{folder}/{part}.parquet")
        frame = spark.read.parquet(folder)

        def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            total = sum(float(np.sum(column.to_numpy())) for batch in batches for column in batch.columns)
            yield pa.RecordBatch.from_pydict({"total": [total]})

        def copies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        estimator = KernelKMeans(k=5, kernel=Gaussian(sigma=3.0), inputCols=["x", "y"], nInit=1)
        model = estimator.fit(frame)
        yield (
            "summing pass / fit",
            faster(lambda: frame.mapInArrow(sums, "total double").collect(), lambda: estimator.fit(frame), 3),
        )
        yield (
            "copying pass / transform",
            faster(
                lambda: frame.mapInArrow(copies, frame.schema).write.format("noop").mode("overwrite").save(),
                lambda: model.transform(frame).write.format("noop").mode("overwrite").save(),
                3,
            ),
        )
    spark.stop()


GROUPS: dict[str, Callable[[], Iterator[Figure]]] = {
    "error": error,
    "labels": labels,
    "build": build,
    "solve": clusters,
    "spectral": spectral,
    "graph": graph,
    "store": store,
    "scan": scan,
}
