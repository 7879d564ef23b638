"""Spectral clustering of points compared with scikit-learn's: time, normalized cut, growth with n, and shapes.

Run from the project's root: python benchmarks/spectral.py --data DIR
On one core: set OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and NUMBA_NUM_THREADS to 1. Takes about five minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import cluster
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

sys.path.insert(0, str(Path(__file__).parent.parent))
import matplotlib as mpl

from benchmarks import datasets, tables
from benchmarks.nonlinear_shapes import spiral
from kernelcoreset import Gaussian, Kernel, Polynomial, SpectralClustering, normalized_cut

mpl.use("Agg")
from matplotlib import pyplot as plt

KERNELS: dict[str, Kernel] = {
    "Gaussian, sigma = 50": Gaussian(sigma=50.0),
    "polynomial, degree 4": Polynomial(degree=4),
}
K, SIZE, RUNS = 5, 2_000, 5
# Runs of scikit-learn by n, as many as time allows, and no run of a kernel above its limit, where one takes minutes.
THEIR_RUNS = {500: 20, 1_000: 20, 2_000: 10, 4_000: 2, 8_000: 1, 16_000: 1}
THEIR_MOST = {"Gaussian, sigma = 50": 16_000, "polynomial, degree 4": 8_000}
LARGEST = 40_000
GROWTH = (100_000, 1_000_000, 10_000_000)
OWN_COLOUR, THEIR_COLOUR = "#0072B2", "#D55E00"  # told apart by every kind of eye


def runs_of(model: Any, data: np.ndarray, seeds: range) -> tuple[float, list[np.ndarray]]:
    """Return the mean seconds of a fit, and the labels of each."""
    labels, seconds = [], []
    for seed in seeds:
        model.set_params(random_state=seed)
        begin = time.perf_counter()
        labels.append(model.fit(data).labels_)
        seconds.append(time.perf_counter() - begin)
    return float(np.mean(seconds)), labels


def least_cut(labels: list[np.ndarray], points: np.ndarray, kernel: Kernel) -> float:
    """Return the smallest exact normalized cut of several labellings."""
    different = {own.tobytes(): own for own in labels}
    return min(normalized_cut(own, points, kernel=kernel, sample=None).value for own in different.values())


def compare(everything: np.ndarray, sizes: list[int], scratch: Path | None) -> list[dict[str, Any]]:
    """Both on the same points, n by n; beyond what scikit-learn can do, ours alone."""
    return [kept(scratch, f"{name} {n}", partial(compare_one, name, everything[:n])) for name in KERNELS for n in sizes]


def compare_one(name: str, points: np.ndarray) -> dict[str, Any]:
    """Seconds and least cut of both on some points, with one kernel."""
    n, kernel = len(points), KERNELS[name]
    theirs = THEIR_RUNS.get(n, 0) if n <= THEIR_MOST[name] else 0
    own = SpectralClustering(n_clusters=K, kernel=kernel, coreset_size=SIZE)
    seconds, labels = runs_of(own, points, range(max(RUNS, theirs)))
    row = {"kernel": name, "n": n, "own seconds": seconds, "own cut": least_cut(labels, points, kernel)}
    if theirs:
        similarities = kernel.block(points, points)
        model = cluster.SpectralClustering(K, affinity="precomputed")
        row["seconds"], labels = runs_of(model, similarities, range(theirs))
        row |= {"cut": least_cut(labels, points, kernel), "runs": theirs}
    return row


def kept(scratch: Path | None, name: str, measure: Callable[[], Any]) -> Any:
    """Return what was measured under this name before, if a folder keeps it, else measure."""
    path = None if scratch is None else scratch / f"{name}.json"
    if path is not None and path.exists():
        return json.loads(path.read_text())
    found = measure()
    print(found, file=sys.stderr, flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return found


def grow(folder: Path, n: int) -> float:
    """Seconds of one fit, labels of all points included."""
    points = datasets.twitter_like(folder, n)
    own = SpectralClustering(n_clusters=K, kernel=KERNELS["Gaussian, sigma = 50"], coreset_size=SIZE, random_state=0)
    begin = time.perf_counter()
    own.fit(points)
    return time.perf_counter() - begin


def shapes() -> list[list[str]]:
    """Adjusted Rand index against the truth, worst and best of three seeds."""
    n = 10_000
    cases = [
        ("two moons", make_moons(n, noise=0.05, random_state=0), 0.1),
        ("rings, radii 0.3 and 1", make_circles(n, factor=0.3, noise=0.05, random_state=0), 0.1),
        ("rings, radii 0.5 and 1", make_circles(n, factor=0.5, noise=0.05, random_state=0), 0.1),
        ("spirals, two arms", spiral(n), 0.05),
    ]
    rows = []
    for name, (points, truth), sigma in cases:
        own = SpectralClustering(n_clusters=2, kernel=Gaussian(sigma=sigma), coreset_size=SIZE)
        seconds, labels = runs_of(own, points, range(3))
        scores = [adjusted_rand_score(truth, found) for found in labels]
        rows.append([name, f"{sigma}", f"{min(scores):.3f}", f"{max(scores):.3f}", f"{seconds:.1f} s"])
    return rows


def fitted(rows: list[dict[str, Any]], n: int) -> tuple[float, float]:
    """Return exponent and seconds at n of a power of n through scikit-learn's three largest times."""
    last = [row for row in rows if "seconds" in row][-3:]
    exponent, constant = np.polyfit(np.log([row["n"] for row in last]), np.log([row["seconds"] for row in last]), 1)
    return float(exponent), float(np.exp(constant + exponent * np.log(n)))


