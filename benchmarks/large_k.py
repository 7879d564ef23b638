"""Build, solve and label for many clusters: how the time grows with k.

Run from the project's root: python benchmarks/large_k.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from kernelcoreset import Gaussian, build_coreset

# The size of the coreset grows with k: 10 points per cluster, at least 1,000.
SIZES = {5: 1_000, 50: 2_000, 200: 4_000, 1_000: 10_000, 5_000: 50_000}
REPEATS = 3


def plane(n: int) -> np.ndarray:
    """Return points of 2,000 clusters in the plane, of different sizes and widths."""
    generator = np.random.default_rng(0)
    middles = generator.normal(scale=10.0, size=(2_000, 2))
    which = np.minimum(generator.geometric(0.002, size=n) - 1, 1_999)
    return middles[which] + generator.normal(size=(n, 2)) * (0.05 + 0.0005 * which[:, None])


def unit_vectors(n: int, d: int = 384) -> np.ndarray:
    """Return unit vectors around 2,000 topics, as float32."""
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(2_000, d)).astype(np.float32)
    points = topics[generator.integers(2_000, size=n)]
    points += generator.normal(size=(n, d)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points


DATA: dict[str, tuple[Callable[[int], np.ndarray], int, Gaussian]] = {
    "1 M x 2": (plane, 1_000_000, Gaussian(sigma=5.0)),
    "200,000 x 384": (unit_vectors, 200_000, Gaussian(sigma=1.0)),
}


def best(function: Callable[[], object], repeats: int = REPEATS) -> tuple[float, object]:
    """Return the least seconds of several calls, and the result of the last one."""
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def measure(name: str, ks: list[int]) -> list[list[object]]:
    """Return a row per k: its size and the seconds of the build."""
    make, n, kernel = DATA[name]
    points = make(n)
    build_coreset(points[:20_000], 100, kernel, 1_000)  # compile
    rows: list[list[object]] = []
    for k in ks:
        seconds, _ = best(lambda k=k: build_coreset(points, k, kernel, SIZES[k]))  # type: ignore[misc]
        print(f"{name}, k = {k}: build {seconds:.2f} s", file=sys.stderr, flush=True)
        rows.append([name, k, SIZES[k], seconds])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=DATA, nargs="*", default=list(DATA))
    parser.add_argument("--k", type=int, choices=SIZES, nargs="*", default=list(SIZES))
    parser.add_argument("--out", type=Path, default=Path("docs/results/large_k.md"))
    options = parser.parse_args()
    rows = [row for name in options.data for row in measure(name, options.k)]
    at_50 = {name: seconds for name, k, _, seconds in rows if k == 50}
    shown = [
        [name, f"{k:,}", f"{size:,}", f"{seconds:.2f} s", f"{seconds / at_50[name]:.1f}x" if name in at_50 else "-"]
        for name, k, size, seconds in rows
    ]
    about = (
        f"Best of {REPEATS}, Gaussian kernel, N points in the coreset. The plane has 2,000 clusters; the unit vectors "
        "are float32 and lie around 2,000 topics."
    )
    header = ["data", "k", "N", "build", "build / build at k = 50"]
    tables.write_results(options.out, "Many clusters", [about, tables.table(header, shown)])


if __name__ == "__main__":
    main()
