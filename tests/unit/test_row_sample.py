"""What a sample of the rows says about all rows: rates, the largest part of a row, and deviations of fixed centers."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelcoreset import Gaussian, Linear, Polynomial, build_coreset
from kernelcoreset.coresets.certificate import Proof, nearest_of
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.row_sample import _TAIL, CONFIDENCE, Rates, RowSample, coins, rates_for
from kernelcoreset.coresets.transport import Transport
from tests import naive
from tests.cases import some_points


def a_sample(kernel, z, rows=150, n=700, most=None):
    """Weighted rows, the clusters of a poor clustering of them, and the sample that they give."""
    points = some_points(n, 2)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 3.0], size=n)
    near = nearest_of(points, points[:3], Recipe(3, kernel, 3, z=z))
    sums = np.bincount(near.clusters, weights, 3), np.bincount(near.clusters, weights * near.powers, 3)
    sample = RowSample(rates_for(*sums, z, rows), *sums, z)
    return points, weights, near, sample


def parts_of(kernel, z, points, weights, centers):
    return weights * naive.nearest(kernel.to_dict(), points, centers)[0] ** (z / 2)


def test_the_nearest_center_of_each_row():
    points = some_points(1_500, 2)
    found = nearest_of(points, points[:4], Recipe(4, Linear(), 4, z=3.0))
    squared = naive.squared_distances(Linear().to_dict(), points, points[:4])
    np.testing.assert_array_equal(found.clusters, squared.argmin(axis=1))
    assert_allclose(found.powers, squared.min(axis=1) ** 1.5, atol=1e-12)


@pytest.mark.parametrize("z", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("kernel", [Linear(), Gaussian(2.0), Polynomial(2, 1.0)], ids=repr)
def test_no_row_has_a_larger_part_in_any_cost(kernel, z):
    points, weights, near, sample = a_sample(kernel, z)
    kept = sample.rates.probabilities(near.clusters, near.powers, weights)
    assert (kept < 1).any()
    generator = np.random.default_rng(0)
    closest = 0.0
    for _ in range(100):
        scale = generator.choice([0.1, 1.0, 10.0])
        centers = points[generator.integers(len(points), size=3)] + scale * generator.normal(size=(3, 2))
        parts = parts_of(kernel, z, points, weights, centers)
        largest = (parts / kept)[kept < 1].max()
        bound = sample.largest_part(parts.sum())
        closest = max(closest, largest / bound)
    assert closest <= 1 + 1e-9
    assert closest > 0.02  # and the bound is not far from what there is


def test_about_as_many_rows_are_kept_as_asked():
    _, weights, near, sample = a_sample(Linear(), 2.0, rows=120)
    wanted = weights * (sample.rates.by_weight[near.clusters] + sample.rates.by_cost * near.powers)
    assert wanted.sum() == pytest.approx(120)
    assert_allclose(sample.rates.probabilities(near.clusters, near.powers, weights), np.minimum(wanted, 1))


def test_coins_do_not_follow_rows_that_numpy_has_drawn():
    """Rows are made with the seed 0 everywhere. Correlations of 4,000 numbers stay below 5.5 / sqrt(4000)."""
    for seed in ((0,), (0, 0, 0)):
        both = np.corrcoef(coins(*seed).random(4_000), np.random.default_rng(0).random(4_000))
        assert abs(both[0, 1]) < 5.5 / math.sqrt(4_000)
    assert coins(1, 2, 3).random() == coins(1, 2, 3).random() != coins(1, 3, 2).random()


def test_clusters_without_weight_or_cost():
    rates = rates_for(np.array([300.0, 0.0]), np.zeros(2), 2.0, 150)
    assert (rates.by_weight[0], rates.by_cost) == (pytest.approx(0.5), 0.0)
    assert rates.probabilities(np.array([1]), np.zeros(1), None) == 1.0
    sample = RowSample(rates, np.array([300.0, 0.0]), np.zeros(2), 2.0)
    assert sample.largest_part(9.0) == pytest.approx(9.0 / 300 / 0.5)  # every row is at its center
    # A cost that was not expected: far rows may be missing, so nothing is known.
    other = RowSample(rates, np.array([300.0, 0.0]), np.array([1.0, 0.0]), 2.0)
    assert other.largest_part(9.0) == math.inf
    assert other.interval(9.0, 9.0) == (0.0, math.inf)
    assert sample.interval(0.0, math.inf) == (0.0, math.inf)


def test_the_largest_part_by_hand():
    """Two clusters; of the second one a row at the center counts most: (sqrt(4) + sqrt(25))^2 / 10 / 0.1."""
    rates, weights, costs = Rates(np.array([1.0, 0.1]), 0.5), np.array([100.0, 10.0]), np.array([9.0, 4.0])
    assert RowSample(rates, weights, costs, 2.0).largest_part(25.0) == pytest.approx(49.0 + 1 / 0.5)
    assert RowSample(rates, weights, costs, 1.0).largest_part(25.0) == pytest.approx(max(29.0, 1 / 0.5))
    joint = (((4 ** (1 / 3) + 25 ** (1 / 3)) ** 3) ** 0.5 + (1 / 0.5) ** 0.5) ** 2
    assert RowSample(rates, weights, costs, 3.0).largest_part(25.0) == pytest.approx(joint)


@pytest.mark.parametrize("z", [1.0, 2.0])
def test_the_interval_is_where_the_deviations_meet_it(z):
    *_, sample = a_sample(Gaussian(2.0), z, rows=30_000, n=60_000)
    cost = float(sample.costs.sum())
    low, high = sample.interval(0.9 * cost, 1.1 * cost)
    tail = _TAIL * sample.largest_part(low)
    assert low + tail / 3 + math.sqrt((tail / 3) ** 2 + 2 * tail * low) == pytest.approx(0.9 * cost)
    assert high - math.sqrt(2 * _TAIL * sample.largest_part(high) * high) == pytest.approx(1.1 * cost)
    assert low < 0.9 * cost < 1.1 * cost < high
    assert sample.deviations(cost)["above"] == pytest.approx(
        (_TAIL * sample.largest_part(cost) / 3 / cost) + math.hypot(
            _TAIL * sample.largest_part(cost) / 3 / cost, math.sqrt(2 * _TAIL * sample.largest_part(cost) / cost)
        )
    )  # fmt: skip


def test_costs_on_a_sample_are_within_the_deviations():
    """Of fixed centers, chosen to be bad: those for which the cost on the sample varies most.

    Each side fails with probability below (1 - CONFIDENCE) / 5 = 0.002, so more than 16 of 3,000 samples on one side
    happen with probability below 1e-3; the seeds are fixed. Bounds that are five times too small fail often.
    """
    points, weights, near, sample = a_sample(Linear(), 2.0, rows=400, n=4_000)
    kept = sample.rates.probabilities(near.clusters, near.powers, weights)
    generator = np.random.default_rng(5)
    tried = [points[generator.integers(4_000, size=3)] for _ in range(200)]
    parts = [parts_of(Linear(), 2.0, points, weights, centers) for centers in tried]
    worst = max(parts, key=lambda own: float((own**2 * (1 - kept) / kept).sum()) / own.sum() ** 2)
    cost = worst.sum()
    found = np.array([(worst / kept)[generator.random(4_000) < kept].sum() for _ in range(3_000)])
    own = sample.deviations(cost)
    assert (found < cost * (1 - own["below"])).sum() <= 16
    assert (found > cost * (1 + own["above"])).sum() <= 16
    assert (np.abs(found / cost - 1) > own["below"] / 5).mean() > 0.01
    assert found.mean() == pytest.approx(cost, rel=5.5 * found.std() / cost / math.sqrt(3_000))


def test_the_proof_is_widened_by_what_the_sample_leaves_open():
    *_, sample = a_sample(Gaussian(2.0), 2.0, rows=30_000, n=60_000)
    cost = float(sample.costs.sum())
    plan = Transport(moved=0.01 * cost, least=1.0, most=1.0, wrong=0.0, at_cost=cost, z=2.0)
    assert Proof((plan,), cost, sample).interval(cost) == sample.interval(*plan.interval(cost))
    assert Proof((plan,), cost, None).interval(cost) == plan.interval(cost)


def test_the_error_found_is_within_the_bound_of_a_sample():
    """Small enough for many samples, and such that the bound says something: none of 40 may fail (1 % each)."""
    points = np.random.default_rng(0).normal(size=(20_000, 1)) * 3.0
    kernel = Gaussian(4.0)
    coreset = build_coreset(points, 2, kernel, 100, seed=1)
    for seed in range(40):
        found = coreset.certify(points, n_center_sets=3, most_rows=5_000, seed=seed)
        assert (found.proved["confidence"], CONFIDENCE) == (0.99, 0.99)
        assert found.measured["largest_error"] < found.proved["error"] < 2.0
