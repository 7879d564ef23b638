"""Build, solve and label for many clusters: how the time grows with k.

Run from the project's root: python benchmarks/large_k.py --scratch DIR
Results are kept in the folder, so that cases can be measured one by one (--points, --k); the table has all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from kernelcoreset import Gaussian, KernelKMeansModel, build_coreset

# The size of the coreset grows with k: 10 points per cluster, at least 1,000.
SIZES = {5: 1_000, 50: 2_000, 200: 4_000, 1_000: 10_000, 5_000: 50_000}


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


def best(function: Callable[[], object], repeats: int) -> tuple[float, Any]:
    """Return the least seconds of several calls, and the result of the last one."""
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def measure(name: str, k: int, repeats: int) -> list[float]:
    """Return the seconds of the build, of solving the coreset and of labelling all points."""
    make, n, kernel = DATA[name]
    points = make(n)
    few = build_coreset(points[:20_000], 100, kernel, 1_000)  # compile
    KernelKMeansModel.fit_coreset(few, 100, kernel, n_init=1).predict(points[:2_000])
    build, coreset = best(lambda: build_coreset(points, k, kernel, SIZES[k]), repeats)
    solve, model = best(lambda: KernelKMeansModel.fit_coreset(coreset, k, kernel), 1)
    label, _ = best(lambda: model.predict(points), 1)
    print(name, k, f"build {build:.2f} s, solve {solve:.2f} s, label {label:.2f} s", file=sys.stderr, flush=True)
    return [build, solve, label]


def rows_of_table(kept: dict[str, list[float]]) -> list[list[object]]:
    """Return the rows of the table, in the order of data and k."""
    results = {(name, k): seconds for case, seconds in kept.items() for name, k in [json.loads(case)]}
    rows: list[list[object]] = []
    for name in DATA:
        for k, size in SIZES.items():
            if (name, k) in results:
                seconds = results[name, k]
                growth = f"{seconds[0] / results[name, 50][0]:.1f}x" if (name, 50) in results else ""
                rows.append([name, f"{k:,}", f"{size:,}", *(f"{own:.2f} s" for own in seconds), growth])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", choices=DATA, nargs="*", default=list(DATA))
    parser.add_argument("--k", type=int, choices=SIZES, nargs="*", default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=3, help="builds, of which the fastest counts")
    parser.add_argument("--scratch", type=Path, required=True, help="folder of the results so far")
    parser.add_argument("--out", type=Path, default=Path("docs/results/large_k.md"))
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    results = options.scratch / "large_k.json"
    kept = json.loads(results.read_text()) if results.exists() else {}
    for name in options.points:
        for k in options.k:
            kept[json.dumps([name, k])] = measure(name, k, options.repeats)
            results.write_text(json.dumps(kept, indent=1))
    about = (
        f"Gaussian kernel, N points in the coreset; the build is the best of {options.repeats}. The plane has 2,000 "
        "clusters; the unit vectors are float32 and lie around 2,000 topics. Label is `predict` of all points. "
        "Required: a build at k = 1,000 at most 6 times that at k = 50."
    )
    header = ["data", "k", "N", "build", "solve", "label", "build / build at k = 50"]
    tables.write_results(options.out, "Many clusters", [about, tables.table(header, rows_of_table(kept))])


if __name__ == "__main__":
    main()
