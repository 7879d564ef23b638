"""Graphs: adjusted Rand index and time of GraphClustering, compared with coreset-sc and scikit-learn.

Run from the project's root: python benchmarks/spectral_graphs.py
Needs the package coreset-sc (pip install coreset-sc), which nothing else in the project needs. `--large` times the
large graph alone, in docs/results/spectral_graphs_large.md.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from kernelcoreset import GraphClustering, graph_normalized_cut

Labeller = Callable[[sparse.csr_matrix, int, int], np.ndarray]
SEEDS = 10


def block_model(
    n: int, k: int, within: float, between: float, generator: np.random.Generator
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """A stochastic block model with equal blocks, its nodes shuffled; pairs drawn twice are one edge.

    Every node has a self-loop of weight 1: coreset-sc asks for them, and all get the same matrix.
    """
    size = n // k
    pairs = k * size * (size - 1) // 2
    inside = generator.binomial(pairs, within)
    outside = generator.binomial(n * (n - 1) // 2 - pairs, between)
    # Some pairs come twice: draw so many that the expected number of different ones is right.
    block = generator.integers(0, k, int(-np.log1p(-inside / pairs) * pairs))
    one = generator.integers(0, size, len(block))
    other = (one + generator.integers(1, size, len(block))) % size
    far, away = generator.integers(0, n, (2, outside))
    apart = far // size != away // size
    order = generator.permutation(n)
    source = order[np.concatenate([block * size + one, far[apart], np.arange(n)])]
    target = order[np.concatenate([block * size + other, away[apart], np.arange(n)])]
    matrix = sparse.coo_matrix((np.ones(len(source)), (source, target)), (n, n)).tocsr()
    matrix = sparse.csr_matrix(matrix + matrix.T)
    matrix.data[:] = 1.0
    truth = np.empty(n, dtype=np.int64)
    truth[order] = np.arange(n) // size
    return matrix, truth


def rings(seed: int) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Two rings of 1,000 points each, every point joined to its 10 nearest, with self-loops as coreset-sc asks."""
    points, truth = make_circles(2_000, factor=0.5, noise=0.05, random_state=seed)
    near = kneighbors_graph(points, 10, include_self=False)
    return sparse.csr_matrix(near.maximum(near.T) + sparse.eye(2_000)), truth


def ours(matrix: sparse.csr_matrix, k: int, seed: int) -> np.ndarray:
    return GraphClustering(k, random_state=seed).fit(matrix).labels_


def theirs(ratio: float) -> Labeller:
    try:
        from coreset_sc import CoresetSpectralClustering
    except ImportError:
        sys.exit("This benchmark compares with the package coreset-sc, which is not installed: pip install coreset-sc")

    def run(matrix: sparse.csr_matrix, k: int, seed: int) -> np.ndarray:
        np.random.seed(seed)  # noqa: NPY002  coreset-sc takes no other seed, and parts of it take none
        return CoresetSpectralClustering(k, coreset_ratio=ratio, ignore_warnings=True).fit(matrix).labels_

    return run


def sklearns(matrix: sparse.csr_matrix, k: int, seed: int) -> np.ndarray:
    return SpectralClustering(k, affinity="precomputed", random_state=seed).fit_predict(matrix)


