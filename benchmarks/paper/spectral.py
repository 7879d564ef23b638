"""Figure 3: spectral clustering through a coreset compared with scikit-learn's, for a growing number of points."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper import data
from benchmarks.paper.cells import Cell, Row, Table, run_cells
from benchmarks.paper.kmeans import shuffled
from benchmarks.paper.plan import Plan
from kernelcoreset.checks import Floats
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.spectral.cut import normalized_cut
from kernelcoreset.spectral.model import fit_spectral

K = 5
KERNELS = ("Gaussian", "Polynomial")
OURS, THEIRS = "coreset", "scikit-learn"
KEYS = ("data", "kernel", "method", "n", "runs")
VALUES = ("seconds", "cut_least")
LARGEST = 40_000
"""The number of points of the paper's claim."""
_CUT_POINTS = 40_000  # for more, the exact cut takes minutes


def run(plan: Plan) -> Table:
    """Measure all cells of Figure 3, one at a time."""
    table = Table(plan.out / "spectral.csv", KEYS, VALUES)
    prepared = data.load(plan.data, "twitter", most_rows=plan.most_rows, check_rows=plan.check_rows)
    points = shuffled(prepared.points)
    cells = []
    for kernel in KERNELS:
        common = {"data": "twitter", "kernel": kernel}
        for n in [*(n for n, _ in plan.spectral_theirs), *plan.spectral_ours]:
            cells.append(Cell({**common, "method": OURS, "n": n, "runs": plan.spectral_runs}, 2.0))
        for n, runs in plan.spectral_theirs:
            cells.append(Cell({**common, "method": THEIRS, "n": n, "runs": runs}, runs * (n / 1_000) ** 2))
    cells = [cell for cell in cells if cell.key["n"] <= len(points)]

    def measure(key: Mapping[str, Any]) -> Row:
        own, kernel = points[: key["n"]], prepared.kernels[key["kernel"]]
        fit = _ours(own, kernel, plan.spectral_size) if key["method"] == OURS else _theirs(own, kernel)
        return measure_fits(fit, own, kernel, key["runs"])

    if any(cell not in table for cell in cells):
        for name in KERNELS:  # machine code loaded before anything is timed
            _ours(points[:4_000], prepared.kernels[name], plan.spectral_size)(0)
    run_cells("Figure 3", table, cells, measure, until=plan.until)
    return table


def _ours(points: Floats, kernel: Kernel, size: int) -> Callable[[int], NDArray[Any]]:
    return lambda seed: fit_spectral(points, K, kernel, size, seed=seed).predict(points)


def _theirs(points: Floats, kernel: Kernel) -> Callable[[int], NDArray[Any]]:
    from sklearn.cluster import SpectralClustering

    similarities = kernel.block(points, points)  # its input, not part of the time

    def fit(seed: int) -> NDArray[Any]:
        with warnings.catch_warnings():
            # It warns if the graph is numerically disconnected, which a kernel of rank 5 can cause.
            warnings.simplefilter("ignore")
            model = SpectralClustering(K, affinity="precomputed", random_state=seed)
            return np.asarray(model.fit(similarities).labels_)

    return fit


def measure_fits(fit: Callable[[int], NDArray[Any]], points: Floats, kernel: Kernel, runs: int) -> Row:
    """Return the mean seconds of a run, and the least exact normalized cut found."""
    seconds, labels = [], []
    for seed in range(runs):
        begin = time.perf_counter()
        labels.append(fit(seed))
        seconds.append(time.perf_counter() - begin)
    cuts = []
    if len(points) <= _CUT_POINTS:
        different = {own.tobytes(): own for own in labels}
        cuts = [normalized_cut(own, points, kernel=kernel, sample=None).value for own in different.values()]
    return {"seconds": float(np.mean(seconds)), "cut_least": min(cuts, default=float("nan"))}


def expected_seconds(rows: list[Row], n: int) -> tuple[float, float]:
    """Return seconds at n and exponent of a power of n through the three largest measured times."""
    last = sorted(rows, key=lambda row: float(row["n"]))[-3:]
    exponent, constant = np.polyfit(np.log([row["n"] for row in last]), np.log([row["seconds"] for row in last]), 1)
    return float(np.exp(constant + exponent * np.log(n))), float(exponent)
