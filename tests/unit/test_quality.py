"""Costs of center sets and the empirical error, against their naive twins."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import (
    Coreset,
    Cosine,
    DataError,
    Gaussian,
    KernelError,
    Linear,
    Polynomial,
    SettingError,
    build_coreset,
    center_set_costs,
    draw_center_sets,
    empirical_error,
)
from kernelcoreset.coresets.error import chosen_costs, draw_mixed_center_sets, relative_errors
from tests import naive
from tests.cases import read_only, some_points, spaced_out

KINDS = ["uniform", "spread", "crowded"]


# --- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [1.0, 2.0])
@pytest.mark.parametrize(("kernel", "offset"), [(Gaussian(sigma=5.0), 1e4), (Linear(), 1e4), (Cosine(), 0.0)])
def test_many_columns_cost_the_same_by_matrix_products(kernel, offset, z):
    generator = np.random.default_rng(0)
    points, weights = generator.normal(size=(300, 40)), generator.uniform(0.5, 2.0, 300)
    sets = points[generator.integers(60, size=(20, 7))]  # many centers are in several sets
    found = center_set_costs(points + offset, sets + offset, kernel, z=z, weights=weights)
    # Without the offset, which changes no distance: the twin does not centre its points.
    assert_allclose(found, naive.center_set_costs(kernel.to_dict(), points, weights, sets, z), rtol=1e-9)


@pytest.mark.parametrize("z", [1.0, 2.0, 3.5])
def test_costs_against_the_twin(kernel, z):
    points, weights = some_points(60, 3), np.random.default_rng(0).exponential(size=60)
    sets = some_points(12, 3, seed=5).reshape(4, 3, 3)
    found = center_set_costs(points, sets, kernel, z=z, weights=weights)
    assert_allclose(found, naive.center_set_costs(kernel.to_dict(), points, weights, sets, z), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_costs_around_the_tile_size(n, d):
    points, sets = some_points(n, d), some_points(6, d, seed=5).reshape(2, 3, d)
    for kernel in (Gaussian(2.0), Polynomial(2, 1.0)):
        found = center_set_costs(points, sets, kernel)
        assert_allclose(found, naive.center_set_costs(kernel.to_dict(), points, np.ones(n), sets, 2.0), rtol=1e-9)


@pytest.mark.parametrize("change", [np.asfortranarray, read_only, spaced_out], ids=["fortran", "read-only", "gaps"])
def test_the_layout_changes_nothing(change):
    points, sets = some_points(100, 2), some_points(6, 2, seed=5).reshape(2, 3, 2)
    expected = center_set_costs(points, sets, Gaussian(1.0), weights=np.arange(100.0))
    found = center_set_costs(change(points), read_only(sets), Gaussian(1.0), weights=read_only(np.arange(100.0)))
    assert_array_equal(found, expected)


def test_costs_done_by_hand():
    costs = center_set_costs([[0.0], [3.0]], [[[0.0]], [[1.0]]], Linear(), z=1, weights=[1.0, 2.0])
    assert costs.tolist() == [6.0, 5.0]


@pytest.mark.parametrize("shape", [(3, 2), (0, 2, 2), (2, 0, 2)])
def test_center_sets_need_three_dimensions(shape):
    with pytest.raises(DataError, match=r"`center_sets` must have shape \(m, k, d\) with no dimension 0; got \("):
        center_set_costs(some_points(5, 2), np.ones(shape), Linear())


def test_center_sets_need_the_columns_of_the_points():
    with pytest.raises(DataError, match="`center_sets` must have 2 columns like `points`; got 3"):
        center_set_costs(some_points(5, 2), np.ones((1, 1, 3)), Linear())


def test_center_sets_are_checked():
    with pytest.raises(DataError, match="`center_sets` must be finite"):
        center_set_costs(some_points(5, 1), [[[np.nan]]], Linear())
    with pytest.raises(DataError, match="`center_sets` must be numbers"):
        center_set_costs(some_points(5, 1), [[["a"]]], Linear())
    with pytest.raises(DataError, match="`center_sets` must be rectangular"):
        center_set_costs(some_points(5, 1), [[[1.0]], [[1.0], [2.0]]], Linear())


def test_an_overflow_of_the_cost_is_an_error():
    with pytest.raises(KernelError, match="overflows for the clustering cost"):
        center_set_costs([[1e160]], [[[0.0]]], Linear())


def test_z_is_checked():
    with pytest.raises(SettingError, match=r"`z` must be a finite number of at least 1; got 0.5"):
        center_set_costs([[1.0]], [[[0.0]]], Linear(), z=0.5)


# --- center sets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_center_sets_are_points_of_the_data(kind):
    points = some_points(80, 2)
    sets = draw_center_sets(points, 3, Gaussian(1.0), kind=kind, n_center_sets=20, seed=1)
    assert sets.shape == (20, 3, 2)
    rows = {tuple(point) for point in points}
    assert all(tuple(center) in rows for center in sets.reshape(-1, 2))
    assert_array_equal(sets, draw_center_sets(points, 3, Gaussian(1.0), kind=kind, n_center_sets=20, seed=1))
    assert (sets != draw_center_sets(points, 3, Gaussian(1.0), kind=kind, n_center_sets=20, seed=2)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_center_sets_of_fewer_distinct_points_than_k(kind):
    sets = draw_center_sets(np.ones((5, 2)), 3, Gaussian(1.0), kind=kind, n_center_sets=4)
    assert_array_equal(sets, np.ones((4, 3, 2)))


def test_weights_guide_the_pivots():
    points = np.concatenate([np.zeros((10, 1)), np.ones((10, 1)) * 9])
    sets = draw_center_sets(points, 2, Linear(), kind="spread", n_center_sets=20, weights=np.repeat([1.0, 0.0], 10))
    assert_array_equal(sets, np.zeros((20, 2, 1)))


def test_spread_sets_cost_less_and_crowded_ones_more():
    points = np.concatenate([some_points(100, 2), some_points(100, 2) + 20])
    costs = {
        kind: center_set_costs(points, draw_center_sets(points, 2, Linear(), kind=kind, n_center_sets=50), Linear())
        for kind in KINDS
    }
    assert costs["spread"].mean() < costs["uniform"].mean() < costs["crowded"].mean()


def test_an_unknown_kind_is_refused():
    with pytest.raises(SettingError, match="`kind` must be one of 'uniform', 'spread', 'crowded'; got 'mad'"):
        draw_center_sets([[1.0]], 1, Linear(), kind="mad")


@pytest.mark.parametrize("count", [0, 1.5])
def test_the_number_of_sets_is_a_count(count):
    with pytest.raises(SettingError, match="`n_center_sets` must be"):
        draw_center_sets([[1.0]], 1, Linear(), n_center_sets=count)


# --- the error -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [1.0, 2.0])
def test_the_error_against_the_twin(kernel, z):
    points, weights = some_points(80, 2), np.random.default_rng(0).exponential(size=80)
    coreset = build_coreset(points, 2, Linear(), 15, weights=weights)
    sets = draw_center_sets(points, 2, kernel, n_center_sets=10, seed=3)
    expected = naive.empirical_error(kernel.to_dict(), points, weights, coreset.points, coreset.weights, sets, z)
    found = empirical_error(points, coreset, 2, kernel, z=z, weights=weights, center_sets=sets)
    # With z = 1, a point that is its own center has the square root of the rounding error as its distance.
    assert found == pytest.approx(expected, rel=1e-5)
    drawn = empirical_error(points, coreset, 2, kernel, z=z, weights=weights, n_center_sets=10, seed=3)
    assert drawn == found


def test_the_input_itself_has_no_error(kernel):
    points = some_points(50, 2)
    assert empirical_error(points, Coreset(points, np.ones(50)), 2, kernel, n_center_sets=5) == 0.0


def test_the_error_done_by_hand():
    coreset = Coreset([[0.0], [3.0]], [1.0, 1.0])
    error = empirical_error([[0.0], [3.0], [3.0]], coreset, 1, Linear(), center_sets=[[[0.0]], [[3.0]]])
    assert error == 0.5  # 9 instead of 18 for the first set, 9 instead of 9 for the second


def test_relative_errors_where_the_truth_is_zero():
    found = relative_errors(np.array([0.0, 0.0, 2.0]), np.array([0.0, 1.0, 3.0]))
    assert found.tolist() == [0.0, np.inf, 0.5]


def test_the_columns_of_the_coreset_are_checked():
    with pytest.raises(DataError, match="must have 1 columns"):
        empirical_error(some_points(5, 2), Coreset([[1.0]], [1.0]), 1, Linear())


# --- center sets that are chosen among few points ---------------------------------------------------------------------


def test_costs_of_chosen_sets_are_those_of_the_twin_for_each_column_of_weights():
    generator = np.random.default_rng(0)
    points, weights = generator.normal(size=(3_000, 20)), generator.uniform(0.0, 2.0, (3_000, 4))
    chosen = generator.integers(50, size=(6, 5))
    found = chosen_costs(points, weights, points[:50], chosen, Gaussian(sigma=3.0), 1.5)
    plain = Gaussian(sigma=3.0).to_dict()
    expected = [naive.center_set_costs(plain, points, own, points[chosen], 1.5) for own in weights.T]
    assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("most", [None, 100])
def test_sets_of_all_kinds_may_be_drawn_among_few_points(d, most):
    generator = np.random.default_rng(0)
    points = generator.normal(size=(400, d)) + 9.0 * generator.integers(6, size=(400, 1))
    weights = np.repeat([1.0, 1.0, 5.0, 1.0], 100)
    found = draw_mixed_center_sets(points, weights, 6, Linear(), 2.0, 30, 1, most)
    assert found.chosen.shape == (30, 6)
    assert [found.kinds.count(kind) for kind in KINDS] == [10, 10, 10]
    assert len(found.among) == (most or 400)
    rows = {tuple(point): weight for point, weight in zip(points, weights, strict=True)}
    drawn = np.array([rows[tuple(point)] for point in found.among[found.chosen].reshape(-1, d)])
    # Draws by weight have the weight 5 with probability 5/8: fewer than 20 of 60 do with probability 3e-6.
    assert (drawn[:60] == 5.0).sum() >= 20
    costs = center_set_costs(points, found.among[found.chosen], Linear(), weights=weights)
    by_kind = [costs[np.array(found.kinds) == kind].mean() for kind in ("spread", "uniform", "crowded")]
    assert by_kind == sorted(by_kind)
    again = draw_mixed_center_sets(points, weights, 6, Linear(), 2.0, 30, 1, most)
    assert_array_equal(again.chosen, found.chosen)
