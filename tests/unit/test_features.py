"""Solving by explicit vectors: the vectors, moves, the search, and the last steps with the kernel's own distances."""

from __future__ import annotations

import importlib
import itertools
from collections import Counter

import numpy as np
import pytest
from numba import njit

import kernelcoreset as kc
from kernelcoreset import Coreset, Cosine, Gaussian, Linear, Polynomial
from kernelcoreset.clustering import starts
from kernelcoreset.clustering.distances import all_distances, distances_from
from kernelcoreset.clustering.features import explicit_features, factor_independent, principal_axes
from kernelcoreset.clustering.finish import descend_exactly, partition_costs
from kernelcoreset.clustering.means import descend_rows, vectors_of, without_last_columns
from kernelcoreset.clustering.problem import check_k, prepare
from kernelcoreset.clustering.search import exchange, search, seed_rows
from kernelcoreset.clustering.solve import solve, solve_by_features
from kernelcoreset.errors import DataError, KernelError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from tests import naive_solve


@njit
def steep_difference(x, y):
    """Symmetric, but d2 = 2 |x - y|^4 is no squared distance of any vectors."""
    return 1.0 - (x[0] - y[0]) ** 4


def features_of(kernel, points, weights=None, rank=200):
    weights = np.ones(len(points)) if weights is None else weights
    cloud = evaluator_of(kernel).cloud(as_columns(points))
    return explicit_features(kernel, cloud, weights, rank, np.random.default_rng(0))


def random_vectors(s=120, r=5, seed=0):
    generator = np.random.default_rng(seed)
    return vectors_of(generator.normal(size=(s, r)), generator.exponential(size=s) + 0.05)


def blobs(k, each, d=3, seed=0):
    generator = np.random.default_rng(seed)
    return np.repeat(20.0 * generator.normal(size=(k, d)), each, axis=0) + generator.normal(size=(k * each, d))


# --- distances --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian(sigma=5.0), Linear(), Cosine(), Polynomial(degree=2, c=1.0)], ids=repr)
def test_distances_by_products_are_those_of_the_kernel_and_zero_for_equal_points(kernel):
    points = np.random.default_rng(0).normal(size=(1500, 20)) + 1.0
    points[7] = points[1400] = points[3]
    points[8] = points[3] + 1e-9
    columns, chosen = as_columns(points), np.array([3, 5, 8])
    found, true = distances_from(kernel, columns, chosen), kernel.squared_distances(points, points[chosen]).T
    np.testing.assert_allclose(found, true, rtol=1e-9, atol=1e-13 * true.max())
    assert (found[0, [3, 7, 1400]] == 0.0).all()
    everything = all_distances(kernel, columns)
    np.testing.assert_allclose(everything, kernel.squared_distances(points, points), rtol=1e-9, atol=1e-13 * true.max())
    np.testing.assert_array_equal(everything, everything.T)
    assert (everything[3, [3, 7, 1400]] == 0.0).all()
    assert (np.diag(everything) == 0.0).all()
    if kernel.exact:
        np.testing.assert_allclose(found[0, 8], true[0, 8], rtol=1e-6)


def test_distances_that_overflow_are_named():
    points = np.random.default_rng(0).normal(size=(30, 20))
    points[2, 11] = 1e160
    with pytest.raises(KernelError, match=r"overflows for K\(x, y\).* Column 11 holds the largest"):
        distances_from(Linear(), as_columns(points), np.array([0]))


@pytest.mark.parametrize("least", [1e-8, 0.3])
def test_pivots_of_a_block_are_those_of_the_schur_complements(least):
    points = np.random.default_rng(2).normal(size=(32, 2))
    gram = Gaussian(sigma=1.0).block(points, points)
    kept, factor = np.empty(32, dtype=np.int64), np.zeros_like(gram)
    count = factor_independent(gram, least, kept, factor)
    pivots, true = naive_solve.pivoted_cholesky(gram, least)
    np.testing.assert_array_equal(kept[:count], pivots)
    np.testing.assert_allclose(factor[:, :count], true, atol=1e-9)


