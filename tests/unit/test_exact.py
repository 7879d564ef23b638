"""The exact solver: equal to brute force on small problems, fast enough on larger ones, and its errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelcoreset import Coreset, Gaussian, Laplacian, Linear, Polynomial, SettingError
from kernelcoreset.clustering.exact import _log10_partitions, solve_exact
from kernelcoreset.clustering.solve import solve
from tests import naive_solve

KERNELS = [Linear(), Gaussian(sigma=0.7), Laplacian(sigma=1.0), Polynomial(degree=2)]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize(
    ("s", "k"), [(s, k) for s in range(1, 9) for k in range(1, 5) if k <= s] + [(9, 1), (9, 2), (9, 3)]
)
def test_equals_brute_force(kernel, s, k):
    generator = np.random.default_rng(100 * s + k)
    for spread in (0.1, 2.0):  # nearly equal weights, and weights over orders of magnitude
        points = generator.normal(size=(s, 2))
        weights = np.exp(spread * generator.normal(size=s))
        solution = solve_exact(Coreset(points, weights), k, kernel)
        gram = kernel.block(points, points)
        assert solution.cost == pytest.approx(naive_solve.brute_force(gram, weights, k), rel=1e-9, abs=1e-12)
        assert solution.cost == pytest.approx(
            naive_solve.partition_cost(gram, weights, solution.labels), rel=1e-9, abs=1e-12
        )


def test_nine_points_four_clusters():
    generator = np.random.default_rng(0)
    points, weights = generator.normal(size=(9, 3)), generator.exponential(size=9)
    solution = solve_exact(Coreset(points, weights), 4, Linear())
    assert solution.cost == pytest.approx(naive_solve.brute_force(points @ points.T, weights, 4), rel=1e-9)


def test_finds_what_a_poor_start_misses():
    # The search must not depend on a good solution from `solve`: start it from a bad one.
    from kernelcoreset.clustering.exact import _search
    from kernelcoreset.clustering.problem import Solution, prepare

    generator = np.random.default_rng(4)
    points, weights = generator.normal(size=(12, 2)), generator.exponential(size=12)
    problem = prepare(Coreset(points, weights), Linear())
    labels = (np.arange(12) % 3).astype(np.int32)
    poor = naive_solve.partition_cost(points @ points.T, weights, labels)
    found = _search(problem, 3, Solution(labels, np.zeros(12), 3, poor, 1, True), 10**6)
    best = solve_exact(Coreset(points, weights), 3, Linear())
    assert found.cost < poor
    assert found.cost == pytest.approx(best.cost, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_twenty_random_points(kernel):
    generator = np.random.default_rng(1)
    coreset = Coreset(generator.normal(size=(20, 3)), generator.exponential(size=20))
    exact = solve_exact(coreset, 3, kernel, max_nodes=2_000_000)  # within a second or two
    assert exact.cost <= solve(coreset, 3, kernel).cost * (1 + 1e-12)


def test_thirty_clustered_points():
    generator = np.random.default_rng(2)
    truth = np.arange(30) % 5
    points = 10.0 * np.eye(5)[truth] + 0.5 * generator.normal(size=(30, 5))
    exact = solve_exact(Coreset(points, np.ones(30)), 5, Linear(), max_nodes=100_000)
    assert exact.cost == pytest.approx(naive_solve.partition_cost(points @ points.T, np.ones(30), truth))


def test_equal_points_are_one():
    points = np.repeat(np.random.default_rng(3).normal(size=(8, 2)), 25, axis=0)  # 200 points, 8 distinct
    many = solve_exact(Coreset(points, np.ones(200)), 3, Linear())
    few = solve_exact(Coreset(points[::25], np.full(8, 25.0)), 3, Linear())
    assert many.cost == pytest.approx(few.cost, rel=1e-9)
    assert (many.labels.reshape(8, 25) == many.labels[::25, None]).all()


def test_counts_partitions():
    assert 10 ** _log10_partitions(9, 4) == pytest.approx(len(list(naive_solve.partitions(9, 4))))
    assert _log10_partitions(100, 3) == pytest.approx(100 * math.log10(3) - math.log10(6), abs=1e-6)


def test_refusals():
    generator = np.random.default_rng(5)
    coreset = Coreset(generator.normal(size=(30, 10)), np.ones(30))
    with pytest.raises(
        SettingError, match=r"did not end within max_nodes=1,000 .* about 10\^19 partitions\. Use solve\(\)"
    ):
        solve_exact(coreset, 5, Gaussian(sigma=0.5), max_nodes=1_000)
    large = Coreset(generator.normal(size=(151, 1)), np.ones(151))
    with pytest.raises(SettingError, match="151 distinct points in 2 clusters takes too long: at most 150 distinct"):
        solve_exact(large, 2, Linear())
    with pytest.raises(SettingError, match=r"`z` must be 2 for an exact solution; got 1\. Use solve"):
        solve_exact(coreset, 2, Linear(), z=1.0)
    with pytest.raises(SettingError, match="`max_nodes` must be at least 1; got 0"):
        solve_exact(coreset, 2, Linear(), max_nodes=0)
