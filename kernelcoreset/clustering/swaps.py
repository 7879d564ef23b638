"""Swaps: one center is replaced by a point that is far from all centers."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.problem import Labels, Problem, Solution
from kernelcoreset.clustering.weiszfeld import measure_centers
from kernelcoreset.kernels.jit import compiled


def propose_swap(problem: Problem, solution: Solution, z: float, generator: np.random.Generator) -> Labels:
    """Return labels with one center replaced by a point, drawn in proportion to w dist^z to its center."""
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
    """Write the labels with the point `candidate` in place of the center whose removal costs least.

    `to_centers` holds distance^z, shape (k, s). Points of the removed center go to the candidate or to their second
    nearest center.
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
    leaves = 0
    for c in range(k):
        leaves = c if missed[c] < missed[leaves] else leaves
    for i in range(s):
        stays = second[i] if labels[i] == leaves else labels[i]
        labels[i] = leaves if squared[candidate, i] ** (0.5 * z) < to_centers[stays, i] else stays
