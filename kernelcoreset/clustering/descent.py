"""One descent from given labels to a local optimum, for any z."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.lloyd import descend_means
from kernelcoreset.clustering.problem import Labels, Problem, Solution, mean_shares
from kernelcoreset.clustering.weiszfeld import descend_centers
from kernelcoreset.kernels.evaluator import evaluator_of


def descend(
    problem: Problem,
    labels: Labels,
    coefficients: Floats,
    z: float,
    max_iter: int,
    *,
    polish: bool = False,
    beat: float = np.inf,
) -> Solution:
    """Return the local optimum that one run reaches from given labels. Assumes validated input.

    `coefficients`, shape (k, s), are the first centers for z != 2, or zeros for the means; z = 2 needs labels only.
    A run with z = 2 that ends at a cost of no less than `beat` is not `converged`.
    """
    squared, weights = problem.squared, problem.weights
    labels = labels.copy()
    if z == 2.0:
        k, scaled = len(coefficients), beat / problem.unit
        cost, steps, converged = descend_means(squared, weights, labels, k, max_iter, scaled)
        shares = mean_shares(weights, labels, len(coefficients))
    else:
        coefficients = coefficients.copy()
        cost, steps, converged = descend_centers(squared, weights, labels, z, max_iter, polish, coefficients)
        shares = coefficients[labels, np.arange(len(labels))]
    cost *= problem.unit
    if not np.isfinite(cost):
        raise evaluator_of(problem.kernel).overflow("the clustering cost", problem.cloud.columns)
    return Solution(labels, shares, len(coefficients), float(cost), int(steps), bool(converged))
