"""One descent from given labels to a local optimum, for any z."""

from __future__ import annotations

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.lloyd import descend_means
from kernelcoreset.clustering.problem import Labels, Problem, Solution, mean_shares
from kernelcoreset.clustering.weiszfeld import descend_centers
from kernelcoreset.kernels.evaluator import evaluator_of


def descend(
    problem: Problem, labels: Labels, coefficients: Floats, z: float, max_iter: int, *, polish: bool = False
) -> Solution:
    """Return the local optimum that one run reaches from given labels. Assumes validated input.

    `coefficients`, shape (k, s), are the first centers for z != 2, or zeros for the means; z = 2 needs labels only.
    """
    squared, weights = problem.squared, problem.weights
    labels = labels.copy()
    if z == 2.0:
        cost, steps, converged = descend_means(squared, weights, labels, len(coefficients), max_iter)
        shares = mean_shares(weights, labels, len(coefficients))
    else:
        coefficients = coefficients.copy()
        cost, steps, converged = descend_centers(squared, weights, labels, z, max_iter, polish, coefficients)
        shares = coefficients[labels, np.arange(len(labels))]
    cost *= problem.unit
    if not np.isfinite(cost):
        raise evaluator_of(problem.kernel).overflow("the clustering cost", problem.cloud.columns)
    return Solution(labels, shares, len(coefficients), float(cost), int(steps), bool(converged))
