"""Importance sampling: from distances to sensitivities, from sensitivities to a weighted sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.base import Kernel
from kernelcoreset.seeding import Seeding, seed_pivots

DRAWS = ("ordered", "iid", "uniform")
Indices = NDArray[np.int64]


def draw_sample(
    kernel: Kernel,
    columns: Floats,
    weights: Floats,
    *,
    k: int,
    size: int,
    z: float,
    draw: str,
    generator: np.random.Generator,
) -> tuple[Indices, Floats]:
    if draw == "uniform":
        probabilities = weights / weights.sum()
        return draw_iid(probabilities, weights, size, generator)
    cloud = kernel._cloud(columns)
    if draw == "iid":
        seeding = seed_pivots(kernel, cloud, weights, k, z, generator)
        return draw_iid(sensitivities(seeding, weights), weights, size, generator)
    seeding = seed_pivots(kernel, cloud, weights, 4 * k, z, generator, one_by_one=k)
    p = sensitivities(seeding, weights)
    order = np.lexsort((seeding.distances, seeding.nearest))
    picks = np.searchsorted(np.cumsum(p[order]), (generator.random() + np.arange(size)) / size)
    index, times = np.unique(order[np.minimum(picks, len(p) - 1)], return_counts=True)
    return index, times * weights[index] / (p[index] * size)


def sensitivities(seeding: Seeding, weights: Floats) -> Floats:
    """Probabilities p proportional to w d^z / cost + w / W(cluster), shape (n,)."""
    cluster_weights = np.bincount(seeding.nearest, weights, minlength=len(seeding.pivots))
    scores = np.divide(1.0, cluster_weights, out=np.zeros_like(cluster_weights), where=cluster_weights > 0)[
        seeding.nearest
    ]
    if seeding.cost > 0:
        scores += seeding.distances / seeding.cost
    scores *= weights
    scores /= scores.sum()
    return scores


def draw_iid(
    probabilities: Floats, weights: Floats, size: int, generator: np.random.Generator
) -> tuple[Indices, Floats]:
    """`size` independent draws; equal picks are one point with their weights added."""
    cumulative = np.cumsum(probabilities)
    picks = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    index, times = np.unique(picks, return_counts=True)
    return index, times * weights[index] / (probabilities[index] * size)