# --- the vectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "rank"),
    [
        (Linear(), 3),
        (Cosine(), 3),
        (Polynomial(degree=2, c=1.0), 9),
        (2.0 * Linear() + Polynomial(degree=2), 9),
        (Gaussian(sigma=8.0), None),
    ],
    ids=repr,
)
def test_vectors_of_low_rank_have_the_distances_of_the_kernel(kernel, rank):
    points = np.random.default_rng(1).normal(size=(150, 3))
    points[3] = 0.0
    found = features_of(kernel, points, np.linspace(1.0, 2.0, 150))
    assert found.exact
    assert rank is None or found.rows.shape[1] == rank
    assert np.square(found.rows).sum(axis=1).max() == pytest.approx(1.0)
    assert np.allclose(np.linspace(1.0, 2.0, 150) @ found.rows, 0.0, atol=1e-9)
    true = kernel.squared_distances(points, points)
    own = found.unit**2 * ((found.rows[:, None] - found.rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(own, true, atol=1e-11 * true.max())


def test_the_leading_numbers_have_nearly_all_of_the_variance():
    points, weights = np.random.default_rng(1).normal(size=(300, 2)), np.linspace(1.0, 2.0, 300)
    found = features_of(Gaussian(sigma=2.0), points, weights)
    variances = weights @ found.rows**2
    assert (np.diff(variances) <= 1e-12).all()
    assert found.leading < found.rows.shape[1]
    assert variances[found.leading :].sum() <= 1e-6 * variances.sum() < variances[found.leading - 1 :].sum()


def test_components_of_long_vectors_are_found_by_iteration():
    generator = np.random.default_rng(0)
    scales = 0.5 ** np.arange(300)
    vectors = vectors_of(generator.normal(size=(400, 300)) * scales, np.ones(400))
    axes = starts._leading_axes(vectors.rows, vectors.weights, 5, generator)
    true = principal_axes(vectors.rows, vectors.weights)[0][:, :5]
    np.testing.assert_allclose(np.abs(np.sum(axes * true, axis=0)), 1.0, atol=1e-6)
    assert len(starts.component_starts(vectors, 2, generator)) == 8


def test_a_common_offset_costs_no_digits():
    points = np.random.default_rng(1).normal(size=(100, 2))
    near, far = (features_of(Gaussian(sigma=9.0), points + offset) for offset in (0.0, 1e7))
    np.testing.assert_allclose(far.unit, near.unit, rtol=1e-6)
    assert far.exact


def test_a_sharp_kernel_is_cut_off_and_says_so():
    points = np.random.default_rng(1).normal(size=(150, 3))
    found = features_of(Gaussian(sigma=0.3), points, rank=40)
    assert not found.exact
    assert found.rows.shape == (150, 40)
    true = Gaussian(sigma=0.3).squared_distances(points, points)
    own = found.unit**2 * ((found.rows[:, None] - found.rows[None]) ** 2).sum(axis=2)
    assert (own <= true + 1e-9).all()  # a projection
    assert features_of(Gaussian(sigma=0.3), points, rank=150).exact


def test_a_function_that_is_no_kernel_is_never_exact():
    points = np.linspace(0.0, 1.0, 60)[:, None]
    assert not features_of(kc.UserKernel(steep_difference), points, rank=60).exact


# --- moves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_descent_ends_where_no_single_move_helps_and_improves_plain_lloyd(seed):
    vectors, k = random_vectors(seed=seed), 4
    gram = vectors.rows @ vectors.rows.T
    start = np.random.default_rng(seed).integers(k, size=len(gram)).astype(np.int32)
    start[:k] = np.arange(k)
    labels, costs = naive_solve.lloyd(gram, vectors.weights, start, k)
    assert descend_rows(vectors, labels.astype(np.int32), k, 300).cost <= costs[-1] * (1 + 1e-9)
    run = descend_rows(vectors, start, k, 300)
    assert run.converged
    assert run.cost == pytest.approx(naive_solve.partition_cost(gram, vectors.weights, run.labels), rel=1e-10)
    assert naive_solve.best_single_move(gram, vectors.weights, run.labels, k) >= run.cost * (1 - 1e-10)


def test_cost_never_rises_and_a_short_run_says_so():
    vectors, k = random_vectors(400, 3), 12
    start = np.arange(400, dtype=np.int32) % k
    runs = [descend_rows(vectors, start, k, steps) for steps in range(1, 9)]
    assert all(later.cost <= earlier.cost for earlier, later in itertools.pairwise(runs))
    assert not runs[0].converged


def test_a_run_that_cannot_win_is_given_up():
    vectors, k = random_vectors(400, 3), 12
    start = np.arange(400, dtype=np.int32) % k
    whole = descend_rows(vectors, start, k, 300)
    assert descend_rows(vectors, start, k, 300, beat=1.01 * whole.cost).cost == whole.cost
    short = descend_rows(vectors, start, k, 300, beat=0.5 * whole.cost)
    assert short.steps < whole.steps
    assert short.cost > whole.cost
    assert not short.converged


def test_changed_clusters_are_enough():
    """After a swap in a local optimum, comparing with changed clusters alone ends in an optimum of all moves."""
    vectors, k = random_vectors(600, 4), 40
    best = descend_rows(vectors, seed_rows(vectors, k, np.random.default_rng(0), 2), k, 300)
    labels = best.labels.copy()
    labels[labels == 3] = 7
    labels[np.flatnonzero(labels == 5)[0]] = 3
    changed = np.isin(np.arange(k), [3, 5, 7])
    run = descend_rows(vectors, labels, k, 300, changed)
    gram = vectors.rows @ vectors.rows.T
    assert naive_solve.best_single_move(gram, vectors.weights, run.labels, k) >= run.cost * (1 - 1e-10)


def test_empty_clusters_get_points():
    vectors = random_vectors(50)
    run = descend_rows(vectors, np.zeros(50, dtype=np.int32), 4, 300)
    assert set(run.labels) == {0, 1, 2, 3}


# --- seeds and exchanges ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precise", [True, False])
def test_seeds_follow_the_law_of_squared_distances(precise):
    """20,000 draws: a share p has a standard error of at most 0.0036, and six are compared, so 0.016 is 4.5 of them."""
    vectors = vectors_of(np.array([[0.0], [1.0], [3.0], [7.0]]) / 7.0, np.array([1.0, 2.0, 1.0, 0.5]))
    generator = np.random.default_rng(0)
    counts = Counter()
    for _ in range(20_000):
        labels = seed_rows(vectors, 3, generator, 1, precise)
        pivots = frozenset(frozenset(np.flatnonzero(labels == c).tolist()) for c in range(3))
        counts[pivots] += 1
    law = Counter()
    for pivots, chance in naive_solve.pivot_law(vectors.rows, vectors.weights, 3).items():
        nearest = ((vectors.rows[:, None, 0] - vectors.rows[list(pivots), 0]) ** 2).argmin(axis=1)
        law[frozenset(frozenset(np.flatnonzero(nearest == c).tolist()) for c in range(3))] += chance
    assert set(counts) <= set(law)
    for partition, chance in law.items():
        assert counts[partition] / 20_000 == pytest.approx(chance, abs=0.016)


def test_seeds_reach_every_group_and_stop_at_distance_zero():
    points = blobs(30, 10)
    vectors = vectors_of(points / np.abs(points).max(), np.ones(300))
    labels = seed_rows(vectors, 30, np.random.default_rng(0), 5)
    assert len(set(zip(labels.tolist(), np.repeat(np.arange(30), 10).tolist(), strict=True))) <= 34
    twice = vectors_of(np.repeat([[0.0], [1.0]], 5, axis=0), np.ones(10))
    assert len(set(seed_rows(twice, 4, np.random.default_rng(0), 2))) == 2


def test_an_exchange_moves_a_center_from_a_split_group_to_a_merged_one():
    points = np.repeat([[0.0], [10.0], [20.0], [30.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(80, 1))
    vectors = vectors_of(points / 40.0, np.ones(80))
    truth = np.repeat(np.arange(4), 20)
    poor = np.select([truth == 0, truth == 1], [np.arange(80) % 2, 2], 3).astype(np.int32)  # 0 split, 2 and 3 merged
    labels, count = exchange(vectors, poor, 4, 2)
    assert count == 1
    assert len(set(zip(descend_rows(vectors, labels, 4, 300).labels.tolist(), truth.tolist(), strict=True))) == 4
    assert exchange(vectors, truth.astype(np.int32), 4, 2)[1] == 0


def test_the_search_finds_many_groups_however_small_they_are():
    """One point far away makes the groups small beside the longest vector: float32 does not tell them apart."""
    points = blobs(25, 12)
    truth = np.append(np.repeat(np.arange(25), 12), 25)
    for away in (100.0, 1e6):
        rows = np.vstack([points, [away, 0.0, 0.0]])
        vectors = vectors_of(rows / away, np.ones(301))
        run = search(vectors, 26, [], 3, 300, np.random.default_rng(0))
        assert len(set(zip(run.labels.tolist(), truth.tolist(), strict=True))) == 26


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Linear(), Cosine(), Polynomial(degree=2, c=1.0), Gaussian(sigma=40.0)], ids=repr)
def test_many_clusters_cost_no_more_than_those_of_scikit_learn(kernel):
    from sklearn.cluster import KMeans

    points, weights = blobs(60, 12), np.random.default_rng(1).uniform(1.0, 3.0, size=720)
    coreset = Coreset(points, weights)
    solution = solve(coreset, 50, kernel, n_init=2)
    rows = features_of(kernel, points).rows
    unit = features_of(kernel, points).unit
    plain = KMeans(50, n_init=2, random_state=0).fit(rows, sample_weight=weights).inertia_ * unit**2
    assert solution.converged
    assert solution.cost <= 1.01 * plain
    gram = kernel.block(points, points)
    assert solution.cost == pytest.approx(naive_solve.partition_cost(gram, weights, solution.labels), rel=1e-8)
    model = kc.KernelKMeansModel(coreset, kernel, solution)
    assert model.cost(points, weights) == pytest.approx(solution.cost, rel=1e-8)


def test_a_cut_off_kernel_ends_with_its_own_distances(monkeypatch):
    generator = np.random.default_rng(2)
    points, weights = generator.normal(size=(700, 4)), generator.exponential(size=700) + 0.1
    kernel = Gaussian(sigma=0.4)
    monkeypatch.setattr(importlib.import_module("kernelcoreset.clustering.problem"), "_RANK", 100)
    problem = prepare(Coreset(points, weights), kernel)
    assert not problem.features.exact
    gram = kernel.block(points, points)
    by_matrix = solve_by_features(problem, 40, 2, 300, np.random.default_rng(0), [])
    assert by_matrix.converged
    assert by_matrix.cost == pytest.approx(naive_solve.partition_cost(gram, weights, by_matrix.labels), rel=1e-9)
    assert by_matrix.cost == pytest.approx(
        naive_solve.cost_of_centers(gram, weights, by_matrix.coefficients, 2.0), rel=1e-9
    )
    finish = importlib.import_module("kernelcoreset.clustering.finish")
    monkeypatch.setattr(finish, "most_points", lambda: 0)
    monkeypatch.setattr(finish, "_PASSES", 100)
    run = search(vectors_of(problem.features.rows, problem.weights), 40, [], 1, 300, np.random.default_rng(0))
    block_by_block = descend_exactly(problem, run, 40, 300)
    assert block_by_block.converged
    assert block_by_block.cost == pytest.approx(
        naive_solve.cost_of_centers(gram, weights, block_by_block.coefficients, 2.0), rel=1e-9
    )
    assert block_by_block.cost <= naive_solve.partition_cost(gram, weights, run.labels)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.03, 0.5, 2.0])
