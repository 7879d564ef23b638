"""What the error depends on: k, z, the dimension, the number of points, and clusters of very different size."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper import data
from benchmarks.paper.cells import Cell, Row, Table, run_cells
from benchmarks.paper.error import Measured, build
from benchmarks.paper.plan import Plan
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.solve import solve
from kernelcoreset.kernels.families import Gaussian

METHODS = ("uniform", "iid", "ordered")
K_VALUES = (2, 5, 10, 20, 50)
Z_VALUES = (1, 2, 3)
DIMENSIONS = (2, 5, 10, 20, 50, 100)
SKEW_SIZES = (50, 100, 200, 500, 1000)
RARE = 0.001
"""Share of the points in the one small cluster."""
KEYS = ("what", "value", "method", "size", "runs", "n")
VALUES = ("mean", "sd", "found")


def run(plan: Plan) -> Table:
    """Measure all cells, several at a time."""
    table = Table(plan.out / "variations.csv", KEYS, VALUES)
    rows = [n for n in (1_000, 10_000, 100_000, 1_000_000) if n <= plan.largest_rows]
    asked = [
        *(("k", value, plan.variation_size, plan.variation_rows) for value in K_VALUES),
        *(("z", value, plan.variation_size, plan.variation_rows) for value in Z_VALUES),
        *(("dimension", value, plan.variation_size, plan.variation_rows) for value in DIMENSIONS),
        *(("points", n, plan.variation_size, n) for n in rows if n > plan.variation_size),
        *(("skew", RARE, size, plan.variation_rows) for size in SKEW_SIZES),
    ]
    cells = [
        Cell(
            {"what": what, "value": value, "method": method, "size": size, "runs": plan.variation_runs, "n": n},
            1.0 + n / 50_000 + (value / 10 if what == "dimension" else 0.0),
        )
        for what, value, size, n in asked
        for method in METHODS
    ]
    measure = functools.partial(measure_cell, plan.data, plan.check_rows, plan.variation_sets)
    run_cells("Variations", table, cells, measure, processes=plan.processes, until=plan.until)
    return table


def measure_cell(folder: Path, check_rows: bool, center_sets: int, key: Mapping[str, Any]) -> Row:
    """Return mean and standard deviation of the largest error; for skew also how often the small cluster is found."""
    what, value, n = key["what"], key["value"], key["n"]
    k = value if what == "k" else 5
    measured = _measured(folder, check_rows, what, value, n, center_sets)
    coresets = [
        build(key["method"], measured.points, measured.kernel, key["size"], seed, k=k, z=measured.z)
        for seed in range(key["runs"])
    ]
    errors = [measured.error(coreset) for coreset in coresets]
    found = float("nan")
    if what == "skew":
        hits = []
        for seed, coreset in enumerate(coresets):
            labels = solve(coreset, k, measured.kernel, seed=seed).labels
            rare = coreset.points[:, 0] > _FAR / 2
            hits.append(bool(rare.any()) and not np.isin(labels[~rare], labels[rare]).any())
        found = float(np.mean(hits))
    return {"mean": float(np.mean(errors)), "sd": float(np.std(errors, ddof=1)), "found": found}


_FAR = 60.0


def skewed(n: int, seed: int = 0) -> Floats:
    """Return four broad clusters side by side, and one far away with 0.1 % of the points."""
    generator = np.random.default_rng(seed)
    rare = max(2, round(RARE * n))
    places = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]])
    points = places[np.arange(n) % 4] + generator.normal(scale=0.5, size=(n, 2))
    points[:rare] = np.array([_FAR, 0.0]) + generator.normal(scale=0.5, size=(rare, 2))
    return points[generator.permutation(n)]


def mixture(n: int, d: int, seed: int = 0) -> Floats:
    """Return 20 Gaussian clusters of different size in d dimensions."""
    generator = np.random.default_rng(seed)
    shares = generator.pareto(1.2, size=20) + 0.05
    centers = 3.0 * generator.normal(size=(20, d))
    return centers[generator.choice(20, size=n, p=shares / shares.sum())] + generator.normal(size=(n, d))


@functools.lru_cache(maxsize=2)
def _measured(folder: Path, check_rows: bool, what: str, value: float, n: int, center_sets: int) -> Measured:
    if what == "skew":
        return Measured(skewed(n), Gaussian(sigma=10.0), center_sets)
    if what == "dimension":
        # The width grows with the distances, so that only the dimension differs.
        return Measured(mixture(n, int(value)), Gaussian(sigma=3.0 * np.sqrt(value)), center_sets)
    tweets = data.load(folder, "twitter", check_rows=check_rows)
    points = data.twitter_like(tweets.points, n)
    if what == "k":
        return Measured(points, tweets.kernels["Gaussian"], center_sets, k=int(value))
    return Measured(points, tweets.kernels["Gaussian"], center_sets, z=float(value) if what == "z" else 2.0)
