"""Solving a coreset: small cases by hand, comparison with slow plain code, and every message."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest
from numba import njit
from sklearn.cluster import KMeans

from kernelcoreset import (
    Coreset,
    DataError,
    Gaussian,
    KernelError,
    Laplacian,
    Linear,
    Polynomial,
    SettingError,
    UserKernel,
)
from kernelcoreset.clustering.lloyd import descend_means
from kernelcoreset.clustering.problem import prepare
from kernelcoreset.clustering.solve import solve
from kernelcoreset.clustering.starts import plain_k_means, principal_components, seed_points
from kernelcoreset.clustering.weiszfeld import best_center
from tests import naive_solve
from tests.user_kernels import rational


@njit
def sharp_difference(x, y):
    """Symmetric, K(x, x) = 1, but far from positive semidefinite."""
    return 1.0 - 3.0 * abs(x[0] - y[0])


@njit
def inner(x, y):
    return np.sum(x * y)


def blobs(n=300, k=4, d=2, seed=0):
    generator = np.random.default_rng(seed)
    centers = 10.0 * np.stack([np.arange(k) % 2, np.arange(k) // 2, *np.zeros((d - 2, k))], axis=1)
    truth = np.arange(n) % k
    return centers[truth] + generator.normal(size=(n, d)), truth


def same_partition(a, b):
    return len(np.unique(np.stack([a, b]), axis=1).T) == len(np.unique(a)) == len(np.unique(b))


def test_three_points_by_hand():
    # {0, 1} has mean 1/4 with weights 3 and 1: 3/16 + 9/16 = 0.75.
    solution = solve(Coreset([[0.0], [1.0], [10.0]], [3.0, 1.0, 5.0]), 2, Linear())
    assert solution.cost == pytest.approx(0.75)
    near, far = solution.labels[0], solution.labels[2]
    assert solution.labels.tolist() == [near, near, far]
    assert solution.coefficients[near].tolist() == [0.75, 0.25, 0.0]
    assert solution.coefficients[far].tolist() == [0.0, 0.0, 1.0]
    assert solution.converged
    assert solution.labels.dtype == np.int32


def test_median_by_hand():
    # On a line the 1-median is the weighted median: 0 carries more than half.
    solution = solve(Coreset([[0.0], [1.0], [10.0]], [5.0, 2.0, 2.0]), 1, Linear(), z=1.0)
    assert solution.cost == pytest.approx(22.0)
    assert solution.coefficients[0] == pytest.approx([1.0, 0.0, 0.0])


def test_linear_kernel_is_plain_k_means():
    points, truth = blobs()
    weights = np.random.default_rng(1).uniform(0.5, 5.0, size=len(points))
    solution = solve(Coreset(points, weights), 4, Linear())
    plain = KMeans(4, n_init=10, random_state=0, tol=0.0).fit(points, sample_weight=weights)
    assert solution.cost == pytest.approx(plain.inertia_, rel=1e-6)
    assert same_partition(solution.labels, truth)
    assert same_partition(solution.labels, plain.labels_)


def test_rings_need_the_kernel():
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    radius = np.repeat([1.0, 4.0], 50)
    points = radius[:, None] * np.stack([np.cos(angle * 2), np.sin(angle * 2)], axis=1)
    coreset = Coreset(points, np.ones(100))
    assert same_partition(solve(coreset, 2, Polynomial(degree=2)).labels, radius > 2)
    assert not same_partition(solve(coreset, 2, Linear()).labels, radius > 2)


@pytest.mark.parametrize("z", [1.0, 1.5, 3.0, 6.0])
def test_one_center_matches_a_grid_search(z):
    generator = np.random.default_rng(3)
    for _ in range(5):
        points, weights = generator.normal(size=(7, 2)), generator.exponential(size=7)
        solution = solve(Coreset(points, weights), 1, Linear(), z=z)
        assert solution.cost == pytest.approx(naive_solve.best_center_cost(points, weights, z), rel=1e-6)
        assert solution.cost == pytest.approx(
            naive_solve.cost_of_centers(points @ points.T, weights, solution.coefficients, z), rel=1e-9
        )


def test_best_center_leaves_a_point_it_sits_on():
    # Weiszfeld's trap: the start is a data point, where its own pull is infinite, but the optimum is elsewhere.
    points = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [2.0, -1.0], [3.0, 0.0]])
    squared = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    share = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    cost = best_center(squared, np.ones(5), 1.0, share, 500, 1e-15)
    assert cost == pytest.approx(naive_solve.best_center_cost(points, np.ones(5), 1.0), rel=1e-9)
    assert cost == pytest.approx(5.0)  # the center is the point (2, 0)


@pytest.mark.parametrize("kernel", [Linear(), Gaussian(sigma=1.0), Laplacian(sigma=2.0), Polynomial(degree=3, c=1.0)])
def test_no_worse_than_plain_lloyd_from_the_same_labels(kernel):
    generator = np.random.default_rng(5)
    points, weights = generator.normal(size=(60, 3)), generator.exponential(size=60)
    gram = kernel.block(points, points)
    squared = kernel.squared_distances(points, points)
    for _ in range(5):
        start = np.concatenate([np.arange(4), generator.integers(4, size=56)]).astype(np.int32)
        _, costs = naive_solve.lloyd(gram, weights, start, 4)
        labels = start.copy()
        cost, _, converged = descend_means(squared, weights, labels, 4, 300)
        assert converged
        assert cost <= costs[-1] * (1 + 1e-9)
        assert cost == pytest.approx(naive_solve.partition_cost(gram, weights, labels), rel=1e-9)


def test_empty_clusters_are_filled():
    points, truth = blobs(80)
    squared = Linear().squared_distances(points, points)
    labels = np.zeros(80, dtype=np.int32)  # three clusters of four are empty
    descend_means(squared, np.ones(80), labels, 4, 300)
    assert len(np.unique(labels)) == 4
    solution = solve(Coreset(points, np.ones(80)), 4, Linear(), start=np.zeros(80, dtype=int), z=1.0)
    assert same_partition(solution.labels, truth)


def test_start_is_never_made_worse():
    generator = np.random.default_rng(7)
    points = generator.normal(size=(40, 2))
    coreset = Coreset(points, np.ones(40))
    best = solve(coreset, 5, Gaussian(sigma=0.3), n_init=30)
    for z in (2.0, 1.0):
        again = solve(coreset, 5, Gaussian(sigma=0.3), n_init=1, start=best.labels, z=z)
        if z == 2.0:
            assert again.cost <= best.cost * (1 + 1e-12)
        else:
            gram = Gaussian(sigma=0.3).block(points, points)
            assert again.cost <= naive_solve.cost_of_centers(gram, np.ones(40), best.coefficients, 1.0) * (1 + 1e-12)


@pytest.mark.parametrize("used", [3, 2])  # of 4 clusters, the others are empty at the start
def test_short_runs_of_k_means_are_those_of_plain_numpy(used):
    generator = np.random.default_rng(5)
    points, weights = blobs(d=3, seed=2)[0], generator.uniform(0.1, 2.0, 300)
    start = generator.integers(used, size=300).astype(np.int32)
    given = start.copy()
    found = plain_k_means(points, weights, 4, generator, runs=1, start=start)
    assert np.array_equal(found, naive_solve.vector_lloyd(points, weights, start, 4, steps=10))
    assert np.array_equal(start, given)


@pytest.mark.parametrize("copies", [1, 100])  # with 100 of each there are fewer distinct points than seeds
def test_seeds_of_short_runs_are_those_of_plain_numpy(copies):
    points = np.repeat(blobs(d=2, seed=3)[0][: 300 // copies], copies, axis=0)
    weights = np.random.default_rng(1).integers(0, 3, len(points)).astype(float)
    for seed in range(20):
        uniforms = np.random.default_rng(seed).random(5)
        labels = np.zeros(len(points), dtype=np.int32)
        seed_points(points, weights, uniforms, labels)
        assert np.array_equal(labels, naive_solve.vector_seeds(points, weights, uniforms))


def test_a_run_that_must_beat_another_one_ends_as_it_would_alone():
    points, weights = np.random.default_rng(4).normal(size=(300, 3)), np.ones(300)
    squared = Gaussian(sigma=1.0).squared_distances(points, points)
    starts = [np.random.default_rng(seed).integers(6, size=300).astype(np.int32) for seed in range(30)]
    alone = [(*descend_means(squared, weights, (labels := start.copy()), 6, 300), labels) for start in starts]
    beat = sorted(run[0] for run in alone)[10]
    for start, (cost, steps, converged, ends) in zip(starts, alone, strict=True):
        labels = start.copy()
        found = descend_means(squared, weights, labels, 6, 300, beat)
        assert found[0] == pytest.approx(cost, rel=1e-12)
        if cost < beat * (1 - 1e-9):
            assert found == (cost, steps, converged)
            assert np.array_equal(labels, ends)
        else:
            assert not found[2]
            assert found[1] < steps  # without the step that computes everything again


def test_stops_at_max_iter_and_says_so():
    generator = np.random.default_rng(9)
    coreset = Coreset(generator.normal(size=(500, 2)), np.ones(500))
    for z in (2.0, 1.0):
        solution = solve(coreset, 8, Linear(), z=z, n_init=1, max_iter=1)
        assert not solution.converged
        assert np.allclose(solution.coefficients.sum(axis=1), 1.0)
        assert solve(coreset, 8, Linear(), z=z, n_init=1).converged


def test_same_seed_same_solution_and_input_unchanged():
    points, _ = blobs(100)
    coreset = Coreset(points, np.ones(100))
    one, two = (solve(coreset, 4, Gaussian(sigma=3.0), seed=3) for _ in range(2))
    assert (one.labels == two.labels).all()
    assert one.cost == two.cost
    assert (coreset.points == points).all()
    with pytest.raises(ValueError, match="read-only"):
        one.labels[0] = 1


def test_huge_polynomial_values():
    points = 1e6 * np.random.default_rng(0).normal(size=(50, 3))
    solution = solve(Coreset(points, np.ones(50)), 3, Polynomial(degree=4))
    gram = Polynomial(degree=4).block(points, points)
    assert solution.cost == pytest.approx(naive_solve.partition_cost(gram, np.ones(50), solution.labels), rel=1e-8)


def test_as_many_clusters_as_points():
    coreset = Coreset([[0.0], [1.0], [5.0]], [1.0, 2.0, 3.0])
    for z in (1.0, 2.0, 3.0):
        solution = solve(coreset, 3, Linear(), z=z)
        assert solution.cost == 0.0
        assert sorted(solution.labels) == [0, 1, 2]


def test_user_kernel_equals_its_built_in_twin():
    points, truth = blobs(60)
    solution = solve(Coreset(points, np.ones(60)), 4, UserKernel(inner))
    assert same_partition(solution.labels, truth)
    assert solution.cost == pytest.approx(solve(Coreset(points, np.ones(60)), 4, Linear()).cost)


def test_indefinite_function_warns_once_with_its_eigenvalue():
    points = np.linspace(0.0, 1.0, 12)[:, None]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve(Coreset(points, np.ones(12)), 2, UserKernel(sharp_difference))
    gram = 1.0 - 3.0 * np.abs(points - points.T)
    least = np.linalg.eigvalsh(gram)[0]
    assert len(caught) == 1
    assert f"most negative eigenvalue of the Gram matrix of 12 points is {least:g}" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert np.isfinite(solution.cost)


def test_bad_settings():
    coreset = Coreset([[0.0], [1.0], [1.0]], [1.0, 1.0, 1.0])
    with pytest.raises(DataError, match=r"number of distinct coreset points \(2, .*got 3\. Ask for fewer clusters"):
        solve(coreset, 3, Linear())
    with pytest.raises(SettingError, match="`n_init` must be at least 1; got 0"):
        solve(coreset, 2, Linear(), n_init=0)
    with pytest.raises(SettingError, match="`max_iter` must be at least 1; got 0"):
        solve(coreset, 2, Linear(), max_iter=0)
    with pytest.raises(SettingError, match=r"`z` must be a finite number of at least 1; got 0\.5"):
        solve(coreset, 2, Linear(), z=0.5)
    with pytest.raises(SettingError, match="`k` must be at least 1; got 0"):
        solve(coreset, 0, Linear())
    with pytest.raises(SettingError, match="`kernel` must be a kernel object"):
        solve(coreset, 2, "rbf")
    with pytest.raises(SettingError, match="`coreset` must be a Coreset; got ndarray"):
        solve(np.zeros((3, 1)), 2, Linear())
    with pytest.raises(DataError, match="`coreset` must have at least one point"):
        solve(Coreset(np.empty((0, 2)), []), 1, Linear())
    with pytest.raises(DataError, match=r"`start` must be whole numbers of shape \(3,\)"):
        solve(coreset, 2, Linear(), start=[0, 1])
    with pytest.raises(DataError, match=r"`start` must hold labels from 0 to k - 1 \(1\); got 0 to 2"):
        solve(coreset, 2, Linear(), start=[0, 1, 2])


@pytest.mark.parametrize("kernel", [Linear(), Gaussian(sigma=1.0)], ids=repr)
def test_components_are_those_of_the_dense_matrix_and_repeat(kernel):
    generator = np.random.default_rng(5)
    points, weights = generator.normal(size=(50, 2)), generator.exponential(size=50)
    problem = prepare(Coreset(points, weights), kernel)
    first, again = (principal_components(problem, 3, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    share = weights / weights.sum()
    center = np.eye(50) - share
    gram = center @ kernel.block(points, points) @ center.T
    values, vectors = np.linalg.eigh(np.sqrt(share[:, None] * share) * gram)
    count = first.shape[1]
    assert count == (2 if kernel == Linear() else 7)  # the rank, or k + 4
    expected = (vectors * np.sqrt(np.maximum(values, 0)) / np.sqrt(share)[:, None])[:, ::-1][:, :count]
    scale = problem.squared.max() ** 0.5
    for found, true in zip(first.T * scale, expected.T, strict=True):
        np.testing.assert_allclose(found * np.sign(found @ true), true, atol=1e-4 * np.abs(true).max())


def test_too_large_a_matrix_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.import_module("kernelcoreset.clustering.problem"), "_MEMORY_SHARE", 1e-12)
    three = Coreset([[0.0], [1.0], [2.0]], [1.0, 1.0, 1.0])
    with pytest.raises(DataError, match=r"at most \d points for a matrix of all their distances, .* got 3\. Reduce it"):
        solve(three, 1, Linear(), z=1.0)


# --- numbers at the edge of float64 -----------------------------------------------------------------------------------


def three_blobs(n=60, seed=0):
    """Three tight blobs, 5 apart, and their clusters."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(3), n)
    return generator.normal(scale=0.1, size=(3 * n, 2)) + 5.0 * owner[:, None], owner


