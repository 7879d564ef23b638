"""Real data sets for the benchmarks, read from a folder that the user names (docs/data.md)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.paper import data
from kernelcoreset import DataError, Gaussian, Kernel, Polynomial

# The kernels of the paper's Table 1.
PAPER_KERNELS: dict[str, tuple[Kernel, Kernel]] = {
    "adult": (Gaussian(sigma=200_000.0), Polynomial(degree=2)),
    "bank": (Gaussian(sigma=500.0), Polynomial(degree=4)),
    "twitter": (Gaussian(sigma=50.0), Polynomial(degree=4)),
}

# Data of 16 to 36 columns: the file, what is between its columns, and the columns that are not the class.
MANY_COLUMNS: dict[str, tuple[str, str | None, range]] = {
    "letter": ("letter-recognition.data", ",", range(1, 17)),
    "pendigits": ("pendigits.tra", ",", range(16)),
    "satimage": ("sat.trn", None, range(36)),
}


def load(folder: Path, name: str) -> np.ndarray:
    """Return all rows of one data set as float64 of shape (n, d): raw scale, except Census, which is standardised."""
    try:
        return data.load(folder, name, most_rows=None).points
    except DataError as error:
        sys.exit(str(error))


def pairs(folder: Path) -> list[tuple[str, np.ndarray, Kernel]]:
    """Return the six pairs of the paper's Figure 1 without Census: name, points, kernel."""
    found = []
    for name, kernels in PAPER_KERNELS.items():
        points = load(folder, name)
        found += [(f"{name} {type(kernel).__name__.lower()}", points, kernel) for kernel in kernels]
    return found


def many_columns(folder: Path) -> dict[str, np.ndarray]:
    """Return the data sets of 16 to 36 columns, raw scale, by name."""
    missing = [file for file, _, _ in MANY_COLUMNS.values() if not (folder / file).exists()]
    if missing:
        sys.exit(f"{folder} has no {', '.join(missing)}; docs/data.md says where to get them.")
    return {
        name: np.loadtxt(folder / file, delimiter=between, usecols=columns)
        for name, (file, between, columns) in MANY_COLUMNS.items()
    }


def twitter_like(folder: Path, n: int, seed: int = 0) -> np.ndarray:
    """Return n rows of the Twitter prefix drawn with replacement, plus Gaussian noise of 0.05 degrees."""
    return data.twitter_like(load(folder, "twitter"), n, seed)


def median_distance(points: np.ndarray, seed: int = 0) -> float:
    """Return the median distance between points of a sample: the usual sigma of a Gaussian."""
    sample = points[np.random.default_rng(seed).integers(len(points), size=1_000)]
    squared = ((sample[:, None, :] - sample[None, :, :]) ** 2).sum(axis=2)
    return float(np.sqrt(np.median(squared[np.triu_indices(len(sample), 1)])))