def test_last_columns_are_left_out_as_by_the_plain_code(share):
    vectors = random_vectors(r=12)
    vectors = vectors_of(vectors.rows * 0.5 ** np.arange(12), vectors.weights)
    most = share * float(vectors.weights @ vectors.norms)
    fewer = without_last_columns(vectors, most)
    count = naive_solve.columns_to_keep(vectors.rows, vectors.weights, most)
    assert count == {0.0: 12, 2.0: 1}.get(share, count)
    np.testing.assert_array_equal(fewer.rows, vectors.rows[:, :count])
    np.testing.assert_allclose(fewer.norms, np.square(fewer.rows).sum(axis=1))
    # What is left out changes the cost of no partition by more than `most`.
    for labels in np.random.default_rng(1).integers(0, 3, size=(20, 120)):
        costs = [naive_solve.partition_cost(own @ own.T, vectors.weights, labels) for own in (vectors.rows, fewer.rows)]
        assert -1e-9 <= costs[0] - costs[1] <= most + 1e-9


def test_a_search_in_fewer_columns_costs_no_more_than_one_in_all(monkeypatch):
    points, weights = blobs(12, 60, seed=3), np.random.default_rng(1).exponential(size=720) + 0.1
    problem, module = prepare(Coreset(points, weights), Gaussian(sigma=20.0)), importlib.import_module(solve.__module__)
    used = []

    def counting(vectors, *rest):
        used.append(vectors.rows.shape[1])
        return search(vectors, *rest)

    def costs():
        return [solve_by_features(problem, 10, 2, 300, np.random.default_rng(seed), []).cost for seed in range(5)]

    monkeypatch.setattr(module, "search", counting)
    fewer = costs()
    monkeypatch.setattr(module, "_UNSEEN", 0.0)
    every = costs()
    assert max(used[:5]) < min(used[5:]), used
    np.testing.assert_allclose(fewer, every, rtol=1e-3)