def unweighted(points):
    return Coreset(points, np.ones(len(points)))


@pytest.mark.parametrize("unit", [2.0**-1060, 2.0**-1000, 2.0**-500, 2.0**500, 2.0**900])
def test_the_unit_of_the_weights_changes_the_cost_alone(unit):
    points, _ = three_blobs()
    weights = np.random.default_rng(1).uniform(1.0, 2.0, size=len(points))
    plain, scaled = (solve(Coreset(points, own), 3, Linear()) for own in (weights, weights * unit))
    np.testing.assert_array_equal(scaled.labels, plain.labels)
    assert scaled.cost / unit == pytest.approx(plain.cost, rel=1e-9 if unit > 1e-300 else 1e-2)


def test_weights_far_below_the_others_do_no_harm():
    points, owner = three_blobs()
    weights = np.where(owner == 0, 1e-300, 1.0)
    found = solve(Coreset(points, weights), 3, Linear())
    assert found.cost == pytest.approx(
        solve(Coreset(points[owner > 0], weights[owner > 0]), 3, Linear()).cost, rel=0.05
    )
    assert np.isfinite(found.coefficients).all()
    found = solve(Coreset(points, weights), 3, Linear(), z=1.0)
    assert np.isfinite(found.cost)


@pytest.mark.parametrize("scale", [1e-155, 1e-160, 1e-300])
def test_points_whose_squares_underflow_are_refused_with_their_column(scale):
    points, _ = three_blobs()
    with pytest.raises(DataError, match=r"column [01], the widest, ranges over .* Multiply all columns by a constant"):
        solve(unweighted(points * scale), 3, Linear())


