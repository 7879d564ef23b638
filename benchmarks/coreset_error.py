"""Error of coresets against their size: uniform, the paper's iid draw, the ordered draw, the ordered draw by a tree.

Run from the project's root: python benchmarks/coreset_error.py --data DIR
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import datasets, tables
from kernelcoreset import (
    Coreset,
    CoresetTree,
    Gaussian,
    Kernel,
    KernelKMeansModel,
    build_coreset,
    center_set_costs,
    draw_center_sets,
)

K = 5
SIZES = (100, 300, 1000, 3000)
LEAVES = 32
FITTED = 10
METHODS = ("uniform", "iid", "ordered", "tree")


def build(method: str, points: np.ndarray, kernel: Kernel, size: int, seed: int) -> Coreset:
    if method != "tree":
        return build_coreset(points, K, kernel, size, seed=seed, draw=method)
    rows = -(-len(points) // LEAVES)
    tree = CoresetTree(K, kernel, size, chunk_size=rows, fan_in=2 * LEAVES, seed=seed)
    tree.add(points)
    return tree.result()


class Measured:
    """Mean largest relative error over draws, for every method and kind of center sets."""

    def __init__(self, points: np.ndarray, kernel: Kernel, kinds: dict[str, int]) -> None:
        self.points, self.kernel = points, kernel
        self.sets = {
            kind: draw_center_sets(points, K, kernel, kind=kind, n_center_sets=count, seed=1)
            for kind, count in kinds.items()
        }
        self.truth = {kind: center_set_costs(points, sets, kernel) for kind, sets in self.sets.items()}
        # Centers that are not data points: those of clusterings found on coresets of other draws.
        self.fitted = [
            KernelKMeansModel.fit_coreset(build_coreset(points, K, kernel, 300, seed=1000 + i), K, kernel, n_init=1)
            for i in range(FITTED)
        ]
        self.truth["fitted"] = self.fitted_costs(points, None)

    def fitted_costs(self, points: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return the cost of each fitted solution on some points, every distance evaluated directly."""
        squared = [model.centers.label(points, exact_distances=True).distances ** 2 for model in self.fitted]
        return np.array(
            [np.average(own, weights=weights) * (len(own) if weights is None else weights.sum()) for own in squared]
        )

    def __call__(self, method: str, size: int, draws: int) -> dict[str, float]:
        worst: dict[str, list[float]] = {kind: [] for kind in self.truth}
        for seed in range(draws):
            coreset = build(method, self.points, self.kernel, size, seed)
            for kind, sets in self.sets.items():
                costs = center_set_costs(coreset.points, sets, self.kernel, weights=coreset.weights)
                worst[kind].append(float(np.abs(costs / self.truth[kind] - 1).max()))
            costs = self.fitted_costs(coreset.points, coreset.weights)
            worst["fitted"].append(float(np.abs(costs / self.truth["fitted"] - 1).max()))
        return {kind: float(np.mean(errors)) for kind, errors in worst.items()}


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--draws", type=int, default=20, help="coresets per cell, ordered and tree (20)")
    parser.add_argument("--baseline-draws", type=int, default=100, help="coresets per cell, uniform and iid (100)")
    parser.add_argument("--center-sets", type=int, default=500, help="center sets of the paper's measure (500)")
    parser.add_argument("--out", type=Path, default=Path("docs/results/coreset_error.md"))
    options = parser.parse_args()

    kinds = {"uniform": options.center_sets, "spread": 200, "crowded": 200}
    census = datasets.load(options.data, "census")
    all_pairs = [
        *datasets.pairs(options.data),
        ("census gaussian", census, Gaussian(sigma=datasets.median_distance(census))),
    ]
    results: dict[tuple[str, int, str], dict[str, float]] = {}
    for name, points, kernel in all_pairs:
        begin = time.perf_counter()
        measured = Measured(points, kernel, kinds)
        for size in (1000,) if name.startswith("census") else SIZES:
            for method in METHODS:
                draws = options.draws if method in ("ordered", "tree") else options.baseline_draws
                results[name, size, method] = measured(method, size, draws)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    about = (
        f"Largest relative error of the cost over center sets of k={K}, mean of {options.draws} coresets "
        f"(uniform and iid, whose errors vary more: {options.baseline_draws}). The tree has {LEAVES} leaves "
        "of up to 4N points. Census is standardised, and sigma of its Gaussian is the median distance."
    )
    tables.write_results(options.out, "Error of coresets", [about, *report(results)])


def report(results: dict[tuple[str, int, str], dict[str, float]]) -> list[str]:
    cells = sorted({(name, size) for name, size, _ in results}, key=lambda cell: (cell[1], cell[0]))
    sections = []
    for kind, what in (
        ("uniform", "Centers drawn uniformly from the data, the paper's measure"),
        ("spread", "Centers drawn by D^2 sampling"),
        ("crowded", "All centers inside one cluster"),
        ("fitted", f"Centers of {FITTED} fitted solutions, kernel means found on other coresets"),
    ):
        rows = []
        for name, size in cells:
            error = {method: results[name, size, method][kind] for method in METHODS}
            rows.append(
                [name, size]
                + [f"{100 * error[method]:.2f} %" for method in METHODS]
                + [f"{error['iid'] / error['ordered']:.1f}x", f"{error['tree'] / error['ordered']:.2f}x"]
            )
        sections.append(
            f"## {what}\n\n" + tables.table(["data, kernel", "N", *METHODS, "iid / ordered", "tree / ordered"], rows)
        )
        means = []
        for size in SIZES:
            names = [name for name, own in cells if own == size and not name.startswith("census")]
            pair = [[results[name, size, method][kind] for method in ("iid", "ordered", "tree")] for name in names]
            means.append(
                [
                    size,
                    f"{geometric_mean([iid / ordered for iid, ordered, _ in pair]):.1f}x",
                    f"{geometric_mean([tree / ordered for _, ordered, tree in pair]):.2f}x",
                ]
            )
        sections.append(
            "Geometric mean over the six pairs:\n\n" + tables.table(["N", "iid / ordered", "tree / ordered"], means)
        )
    return sections


if __name__ == "__main__":
    main()
