"""Real data sets for the benchmarks, read from a folder the user names; none of them is part of the project."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from kernelcoreset import Gaussian, Kernel, Polynomial

_COLUMNS = {
    "adult": ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"],
    "bank": [
        "age",
        "duration",
        "campaign",
        "pdays",
        "previous",
        "emp.var.rate",
        "cons.price.idx",
        "cons.conf.idx",
        "euribor3m",
        "nr.employed",
    ],
    "twitter": ["longitude", "latitude"],
}
_FILES = {
    "adult": "adult.parquet",
    "bank": "bank.parquet",
    "twitter": "twitter_first100k.parquet",
    "census": "census_income_kdd.parquet",
}
_NOT_FEATURES = {"instance_weight", "income_gt_50k", "split"}

# The kernels of the paper's Table 1.
PAPER_KERNELS: dict[str, tuple[Kernel, Kernel]] = {
    "adult": (Gaussian(sigma=200_000.0), Polynomial(degree=2)),
    "bank": (Gaussian(sigma=500.0), Polynomial(degree=4)),
    "twitter": (Gaussian(sigma=50.0), Polynomial(degree=4)),
}


def load(folder: Path, name: str) -> np.ndarray:
    """Return one data set as float64 of shape (n, d): raw scale, but Census standardised."""
    path = folder / _FILES[name]
    if not path.exists():
        sys.exit(
            f"{path} is missing: this benchmark needs the {name} data set as Parquet in the folder named by --data."
        )
    if name != "census":
        table = pq.read_table(path, columns=_COLUMNS[name])
        return np.column_stack([table[column].to_numpy() for column in _COLUMNS[name]]).astype(np.float64)
    table = pq.read_table(path)
    names = [column for column in table.column_names if column not in _NOT_FEATURES]
    points = np.column_stack([table[column].to_numpy() for column in names]).astype(np.float64)
    spread = points.std(axis=0)
    return (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def pairs(folder: Path) -> list[tuple[str, np.ndarray, Kernel]]:
    """Return the six pairs of the paper's Figure 1 that can be had: name, points, kernel."""
    found = []
    for name, kernels in PAPER_KERNELS.items():
        points = load(folder, name)
        found += [(f"{name} {type(kernel).__name__.lower()}", points, kernel) for kernel in kernels]
    return found


def twitter_like(folder: Path, n: int, seed: int = 0) -> np.ndarray:
    """Return n rows of the Twitter prefix drawn with replacement, plus Gaussian noise of 0.05 degrees."""
    generator = np.random.default_rng(seed)
    rows = load(folder, "twitter")
    points = rows[generator.integers(len(rows), size=n)]
    points += generator.normal(scale=0.05, size=points.shape)
    return points


def median_distance(points: np.ndarray, seed: int = 0) -> float:
    """Return the median distance between points of a sample: the usual choice of a Gaussian's sigma."""
    sample = points[np.random.default_rng(seed).integers(len(points), size=1_000)]
    squared = ((sample[:, None, :] - sample[None, :, :]) ** 2).sum(axis=2)
    return float(np.sqrt(np.median(squared[np.triu_indices(len(sample), 1)])))
