"""Errors on real data of 16 to 36 columns, beside what the best weights for the same points would reach.

Run from the project's root: python benchmarks/many_columns.py --data DIR --scratch DIR
The folder has the files of three data sets (docs/data.md). What was measured is kept in the scratch folder: after
--minutes the command ends, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import datasets, tables
from benchmarks.guarantee import DRAWS, FITTED, KINDS, K, Kept, Measured, geometric_mean, percent
from kernelcoreset import Coreset, Gaussian, Kernel, build_coreset, draw_center_sets
from kernelcoreset.coresets.points import distances_between

SIZES = (100, 1000)
RANDOM = ("uniform", "spread", "crowded")
SETS = 1_000  # of each random kind, to fit the best weights on
PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
BEST_OF = 3  # coresets whose weights are replaced by the best ones


def shares_of_cost(points: np.ndarray, kernel: Kernel) -> np.ndarray:
    """The share of each point in the cost of many random center sets: shape (sets, points)."""
    drawn = [draw_center_sets(points, K, kernel, kind=kind, n_center_sets=SETS, seed=2) for kind in RANDOM]
    sets = np.concatenate(drawn)
    costs = np.empty((len(sets), len(points)), dtype=np.float32)
    for row, centers in zip(costs, sets, strict=True):
        row[:] = distances_between(kernel, centers, points).min(axis=0)
    return costs / costs.sum(axis=1, keepdims=True)


def best_weights(shares: np.ndarray, coreset: Coreset, penalty: float) -> Coreset:
    """The coreset with the weights that fit the costs of all rows best, by least squares with a penalty on changes."""
    own = shares[:, coreset.ids].astype(np.float64) * coreset.weights
    gram = own.T @ own
    missing = own.T @ (1.0 - own.sum(axis=1))
    change = np.linalg.solve(gram + penalty * np.trace(gram) / len(gram) * np.eye(len(gram)), missing)
    weights = coreset.weights * (1.0 + change)
    return Coreset(coreset.points[weights > 0.0], weights[weights > 0.0])


def random_error(measured: Measured, coreset: Coreset) -> list[float]:
    """The largest error over the center sets of each random kind."""
    found = measured.random_errors(coreset)
    return [found[kind] for kind in RANDOM]


def measure(points: np.ndarray, kernel: Kernel, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Mean errors by draw and kind of center sets, and those of the best weights over random kinds."""
    measured = Measured(points, kernel, options.center_sets)
    found: dict[str, Any] = {}
    for draw in DRAWS:
        coresets = [build_coreset(points, K, kernel, size, seed=seed, draw=draw) for seed in range(options.draws)]
        errors = [measured.errors(coreset, seed) for seed, coreset in enumerate(coresets)]
        found[draw] = {kind: float(np.mean([own[kind] for own in errors])) for kind in KINDS}
    shares = shares_of_cost(points, kernel)
    rows = np.arange(len(points))
    coresets = [build_coreset(points, K, kernel, size, seed=seed, ids=rows) for seed in range(BEST_OF)]
    by_penalty = [
        np.mean([random_error(measured, best_weights(shares, own, penalty)) for own in coresets], axis=0)
        for penalty in PENALTIES
    ]
    iid = [found["iid"][kind] for kind in RANDOM]
    best = min(by_penalty, key=lambda own: -geometric_mean([a / b for a, b in zip(iid, own, strict=True)]))
    found["best weights"] = dict(zip(RANDOM, map(float, best), strict=True))
    return found


def error_tables(kept: Kept, options: argparse.Namespace) -> list[str]:
    """How many times less error than independent draws, by data set, size and kind of center sets."""
    rows: list[list[object]] = []
    ratios: dict[tuple[int, str], list[float]] = {}
    for name, points in datasets.many_columns(options.data).items():
        kernel = Gaussian(sigma=datasets.median_distance(points))
        for size in options.sizes:
            found = kept.get(f"{name}, N = {size}", lambda p=points, g=kernel, s=size: measure(p, g, s, options))
            iid, ordered, best = found["iid"], found["ordered"], found["best weights"]
            times = [iid[kind] / ordered[kind] for kind in KINDS]
            random = geometric_mean(times[: len(RANDOM)])
            reached = geometric_mean([iid[kind] / best[kind] for kind in RANDOM])
            ratios.setdefault((size, "ordered"), []).append(random)
            ratios.setdefault((size, "best weights"), []).append(reached)
            errors = [percent(iid["uniform"]), percent(ordered["uniform"])]
            shape = f"{len(points):,} x {points.shape[1]}"
            rows.append([name, shape, size, *errors, *(f"{own:.1f}x" for own in (*times, random, reached))])
    header = ["data", "rows x columns", "N", "iid, uniform", "ordered, uniform", *KINDS, "random kinds", "best weights"]
    means = ", ".join(f"N = {size}, {what}: {geometric_mean(own):.1f}x" for (size, what), own in ratios.items())
    about = (
        f"How many times less the largest relative error over center sets of k={K} is than with independent draws, "
        f"mean of {options.draws} coresets, Gaussian at the median distance. The kinds of center sets are those of "
        f"[another table](guarantee.md) ({FITTED} fitted ones); random kinds are uniform, spread and crowded ones "
        f'together. "Best weights": the points of {BEST_OF} ordered coresets with the weights that fit the costs of '
        f"{3 * SETS:,} other center sets on all rows best, by the penalty with the least error in this very table: "
        "about what these points allow for. The draws, sets and groups of a build were chosen on these three data sets."
    )
    return [about, tables.table(header, rows), f"Geometric means over the data sets, random kinds: {means}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of the data sets")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for what is kept between runs")
    parser.add_argument("--minutes", type=float, default=8.0, help="start nothing new after this time (8)")
    parser.add_argument("--draws", type=int, default=8, help="coresets per cell (8)")
    parser.add_argument("--center-sets", type=int, default=60, help="center sets of each random kind (60)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="of the coresets (100 1000)")
    parser.add_argument("--out", type=Path, default=Path("docs/results/many_columns.md"), help="the page")
    options = parser.parse_args()
    kept = Kept(options.scratch / f"many-columns-{options.draws}-{options.center_sets}.json", options.minutes)
    tables.write_results(options.out, "Errors on 16 to 36 columns", error_tables(kept, options))


if __name__ == "__main__":
    main()
