"""Swap search: one center makes way for a point that is far from all centers."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.problem import Labels, Problem, Solution
from kernelcoreset.clustering.weiszfeld import measure_centers
from kernelcoreset.kernels.jit import compiled


def propose_swap(problem: Problem, solution: Solution, z: float, generator: np.random.Generator) -> Labels:
    """Labels with one center replaced by a point drawn by D^z from the centers."""
    to_centers = np.empty_like(solution.coefficients)
    measure_centers(problem.squared, solution.coefficients.copy(), to_centers)
    to_centers **= 0.5 * z
    mass = np.cumsum(problem.weights * to_centers.min(axis=0))
    candidate = min(int(np.searchsorted(mass, generator.random() * mass[-1], side="right")), len(mass) - 1)
    labels = np.empty_like(solution.labels)
    swap_center(problem.squared, problem.weights, to_centers, candidate, z, labels)
    return labels


@compiled()
def swap_center(squared: Floats, weights: Floats, to_centers: Floats, candidate: int, z: float, labels: Labels) -> None:
    """Labels after the center that is missed least made way for the point `candidate`.

    `to_centers` holds distance^z, shape (k, s). One pass: a point of the removed center goes to the candidate or to
    its second nearest.
    """
    k, s = to_centers.shape
    missed = np.zeros(k)
    second = np.empty(s, dtype=np.int32)
    for i in range(s):
        a, b = -1, -1
        for c in range(k):
            if a < 0 or to_centers[c, i] < to_centers[a, i]:
                a, b = c, a
            elif b < 0 or to_centers[c, i] < to_centers[b, i]:
                b = c
        labels[i], second[i] = a, b
        fresh = squared[candidate, i] ** (0.5 * z)
        missed[a] += weights[i] * (min(fresh, to_centers[b, i]) - min(fresh, to_centers[a, i]))
    leaves = np.argmin(missed)
    for i in range(s):
        stays = second[i] if labels[i] == leaves else labels[i]
        labels[i] = leaves if squared[candidate, i] ** (0.5 * z) < to_centers[stays, i] else stays
