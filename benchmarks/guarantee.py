"""What holds for every center set: errors, proved bounds and lower bounds on the optimum, beside each other.

Run from the project's root: python benchmarks/guarantee.py --data DIR --scratch DIR
and the same with --part bounds, violations and optimum. Each writes a page of its own. What was measured is kept in the
scratch folder: after --minutes the command ends, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
from kernelcoreset.coresets.certificate import nearest_of
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.row_sample import RowSample, rates_for
from kernelcoreset.coresets.transport import Transport
from kernelcoreset.labelling.certificate import Probe, Tally
from kernelcoreset.spark.summary import rows_for_proof

K = 5
SIZES = (100, 1000, 4000)
DRAWS = ("iid", "ordered")
KINDS = ("uniform", "spread", "crowded", "fitted", "adversarial")
FITTED = 5
ASCENT_STARTS, ASCENT_STEPS = 3, 60
ROWS, SIZE = 1_000, 100  # of the many small cases
COPIES = 20  # of all rows, to be sampled as on Spark
AT_ONCE = 200  # small coresets in a piece that is kept
PAGES = {
    "errors": ("guarantee.md", "Guarantees: measured errors"),
    "bounds": ("guarantee_bounds.md", "Guarantees: proved bounds"),
    "violations": ("guarantee_violations.md", "Guarantees: violations"),
    "optimum": ("guarantee_optimum.md", "Guarantees: lower bounds on the optimum"),
}
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

    def random_errors(self, coreset: Coreset) -> dict[str, float]:
        found = {}
        for kind, sets in self.sets.items():
            costs = center_set_costs(coreset.points, sets, self.kernel, weights=coreset.weights)
            found[kind] = float(np.abs(costs / self.truth[kind] - 1).max())
        return found

    def errors(self, coreset: Coreset, seed: int) -> dict[str, float]:
        found = self.random_errors(coreset)
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


class Kept:
    """Results that are kept in a file, so that a long run can be made in parts."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.end = path, time.monotonic() + 60 * minutes
        self.found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what was kept under this name, else measure it; end the program if the time is over."""
        if name not in self.found:
            if time.monotonic() > self.end:
                sys.exit(f"{len(self.found)} results are kept in {self.path}; run the same command again to go on.")
            begin = time.perf_counter()
            self.found[name] = measure()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.found, indent=1))
            print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        return self.found[name]


def pairs_of(options: argparse.Namespace) -> list[tuple[str, np.ndarray, Kernel]]:
    """The six pairs, and Census."""
    pairs = datasets.pairs(options.data)
    if options.six or options.small:
        return pairs[: 1 if options.small else None]
    census = datasets.load(options.data, "census")
    return [*pairs, ("census gaussian", census, Gaussian(sigma=datasets.median_distance(census)))]


def mean_errors(points: np.ndarray, kernel: Kernel, size: int, draws: int, count: int) -> dict[str, dict[str, float]]:
    """Mean over coresets of the largest error, by draw and kind of center sets."""
    measured = Measured(points, kernel, count)
    means = {}
    for draw in DRAWS:
        coresets = [build_coreset(points, K, kernel, size, seed=seed, draw=draw) for seed in range(draws)]
        found = [measured.errors(coreset, seed) for seed, coreset in enumerate(coresets)]
        means[draw] = {kind: float(np.mean([own[kind] for own in found])) for kind in KINDS}
    return means


def error_tables(kept: Kept, options: argparse.Namespace) -> Iterator[str]:
    """Errors by pair, size, draw and kind of center sets."""
    draws, count = options.draws, options.center_sets
    mean: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for name, points, kernel in pairs_of(options):
        for size in options.sizes:

            def measure(points: np.ndarray = points, kernel: Kernel = kernel, size: int = size) -> Any:
                return mean_errors(points, kernel, size, draws, count)

            mean[name, size] = kept.get(f"{name}, N = {size}", measure)
    yield (
        f"Largest relative error of the cost over center sets of k={K}, mean of {draws} coresets. Fitted "
        "center sets are kernel means found on other coresets; adversarial ones are found by ascent on the error of "
        "each coreset. What is proved is in [another table](guarantee_bounds.md)."
    )
    for kind in KINDS:
        rows: list[list[object]] = []
        ratios: dict[int, list[float]] = {}
        for (name, size), by_draw in mean.items():
            iid, ordered = (by_draw[draw][kind] for draw in DRAWS)
            rows.append([name, size, percent(iid), percent(ordered), f"{iid / ordered:.1f}x"])
            if not name.startswith("census"):
                ratios.setdefault(size, []).append(iid / ordered)
        header = ["data, kernel", "N", *DRAWS, "iid / ordered"]
        yield f"## Error, {kind} center sets\n\n" + tables.table(header, rows)
        six = ", ".join(f"N = {size}: {geometric_mean(own):.1f}x" for size, own in ratios.items())
        yield f"Geometric mean over the six pairs: {six}"


def proved_rows(
    name: str, points: np.ndarray, kernel: Kernel, sizes: list[int], seed: int, count: int
) -> list[list[object]]:
    """The largest error found for one coreset of each size, and what is proved about it."""
    measured = Measured(points, kernel, count)
    rows: list[list[object]] = []
    for size in sizes:
        coreset = build_coreset(points, K, kernel, size, seed=seed)
        largest = max(measured.errors(coreset, seed).values())
        proved = coreset.certify(points, n_center_sets=20).proved
        sampled = proved_by_tally(coreset, points, kernel, seed)
        bounds = [
            percent(own[what]) for what in ("error", "error_from_found") for own in (proved, sampled)
        ]  # fmt: skip
        rows.append([name, size, percent(largest), percent(by_transport(proved)), *bounds, f"{sampled['rows']:,}"])
    return rows


def proved_by_tally(coreset: Coreset, points: np.ndarray, kernel: Kernel, seed: int) -> Mapping[str, Any]:
    """What is proved about the coreset of so many copies of all rows, in the way that Spark does it."""
    many = Coreset(coreset.points, coreset.weights * COPIES)
    model = KernelKMeansModel.fit_coreset(many, K, kernel, n_init=3)
    costs = model.cluster_weights * model.typical_distances**2
    rates = rates_for(model.cluster_weights, costs, 2.0, rows_for_proof(len(coreset), points.shape[1]))
    probe = Probe(
        points[:K], np.arange(K)[None], kernel, 2.0, fraction=0.001, seed=seed, kinds=("uniform",), rates=rates
    )
    tally = Tally(K, probe=probe)
    found = model.label(points)
    for copy in range(COPIES):
        tally.partition = copy  # rows are sampled by the partition and their places in it
        tally.add(points.T, None, found.labels, found.distances**2)
    return tally.certificate(probe, many.points, many.weights, model.solution.cost).proved


def bound_table(kept: Kept, options: argparse.Namespace) -> Iterator[str]:
    """The proved bound of one coreset per pair and size."""
    yield (
        f"For every set of k={K} centers, and for those that cost at least as much as the clustering found. The "
        'largest error found is that over uniform, spread, crowded, fitted and adversarial center sets. "All rows": a '
        f'bound without probability. "Sample": all rows {COPIES} times over, of which a sample is looked at, as on '
        'Spark, with a confidence of 99 %. "Transport alone" is the bound of step 3 of '
        "[the proof](../algorithms.md#guarantees-step-by-step), the other bounds are those of steps 4 and 5."
    )
    rows: list[list[object]] = []
    sizes, seed, count = options.sizes, options.draws - 1, options.center_sets
    for name, points, kernel in pairs_of(options):

        def measure(name: str = name, points: np.ndarray = points, kernel: Kernel = kernel) -> list[list[object]]:
            return proved_rows(name, points, kernel, sizes, seed, count)

        rows += kept.get(f"bound, {name}, {sizes}", measure)
    header = ["data, kernel", "N", "largest error found", "transport alone, all rows", "every set, all rows",
              "every set, sample", "from the found cost on, all rows", "from it on, sample", "sample"]  # fmt: skip
    yield "## The proved bound beside the largest error found\n\n" + tables.table(header, rows)


def by_transport(proved: Mapping[str, Any]) -> float:
    """The bound of the transport plan alone."""
    names = ("moved", "least", "most", "wrong", "coreset_cost_at_least")
    return Transport(*(proved[name] for name in names), 2.0).error


def percent(value: float) -> str:
    return f"{100 * value:.2f} %" if value < 0.1 else ("-" if value > 10 else f"{100 * value:.0f} %")


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def violations(d: int, kernel: Kernel, seeds: range) -> dict[str, float]:
    """Of many small coresets: how often any center set, also one found by ascent, is outside of a bound.

    And how often the cost of one of the center sets on a sample of the rows is farther from that on all rows than the
    proof allows.
    """
    found = dict.fromkeys(("certain", "sampled", "says", "deviations", "tried"), 0)
    closest = 0.0
    generator = np.random.default_rng(d)
    points = generator.normal(scale=2.0, size=(6, d))[generator.integers(6, size=ROWS)]
    points = points + generator.normal(size=points.shape) * 0.5
    measured = Measured(points, kernel, 30)
    centers = np.concatenate(list(measured.sets.values()))
    parts = np.array([center_set_costs(row[None], centers, kernel) for row in points])
    costs = parts.sum(axis=0)
    for seed in seeds:
        draw = ("ordered", "iid", "uniform")[seed % 3]
        coreset = build_coreset(points, K, kernel, SIZE, seed=seed, draw=draw)
        whole = coreset.certify(points, n_center_sets=1)
        part = coreset.certify(points, n_center_sets=1, most_rows=ROWS - 1, seed=seed)
        errors = measured.errors(coreset, seed) if seed % 10 == 0 else measured.random_errors(coreset)
        largest = max(errors.values())
        found["certain"] += largest > whole.proved["error"]
        found["sampled"] += largest > part.proved["error"]
        found["says"] += part.proved["error"] < np.inf
        closest = max(closest, largest / whole.proved["error"])
        near = nearest_of(points, points[np.random.default_rng(seed).integers(ROWS, size=K)], Recipe(K, kernel, K))
        sums = np.bincount(near.clusters, minlength=K).astype(float), np.bincount(near.clusters, near.powers, K)
        sample = RowSample(rates_for(*sums, 2.0, ROWS // 2), *sums, 2.0)
        kept = sample.rates.probabilities(near.clusters, near.powers, None)
        rows = np.random.default_rng([seed, 1]).random(ROWS) < kept
        for on_sample, cost in zip((1.0 / kept[rows]) @ parts[rows], costs, strict=True):
            allowed = sample.deviations(cost)
            found["deviations"] += not -allowed["below"] <= on_sample / cost - 1 <= allowed["above"]
            found["tried"] += 1
    return {**{name: int(count) for name, count in found.items()}, "closest": float(closest)}


def violation_table(kept: Kept, coresets: int) -> Iterator[str]:
    """Violations by data and kernel."""
    rows: list[list[object]] = []
    each = -(-coresets // (2 * len(SOURCES)))
    for name, d in SOURCES.items():
        for kernel in (Gaussian(sigma=2.0), Polynomial(degree=2, c=1.0)):
            parts = []
            for low in range(0, each, AT_ONCE):
                seeds = range(low, min(each, low + AT_ONCE))

                def measure(d: int = d, kernel: Kernel = kernel, seeds: range = seeds) -> dict[str, float]:
                    return violations(d, kernel, seeds)

                parts.append(kept.get(f"violations, {name}, {kernel!r}, {seeds}", measure))
            names = ("certain", "sampled", "says", "deviations", "tried")
            certain, sampled, says, deviations, tried = (sum(own[what] for own in parts) for what in names)
            closest = max(own["closest"] for own in parts)
            rows.append([name, type(kernel).__name__, each, certain, f"{closest:.2f}", sampled, f"{says / each:.0%}",
                         f"{deviations:,} of {tried:,}"])  # fmt: skip
    header = ["data", "kernel", "coresets", "outside, all rows", "largest error / bound", "outside, sample of rows",
              "bounds of the sample that say something", "costs farther off than allowed"]  # fmt: skip
    yield (
        f"## Violations\n\nCoresets of {SIZE} points for {ROWS:,} rows, by all three draws. The bound on all rows has "
        f"no probability: it must never fail. That of a sample of about {ROWS - 1:,} rows (fewer, as the probability "
        "of far ones cannot exceed 1) has a confidence of 99 %; it says something if it is finite. The last column: "
        "for 90 fixed center sets beside each coreset, how often the cost on a sample of half of the rows is farther "
        "from that on all rows than the proof allows; at most 0.4 % may be.\n\n" + tables.table(header, rows)
    )


def optimum_table(kept: Kept, cases: int) -> Iterator[str]:
    """The lower bound on the optimum against branch and bound."""
    rows = kept.get(f"optimum, {cases} cases", lambda: optimum_rows(cases))
    header = ["kernel", "k", "cases", "bounds above the optimum", "bound / optimum, coreset of 20", "of all 26 points"]
    yield "## The lower bound on the optimum, against `solve_exact`\n\n" + tables.table(header, rows)


def optimum_rows(cases: int) -> list[list[object]]:
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
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for what is kept between runs")
    parser.add_argument("--part", choices=PAGES, default="errors", help="which page (errors)")
    parser.add_argument("--minutes", type=float, default=8.0, help="start nothing new after this time (8)")
    parser.add_argument("--draws", type=int, default=8, help="coresets per cell (8)")
    parser.add_argument("--center-sets", type=int, default=60, help="center sets of each random kind (60)")
    parser.add_argument("--coresets", type=int, default=10_000, help="small coresets whose bounds are tried (10,000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="of the coresets (100 1000 4000)")
    parser.add_argument("--six", action="store_true", help="without Census")
    parser.add_argument("--small", action="store_true", help="one pair only")
    parser.add_argument("--out", type=Path, help="the page (in docs/results)")
    options = parser.parse_args()
    size = f"{options.draws}-{options.center_sets}"
    kept = Kept(options.scratch / f"guarantee-{options.part}-{size}.json", options.minutes)
    page, title = PAGES[options.part]
    if options.part == "errors":
        sections = [*error_tables(kept, options)]
    elif options.part == "bounds":
        sections = [*bound_table(kept, options)]
    elif options.part == "violations":
        sections = [*violation_table(kept, options.coresets)]
    else:
        sections = [*optimum_table(kept, 3 if options.small else 50)]
    tables.write_results(options.out or Path("docs/results") / page, title, sections)


if __name__ == "__main__":
    main()
