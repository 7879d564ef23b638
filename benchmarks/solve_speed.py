"""Seconds and cost of solving weighted points, from a few hundred points and clusters to 50,000 points and k = 5,000.

Run from the project's root: python benchmarks/solve_speed.py
Each case is also given to scikit-learn's KMeans, with the same number of restarts: on the points for Linear and Cosine
(of unit length), on Nystroem features for Gaussian. --largest adds the last cases, which take several minutes.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from kernelcoreset import Coreset, Cosine, Gaussian, Kernel, Linear, solve
from kernelcoreset.clustering.finish import partition_costs
from kernelcoreset.clustering.problem import prepare

COMPONENTS = 256


@dataclass(frozen=True)
class Case:
    """What is solved: s points in d dimensions, k clusters, and the number of restarts."""

    s: int
    d: int
    k: int
    kernel: Kernel
    n_init: int


CASES = [
    Case(1_000, 2, 5, Linear(), 10),
    Case(2_000, 384, 50, Linear(), 2),
    Case(4_000, 384, 100, Linear(), 10),
    Case(4_000, 384, 100, Cosine(), 10),
    Case(4_000, 384, 100, Gaussian(sigma=1.0), 10),
    Case(4_000, 384, 200, Linear(), 2),
    Case(10_000, 2, 1_000, Linear(), 2),
    Case(10_000, 384, 1_000, Linear(), 2),
    Case(10_000, 384, 1_000, Gaussian(sigma=1.0), 2),
]
LARGEST = [Case(50_000, 2, 5_000, Linear(), 1), Case(50_000, 384, 5_000, Linear(), 1)]


def topics(s: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors around 300 random directions, and weights as unequal as those of a coreset."""
    generator = np.random.default_rng(seed)
    middles = generator.normal(size=(300, d))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    points = middles[generator.integers(300, size=s)] + generator.normal(size=(s, d)) / np.sqrt(d)
    return points / np.linalg.norm(points, axis=1, keepdims=True), 1.0 + 5.0 * generator.exponential(size=s)


def theirs(case: Case, points: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return scikit-learn's seconds, features included, and the kernel cost of its labels."""
    begin = time.perf_counter()
    rows = points
    if isinstance(case.kernel, Gaussian):
        gamma = 0.5 / case.kernel.sigma**2
        rows = Nystroem(kernel="rbf", gamma=gamma, n_components=COMPONENTS, random_state=0).fit_transform(points)
    model = KMeans(case.k, n_init=case.n_init, random_state=0).fit(rows, sample_weight=weights)
    seconds = time.perf_counter() - begin
    problem = prepare(Coreset(points, weights), case.kernel)
    return seconds, float(partition_costs(problem, model.labels_.astype(np.int32), case.k).sum())


def measure(case: Case) -> list[object]:
    points, weights = topics(case.s, case.d)
    begin = time.perf_counter()
    solution = solve(Coreset(points, weights), case.k, case.kernel, n_init=case.n_init)
    seconds = time.perf_counter() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    their_seconds, their_cost = theirs(case, points, weights)
    return [
        f"{case.s:,}",
        case.d,
        f"{case.k:,}",
        type(case.kernel).__name__,
        case.n_init,
        f"{seconds:.2f} s",
        f"{their_seconds:.2f} s",
        f"{solution.cost:.6g}",
        f"{their_cost:.6g}",
        f"{100 * (solution.cost / their_cost - 1.0):+.2f} %",
        f"{memory:.1f} GB",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", action="store_true", help="add the cases of 50,000 points, several minutes")
    parser.add_argument("--out", type=Path, default=Path("docs/results/solve_speed.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for kernel in (Linear(), Gaussian(sigma=1.0)):  # compile
        solve(Coreset(*topics(600, 16)), 40, kernel, n_init=1)
    header = [
        "s",
        "d",
        "k",
        "kernel",
        "n_init",
        "solve",
        "scikit-learn",
        "cost",
        "scikit-learn's",
        "ours",
        "peak memory",
    ]
    about = (
        "`solve` on s weighted unit vectors (on the circle for d = 2) around 300 directions, beside scikit-learn's "
        f"KMeans with as many restarts on the same weighted points; for Gaussian on {COMPONENTS} Nystroem features, "
        "whose time counts. Costs are those of the kernel. Required: 10,000 points with k = 1,000 in at most 20 s, at "
        "a cost at most 1 % above scikit-learn's. Peak memory is that of the process until then."
    )
    rows = []
    for case in CASES + (LARGEST if options.largest else []):
        rows.append(measure(case))
        print(*rows[-1], file=sys.stderr, flush=True)
        tables.write_results(options.out, "Solving a coreset", [about, tables.table(header, rows)])


if __name__ == "__main__":
    main()