def plot(found: list[dict[str, Any]], grown: list[tuple[int, float]], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axis, name in zip(axes, KERNELS, strict=True):
        rows = [row for row in found if row["kernel"] == name]
        own = [(row["n"], row["own seconds"]) for row in rows]
        own += grown if "Gaussian" in name else []
        theirs = [(row["n"], row["seconds"]) for row in rows if "seconds" in row]
        axis.loglog(*zip(*own, strict=True), "o-", color=OWN_COLOUR, label="kernelcoreset")
        axis.loglog(*zip(*theirs, strict=True), "s-", color=THEIR_COLOUR, label="scikit-learn")
        ahead = [theirs[-1], (LARGEST, fitted(rows, LARGEST)[1])]
        axis.loglog(*zip(*ahead, strict=True), ":", color=THEIR_COLOUR, label="fitted growth")
        axis.set(title=name, xlabel="points")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    axes[0].legend(frameon=False)
    for kind in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{kind}"), dpi=140)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--sizes", type=int, nargs="+", default=[*THEIR_RUNS, LARGEST], help="numbers of points")
    parser.add_argument("--scratch", type=Path, help="folder that keeps what was measured, for a run that goes on")
    parser.add_argument("--out", type=Path, default=Path("docs/results/spectral.md"))
    options = parser.parse_args()
    # A kernel of rank 5 leaves scikit-learn's graph numerically disconnected now and then, of which it warns.
    warnings.simplefilter("ignore")
    everything = datasets.load(options.data, "twitter")
    everything = everything[np.random.default_rng(0).permutation(len(everything))]
    for kernel in KERNELS.values():  # machine code loaded, and every path gone once
        for n in (500, 4_000):
            SpectralClustering(n_clusters=K, kernel=kernel, coreset_size=SIZE, random_state=0).fit(everything[:n])
        similarities = kernel.block(everything[:500], everything[:500])
        cluster.SpectralClustering(K, affinity="precomputed", random_state=0).fit(similarities)
    found = compare(everything, options.sizes, options.scratch)
    grown = [(n, kept(options.scratch, f"growth {n}", partial(grow, options.data, n))) for n in GROWTH]
    rows = []
    for row in found:
        has = "seconds" in row
        exponent, ahead = fitted([other for other in found if other["kernel"] == row["kernel"]], row["n"])
        theirs = f"{row['seconds']:.3f} s" if has else f"{ahead:,.0f} s fitted (n^{exponent:.2f})"
        rows.append(
            [
                row["kernel"],
                f"{row['n']:,}",
                f"{row['own seconds']:.3f} s",
                theirs,
                f"{(row['seconds'] if has else ahead) / row['own seconds']:,.1f}x",
                f"{row['own cut']:.5f}",
                f"{row['cut']:.5f}" if has else "",
                row.get("runs", ""),
            ]
        )
    header = ["kernel", "n", "kernelcoreset", "scikit-learn", "faster", "least cut", "scikit-learn's", "its runs"]
    about = (
        f"Points of the Twitter data, k = {K}, a coreset of {SIZE:,} points, degrees from a sample of 1,000; on one "
        "core. Mean seconds and least exact normalized cut, of as many runs of scikit-learn's SpectralClustering "
        f"(precomputed affinity, its time not counted) as the last column says, and of as many of ours, at least "
        f"{RUNS}. Ours include everything from the points to the labels. scikit-learn's memory grows as n^2 (12 GB at "
        "20,000), so "
        f"{LARGEST:,}, and what would take minutes, is the growth fitted to its three largest times. Required: no "
        f"slower from 500 points on, 1,000 times faster at {LARGEST:,}, and a cut no larger at every n."
    )
    linear = (
        "Required: time linear in n. Gaussian kernel, one fit, labels of all points included; solving on the coreset "
        "is a fixed part."
    )
    growth_table = tables.table(
        ["n", "seconds", "a million points"], [[f"{n:,}", f"{s:.2f}", f"{1e6 * s / n:.2f} s"] for n, s in grown]
    )
    shapes_about = "Gaussian kernel, 10,000 points, three seeds; adjusted Rand index, required at least 0.99."
    shape_table = tables.table(["shape", "sigma", "worst", "best", "seconds"], kept(options.scratch, "shapes", shapes))
    picture = f"![Seconds by number of points]({options.out.with_suffix('.png').name})"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    plot(found, grown, options.out)
    sections = [about, tables.table(header, rows), picture, "## Growth", linear, growth_table, "## Shapes"]
    tables.write_results(options.out, "Spectral clustering of points", [*sections, shapes_about, shape_table])


if __name__ == "__main__":
    main()
