"""Labels through certified compression, against direct evaluation of every point with the same compiled loop.

Run from the project's root: python benchmarks/labelling.py --data DIR
Both take turns on slices of the points, and processor time is compared, so that other work on the machine affects both.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import datasets, tables
from kernelcoreset import Gaussian, Kernel, Polynomial, build_coreset
from kernelcoreset.clustering.solve import solve
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.monomials import ByMonomials

K, SIZE = 5, 1000
SLICE = 100_000
HEADER = (
    "data", "d", "points", "kernel", "s", "landmarks", "certified", "labels different", "direct, ns per point",
    "label: times faster", "required", "largest error of d2 (bound)", "predict: landmarks", "predict: times faster",
)  # fmt: skip


def timed(function, *arguments, **options):
    begin = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - begin, result


def fresh_centers(points: np.ndarray, kernel: Kernel) -> Centers:
    coreset = build_coreset(points, k=K, kernel=kernel, size=SIZE, seed=0)
    return Centers(coreset.points, solve(coreset, K, kernel, seed=0).coefficients, kernel)


def rungs(centers: Centers, accuracy: float) -> str:
    """Return how labels of many rows are found: a grid, numbers of landmarks, monomials, products of a precision."""
    ladder = centers.ladder(accuracy)
    found = ["grid"] if centers.grid is not None else []
    found += [str(len(level.points)) for level in ladder.levels]
    for level in ladder.method.levels:
        found.append("written out" if isinstance(level, ByMonomials) else f"{level.frame.dtype} products")
    return " + ".join(found) or "none"


def measure(name: str, points: np.ndarray, kernel: Kernel, required: str) -> list[object]:
    """Return one row of the table. Choosing the landmarks is part of what is timed; compiling is not."""
    warm = fresh_centers(points, kernel)
    for exact in (False, True):
        warm.label(points[:2000], exact_distances=exact)
    warm.label_rows(points[:2000], many=True)
    warm.predict(points[:2000])
    # The same centers with nothing prepared.
    centers = Centers(warm.points, warm.coefficients, kernel)
    seconds = np.zeros(3)
    different, certified, bound, worst = 0, 0.0, 0.0, 0.0
    for low in range(0, len(points), SLICE):
        part = points[low : low + SLICE]
        direct_time, direct = timed(centers.label, part, exact_distances=True)
        label_time, found = timed(centers.label, part)
        predict_time, predicted = timed(centers.predict, part)
        seconds += direct_time, label_time, predict_time
        different += int((found.labels != direct.labels).sum() + (predicted != direct.labels).sum())
        certified += found.certified * len(part)
        squared = direct.distances**2 + centers.typical
        worst = max(worst, float((np.abs(found.distances**2 - direct.distances**2) / squared).max()))
        bound = max(bound, found.distance_error)
    n = len(points)
    faster = seconds[0] / seconds
    landmarks = [rungs(centers, accuracy) for accuracy in (ACCURACY, LABELS_ONLY)]
    print(name, kernel, f"{faster[1]:.1f}x", f"{faster[2]:.1f}x", different, flush=True)
    return [
        name, points.shape[1], f"{n:,}", f"`{kernel!r}`", len(centers.points), landmarks[0], f"{certified / n:.4%}",
        different, f"{seconds[0] / n * 1e9:,.0f}", f"{faster[1]:.1f}", required, f"{worst:.1e} ({bound:.1e})",
        landmarks[1], f"{faster[2]:.1f}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets as Parquet")
    parser.add_argument("--points", type=int, default=2_000_000, help="points of Twitter-like data")
    parser.add_argument("--out", type=Path, default=Path("docs/results/labelling.md"))
    arguments = parser.parse_args()
    twitter = datasets.twitter_like(arguments.data, arguments.points)
    bank, census = (datasets.load(arguments.data, name) for name in ("bank", "census"))
    median = Gaussian(sigma=round(datasets.median_distance(census), 2))
    rows = [
        measure("Twitter-like", twitter, Gaussian(sigma=50.0), ">= 10"),
        measure("Twitter-like", twitter, Polynomial(degree=4), ">= 30"),
        measure("Twitter-like", twitter, Gaussian(sigma=1.0), ">= 0.91"),
        measure("Bank", bank, Gaussian(sigma=500.0), ""),
        measure("Bank", bank, Polynomial(degree=4), ""),
        measure("Census, standardised", census, median, ""),
        measure("Census, standardised", census, Polynomial(degree=4), ""),
    ]
    words = (
        f"k = {K}, coreset of {SIZE} draws, centers from `solve`, one thread. `label` gives labels and distances (each "
        f"squared distance d2 proved within {ACCURACY:g} of itself plus the median d2 of the coreset), `predict` gives "
        "labels alone. Direct is `label(exact_distances=True)`: the same loop over all coreset points. Both take turns "
        f"on slices of {SLICE:,} points; processor time, choosing landmarks included, compiling not. Labels different "
        "counts both `label` and `predict` against direct. The largest error of d2 is the one seen, relative to d2 "
        "plus that median; in brackets the largest bound, absolute."
    )
    tables.write_results(arguments.out, "Labelling every point", [words, tables.table(HEADER, rows)])


if __name__ == "__main__":
    main()