def test_kernel_values_that_underflow_are_named():
    points, _ = three_blobs()
    with pytest.raises(KernelError, match="underflows for squared distances"):
        solve(unweighted(points * 1e-140), 3, 1e-30 * Linear())
    with pytest.raises(DataError, match="points differ, but the kernel distances of all of them are 0 in float64"):
        solve(unweighted(points * 1e-140), 3, 1e-100 * Linear())
    with pytest.raises(KernelError, match=r"underflows for distance\^z, z = 1000"):
        solve(unweighted(points * 1e-3), 3, Linear(), z=1000.0)
    with pytest.raises(KernelError, match=r"overflows for distance\^z, z = 1000"):
        solve(unweighted(points), 3, Linear(), z=1000.0)


def test_a_column_that_float64_cannot_resolve_is_named():
    points, _ = three_blobs()
    points[:, 1] += 1e15
    with pytest.warns(UserWarning, match="Column 1 holds numbers of about 1e.15, where float64 goes in steps of 0.125"):
        solve(unweighted(points), 3, Linear())
    with (
        pytest.warns(UserWarning, match="Column 0"),
        pytest.raises(DataError, match=r"number of distinct coreset points .* Column 0 holds .* Subtract an offset"),
    ):
        solve(unweighted(points[:, :1] + 1e17), 3, Linear())


def test_values_of_a_user_function_that_leave_distances_no_digits_are_named():
    points, _ = three_blobs()
    with pytest.warns(UserWarning, match="leaves them fewer than 4 digits. Subtract its mean from column"):
        solve(unweighted(1e-7 * points), 3, UserKernel(rational))


def test_overflow_names_the_column_with_the_largest_values():
    points, _ = three_blobs()
    points[7, 1] = 1e160
    with pytest.raises(
        KernelError, match=r"overflows for K\(x, y\).* Column 1 holds the largest values \(up to 1e.160"
    ):
        solve(unweighted(points), 3, Linear())
