"""What the package computes for fixed seeds, through public names only, so that any version can be asked.

`python -m tests.golden.values` writes values.json again, for a change that draws other coresets on purpose.
"""

import json
from pathlib import Path

import numpy as np

import kernelcoreset as kc

KERNELS = {
    "gaussian": kc.Gaussian(sigma=1.5),
    "exponential": kc.Exponential(sigma=0.8),
    "laplacian": kc.Laplacian(sigma=2.0),
    "matern": kc.Matern(sigma=1.2, nu=2.5),
    "polynomial": kc.Polynomial(degree=4, c=1.0),
    "linear": kc.Linear(),
    "cosine": kc.Cosine(),
    "sum": kc.Gaussian(sigma=1.0) + 0.5 * kc.Linear(),
    "product": kc.Laplacian(sigma=1.0) * kc.Polynomial(degree=2, c=1.0),
}


def points(n=3_000, d=3):
    generator = np.random.default_rng(7)
    middles = generator.normal(scale=3.0, size=(5, d))
    return middles[generator.integers(5, size=n)] + generator.normal(scale=0.6, size=(n, d))


def coreset_values(coreset):
    return {"ids": coreset.ids.tolist(), "weights": coreset.weights.tolist()}


def compute():
    """Return all values as plain data."""
    data, values = points(), {}
    ids = np.arange(len(data))
    for name, kernel in KERNELS.items():
        coreset = kc.build_coreset(data, 5, kernel, 80, seed=3, ids=ids)
        solution = kc.solve(coreset, 5, kernel, n_init=3, seed=4)
        centers = kc.Centers(coreset.points, solution.coefficients, kernel)
        found = centers.label(data, margins=True)
        values[f"kernel {name}"] = {
            "coreset": coreset_values(coreset),
            "coreset labels": solution.labels.tolist(),
            "cost": solution.cost,
            "label counts": np.bincount(found.labels, minlength=5).tolist(),
            "first labels": found.labels[:200].tolist(),
            "distances": found.distances[:20].tolist(),
            "error": kc.empirical_error(data, coreset, 5, kernel, n_center_sets=20, seed=1),
        }
    kernel = KERNELS["gaussian"]
    for draw in ("iid", "uniform"):
        coreset = kc.build_coreset(data, 5, kernel, 80, seed=3, ids=ids, draw=draw)
        values[f"draw {draw}"] = {"coreset": coreset_values(coreset)}
    weights = 0.5 + np.arange(len(data)) % 3
    coreset = kc.build_coreset(data, 5, kernel, 80, z=1.0, weights=weights, seed=9, ids=ids)
    median = kc.solve(coreset, 4, kernel, z=1.0, n_init=2, seed=0)
    values["k-median"] = {"coreset": coreset_values(coreset), "cost": median.cost}
    values["eps"] = {"size": len(kc.build_coreset(data, 5, kernel, eps=0.05, seed=0))}
    halves = [
        kc.build_coreset(half, 5, kernel, 80, seed=s, ids=i)
        for s, half, i in ((0, data[:1500], ids[:1500]), (1, data[1500:], ids[1500:]))
    ]
    values["merged"] = {"coreset": coreset_values(kc.merge_coresets(halves, 5, kernel, 80, seed=2))}
    tree = kc.CoresetTree(5, kernel, 50, chunk_size=400, fan_in=2, seed=5)
    for start in range(0, len(data), 700):
        tree.add(data[start : start + 700], ids=ids[start : start + 700])
    values["tree"] = {"coreset": coreset_values(tree.result())}
    small = kc.Coreset(data[:14], np.ones(14))
    values["exact"] = {"cost": kc.solve_exact(small, 3, kernel).cost}
    values["choices"] = {
        "sigma median": kc.choose_sigma(data),
        "sigma auto": kc.choose_sigma(data, "auto"),
        "k": kc.choose_k(halves[0], range(2, 6), kernel, n_init=3).recommended,
    }
    spectral = kc.fit_spectral(data, 5, kernel, 200, seed=0)
    values["spectral"] = {
        "cut": spectral.normalized_cut,
        "label counts": np.bincount(spectral.predict(data), minlength=5).tolist(),
    }
    graph = kc.fit_graph(some_graph(), 3, seed=0)
    values["graph"] = {"cut": graph.normalized_cut, "labels": graph.labels.tolist()}
    estimator = kc.KernelKMeans(n_clusters=5, coreset_size=100, random_state=0).fit(data)
    values["estimator"] = {"inertia": estimator.inertia_, "labels": estimator.labels_[:200].tolist()}
    return values


def some_graph():
    """Three groups of 40 nodes, dense inside."""
    generator = np.random.default_rng(3)
    group = np.repeat(np.arange(3), 40)
    upper = np.triu(generator.random((120, 120)) < np.where(group[:, None] == group, 0.3, 0.02), 1)
    source, target = np.nonzero(upper)
    return kc.Graph.from_edges(source, target, n=120)


if __name__ == "__main__":
    (Path(__file__).parent / "values.json").write_text(json.dumps(compute(), indent=0) + "\n")
