"""The certificate of a coreset: bounds for every set of centers, and on the optimum."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelcoreset import (
    Coreset,
    DataError,
    Gaussian,
    KernelKMeansModel,
    Linear,
    Polynomial,
    SettingError,
    build_coreset,
    center_set_costs,
    solve_exact,
)
from kernelcoreset.coresets.optimum import least_cost, least_cost_of_points
from kernelcoreset.coresets.transport import Transport, distance_blocks, largest_shares, nearest_points, plan_transport
from kernelcoreset.reporting.verdict import coreset_verdict
from tests import naive
from tests.cases import some_points

KERNELS = [Gaussian(1.5), Linear(), Polynomial(2, 1.0)]


def anywhere(points, k, count, seed):
    """Center sets that need not be points: near, between, far away, and all in one place."""
    generator = np.random.default_rng(seed)
    middle, width = points.mean(axis=0), points.std(axis=0)
    spread = middle + width * generator.normal(size=(count, k, points.shape[1])) * generator.choice(
        [0.1, 1, 5], (count, 1, 1)
    )
    spread[::3] = points[generator.integers(len(points), size=(len(spread[::3]), k))]
    spread[::7, 1:] = spread[::7, :1]
    return spread


# --- the bound for every set of centers ------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("draw", ["ordered", "iid", "uniform"])
def test_no_set_of_centers_is_outside_of_the_bound(kernel, z, draw):
    """Computed on all rows, the bound has no probability: it holds for coresets of any draw, and of bad weights too."""
    points = some_points(700, 2)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 3.0], size=700)
    coreset = build_coreset(points, 3, kernel, 90, z=z, weights=weights, seed=5, draw=draw)
    if draw == "uniform":
        coreset = Coreset(coreset.points, coreset.weights * np.linspace(0.5, 1.5, len(coreset)), None, coreset.settings)
    found = coreset.certify(points, weights=weights, n_center_sets=5)
    plan = Transport(*(found.proved[name] for name in ("moved", "least", "most", "wrong", "coreset_cost_at_least")), z)
    for k in (1, 3):  # fewer centers cost more, so the bound holds for them
        sets = anywhere(points, k, 300, seed=k)
        truth = center_set_costs(points, sets, kernel, z=z, weights=weights)
        estimate = center_set_costs(coreset.points, sets, kernel, z=z, weights=coreset.weights)
        assert (estimate >= plan.at_cost * (1 - 1e-9)).all()
        low, high = np.array([plan.interval(cost) for cost in estimate]).T
        assert (low <= truth * (1 + 1e-9)).all()
        assert (truth <= high * (1 + 1e-9)).all()
        assert np.abs(estimate / truth - 1).max() <= found.proved["error"]
    assert found.proved["confidence"] == 1.0
    assert found.measured["largest_error"] <= found.proved["error"]
    assert set(found.measured["errors"]) == {"uniform", "spread", "crowded", "fitted"}


def test_a_coreset_that_is_the_data_has_no_error():
    points = some_points(60, 2)
    found = Coreset(points, np.ones(60)).certify(points, k=3, kernel=Linear())
    assert found.measured["largest_error"] < 1e-9
    assert found.proved["error"] < 0.2  # shares of rows go to neighbours too; the first plan of several is the nearest
    assert (found.proved["least"], found.proved["most"]) == pytest.approx((1.0, 1.0), abs=0.2)


def test_the_interval_by_hand():
    plan = Transport(moved=4.0, least=0.5, most=2.0, wrong=0.19, at_cost=100.0, z=2.0)
    low, high = plan.interval(100.0)
    assert (low, high) == pytest.approx(((9 - 2) ** 2 / 2, (math.sqrt(119) + 2) ** 2 / 0.5))
    assert plan.error == pytest.approx(max(100 / low - 1, 1 - 100 / high))
    assert plan._replace(moved=81.0).error == math.inf
    assert plan._replace(wrong=1.5).interval(100.0)[0] == 0.0


def test_the_plan_is_a_plan():
    """Parts and factors as the slow loop over all edges gives them."""
    generator = np.random.default_rng(0)
    rows, points = generator.normal(size=(200, 2)), generator.normal(size=(15, 2))
    row_weights, weights = 1 + generator.random(200), 10 + 10 * generator.random(15)
    edges = nearest_points(distance_blocks(rows, points, Linear()), 2.0)
    squared = naive.squared_distances(Linear().to_dict(), rows, points)
    for i in range(200):
        own = slice(edges.starts[i], edges.starts[i + 1])
        assert_allclose(np.sort(edges.powers[own])[:12], np.sort(squared[i])[:12], rtol=1e-9)
        assert_allclose(edges.powers[own], squared[i, edges.targets[own]], rtol=1e-9)
    plan = plan_transport(edges, row_weights, weights, np.full(15, 1e-3), 500.0, 2.0)
    assert 0 < plan.least <= plan.most
    # No plan is cheaper than each row going to its nearest point with the smallest factor.
    assert plan.moved >= plan.least * (row_weights * squared.min(axis=1)).sum() * (1 - 1e-9)


def test_a_point_far_from_all_rows_gets_its_weight_from_the_nearest():
    rows, points = np.arange(40.0)[:, None], np.append(np.arange(20.0), 1000.0)[:, None]
    edges = nearest_points(distance_blocks(rows, points, Linear()), 2.0)
    assert (edges.targets == 20).sum() == 1
    assert 20 in edges.targets[edges.starts[39] : edges.starts[40]]


@pytest.mark.parametrize("z", [1.0, 2.0, 3.0])
def test_no_point_has_a_larger_share_of_a_cost(z):
    points = some_points(40, 2, seed=1)
    weights = 1.0 + np.random.default_rng(0).random(40)
    squared = naive.squared_distances(Linear().to_dict(), points, points)
    sets = anywhere(points, 2, 300, seed=0)
    powers = np.array([naive.nearest(Linear().to_dict(), points, own)[0] ** (z / 2) for own in sets])
    costs = powers @ weights
    shares = largest_shares(squared, weights, costs.min(), z)
    assert (powers / costs[:, None] <= shares * (1 + 1e-9)).all()
    assert (largest_shares(squared, weights, 0.0, z) == np.inf).all()


# --- no clustering is cheaper ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_least_cost_is_at_most_the_optimum(kernel, k):
    for seed in range(5):
        points = some_points(16, 2, seed)
        weights = 0.5 + np.random.default_rng(seed).random(16)
        squared = kernel.squared_distances(points, points)
        optimum = solve_exact(Coreset(points, weights), k, kernel).cost
        bound = least_cost(squared, weights, k, 2.0)
        assert 0.4 * optimum <= bound <= optimum * (1 + 1e-9)
        if k == 1:
            assert bound == pytest.approx(optimum)


@pytest.mark.parametrize("z", [1.0, 1.5, 3.0])
def test_the_least_cost_for_other_powers(z):
    """No center set of very many costs less; for k = 1 on the line the best center is found by search."""
    points = some_points(30, 1)
    squared = Linear().squared_distances(points, points)
    grid = np.linspace(points.min(), points.max(), 20_001)
    optimum = (np.abs(points - grid) ** z).sum(axis=0).min()
    assert 0 < least_cost(squared, np.ones(30), 1, z) <= optimum
    sets = anywhere(points, 2, 2_000, seed=2)
    assert least_cost(squared, np.ones(30), 2, z) <= center_set_costs(points, sets, Linear(), z=z).min()


def test_the_prices_against_all_sets_of_points():
    for seed in range(10):
        points = some_points(14, 2, seed)
        costs = Linear().squared_distances(points, points) * (1 + np.arange(14))[:, None]
        optimum = min(costs[:, list(own)].min(axis=1).sum() for own in itertools.combinations(range(14), 3))
        assert 0.8 * optimum <= least_cost_of_points(costs, 3) <= optimum * (1 + 1e-9)
    assert least_cost_of_points(np.zeros((5, 5)), 2) == 0.0


@pytest.mark.parametrize("sigma", [0.1, 2.0, 100.0])
@pytest.mark.parametrize("z", [1.5, 2.0, 3.0])
def test_the_larger_of_both_bounds_is_taken(sigma, z):
    """A sharp kernel, for which the components prove more, and wide ones, for which the prices do."""
    points = some_points(60, 2)
    weights = 0.5 + np.random.default_rng(0).random(60)
    squared = Gaussian(sigma).squared_distances(points, points)
    gram = np.sqrt(weights)[:, None] * naive.centered_gram(squared, weights) * np.sqrt(weights)
    eigenvalues = np.sort(np.linalg.eigvalsh(gram))
    quadratic, total = eigenvalues[: 60 - 3].sum(), weights.sum()
    components = total * (quadratic / total) ** (z / 2) if z >= 2 else quadratic * squared.max() ** (z / 2 - 1)
    prices = least_cost_of_points(weights[:, None] * squared ** (z / 2), 4) * (0.5 if z == 2 else 2.0**-z)
    assert least_cost(squared, weights, 4, z) == pytest.approx(max(components, prices), rel=1e-6)


def test_as_many_centers_as_points_cost_nothing():
    assert least_cost(np.ones((3, 3)) - np.eye(3), np.ones(3), 3, 2.0) == 0.0
    found = Coreset([[0.0], [1.0]], [1.0, 1.0]).certify([[0.0], [1.0]], k=2, kernel=Linear())
    assert (found.meaning["optimum_at_least"], found.proved["error"]) == (0.0, math.inf)
    assert "nothing useful for every set of 2 centers" in str(found)


def test_the_optimum_of_all_rows_is_above_the_bound():
    for seed in range(5):
        points = some_points(24, 2, seed)
        coreset = build_coreset(points, 2, Gaussian(2.0), 14, seed=seed)
        found = coreset.certify(points, n_center_sets=3)
        assert found.meaning["optimum_at_least"] <= solve_exact(Coreset(points, np.ones(24)), 2, Gaussian(2.0)).cost


# --- certify ---------------------------------------------------------------------------------------------------------


def test_what_a_certificate_says():
    points = some_points(3_000, 1)
    coreset = build_coreset(points, 2, Gaussian(2.0), 300, seed=0)
    model = KernelKMeansModel.fit_coreset(coreset, 2, Gaussian(2.0), seed=0)
    cost = model.cost(points)
    found = coreset.certify(points, cost=cost)
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines] == ["measured", "proved", "meaning"]
    assert "of the truth over 310 center sets" in lines[0]
    assert "for every set of 2 centers" in lines[1]
    assert f"costs less than {found.meaning['optimum_at_least']:.6g}; this one costs at most" in lines[2]
    assert found.meaning["times_optimum"] == pytest.approx(cost / found.meaning["optimum_at_least"])
    assert 1 <= found.meaning["times_optimum"] < 5
    assert found.proved["error_from_found"] <= found.proved["error"]
    assert repr(found) == str(coreset.certify(points, cost=cost))
    assert found.to_dict()["proved"] == dict(found.proved)


def test_a_sample_of_the_rows_has_a_confidence():
    points = some_points(6_000, 2)
    coreset = build_coreset(points, 3, Gaussian(2.0), 200, seed=0)
    whole, part = coreset.certify(points), coreset.certify(points, most_rows=3_000)
    assert (whole.proved["confidence"], part.proved["confidence"]) == (1.0, 0.99)
    assert (whole.measured["standard_error"], whole.proved["sample"]) == (0.0, None)
    assert 0.3 < part.measured["fraction"] < 0.55  # 3,000 and less: the probability of far rows cannot exceed 1
    assert 0 < part.measured["standard_error"] < 0.1
    assert whole.proved["error"] < part.proved["error"] < math.inf
    assert 0 < part.proved["sample"]["below"] < part.proved["sample"]["above"] < 1
    assert str(part).count("with 99% confidence") == 2
    assert "confidence" not in str(whole)
    assert f"on {part.measured['fraction']:.1%} of the rows" in str(part)


def test_rows_of_another_set_are_named_in_words():
    """One row costs nothing for centers that are this row, so the relative error is infinite."""
    coreset = build_coreset(some_points(500, 2), 2, Gaussian(2.0), 50, seed=0)
    found = coreset.certify([[100.0, 100.0]], n_center_sets=3)
    assert found.measured["largest_error"] == math.inf
    assert str(found).startswith("measured  some centers cost nothing on these rows, but not on the coreset. Are they")
    assert coreset_verdict(found.to_dict()).light == "poor"
    for text in (str(found), found._repr_html_()):
        assert "inf%" not in text
        assert "that it was built from?" in text


def test_what_a_certificate_needs():
    bare = Coreset([[0.0], [1.0], [2.0]], np.ones(3))
    with pytest.raises(SettingError, match=r"`k` is not in the settings of this coreset. Give k="):
        bare.certify([[0.0]])
    with pytest.raises(SettingError, match=r"`kernel` is not in the settings of this coreset. Give kernel="):
        bare.certify([[0.0]], k=1)
    with pytest.raises(DataError, match="needs a coreset that is not empty"):
        Coreset(np.empty((0, 1)), np.empty(0)).certify([[0.0]], k=1, kernel=Linear())
    with pytest.raises(DataError, match="`points` must have 1 column"):
        bare.certify([[0.0, 1.0]], k=1, kernel=Linear())
    with pytest.raises(SettingError, match="`most_rows` must be at least 1"):
        bare.certify([[0.0]], k=1, kernel=Linear(), most_rows=0)
