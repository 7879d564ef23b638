"""Time and memory of build_coreset, against its own kernel evaluations alone.

Run from the project's root: python benchmarks/build_speed.py --data DIR
Each size runs in a separate process, so that its peak of resident memory can be measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import datasets, tables
from kernelcoreset import Gaussian, build_coreset
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.tiles import TILE

K, SIZE = 5, 1000
MILLIONS = (0.25, 0.5, 1, 2, 4, 8, 16)
REPEATS = 5


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def evaluations_alone(points: np.ndarray, kernel: Gaussian, count: int) -> float:
    """Return the seconds that `count` squared distances per point take, with nothing done to them."""
    columns = as_columns(points)
    rows = np.ascontiguousarray(points[:count])
    compiled = evaluator_of(kernel)
    out = np.empty((count, 64 * TILE))
    begin = time.perf_counter()
    for low in range(0, len(points), 64 * TILE):
        part = np.ascontiguousarray(columns[:, low : low + 64 * TILE])
        passes.block(compiled.distances, part, rows, out)
    return time.perf_counter() - begin


def measure_one(data: Path, n: int) -> dict[str, float]:
    kernel = Gaussian(sigma=50.0)
    points = datasets.twitter_like(data, n)
    build_coreset(points[:20_000], K, kernel, SIZE)  # compile
    evaluations_alone(points[:2_000], kernel, 2)
    before = peak_bytes()
    builds, evaluations = [], []
    for _ in range(REPEATS):  # in turns, so that a busy moment hits both
        begin = time.perf_counter()
        build_coreset(points, K, kernel, SIZE)
        builds.append(time.perf_counter() - begin)
        if len(builds) == 1:
            peak = peak_bytes()
        evaluations.append(evaluations_alone(points, kernel, 4 * K))
    return {"build": min(builds), "alone": min(evaluations), "bytes": (peak - before) / n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--out", type=Path, default=Path("docs/results/build_speed.md"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure_one(options.data, options.one)))
        return
    rows = []
    for millions in MILLIONS:
        n = int(millions * 1_000_000)
        command = [sys.executable, __file__, "--data", str(options.data), "--one", str(n)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append(
            [
                f"{millions:g} M",
                f"{found['build']:.3f} s",
                f"{1e9 * found['build'] / n:.0f} ns",
                f"{found['alone']:.3f} s",
                f"{found['build'] / found['alone']:.2f}x",
                f"{found['bytes']:.0f}",
            ]
        )
    about = (
        f"`build_coreset` of Twitter-like points (n x 2), Gaussian sigma=50, k={K}, N={SIZE}, one core, best of "
        f"{REPEATS}. Evaluations alone are its {4 * K} kernel evaluations per point, measured in turns with it. Bytes "
        "per point are the peak of resident memory beyond the input."
    )
    header = ["points", "build", "per point", "evaluations alone", "build / evaluations", "bytes per point"]
    tables.write_results(options.out, "Speed and memory of build_coreset", [about, tables.table(header, rows)])


if __name__ == "__main__":
    main()
