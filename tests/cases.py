"""What the tests run on: one kernel of every kind, points in every memory layout, and a bound for chance."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelcoreset import (
    Cosine,
    Exponential,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    UserKernel,
)
from tests.user_kernels import rational

KERNELS = [
    Gaussian(sigma=1.5),
    Exponential(sigma=0.8),
    Laplacian(sigma=2.0),
    Matern(sigma=1.2, nu=1.5),
    Matern(sigma=1.2, nu=2.5),
    Polynomial(degree=1, c=2.0),
    Polynomial(degree=2),
    Polynomial(degree=3, c=0.5),
    Polynomial(degree=4, c=1.0),
    Polynomial(degree=7, c=1.0),
    Linear(),
    Cosine(),
    2.5 * Gaussian(sigma=0.5),
    Gaussian(sigma=1.0) + 0.5 * Linear(),
    Gaussian(sigma=1.0) + Polynomial(degree=2, c=1.0),
    Laplacian(sigma=1.0) * Polynomial(degree=2, c=1.0),
    (Gaussian(sigma=2.0) + Cosine()) * (Matern(sigma=1.0) + 0.1 * (Linear() * Linear())),
    UserKernel(rational),
    UserKernel(rational) * Linear() + Gaussian(sigma=1.0),
]

DRAWS = ["ordered", "iid", "uniform"]


def some_points(n, d, seed=0):
    """Points of a few clusters, with different spreads in the columns."""
    generator = np.random.default_rng(seed)
    middles = generator.normal(scale=2.0, size=(4, d))
    return middles[generator.integers(4, size=n)] + generator.normal(scale=0.5, size=(n, d))


def read_only(array):
    """A copy nobody can write to."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def spaced_out(points):
    """The same values as a view with gaps, contiguous in no direction."""
    wide = np.zeros((2 * points.shape[0], 3 * points.shape[1]))
    wide[::2, ::3] = points
    return wide[::2, ::3]


def point_sets(min_rows=1, max_rows=30, max_columns=4, largest=10.0):
    """Points for Hypothesis, duplicates and zeros among them."""
    shapes = st.tuples(st.integers(min_rows, max_rows), st.integers(1, max_columns))
    numbers = st.floats(-largest, largest, width=32)
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=numbers))


def standard_scores(estimates, exact):
    """How many standard errors the mean of many unbiased estimates (draws, functions) is from the exact values.

    Where chance is at work the score is nearly standard normal, so |score| > 5.5 has probability 4e-8. The tests
    make fewer than 2,000 such comparisons: all of them pass with probability above 1 - 1e-4 for a correct draw, and
    seeds are fixed, so what passed once passes always. Rounding counts as 1e-10 of the size of the estimates.
    """
    estimates, exact = np.asarray(estimates, dtype=float), np.asarray(exact, dtype=float)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    rounding = 1e-10 * np.abs(estimates).max(axis=0)
    return (estimates.mean(axis=0) - exact) / np.maximum(error, np.maximum(rounding, 1e-300))


LARGEST_SCORE = 5.5
