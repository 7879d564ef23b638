"""Figure 1: the size of a coreset against its largest error over random center sets."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper import data
from benchmarks.paper.cells import Cell, Row, Table, run_cells
from benchmarks.paper.plan import Plan
from kernelcoreset.checks import Floats
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.error import center_set_costs, draw_center_sets, relative_errors
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.coresets.tree import CoresetTree, reduction_seed
from kernelcoreset.kernels.kernel import Kernel

K = 5
LEAVES = 32
KERNELS = ("Gaussian", "Exponential", "Polynomial")
METHODS = ("uniform", "iid", "ordered", "tree")
KEYS = ("data", "kernel", "method", "size", "runs", "center_sets", "n")
VALUES = ("mean", "sd", "least", "most")


def run(plan: Plan) -> Table:
    """Measure all cells of Figure 1, those through Spark last."""
    table = Table(plan.out / "error.csv", KEYS, VALUES)
    cells, through_spark = [], []
    for name in data.figure_sets(plan.data):
        n = len(_measured(plan.data, name, KERNELS[0], plan.most_rows, plan.check_rows, 1).points)
        for kernel in KERNELS:
            common = {"data": name, "kernel": kernel, "center_sets": plan.center_sets, "n": n}
            for size in plan.error_sizes:
                for method in METHODS:
                    runs = plan.tree_runs if method == "tree" else plan.runs
                    cells.append(Cell({**common, "method": method, "size": size, "runs": runs}, _effort(method, size)))
            through_spark.append(
                Cell({**common, "method": "spark", "size": plan.spark_size, "runs": plan.spark_runs}, 5.0)
            )
    cells.sort(key=lambda cell: cell.key["size"] > plan.spark_size)  # first what the claims need
    measure = functools.partial(measure_cell, plan.data, plan.most_rows, plan.check_rows)
    run_cells("Figure 1", table, cells, measure, processes=plan.processes, until=plan.until)
    if plan.with_spark and any(cell not in table for cell in through_spark):
        from benchmarks.paper.spark import local_session

        with local_session() as spark:
            run_cells(
                "Figure 1, through Spark",
                table,
                through_spark,
                functools.partial(measure, spark=spark),
                until=plan.until,
            )
    return table


def _effort(method: str, size: int) -> float:
    """Return rough seconds of a run, for the progress bar."""
    return {"uniform": 0.02, "iid": 0.06, "ordered": 0.1, "tree": 0.04}[method] * (1.0 + size / 500)


def measure_cell(folder: Path, most_rows: int, check_rows: bool, key: Mapping[str, Any], spark: Any = None) -> Row:
    """Return mean and spread of the largest error over several coresets of one kind."""
    measured = _measured(folder, key["data"], key["kernel"], most_rows, check_rows, key["center_sets"])
    if key["method"] == "spark":
        from benchmarks.paper.spark import spark_coresets

        seeds = range(key["runs"])
        coresets = spark_coresets(spark, measured.points, K, measured.kernel, key["size"], seeds, leaves=LEAVES)
        errors = [measured.error(coreset) for coreset in coresets]
    else:
        errors = [
            measured.error(build(key["method"], measured.points, measured.kernel, key["size"], seed))
            for seed in range(key["runs"])
        ]
    return {
        "mean": float(np.mean(errors)),
        "sd": float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0,
        "least": min(errors),
        "most": max(errors),
    }


def build(method: str, points: Floats, kernel: Kernel, size: int, seed: int, k: int = K, z: float = 2.0) -> Coreset:
    """Return a coreset drawn by one of the methods compared."""
    if method == "tree":
        return tree_coreset(points, k, kernel, size, seed)
    return build_coreset(points, k, kernel, size, seed=seed, draw=method, z=z)


def tree_coreset(points: Floats, k: int, kernel: Kernel, size: int, seed: int, leaves: int = LEAVES) -> Coreset:
    """Return, without Spark, the coreset that Spark builds of these points in `leaves` files."""
    parts = []
    for place, part in enumerate(np.array_split(points, leaves)):
        tree = CoresetTree(k, kernel, size, seed=reduction_seed(seed, 0, place))
        tree.add(part)
        parts.append(tree.result(tree.leaf_size, refine=False))
    return reduce_union(parts, Recipe(k, kernel, size, seed=reduction_seed(seed, 1, 0)))


class Measured:
    """A data set with a kernel: center sets and their costs on all points, computed once."""

    def __init__(self, points: Floats, kernel: Kernel, center_sets: int, *, k: int = K, z: float = 2.0) -> None:
        self.points, self.kernel, self.z = points, kernel, z
        # Not a seed of a coreset, so that sets and coresets are independent.
        self.sets = draw_center_sets(points, k, kernel, n_center_sets=center_sets, seed=1_000_003)
        self.truth = center_set_costs(points, self.sets, kernel, z=z)

    def error(self, coreset: Coreset) -> float:
        """Return the largest relative error of the coreset's cost over all center sets."""
        costs = center_set_costs(coreset.points, self.sets, self.kernel, z=self.z, weights=coreset.weights)
        return float(relative_errors(self.truth, costs).max())


@functools.lru_cache(maxsize=2)
def _measured(folder: Path, name: str, kernel: str, most_rows: int, check_rows: bool, center_sets: int) -> Measured:
    prepared = data.load(folder, name, most_rows=most_rows, check_rows=check_rows)
    return Measured(prepared.points, prepared.kernels[kernel], center_sets)
