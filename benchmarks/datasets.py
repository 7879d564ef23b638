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


def twitter_like(folder: Path, n: int, seed: int = 0) -> np.ndarray:
    """Return n rows of the Twitter prefix drawn with replacement, plus Gaussian noise of 0.05 degrees."""
    return data.twitter_like(load(folder, "twitter"), n, seed)


def median_distance(points: np.ndarray, seed: int = 0) -> float:
    """Return the median distance between points of a sample: the usual sigma of a Gaussian."""
    sample = points[np.random.default_rng(seed).integers(len(points), size=1_000)]
    squared = ((sample[:, None, :] - sample[None, :, :]) ** 2).sum(axis=2)
    return float(np.sqrt(np.median(squared[np.triu_indices(len(sample), 1)])))
