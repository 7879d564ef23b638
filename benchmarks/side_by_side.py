"""Fit and label embeddings of texts, beside faiss, scikit-learn and superkmeans: seconds and cost.

Run from the project's root, with faiss-cpu and superkmeans installed beside the package:
    python benchmarks/side_by_side.py --scratch DIR
Every case is a fit and the labels of all rows, with the threads of the machine. Results are kept in the
folder, so that cases can be measured one by one (--rows, --k, --kernel, --method); the table has all that are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables, wide_data
from kernelcoreset import Cosine, Gaussian, Kernel, KernelKMeans, Linear

SHAPES = {"200,000 x 384": (200_000, 384), "100,000 x 1536": (100_000, 1536)}
COMPONENTS = 256
SIGMA = 1.0
BLOCK = 4096
ITERATIONS = 25  # of faiss: its default; also the most of KMeans with 1,000 clusters, which takes minutes
MANY = 1_000
OURS = "kernelcoreset"
Found = tuple[np.ndarray, int | None]
"""Labels of all rows, and iterations over rows if the method counts them."""


def by_ours(kernel: Kernel) -> Callable[[np.ndarray, int], Found]:
    return lambda rows, k: (KernelKMeans(k, kernel=kernel, random_state=0).fit_predict(rows), None)


def by_faiss(rows: np.ndarray, k: int) -> Found:
    import faiss

    faiss.omp_set_num_threads(os.cpu_count())
    model = faiss.Kmeans(rows.shape[1], k, niter=ITERATIONS, seed=0)
    model.train(rows)
    return model.index.search(rows, 1)[1][:, 0], ITERATIONS


def by_superkmeans(rows: np.ndarray, k: int, hierarchical: bool | None = None) -> Found:
    import superkmeans

    model = superkmeans.SuperKMeans(k, rows.shape[1], hierarchical=hierarchical, n_threads=os.cpu_count(), seed=0)
    return model.assign(rows, model.train(rows)).astype(np.int64), None


def by_sklearn(rows: np.ndarray, k: int) -> Found:
    model = KMeans(k, n_init=1, max_iter=ITERATIONS if k >= MANY else 300, random_state=0).fit(rows)
    return model.labels_, model.n_iter_


def by_mini_batches(rows: np.ndarray, k: int) -> Found:
    return MiniBatchKMeans(k, n_init=1, random_state=0).fit_predict(rows), None


def features(rows: np.ndarray) -> np.ndarray:
    """Return Nystroem features of the Gaussian kernel."""
    nystroem = Nystroem(kernel="rbf", gamma=0.5 / SIGMA**2, n_components=COMPONENTS, random_state=0)
    return nystroem.fit_transform(rows).astype(np.float32)  # type: ignore[no-any-return]


METHODS: dict[str, dict[str, Callable[[np.ndarray, int], Found]]] = {
    "linear, cosine": {
        OURS + " Linear": by_ours(Linear()),
        OURS + " Cosine": by_ours(Cosine()),
        "faiss": by_faiss,
        "superkmeans": by_superkmeans,
        "superkmeans, not hierarchical": lambda rows, k: by_superkmeans(rows, k, hierarchical=False),
        "MiniBatchKMeans": by_mini_batches,
        "KMeans": by_sklearn,
    },
    "gaussian": {
        OURS + " Gaussian": by_ours(Gaussian(SIGMA)),
        "Nystroem + KMeans": lambda rows, k: by_sklearn(features(rows), k),
        "Nystroem + MiniBatchKMeans": lambda rows, k: by_mini_batches(features(rows), k),
    },
}


def inner_sum(rows: np.ndarray, is_gaussian: bool) -> float:
    """Return the sum of K(x, y) over all pairs of unit vectors."""
    if not is_gaussian:
        return float(np.square(rows.sum(axis=0, dtype=np.float64)).sum())
    total = 0.0
    for low in range(0, len(rows), BLOCK):
        products = rows[low : low + BLOCK] @ rows.T
        products -= 1.0
        products *= 1.0 / SIGMA**2
        total += float(np.exp(products, out=products).sum(dtype=np.float64))
    return total


def cost_of(rows: np.ndarray, labels: np.ndarray, kernel: str) -> float:
    """Return the kernel k-means cost of the clusters of unit vectors: sum K(x, x) - sum_c sum K(x, y) / |c|."""
    order = np.argsort(labels, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    clusters = np.split(order, cuts)
    return len(rows) - sum(inner_sum(rows[own], kernel == "gaussian") / len(own) for own in clusters)


def embeddings(folder: Path, n: int, d: int) -> np.ndarray:
    """Return the first n embeddings, from a file of an earlier run if there is one: they take longer than some fits."""
    path = folder / f"embeddings_{d}.npy"
    if not path.exists():
        np.save(path, wide_data.embeddings(max(most for most, own in SHAPES.values() if own == d), d))
    rows: np.ndarray = np.load(path)[:n]
    return rows


def measure(options: argparse.Namespace, kept: dict[str, list[Any]], results: Path) -> None:
    """Add seconds and cost of every chosen case to `kept`, and write that to a file."""
    for kernel in options.kernel:
        chosen = [name for name in METHODS[kernel] if not options.method or name in options.method]
        for data in options.rows:
            rows = embeddings(options.scratch, *SHAPES[data])
            for name in chosen:
                if name.startswith(OURS):
                    for few in (20_000, 40_000):  # compile what is used for few rows per cluster, and for many
                        METHODS[kernel][name](rows[:few], 50)
            for k in options.k:
                for name in chosen:
                    begin = time.perf_counter()
                    labels, steps = METHODS[kernel][name](rows, k)
                    seconds = time.perf_counter() - begin
                    cost = cost_of(rows, np.asarray(labels), kernel)
                    kept[json.dumps([kernel, data, k, name])] = [seconds, cost, steps]
                    print(
                        f"{kernel}, {data}, k = {k}, {name}: {seconds:.2f} s, {cost:.6g}", file=sys.stderr, flush=True
                    )
                    results.write_text(json.dumps(kept, indent=1))


def rows_of_table(kept: dict[str, list[Any]]) -> list[list[object]]:
    """Return the rows of the table: those of one case together, each with its cost beside the best one."""
    cases: dict[tuple[str, str, int], dict[str, list[Any]]] = {}
    for case, result in kept.items():
        kernel, data, k, name = json.loads(case)
        cases.setdefault((kernel, data, k), {})[name] = result
    rows: list[list[object]] = []
    for (kernel, data, k), results in sorted(cases.items(), key=lambda case: (case[0][0] == "gaussian", case[0])):
        least = min(cost for _, cost, _ in results.values())
        for name in METHODS[kernel]:
            if name in results:
                seconds, cost, steps = results[name]
                above = f"{100.0 * (cost / least - 1.0):+.2f} %"
                rows.append([kernel, data, f"{k:,}", name, steps or "", f"{seconds:.2f}", f"{cost:.6g}", above])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=SHAPES, nargs="*", default=list(SHAPES))
    parser.add_argument("--k", type=int, nargs="*", default=[100, MANY])
    parser.add_argument("--kernel", choices=METHODS, nargs="*", default=list(METHODS))
    parser.add_argument("--method", nargs="*", help="only these rows of the table")
    parser.add_argument("--scratch", type=Path, required=True, help="folder of embeddings and of results so far")
    parser.add_argument("--notes", default="", help="what else to say above the table")
    parser.add_argument("--out", type=Path, default=Path("docs/results/side_by_side.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    options.scratch.mkdir(parents=True, exist_ok=True)
    results = options.scratch / "side_by_side.json"
    kept = json.loads(results.read_text()) if results.exists() else {}
    measure(options, kept, results)
    about = (
        f"Fit and labels of all rows, {os.cpu_count()} threads, all with their defaults and one restart, except ours "
        "(`KernelKMeans(n_clusters=k, kernel=...).fit_predict(rows)`). The rows are float32 embeddings of docstrings, "
        f"of length 1. KMeans at k = {MANY:,} is stopped after {ITERATIONS} iterations. Gaussian: sigma = {SIGMA:g}; "
        f"Nystroem: {COMPONENTS} features. "
        "Costs are those of the kernel for the labels of all rows, whatever the method optimised. The last column is "
        f"relative to the best in the same case. {options.notes}"
    ).rstrip()
    header = ["kernel", "rows", "k", "method", "iterations", "fit and label, s", "cost", "above the best"]
    tables.write_results(options.out, "Side by side", [about, tables.table(header, rows_of_table(kept))])


if __name__ == "__main__":
    main()
