"""What holds for every center set: errors, proved bounds and lower bounds on the optimum, beside each other.

Run from the project's root: python benchmarks/guarantee.py --data DIR
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import datasets, tables
from kernelcoreset import (
    Coreset,
    Gaussian,
    Kernel,
    KernelKMeansModel,
    Linear,
    Polynomial,
    build_coreset,
    center_set_costs,
    draw_center_sets,
    solve_exact,
)

K = 5
SIZES = (100, 1000, 4000)
DRAWS = ("iid", "ordered")
KINDS = ("uniform", "spread", "crowded", "fitted", "adversarial")
FITTED = 5
ASCENT_STARTS, ASCENT_STEPS = 3, 60
ROWS, SIZE = 400, 100  # of the many small cases
SOURCES = {"blobs, d = 1": 1, "blobs, d = 2": 2, "blobs, d = 5": 5}


def costs_of(model: KernelKMeansModel, points: np.ndarray, weights: np.ndarray) -> float:
    """Return the cost of a fitted clustering on weighted points, every distance evaluated directly."""
    return float(weights @ model.centers.label(points, exact_distances=True).distances ** 2)


class Measured:
    """The largest relative error of a coreset over each kind of center sets."""

    def __init__(self, points: np.ndarray, kernel: Kernel, count: int) -> None:
        self.points, self.kernel = points, kernel
        kinds = ("uniform", "spread", "crowded")
        self.sets = {k: draw_center_sets(points, K, kernel, kind=k, n_center_sets=count, seed=1) for k in kinds}
        self.truth = {kind: center_set_costs(points, sets, kernel) for kind, sets in self.sets.items()}
        others = [build_coreset(points, K, kernel, 300, seed=1000 + i) for i in range(FITTED)]
        self.fitted = [KernelKMeansModel.fit_coreset(own, K, kernel, n_init=1) for own in others]
        self.truth["fitted"] = np.array([costs_of(own, points, np.ones(len(points))) for own in self.fitted])

    def errors(self, coreset: Coreset, seed: int) -> dict[str, float]:
        found = {}
        for kind, sets in self.sets.items():
            costs = center_set_costs(coreset.points, sets, self.kernel, weights=coreset.weights)
            found[kind] = float(np.abs(costs / self.truth[kind] - 1).max())
        costs = np.array([costs_of(own, coreset.points, coreset.weights) for own in self.fitted])
        found["fitted"] = float(np.abs(costs / self.truth["fitted"] - 1).max())
        found["adversarial"] = max(self.ascend(coreset, [seed, start]) for start in range(ASCENT_STARTS))
        return found

    def ascend(self, coreset: Coreset, seed: list[int]) -> float:
        """Return the largest error that an ascent finds: one center at a time moves to wherever the error grows.

        The candidates are rows, coreset points and small steps from the center. The ascent looks at a sample of the
        rows; what it finds is measured on all of them.
        """
        generator = np.random.default_rng(seed)
        rows = self.points[generator.choice(len(self.points), size=min(2_000, len(self.points)), replace=False)]
        scale = len(self.points) / len(rows)
        centers = rows[generator.integers(len(rows), size=K)]

        def signed(sets: np.ndarray) -> np.ndarray:
            truth = center_set_costs(rows, sets, self.kernel) * scale
            return center_set_costs(coreset.points, sets, self.kernel, weights=coreset.weights) / truth - 1

        sign = 1.0 if seed[1] % 2 == 0 else -1.0
        best = sign * signed(centers[None])[0]
        for step in range(ASCENT_STEPS):
            tried = np.repeat(centers[None], 9, axis=0)
            place = step % K
            tried[:3, place] = rows[generator.integers(len(rows), size=3)]
            tried[3:6, place] = coreset.points[generator.integers(len(coreset), size=3)]
            width = rows.std(axis=0) * 10.0 ** -generator.uniform(0, 3, size=(3, 1))
            tried[6:, place] += width * generator.normal(size=(3, rows.shape[1]))
            values = sign * signed(tried)
            if values.max() > best:
                best, centers = values.max(), tried[int(np.argmax(values))]
        truth = center_set_costs(self.points, centers[None], self.kernel)[0]
        estimate = center_set_costs(coreset.points, centers[None], self.kernel, weights=coreset.weights)[0]
        return abs(estimate / truth - 1)


def error_tables(folder: Path, draws: int, count: int, small: bool) -> Iterator[str]:
    """Errors by pair, size, draw and kind of center sets, and the proved bound of the last coreset."""
    census = datasets.load(folder, "census")
    pairs = [*datasets.pairs(folder), ("census gaussian", census, Gaussian(sigma=datasets.median_distance(census)))]
    mean: dict[tuple[str, int, str], dict[str, float]] = {}
    proofs: list[list[object]] = []
    for name, points, kernel in pairs[: 1 if small else None]:
        begin = time.perf_counter()
        measured = Measured(points, kernel, count)
        for size in SIZES[: 1 if small else None]:
            for draw in DRAWS:
                coresets = [build_coreset(points, K, kernel, size, seed=seed, draw=draw) for seed in range(draws)]
                found = [measured.errors(coreset, seed) for seed, coreset in enumerate(coresets)]
                mean[name, size, draw] = {kind: float(np.mean([own[kind] for own in found])) for kind in KINDS}
                if draw == "ordered":
                    certificate = coresets[-1].certify(points, n_center_sets=20)
                    proved, largest = certificate.proved, max(found[-1].values())
                    proofs.append(
                        [name, size, percent(largest), percent(proved["error_from_found"]), percent(proved["error"]),
                         "all" if proved["confidence"] == 1 else f"{proved['rows']:,}"]
                    )  # fmt: skip
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    for kind in KINDS:
        rows: list[list[object]] = []
        for name, size in dict.fromkeys((name, size) for name, size, _ in mean):
            iid, ordered = (mean[name, size, draw][kind] for draw in DRAWS)
            rows.append([name, size, percent(iid), percent(ordered), f"{iid / ordered:.1f}x"])
        header = ["data, kernel", "N", *DRAWS, "iid / ordered"]
        yield f"## Error, {kind} center sets\n\n" + tables.table(header, rows)
        six = [[size, geometric_mean([mean[n, s, "iid"][kind] / mean[n, s, "ordered"][kind] for n, s, d in mean
                                      if s == size and d == "iid" and not n.startswith("census")])]
               for size in dict.fromkeys(s for _, s, _ in mean)]  # fmt: skip
        yield "Geometric mean over the six pairs: " + ", ".join(f"N = {size}: {value:.1f}x" for size, value in six)
    header = ["data, kernel", "N", "largest error found", "proved, from the found cost on", "proved, every set", "rows"]
    yield "## The proved bound beside the largest error found\n\n" + tables.table(header, proofs)


def percent(value: float) -> str:
    return f"{100 * value:.2f} %" if value < 0.1 else ("-" if value > 10 else f"{100 * value:.0f} %")


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def violation_table(coresets: int) -> Iterator[str]:
    """Many small coresets: how often any center set, also one found by ascent, is outside of a bound."""
    rows: list[list[object]] = []
    for name, d in SOURCES.items():
        for kernel in (Gaussian(sigma=2.0), Polynomial(degree=2, c=1.0)):
            certain = sampled = beaten = 0
            closest = 0.0
            each = -(-coresets // (2 * len(SOURCES)))
            generator = np.random.default_rng(d)
            points = generator.normal(scale=2.0, size=(6, d))[generator.integers(6, size=ROWS)]
            points = points + generator.normal(size=points.shape) * 0.5
            measured = Measured(points, kernel, 30)
            for seed in range(each):
                draw = ("ordered", "iid", "uniform")[seed % 3]
                coreset = build_coreset(points, K, kernel, SIZE, seed=seed, draw=draw)
                whole = coreset.certify(points, n_center_sets=1)
                part = coreset.certify(points, n_center_sets=1, most_rows=ROWS // 2, seed=seed)
                largest = max(max(measured.errors(coreset, seed).values()) if seed % 10 == 0 else 0.0,
                              *(float(np.abs(center_set_costs(coreset.points, sets, kernel, weights=coreset.weights)
                                             / measured.truth[kind] - 1).max())
                                for kind, sets in measured.sets.items()))  # fmt: skip
                certain += largest > whole.proved["error"]
                sampled += largest > part.proved["error"]
                beaten += part.proved["error"] < whole.proved["error"]
                closest = max(closest, largest / whole.proved["error"])
            rows.append([name, type(kernel).__name__, each, certain, f"{closest:.2f}", sampled, f"{beaten / each:.2%}"])
    header = ["data", "kernel", "coresets", "outside, all rows", "largest error / bound", "outside, sample of rows",
              "bound of the sample below that of all rows"]  # fmt: skip
    yield (
        f"## Violations\n\nCoresets of {SIZE} points for {ROWS} rows, by all three draws. The bound on all rows has no "
        "probability: it must never fail. That of a sample of half of the rows has a confidence of 99 %; the last "
        "column is how often it is below that of all rows.\n\n" + tables.table(header, rows)
    )


def optimum_table(cases: int) -> Iterator[str]:
    """The lower bound on the optimum against branch and bound."""
    rows: list[list[object]] = []
    for kernel in (Linear(), Gaussian(sigma=2.0), Polynomial(degree=2, c=1.0)):
        for k in (2, 3):
            above, shares, from_all = 0, [], []
            for seed in range(cases):
                generator = np.random.default_rng(seed)
                points = generator.normal(scale=2.0, size=(4, 2))[generator.integers(4, size=26)]
                points = points + 0.6 * generator.normal(size=points.shape)
                optimum = solve_exact(Coreset(points, np.ones(26)), k, kernel).cost
                bound = build_coreset(points, k, kernel, 20, seed=seed).certify(points, n_center_sets=1)
                whole = Coreset(points, np.ones(26)).certify(points, k=k, kernel=kernel, n_center_sets=1)
                above += bound.meaning["optimum_at_least"] > optimum * (1 + 1e-9)
                above += whole.proved["coreset_cost_at_least"] > optimum * (1 + 1e-9)
                shares.append(bound.meaning["optimum_at_least"] / optimum)
                from_all.append(whole.proved["coreset_cost_at_least"] / optimum)
            rows.append([repr(kernel), k, cases, above, f"{np.median(shares):.2f}", f"{np.median(from_all):.2f}"])
    header = ["kernel", "k", "cases", "bounds above the optimum", "bound / optimum, coreset of 20", "of all 26 points"]
    yield "## The lower bound on the optimum, against `solve_exact`\n\n" + tables.table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--draws", type=int, default=8, help="coresets per cell (8)")
    parser.add_argument("--center-sets", type=int, default=60, help="center sets of each random kind (60)")
    parser.add_argument("--coresets", type=int, default=10_000, help="small coresets whose bounds are tried (10,000)")
    parser.add_argument("--small", action="store_true", help="one pair and one size only")
    parser.add_argument("--out", type=Path, default=Path("docs/results/guarantee.md"))
    options = parser.parse_args()
    about = (
        f"Largest relative error of the cost over center sets of k={K}, mean of {options.draws} coresets. Fitted "
        "center sets are kernel means found on other coresets; adversarial ones are found by ascent on the error of "
        "each coreset."
    )
    sections = [about, *error_tables(options.data, options.draws, options.center_sets, options.small)]
    sections += [*violation_table(options.coresets), *optimum_table(50 if not options.small else 3)]
    tables.write_results(options.out, "Guarantees", sections)


if __name__ == "__main__":
    main()
