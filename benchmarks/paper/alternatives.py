"""Beyond the paper: other ways to cluster many points with a kernel, compared by time and cost on all points."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.paper import data, rivals
from benchmarks.paper.cells import Cell, Row, Table, run_cells
from benchmarks.paper.kmeans import shuffled
from benchmarks.paper.plan import Plan
from kernelcoreset.checks import Floats
from kernelcoreset.kernels.families import Gaussian
from kernelcoreset.kernels.kernel import Kernel

K = 5
SETS = ("adult", "bank", "twitter")
LARGE = "twitter-like"
"""Too many rows for the matrix of all distances: tweets drawn again, with a little noise."""
SCALE = "twitter-like, Spark"
FULL = "kernel k-means, all points"
SAMPLES = ("coreset", "uniform sample")
"""A point of these costs less than a feature or landmark, so more of them are tried."""
METHODS: dict[str, rivals.Method] = {
    "coreset": rivals.by_coreset,
    "uniform sample": rivals.by_uniform_sample,
    "random Fourier features": rivals.by_random_features,
    "Nystroem, uniform": rivals.by_nystroem,
    "Nystroem, leverage": rivals.by_leverage_nystroem,
    "sampled centers (Chitta)": rivals.by_sampled_centers,
    "mini-batch": rivals.by_mini_batches,
    FULL: rivals.on_all_points,
}
KEYS = ("data", "kernel", "method", "size", "runs", "n")
VALUES = ("seconds", "cost_mean", "cost_least", "cost_most")
_MEASURED = 20_000  # rows for the exact cost of labels, which takes time quadratic in their number


def run(plan: Plan) -> Table:
    """Measure all cells, one at a time; at Spark's scale last."""
    table = Table(plan.out / "alternatives.csv", KEYS, VALUES)
    prepared = {name: data.load(plan.data, name, most_rows=plan.most_rows, check_rows=plan.check_rows) for name in SETS}
    points = {name: shuffled(own.points)[: plan.alternative_rows] for name, own in prepared.items()}
    points[LARGE] = data.twitter_like(prepared["twitter"].points, plan.large_rows)
    kernels = {name: own.kernels["Gaussian"] for name, own in prepared.items()}
    kernels[LARGE] = kernels["twitter"]
    cells = []
    for name in SETS:
        common = {"data": name, "kernel": "Gaussian", "n": len(points[name])}
        for method in METHODS:
            if method != FULL:
                common["runs"] = plan.alternative_runs
                sizes = plan.alternative_sizes if method in SAMPLES else plan.feature_sizes
                cells += [Cell({**common, "method": method, "size": s}, s / 100) for s in sizes]
        cells.append(Cell({**common, "runs": 1, "method": FULL, "size": len(points[name])}, 60.0))
    common = {"data": LARGE, "kernel": "Gaussian", "n": plan.large_rows, "runs": 1}
    for method in METHODS:
        if method != FULL:
            cells += [Cell({**common, "method": method, "size": s}, s / 20) for s in plan.large_sizes]

    def measure(key: Mapping[str, Any]) -> Row:
        return measure_method(METHODS[key["method"]], points[key["data"]], kernels[key["data"]], key)

    if any(cell not in table for cell in cells):
        for warm in METHODS.values():  # everything compiled and loaded before it is timed
            warm(points["twitter"][:500], K, prepared["twitter"].kernels["Gaussian"], 50, 0)
    run_cells("Alternatives", table, cells, measure, until=plan.until)
    if plan.with_spark:
        _at_scale(plan, table, prepared["twitter"])
    return table


def measure_method(method: rivals.Method, points: Floats, kernel: Kernel, key: Mapping[str, Any]) -> Row:
    """Return the mean processor seconds from points to labels, and the exact costs of the partitions."""
    seconds, costs = [], []
    for seed in range(key["runs"]):
        begin = time.process_time()
        labels = method(points, K, kernel, key["size"], seed)
        seconds.append(time.process_time() - begin)
        # The first rows are a random sample, and the same for every method.
        costs.append(rivals.partition_cost(points[:_MEASURED], labels[:_MEASURED], kernel))
    return _row(seconds, costs)


def _row(seconds: list[float], costs: list[float]) -> Row:
    return {
        "seconds": float(np.mean(seconds)),
        "cost_mean": float(np.mean(costs)),
        "cost_least": min(costs),
        "cost_most": max(costs),
    }


def _at_scale(plan: Plan, table: Table, tweets: data.Prepared) -> None:
    """Compare MLlib's k-means on random features with the coreset, both on Spark."""
    sizes = {"ours, Spark": 1000, "MLlib on random features": plan.mllib_features}
    cells = {
        method: Cell(
            {"data": SCALE, "kernel": "Gaussian", "method": method, "size": s, "runs": 1, "n": plan.mllib_rows}
        )
        for method, s in sizes.items()
    }
    if all(cell in table for cell in cells.values()):
        return
    from benchmarks.paper.spark import fit_and_label, local_session

    kernel = tweets.kernels["Gaussian"]
    if not isinstance(kernel, Gaussian):
        raise TypeError("Random Fourier features are for the Gaussian kernel.")
    with local_session() as spark:
        warm = data.twitter_like(tweets.points, 2_000)
        fit_and_label(spark, warm, K, kernel, 100, plan.mllib_features)
        rows = data.twitter_like(tweets.points, plan.mllib_rows)
        every = max(1, plan.mllib_rows // _MEASURED)
        found = fit_and_label(spark, rows, K, kernel, sizes["ours, Spark"], plan.mllib_features, every=every)
    for method, (seconds, labelled) in found.items():
        cost = rivals.partition_cost(labelled[:, :-1], labelled[:, -1].astype(np.int32), kernel)
        if cells[method] not in table:
            table.add({**cells[method].key, **_row([seconds], [cost])})