def test_partition_costs_are_those_of_the_plain_code():
    generator = np.random.default_rng(0)
    points, weights = generator.normal(size=(50, 2)), generator.exponential(size=50)
    labels = (np.arange(50) % 4).astype(np.int32)
    problem = prepare(Coreset(points, weights), Gaussian(sigma=1.0))
    gram = Gaussian(sigma=1.0).block(points, points)
    for c, cost in enumerate(partition_costs(problem, labels, 4)):
        own = labels == c
        assert cost == pytest.approx(
            naive_solve.partition_cost(gram[np.ix_(own, own)], weights[own], np.zeros(own.sum(), dtype=int))
        )


def test_distinct_points_are_counted_across_blocks():
    points = np.repeat(np.arange(700.0), 2)[:, None]
    problem = prepare(Coreset(points, np.ones(1400)), Linear())
    check_k(problem, 700)
    with pytest.raises(DataError, match=r"number of distinct coreset points \(700, .*got 701"):
        check_k(problem, 701)


def test_values_at_the_edge_of_float64():
    points = blobs(3, 250)
    solution = solve(Coreset(points * 1e-100, np.ones(750)), 3, Linear())
    assert solution.cost == pytest.approx(1e-200 * solve(Coreset(points, np.ones(750)), 3, Linear()).cost, rel=1e-9)
    points[7, 1] = 1e160
    with pytest.raises(KernelError, match=r"overflows for K\(x, y\)"):
        solve(Coreset(points, np.ones(750)), 3, Linear())


def test_coefficients_are_made_of_labels_and_shares():
    solution = kc.Solution(np.array([1, 0, 1], dtype=np.int32), np.array([0.25, 1.0, 0.75]), 2, 0.0, 1, True)
    assert solution.coefficients.tolist() == [[0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]
    with pytest.raises(ValueError, match="read-only"):
        solution.shares[0] = 1.0


def test_features_are_kept_only_if_they_have_the_rank():
    points = np.random.default_rng(1).normal(size=(600, 2))
    for sigma, is_low in ((0.05, False), (20.0, True)):
        problem = prepare(Coreset(points, np.ones(600)), Gaussian(sigma=sigma))
        assert problem.has_rank(75) == is_low
        assert ("features" in vars(problem)) == is_low
