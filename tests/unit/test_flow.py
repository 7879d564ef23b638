"""The bound by shares of rows and a flow between coreset points."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelcoreset import Coreset, Gaussian, Linear, Polynomial, build_coreset, center_set_costs
from kernelcoreset.coresets import certificate as certificate_module
from kernelcoreset.coresets.flow import (
    QUICK,
    THOROUGH,
    Flow,
    balancing_flow,
    choose_hubs,
    flow_of_shares,
    plan_flow,
    surrounding_shares,
)
from kernelcoreset.coresets.transport import (
    Transport,
    distance_blocks,
    near_shares,
    nearest_points,
    received_weights,
    relative_error,
    scale_shares,
)
from tests import naive_flow
from tests.cases import some_points

POWERS = [1.0, 1.5, 2.0, 3.0]


def center_sets(points, k, count, seed):
    """Rows, places near and far, and all centers in one place."""
    generator = np.random.default_rng(seed)
    sets = points.mean(axis=0) + points.std(axis=0) * generator.normal(size=(count, k, points.shape[1]))
    sets *= generator.choice([0.1, 1.0, 10.0], (count, 1, 1))
    sets[::3] = points[generator.integers(len(points), size=(len(sets[::3]), k))]
    sets[::7, 1:] = sets[::7, :1]
    return sets


def small_case(seed=0):
    """Rows, coreset points that are no rows, and weights that do not fit to the rows."""
    generator = np.random.default_rng(seed)
    rows, points = generator.normal(size=(60, 2)), generator.normal(size=(25, 2))
    points[3] = points[4]  # one place twice
    return rows, points, 1 + generator.random(60), 0.2 + 5 * generator.random(25)


@pytest.mark.parametrize("z", POWERS)
def test_a_flow_as_its_definition_says(z):
    rows, points, row_weights, weights = small_case()
    squared = Linear().squared_distances(points, points)
    edges = nearest_points(distance_blocks(rows, points, Linear()), z)
    shares = near_shares(edges, row_weights)
    found = flow_of_shares(edges, shares, squared, row_weights, weights, z, THOROUGH._replace(flows=6))
    scale = weights.sum() / row_weights.sum()
    whole = naive_flow.dense(edges, shares, 25)
    flow = balancing_flow(squared, weights, scale * row_weights @ whole - weights, z, 6)
    assert found.scale == pytest.approx(scale)
    assert found.moved == pytest.approx(naive_flow.moved(rows, points, scale * row_weights, whole, z))
    assert found.effort == pytest.approx(naive_flow.effort(points, weights, flow, z))
    if z == 2.0:
        assert found.pull == pytest.approx(naive_flow.pull(rows, points, scale * row_weights, whole))


@pytest.mark.parametrize("z", POWERS)
def test_each_step_of_the_proof(z):
    """Both inequalities of the flow, and the one of the shares, for center sets of all kinds."""
    for seed in range(5):
        rows, points, row_weights, weights = small_case(seed)
        squared = Linear().squared_distances(points, points)
        edges = nearest_points(distance_blocks(rows, points, Linear()), z)
        shares = surrounding_shares(edges, squared) if z == 2.0 else near_shares(edges, row_weights)
        found = flow_of_shares(edges, shares, squared, row_weights, weights, z, THOROUGH._replace(flows=2))
        scaled = found.scale * row_weights
        received = received_weights(edges.starts, edges.targets, shares, scaled, len(weights))
        sets = center_sets(rows, 3, 300, seed)
        truth, own = naive_flow.costs(rows, scaled, sets, z), naive_flow.costs(points, weights, sets, z)
        between = naive_flow.costs(points, received, sets, z)
        change = max(1.0, z / 2) * found.effort * own ** (1 - 1 / z)
        assert (np.abs(between - own) <= change * (1 + 1e-9)).all()
        assert (np.abs(between ** (1 / z) - truth ** (1 / z)) <= found.moved ** (1 / z) * (1 + 1e-9)).all()
        if z == 2.0:
            middle = truth + 2 * np.sqrt(found.pull * truth) + found.moved
            assert (between <= middle * (1 + 1e-9)).all()


def test_powers_differ_by_no_more_than_distance_times_slopes():
    """|a^z - b^z| <= max(1, z/2) |a - b| (a^(z-1) + b^(z-1)), the inequality that the flow stands on."""
    a, b = np.meshgrid(np.linspace(0.0, 3.0, 301), np.logspace(-6, 1, 200))
    for z in (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 6.0):
        most = max(1.0, z / 2) * np.abs(a - b) * (a ** (z - 1) + b ** (z - 1))
        assert (np.abs(a**z - b**z) <= most * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("z", POWERS)
def test_the_flow_carries_the_surplus(z):
    _, points, _, weights = small_case()
    squared = Linear().squared_distances(points, points)
    surplus = np.random.default_rng(1).normal(size=25)
    surplus -= surplus.mean()
    for flows in (1, 6):
        flow = balancing_flow(squared, weights, surplus, z, flows)
        assert_allclose(flow, -flow.T, atol=1e-12)
        assert_allclose(flow.sum(axis=1), surplus, atol=1e-12)


def test_more_flows_take_less_effort():
    _, points, _, weights = small_case()
    squared = Linear().squared_distances(points, points)
    surplus = np.random.default_rng(1).normal(size=25)
    surplus -= surplus.mean()
    one, more = (
        naive_flow.effort(points, weights, balancing_flow(squared, weights, surplus, 2.0, flows), 2.0)
        for flows in (1, 15)
    )
    assert more < 0.99 * one


def test_nothing_flows_where_nothing_is_left_over():
    _, points, _, weights = small_case()
    flow = balancing_flow(Linear().squared_distances(points, points), weights, np.zeros(25), 2.0, 3)
    assert not flow.any()


def test_weights_of_very_different_size_still_have_a_flow():
    points = np.logspace(-9, 9, 40)[:, None]
    weights = np.logspace(9, -9, 40)
    surplus = np.where(np.arange(40) % 2, 1.0, -1.0)
    flow = balancing_flow((points - points.T) ** 2, weights, surplus, 2.0, 6)
    assert_allclose(flow.sum(axis=1), surplus, atol=1e-9)


def test_a_flow_between_two_points_by_hand():
    """Weight 1 over a distance of 3, between weights of 2 and 4: the effort is sqrt(9/2 + 9/4)."""
    edges = nearest_points(iter([np.array([[0.0, 9.0], [9.0, 0.0]])]), 2.0)
    squared = np.array([[0.0, 9.0], [9.0, 0.0]])
    shares = np.where(edges.powers == 0.0, 1.0, 0.0)
    found = flow_of_shares(
        edges, shares, squared, np.array([3.0, 3.0]), np.array([2.0, 4.0]), 2.0, THOROUGH._replace(flows=1)
    )
    assert found == pytest.approx(Flow(1.0, 0.0, 0.0, math.sqrt(9 / 2 + 9 / 4), 2.0))


def test_the_interval_by_hand():
    plan = Flow(scale=2.0, moved=4.0, pull=1.0, effort=1.0, z=2.0)
    low, high = plan.interval(100.0)
    assert (low, high) == pytest.approx(((math.sqrt(1 + 100 - 10 - 4) - 1) ** 2 / 2, (math.sqrt(110) + 2) ** 2 / 2))
    assert plan.interval(10.0)[0] > 0.0
    assert plan.interval(4.0)[0] == 0.0
    plan = Flow(scale=1.0, moved=8.0, pull=1.0, effort=0.5, z=3.0)
    change = 1.5 * 0.5 * 1000 ** (2 / 3)
    low, high = ((1000 - change) ** (1 / 3) - 2) ** 3, ((1000 + change) ** (1 / 3) + 2) ** 3
    assert plan.interval(1000.0) == pytest.approx((low, high))


def test_shares_surround_their_rows():
    rows, points, _, _ = small_case()
    edges = nearest_points(distance_blocks(rows, points, Linear()), 2.0)
    shares = surrounding_shares(edges, Linear().squared_distances(points, points))
    for i in range(0, 60, 10):
        own = slice(edges.starts[i], edges.starts[i + 1])
        near = points[edges.targets[own]]
        best = naive_flow.surrounding_shares(rows[i], near, 0.1)
        squared = ((near - rows[i]) ** 2).sum(axis=1)
        value, least = (((t @ near - rows[i]) ** 2).sum() + 0.1 * t @ squared for t in (shares[own], best))
        assert shares[own].sum() == pytest.approx(1.0)
        assert (shares[own] >= 0.0).all()
        assert least * (1 - 1e-6) <= value <= 1.1 * least  # its few steps end near the best shares, not at them


@pytest.mark.parametrize("z", POWERS)
@pytest.mark.parametrize("kernel", [Gaussian(1.5), Polynomial(2, 1.0)], ids=repr)
@pytest.mark.parametrize("draw", ["ordered", "iid", "wrong"])
def test_no_set_of_centers_is_outside_of_the_interval(kernel, z, draw):
    points = some_points(500, 2, seed=3)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 3.0], size=500)
    kind = "iid" if draw == "iid" else "ordered"
    coreset = build_coreset(points, 3, kernel, 80, z=z, weights=weights, seed=5, draw=kind)
    if draw == "wrong":
        wrong = coreset.weights * np.linspace(0.5, 1.5, len(coreset))
        coreset = Coreset(coreset.points, wrong, None, coreset.settings)
    found = coreset.certify(points, weights=weights, n_center_sets=2)
    plan = Flow(**found.proved["flow"])

    def position(sets):
        """Where the true cost is in the interval: 0 at the lower end, 1 at the upper."""
        truth = center_set_costs(points, sets, kernel, z=z, weights=weights)
        own = center_set_costs(coreset.points, sets, kernel, z=z, weights=coreset.weights)
        low, high = np.array([plan.interval(cost) for cost in own]).T
        return (truth - low) / (high - low), np.abs(own / truth - 1)

    sets = center_sets(points, 3, 200, seed=1)
    generator = np.random.default_rng(2)
    for sign in (1.0, -1.0):  # towards the upper and towards the lower end
        tried = sets
        for _ in range(8):  # the worst sets, and steps from there
            places, errors = position(tried)
            assert ((places >= -1e-9) & (places <= 1 + 1e-9)).all()
            assert errors.max() <= found.proved["error"] * (1 + 1e-9)
            worst = tried[np.argsort(sign * places)[-5:]]
            tried = np.repeat(worst, 10, axis=0) + 0.3 * generator.normal(size=(50, 3, 2))
            tried[:5] = worst


def test_the_smaller_of_both_bounds_is_stated():
    points = some_points(4_000, 2)
    coreset = build_coreset(points, 3, Gaussian(2.0), 300, seed=0)
    found = coreset.certify(points, n_center_sets=2)
    names = ("moved", "least", "most", "wrong", "coreset_cost_at_least")
    plan, flow = Transport(*(found.proved[name] for name in names), 2.0), Flow(**found.proved["flow"])
    cost = plan.at_cost
    lows, highs = zip(plan.interval(cost), flow.interval(cost), strict=True)
    assert found.proved["error"] == pytest.approx(max(cost / max(lows) - 1, 1 - cost / min(highs)))
    assert found.proved["error"] < 0.8 * plan.error
    assert found.meaning["optimum_at_least"] == pytest.approx(max(lows))
    assert lows[1] > lows[0]
    cost = found.proved["found_cost"]
    assert found.proved["error_from_found"] < 0.8 * relative_error(cost, *plan.interval(cost))


def test_many_points_send_their_surplus_to_hubs():
    """The effort is that of the whole flow: what goes to the hubs, and what flows between them."""
    rows, points, row_weights, weights = small_case()
    squared = Linear().squared_distances(points, points)
    edges = nearest_points(distance_blocks(rows, points, Linear()), 2.0)
    shares = near_shares(edges, row_weights)
    found = flow_of_shares(edges, shares, squared, row_weights, weights, 2.0, THOROUGH._replace(flows=4, hubs=10))
    surplus = found.scale * row_weights @ naive_flow.dense(edges, shares, 25) - weights
    hubs = choose_hubs(squared, weights, 10)
    assert len(hubs) == 10
    flow, at_hubs = np.zeros((25, 25)), surplus.copy()
    for i in set(range(25)) - set(hubs):
        hub = min(hubs, key=lambda j: squared[i, j])
        flow[i, hub], flow[hub, i] = surplus[i], -surplus[i]
        at_hubs[hub] += surplus[i]
    flow[np.ix_(hubs, hubs)] = balancing_flow(squared[np.ix_(hubs, hubs)], weights[hubs], at_hubs[hubs], 2.0, 4)
    assert_allclose(flow.sum(axis=1), surplus, atol=1e-12)
    assert found.effort == pytest.approx(naive_flow.effort(points, weights, flow, 2.0))


def test_hubs_by_hand():
    """The heaviest point, then the farthest by weight; a second point in the same place is never needed."""
    places = np.array([[0.0], [0.0], [1.0], [5.0]])
    squared = (places - places.T) ** 2
    assert choose_hubs(squared, np.array([3.0, 2.0, 1.0, 1.0]), 2).tolist() == [0, 3]
    assert choose_hubs(squared, np.array([3.0, 2.0, 30.0, 1.0]), 2).tolist() == [2, 3]
    assert choose_hubs(squared, np.ones(4), 9).tolist() == [0, 1, 2, 3]
    assert len(choose_hubs(np.zeros((4, 4)), np.ones(4), 3)) == 1


def test_a_sample_of_the_rows_has_a_quick_flow(monkeypatch):
    """The one that `plan_flow` finds for the sample, and no transport plan."""
    seen = []

    def watched(*args):
        seen.append((args[-1], plan_flow(*args)))
        return seen[-1][1]

    monkeypatch.setattr(certificate_module, "plan_flow", watched)
    points = some_points(2_000, 2)
    coreset = build_coreset(points, 3, Gaussian(2.0), 50, seed=0)
    found = [coreset.certify(points, n_center_sets=2, most_rows=rows).proved for rows in (2_000, 1_000)]
    assert [search for search, _ in seen] == [THOROUGH, QUICK]
    assert [proved["flow"] for proved in found] == [flow._asdict() for _, flow in seen]
    assert found[0]["moved"] > 0
    assert [found[1][name] for name in ("moved", "least", "most", "wrong")] == [None] * 4


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_shares_are_scaled_as_a_matrix_would_be(rounds):
    rows, points, row_weights, weights = small_case()
    edges = nearest_points(distance_blocks(rows, points, Linear()), 2.0)
    shares = near_shares(edges, row_weights)
    expected = naive_flow.scaled_shares(naive_flow.dense(edges, shares, 25), row_weights, weights, rounds)
    scale_shares(edges.starts, edges.targets, shares, row_weights, weights, rounds)
    assert_allclose(naive_flow.dense(edges, shares, 25), expected, rtol=1e-9)


def test_points_very_near_to_others_cost_the_flow_nothing():
    """Each point has a twin 1e-9 away, with half of its weight: what flows between 25 places is as much as before."""
    _, points, _, weights = small_case(2)
    surplus = np.random.default_rng(1).normal(size=25)
    surplus -= surplus.mean()
    squared = Linear().squared_distances(points, points)
    alone = naive_flow.effort(points, weights, balancing_flow(squared, weights, surplus, 2.0, 6), 2.0)
    twins = np.concatenate([points, points + 1e-9])
    squared = Linear().squared_distances(twins, twins)
    both = np.concatenate([weights, weights]) / 2
    flow = balancing_flow(squared, both, np.concatenate([surplus, np.zeros(25)]), 2.0, 6)
    assert naive_flow.effort(twins, both, flow, 2.0) < 1.05 * alone


def test_the_best_of_all_rounds_is_taken():
    rows, points, row_weights, weights = small_case()
    squared = Linear().squared_distances(points, points)
    edges = nearest_points(distance_blocks(rows, points, Linear()), 2.0)
    shares = surrounding_shares(edges, squared)
    tried = []
    for rounds in (0, 1, 2, 7):  # after 0, 1, 3 and 10 in all
        scaled = weights.sum() / row_weights.sum() * row_weights
        scale_shares(edges.starts, edges.targets, shares, scaled, weights, rounds)
        own = flow_of_shares(edges, shares, squared, row_weights, weights, 2.0, THOROUGH._replace(flows=15))
        tried.append(relative_error(1e4, *own.interval(1e4)))
    plan = plan_flow(edges, squared, row_weights, weights, (1e4, 1e4), 2.0)
    assert relative_error(1e4, *plan.interval(1e4)) == pytest.approx(min(tried))
    assert max(tried) > 1.01 * min(tried)  # so that there is something to choose