def compare(
    graphs: Callable[[int], tuple[sparse.csr_matrix, np.ndarray]], k: int, methods: list[tuple[str, Labeller, int]]
) -> str:
    """One row per method: mean and least ARI, median time, mean normalized cut, over its number of seeds."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name, _, _ in methods}
    edges = []
    for seed in range(SEEDS):
        matrix, truth = graphs(seed)
        edges.append((matrix.nnz - matrix.shape[0]) / 2)
        for name, method, seeds in methods:
            if seed < seeds:
                start = time.perf_counter()
                labels = method(matrix, k, seed)
                seconds = time.perf_counter() - start
                cut = graph_normalized_cut(np.asarray(labels).astype(np.int64), matrix)
                found[name].append((adjusted_rand_score(truth, labels), seconds, cut))
                print(name, seed, *np.round(found[name][-1], 4), file=sys.stderr, flush=True)
    base = np.median([seconds for _, seconds, _ in found[methods[0][0]]])
    rows = []
    for name, results in found.items():
        scores, seconds, cuts = np.array(results).T
        middle = np.median(seconds)
        rows.append(
            [
                name,
                len(results),
                f"{scores.mean():.4f}",
                f"{scores.min():.4f}",
                f"{cuts.mean():.4f}",
                f"{middle:.3f}",
                f"{middle / base:.1f}",
            ]
        )
    header = ["method", "seeds", "ARI, mean", "ARI, least", "normalized cut, mean", "seconds, median", "times ours"]
    return f"{np.mean(edges):,.0f} edges on average.\n\n" + tables.table(header, rows)


def same_graph(n: int, k: int, within: float, between: float) -> Callable[[int], tuple[sparse.csr_matrix, np.ndarray]]:
    graph = block_model(n, k, within, between, np.random.default_rng(0))
    return lambda _: graph


def large_graph() -> Callable[[int], tuple[sparse.csr_matrix, np.ndarray]]:
    return same_graph(1_000_000, 20, 0.0003, 5.0 / 950_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results/spectral_graphs.md"))
    parser.add_argument("--large", action="store_true", help="time the large graph alone, on a page of its own")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # scikit-learn on graphs in parts
    few = [("GraphClustering", ours, SEEDS)] + [(f"coreset-sc, ratio {r}", theirs(r), SEEDS) for r in (0.01, 0.05, 0.1)]
    whole = ("coreset-sc, ratio 1 (no coreset)", theirs(1.0), 3)
    learn = ("scikit-learn SpectralClustering", sklearns, 1)  # a minute and more each
    ours(*rings(0)[:1], 2, 0)  # compiled, or read from numba's cache

    if options.large:
        page = options.out.with_name("spectral_graphs_large.md")
        found = compare(large_graph(), 20, few[:2])
        tables.write_results(page, "A graph of a million nodes: compared with coreset-sc", [ABOUT_LARGE, found])
        return

    def small(within: float, between: float) -> Callable[[int], tuple[sparse.csr_matrix, np.ndarray]]:
        return lambda seed: block_model(8_000, 20, within, between, np.random.default_rng(seed))

    sections = [ABOUT, "## 8,000 nodes, 20 blocks, probabilities 0.5 within and 1/8,000 between"]
    sections += [compare(small(0.5, 1 / 8_000), 20, [*few, whole, learn])]
    sections += ["## 8,000 nodes, 20 blocks, 0.5 within and 0.0066 between"]
    sections += [compare(small(0.5, 0.0066), 20, [*few, whole, learn])]
    sections += ["## Two rings, 2,000 points, 10 nearest neighbours"]
    sections += [compare(rings, 2, [*few, ("coreset-sc, ratio 0.5", theirs(0.5), SEEDS), whole, learn])]
    sections += ["## 1,000,000 nodes, 20 blocks, 0.0003 within (15 edges per node) and 5.26e-6 between (5 per node)"]
    big = [few[0], few[1], ("coreset-sc, ratio 0.1", theirs(0.1), 1), (whole[0], whole[1], 1)]
    sections += [compare(large_graph(), 20, big)]
    tables.write_results(options.out, "Graphs: compared with coreset-sc and scikit-learn", sections)


ABOUT_LARGE = (
    "1,000,000 nodes, 20 blocks, 0.0003 within (15 edges per node) and 5.26e-6 between (5 per node). Time by the clock "
    "of `fit` from the same scipy matrix, both in turn; parts of both run in several threads. "
    "coreset-sc with its default coreset of 1 % of the nodes, its fastest setting. Required: at least level."
)
ABOUT = (
    "Time is that of `fit` from the same scipy matrix by the clock, checks of the input included, each method with its "
    "own default number of threads: parts of ours and of coreset-sc run in several. All methods give a label to every "
    "node. The small graphs are drawn again for each seed, the large one is one graph. 0.5 and 1 / "
    "(number of nodes) are the probabilities of coreset-sc's own example, which make 0.8 M edges here; in the second "
    "table a fifth of a node's 250 edges leave its block, 1 M edges in all. coreset-sc is run with its default coreset "
    "of 1 % of the nodes, with 5 %, with the 10 % of its example, and with ratio 1, its fast spectral clustering of "
    "the whole graph without any coreset. It is not seeded throughout, so its rows vary from run to run. Required: "
    "ARI at least that of coreset-sc on the mean of 10 seeds, and at least as fast."
)


if __name__ == "__main__":
    main()
