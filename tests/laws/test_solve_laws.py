"""Laws that hold for every solver."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcoreset import Coreset, Gaussian, Laplacian, Linear, Polynomial
from kernelcoreset.clustering.exact import solve_exact
from kernelcoreset.clustering.lloyd import descend_means
from kernelcoreset.clustering.problem import prepare
from kernelcoreset.clustering.solve import solve, solve_by_features
from kernelcoreset.clustering.weiszfeld import descend_centers
from tests import naive_solve

KERNELS = st.sampled_from([Linear(), Gaussian(sigma=1.0), Laplacian(sigma=1.0), Polynomial(degree=2, c=1.0)])
POWERS = st.sampled_from([1.0, 1.3, 2.0, 2.5, 4.0])


@st.composite
def instances(draw, most=12):
    """A weighted coreset, with repeated points and very unequal weights among them, and a k that it allows."""
    coordinate = st.integers(-20, 20).map(lambda v: v / 4)
    points = np.array(draw(st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=most)))
    weights = np.array(draw(st.lists(st.integers(1, 30), min_size=len(points), max_size=len(points)))) / 3
    distinct = len(np.unique(points, axis=0))
    return Coreset(points, weights), draw(st.integers(1, min(4, distinct)))


def close(a, b, scale):
    return a == pytest.approx(b, rel=1e-7, abs=1e-10 * scale)


def check_solution(solution, coreset, k, kernel, z):
    gram = kernel.block(coreset.points, coreset.points)
    scale = float((coreset.weights * np.diag(gram).max() ** (0.5 * z)).sum()) + 1.0
    # The plain code subtracts kernel values, and z = 1 takes the root of their rounding errors.
    noise = (1e-15 * np.diag(gram).max()) ** 0.5 * coreset.weights.sum() if z < 2 else 0.0
    assert solution.cost == pytest.approx(
        naive_solve.cost_of_centers(gram, coreset.weights, solution.coefficients, z),
        rel=1e-7,
        abs=1e-10 * scale + noise,
    )
    assert solution.coefficients.shape == (k, len(coreset))
    assert np.allclose(solution.coefficients.sum(axis=1), 1.0)
    assert (solution.coefficients >= 0).all()
    for c in range(k):
        assert (solution.coefficients[c, solution.labels != c] == 0).all()
    assert sorted(np.unique(solution.labels)) == list(range(k))
    if solution.converged:
        to_centers = naive_solve.squared_to_centers(gram, solution.coefficients)
        own = to_centers[solution.labels, np.arange(len(coreset))]
        assert (own <= to_centers.min(axis=0) + 1e-9 * (np.diag(gram).max() + 1.0)).all()


@settings(max_examples=60, deadline=None)
@given(instances(), KERNELS, POWERS, st.integers(0, 5))
def test_solve_keeps_its_word(instance, kernel, z, seed):
    coreset, k = instance
    check_solution(solve(coreset, k, kernel, z=z, n_init=2, seed=seed), coreset, k, kernel, z)


@settings(max_examples=60, deadline=None)
@given(instances(), KERNELS, st.integers(0, 5))
def test_solving_by_features_keeps_its_word(instance, kernel, seed):
    coreset, k = instance
    solution = solve_by_features(prepare(coreset, kernel), k, 2, 300, np.random.default_rng(seed), [])
    check_solution(solution, coreset, k, kernel, 2.0)
    gram = kernel.block(coreset.points, coreset.points)
    slack = 1e-10 * (1.0 + np.diag(gram).max() * coreset.weights.sum())
    assert solution.cost >= solve_exact(coreset, k, kernel).cost - slack


@settings(max_examples=40, deadline=None)
@given(instances(most=8), KERNELS)
def test_exact_keeps_its_word_and_is_least(instance, kernel):
    coreset, k = instance
    exact = solve_exact(coreset, k, kernel)
    check_solution(exact, coreset, k, kernel, 2.0)
    gram = kernel.block(coreset.points, coreset.points)
    least = naive_solve.brute_force(gram, coreset.weights, k)
    assert close(exact.cost, least, float(np.diag(gram).max() * coreset.weights.sum()) + 1.0)


@settings(max_examples=40, deadline=None)
@given(instances(most=30), KERNELS, POWERS, st.integers(0, 5), st.integers(1, 6))
def test_cost_never_rises(instance, kernel, z, seed, steps):
    """A run stopped after any number of iterations costs no less than one that goes on."""
    coreset, k = instance
    squared = kernel.squared_distances(coreset.points, coreset.points)
    start = np.random.default_rng(seed).integers(k, size=len(coreset)).astype(np.int32)
    start[:k] = np.arange(k)

    def cost_after(iterations):
        labels = start.copy()
        if z == 2.0:
            return descend_means(squared, coreset.weights, labels, k, iterations)[0]
        zeros = np.zeros((k, len(labels)))
        return descend_centers(squared, coreset.weights, labels, z, iterations, False, zeros)[0]

    earlier, later = cost_after(steps), cost_after(steps + 1)
    assert later <= earlier * (1 + 1e-11)
    if z == 2.0:
        gram = kernel.block(coreset.points, coreset.points)
        slack = 1e-10 * (1.0 + np.diag(gram).max() * coreset.weights.sum())
        assert earlier <= naive_solve.partition_cost(gram, coreset.weights, start) + slack


@settings(max_examples=25, deadline=None)
@given(instances(most=7), KERNELS, st.data())
def test_weight_n_is_n_copies(instance, kernel, data):
    coreset, k = instance
    copies = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(coreset), max_size=len(coreset))))
    weighted = solve_exact(Coreset(coreset.points, copies.astype(float)), k, kernel)
    repeated = solve_exact(Coreset(np.repeat(coreset.points, copies, axis=0), np.ones(copies.sum())), k, kernel)
    assert weighted.cost == pytest.approx(repeated.cost, rel=1e-9, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(instances(), KERNELS, POWERS, st.sampled_from([0.125, 4.0, 1024.0]))
def test_scaled_weights_scale_the_cost(instance, kernel, z, factor):
    """Powers of two, so that rounding is the same."""
    coreset, k = instance
    one = solve(coreset, k, kernel, z=z, n_init=2)
    scaled = solve(Coreset(coreset.points, factor * coreset.weights), k, kernel, z=z, n_init=2)
    assert scaled.cost == pytest.approx(factor * one.cost, rel=1e-9, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(instances(most=9), KERNELS, st.randoms(use_true_random=False))
def test_exact_cost_does_not_depend_on_the_order(instance, kernel, random):
    coreset, k = instance
    order = np.array(random.sample(range(len(coreset)), len(coreset)))
    one = solve_exact(coreset, k, kernel)
    other = solve_exact(Coreset(coreset.points[order], coreset.weights[order]), k, kernel)
    assert other.cost == pytest.approx(one.cost, rel=1e-9, abs=1e-9)


def test_exact_labels_follow_the_points():
    """Random coordinates have no ties, so there is one optimal partition, and the labels are permuted."""
    generator = np.random.default_rng(0)
    for _ in range(5):
        points, weights = generator.normal(size=(12, 2)), generator.exponential(size=12)
        order = generator.permutation(12)
        one = solve_exact(Coreset(points, weights), 3, Gaussian(sigma=1.0)).labels[order]
        other = solve_exact(Coreset(points[order], weights[order]), 3, Gaussian(sigma=1.0)).labels
        assert len(set(zip(one.tolist(), other.tolist(), strict=True))) == 3


@settings(max_examples=25, deadline=None)
@given(instances(most=9), KERNELS)
def test_more_clusters_never_cost_more(instance, kernel):
    coreset, k = instance
    costs = [solve_exact(coreset, own, kernel).cost for own in range(1, k + 1)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(costs))
