"""Figure 2: kernel k-means++ with and without a coreset, time and cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.paper import data
from benchmarks.paper.cells import Cell, Row, Table, run_cells
from benchmarks.paper.plan import Plan
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.problem import Solution, prepare
from kernelcoreset.clustering.solve import solve
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.seeding import seed_pivots
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.labelling.centers import Centers

K = 5
KERNELS = ("Gaussian", "Polynomial")
PLAIN, CORESET, SOLVED = "all points", "coreset", "coreset, solve"
KEYS = ("data", "kernel", "method", "size", "runs", "n")
VALUES = ("seconds", "cost_least", "cost_mean", "cost_most")


def run(plan: Plan) -> Table:
    """Measure all cells of Figure 2: the paper's data set, both kernels, one cell at a time."""
    table = Table(plan.out / "kmeans.csv", KEYS, VALUES)
    prepared = data.load(plan.data, "twitter", most_rows=plan.most_rows, check_rows=plan.check_rows)
    points = shuffled(prepared.points)[: plan.kmeans_rows]
    cells = []
    for kernel in KERNELS:
        common = {"data": "twitter", "kernel": kernel, "runs": plan.kmeans_runs, "n": len(points)}
        cells.append(Cell({**common, "method": PLAIN, "size": len(points)}, 60.0))
        for size in plan.kmeans_sizes:
            cells += [Cell({**common, "method": method, "size": size}, 1.0) for method in (CORESET, SOLVED)]

    def measure(key: Mapping[str, Any]) -> Row:
        return measure_method(key["method"], points, prepared.kernels[key["kernel"]], key["size"], key["runs"])

    if any(cell not in table for cell in cells):
        for kernel in KERNELS:  # machine code loaded before anything is timed
            for method in (PLAIN, CORESET, SOLVED):
                measure_method(method, points[:500], prepared.kernels[kernel], 50, 1)
    run_cells("Figure 2", table, cells, measure, until=plan.until)
    return table


def shuffled(points: Floats) -> Floats:
    """Return the points in random order: any prefix is a uniform sample."""
    return points[np.random.default_rng(0).permutation(len(points))]


def measure_method(method: str, points: Floats, kernel: Kernel, size: int, runs: int) -> Row:
    """Return the mean seconds of a run, and the costs on all points of the clusters found.

    Seconds are processor time of all threads: other work on the machine does not count.
    """
    seconds, costs = [], []
    for seed in range(runs):
        begin = time.process_time()
        if method == PLAIN:
            chosen = Coreset(points, np.ones(len(points)))
        else:
            chosen = build_coreset(points, K, kernel, size, seed=seed)
        found = solve(chosen, K, kernel, seed=seed) if method == SOLVED else kernel_k_means(chosen, K, kernel, seed)
        seconds.append(time.process_time() - begin)
        costs.append(found.cost if method == PLAIN else cost_on_all(points, chosen, found, kernel))
    return {
        "seconds": float(np.mean(seconds)),
        "cost_least": min(costs),
        "cost_mean": float(np.mean(costs)),
        "cost_most": max(costs),
    }


def kernel_k_means(coreset: Coreset, k: int, kernel: Kernel, seed: int) -> Solution:
    """Return one run of kernel k-means++ seeding and Lloyd iterations, the same with and without a coreset."""
    problem = prepare(coreset, kernel)
    generator = np.random.default_rng(seed)
    labels = seed_pivots(kernel, problem.cloud, problem.weights, k, 2.0, generator).nearest
    return descend(problem, labels, np.zeros((k, len(coreset))), 2.0, 300)


def cost_on_all(points: Floats, coreset: Coreset, solution: Solution, kernel: Kernel) -> float:
    """Return the sum of squared distances of all points to their nearest center, each evaluated directly."""
    centers = Centers(coreset.points, solution.coefficients, kernel)
    return float((centers.label(points, exact_distances=True).distances ** 2).sum())
