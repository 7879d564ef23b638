"""Labels and coresets of many columns, beside the matrix product they need, and labels beside plain numpy.

Run from the project's root: python -m benchmarks.high_dimension --data DIR [--builds]
One thread. The times are the least processor times of several rounds in which all take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import datasets, tables, wide_data
from kernelcoreset import Cosine, Gaussian, Kernel, Linear, build_coreset
from kernelcoreset.clustering.solve import solve
from kernelcoreset.labelling.centers import ACCURACY, Centers

SIZE = 1000
BLOCK = 1024
HEADER = (
    "data", "d", "rows", "kernel", "k", "prepare, s", "labels, s", "labels and distances, s",
    "float32 product, s (in blocks)", "labels / product (in blocks)", "numpy float64, s (in blocks)",
    "times faster (in blocks)", "proved by products", "labels different",
)  # fmt: skip


def best(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the least processor time of each function, which other work on the machine hardly changes; in turns."""
    times = dict.fromkeys(functions, np.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.process_time()
            function()
            times[name] = min(times[name], time.process_time() - begin)
    return times


def centers_of(rows: np.ndarray, kernel: Kernel, k: int) -> Centers:
    """Return k centers on a coreset of the rows."""
    sample = rows[:20_000].astype(np.float64)
    coreset = build_coreset(sample, k=k, kernel=kernel, size=SIZE, seed=0)
    return Centers(coreset.points, solve(coreset, k, kernel, n_init=2, seed=0).coefficients, kernel)


def float32_product(rows: np.ndarray, points: np.ndarray, size: int) -> Callable[[], None]:
    """Return the product of the rows with the points in float32, so many rows at a time."""
    rows, points = rows.astype(np.float32), np.ascontiguousarray(points, dtype=np.float32)

    def run() -> None:
        out = np.empty((min(size, len(rows)), len(points)), dtype=np.float32)
        for low in range(0, len(rows), size):
            part = rows[low : low + size]
            np.matmul(part, points.T, out=out[: len(part)])

    return run


def plain_numpy(rows: np.ndarray, centers: Centers, size: int) -> Callable[[], np.ndarray]:
    """Return labels the obvious way, in float64: kernel values of so many rows at a time, times the coefficients."""
    points, coefficients, kernel = centers.points, centers.coefficients, centers.kernel
    norms = np.square(points).sum(axis=1)
    lengths = np.sqrt(norms)
    squared = centers.squared_norms

    def run() -> np.ndarray:
        labels = np.empty(len(rows), dtype=np.int32)
        for low in range(0, len(rows), size):
            part = rows[low : low + size].astype(np.float64)
            values = part @ points.T
            if isinstance(kernel, Gaussian):
                values *= -2.0
                values += np.square(part).sum(axis=1)[:, np.newaxis] + norms
                values *= -0.5 / kernel.sigma**2
                np.exp(values, out=values)
            elif isinstance(kernel, Cosine):
                values /= np.linalg.norm(part, axis=1)[:, np.newaxis] * lengths
            labels[low : low + size] = (squared - 2.0 * values @ coefficients.T).argmin(axis=1)
        return labels

    return run


def measure(name: str, rows: np.ndarray, kernel: Kernel, k: int, rounds: int) -> list[object]:
    """Return one row of the table of labels."""
    warm = centers_of(rows, kernel, k)
    warm.predict(rows[:100])
    centers = Centers(warm.points, warm.coefficients, kernel)
    begin = time.perf_counter()
    centers.predict(rows[:1])
    centers.ladder(ACCURACY)
    prepare = time.perf_counter() - begin
    # A center of Linear or Cosine is one vector, so the product is one with k vectors.
    points = centers.points if isinstance(kernel, Gaussian) else centers.points[:k]
    functions: dict[str, Callable[[], Any]] = {
        "labels": lambda: centers.predict(rows),
        "distances": lambda: centers.label(rows),
    }
    for name_of_size, size in (("", len(rows)), (" in blocks", BLOCK)):
        functions["product" + name_of_size] = float32_product(rows, points, size)
        functions["numpy" + name_of_size] = plain_numpy(rows, centers, size)
    times = best(functions, rounds)
    direct = centers.label(rows, exact_distances=True)
    found = centers.label(rows)
    different = int((found.labels != direct.labels).sum() + (centers.predict(rows) != direct.labels).sum())
    ratio, ratio_in_blocks = (times["labels"] / times[other] for other in ("product", "product in blocks"))
    faster, faster_in_blocks = (times[other] / times["labels"] for other in ("numpy", "numpy in blocks"))
    print(name, kernel, f"{ratio:.2f} of the product, {faster:.1f}x numpy, {different} different", flush=True)
    return [
        name, rows.shape[1], f"{len(rows):,} {rows.dtype}", f"`{kernel!r}`", k, f"{prepare:.2f}",
        f"{times['labels']:.3f}", f"{times['distances']:.3f}",
        f"{times['product']:.3f} ({times['product in blocks']:.3f})", f"{ratio:.2f} ({ratio_in_blocks:.2f})",
        f"{times['numpy']:.3f} ({times['numpy in blocks']:.3f})", f"{faster:.1f} ({faster_in_blocks:.1f})",
        f"{found.certified:.3%}", different,
    ]  # fmt: skip


def labels(folder: Path, n: int, k_many: int, rounds: int) -> str:
    """Return the section about labels."""
    rows = []
    sets = [(f"texts, {d} columns", wide_data.embeddings(n, d)) for d in (64, 384)]
    sets += [("images", wide_data.images(folder, n)), ("texts, 1536 columns", wide_data.embeddings(n, 1536))]
    for name, points in sets:
        sigma = datasets.median_distance(points[:1_000].astype(np.float64))
        gaussian = Gaussian(sigma=float(f"{sigma:.3g}"))
        rows.append(measure(name, points, gaussian, 10, rounds))
        for kernel in (Linear(), Cosine()):
            rows.append(measure(name, points, kernel, 10, rounds))
        if points.shape[1] == 384:
            rows += [measure(name, points, kernel, k_many, rounds) for kernel in (gaussian, Linear(), Cosine())]
    words = (
        f"## Labels\n\nCoreset of {SIZE} draws of 20,000 of the rows, centers from `solve`. `Labels` is `predict`. "
        "Prepare happens once per model, with compiled code at hand. The float32 product is that of the rows with the "
        "coreset points (Gaussian) or with k vectors (Linear, Cosine), of float32 rows, by numpy; labels start from "
        "the rows as they are. Plain numpy evaluates all coreset points in float64 with BLAS. Both are measured on all "
        f"rows at once and, in brackets, in blocks of {BLOCK} rows, which the cache holds. Labels different counts "
        "`predict` and `label` against "
        "`label(exact_distances=True)`, the loops over columns in float64. Required with Gaussian: at most 1.5 of the "
        "product, at least 3 times faster than numpy, 0 different."
    )
    return f"{words}\n\n{tables.table(HEADER, rows)}"


BUILD_HEADER = (
    "data", "d", "rows", "k", "build, s", "float32 product, s", "read, s", "build / (3 products + read)",
)  # fmt: skip


def measure_build(name: str, rows: np.ndarray, kernel: Kernel, k: int, rounds: int) -> list[object]:
    """Return one row of the table of builds."""
    build_coreset(rows[:10_000], k, kernel, SIZE)  # compile
    pivots = rows[:: len(rows) // (4 * k)][: 4 * k].astype(np.float64)
    times = best(
        {
            "product": float32_product(rows, pivots, BLOCK),
            "read": rows.sum,
            "build": lambda: build_coreset(rows, k, kernel, SIZE),
        },
        rounds,
    )
    share = times["build"] / (3.0 * times["product"] + times["read"])
    print(name, k, f"build {times['build']:.3f} s, {share:.2f} of what is allowed", flush=True)
    return [
        name, rows.shape[1], f"{len(rows):,} {rows.dtype}", k, f"{times['build']:.3f}", f"{times['product']:.3f}",
        f"{times['read']:.3f}", f"{share:.2f}",
    ]  # fmt: skip


def builds(folder: Path, n: int, rounds: int) -> str:
    """Return the section about coresets."""
    rows = []
    sets = [(f"texts, {d} columns", wide_data.embeddings(n, d)) for d in (64, 384)]
    sets += [("images", wide_data.images(folder, n)), ("texts, 1536 columns", wide_data.embeddings(n // 2, 1536))]
    for name, points in sets:
        sigma = datasets.median_distance(points[:1_000].astype(np.float64))
        for k in (10, 100):
            rows.append(measure_build(name, points, Gaussian(sigma=float(f"{sigma:.3g}")), k, rounds))
    words = (
        f"## Coresets\n\n`build_coreset` of {SIZE} points, Gaussian kernel at the median distance. The float32 "
        f"product is that of the rows with 4k pivots, by numpy in blocks of {BLOCK} float32 rows; read is their sum. "
        "Required: at most 3 products and one read, 1.00 in the last column. A build also centres the rows, checks "
        "that they are finite, and balances its draws, whose time does not grow with the rows."
    )
    return f"{words}\n\n{tables.table(BUILD_HEADER, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with mnist_test.parquet")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--build-rows", type=int, default=200_000)
    parser.add_argument("--builds", action="store_true", help="measure builds instead of labels")
    parser.add_argument("--clusters", type=int, default=200, help="the larger number of clusters")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, help="high_dimension.md or high_dimension_builds.md in docs/results if None"
    )
    given = parser.parse_args()
    name = "high_dimension_builds" if given.builds else "high_dimension"
    with threadpool_limits(1):
        if given.builds:
            section = builds(given.data, given.build_rows, given.rounds)
        else:
            section = labels(given.data, given.rows, given.clusters, given.rounds)
    out = given.out or Path(f"docs/results/{name}.md")
    tables.write_results(
        out,
        "Many columns",
        ["One thread. Times are the least processor time of several rounds, in which all take turns.", section],
    )


if __name__ == "__main__":
    main()
