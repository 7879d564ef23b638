"""Points as rows, compared by matrix products: against the naive twin and against the loops over columns."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import Cosine, Exponential, Gaussian, Laplacian, Linear, Matern, Polynomial, build_coreset
from kernelcoreset.coresets import halving
from kernelcoreset.coresets.cells import seed_cells
from kernelcoreset.coresets.points import ColumnPoints, RowPoints, distances_between, points_of
from kernelcoreset.coresets.seeding import draw_pivots
from kernelcoreset.kernels.loops.passes import NearestPivots
from tests import naive
from tests.cases import some_points

KERNELS = [
    Gaussian(4.0),
    Exponential(2.0),
    Matern(4.0, 2.5),
    Polynomial(3, 1.0),
    Linear(),
    Cosine(),
    Gaussian(3.0) + 0.5 * Linear(),
]


def nothing_found(n):
    return NearestPivots(np.full(n, np.inf), np.zeros(n, dtype=np.int32), np.zeros(n), np.empty(-(-n // 1024)))


def test_the_form_depends_on_kernel_and_columns():
    wide, narrow = some_points(50, 12), some_points(50, 11)
    assert isinstance(points_of(Gaussian(1.0), wide), RowPoints)
    assert isinstance(points_of(Gaussian(1.0), narrow), ColumnPoints)
    assert isinstance(points_of(Laplacian(1.0), wide), ColumnPoints)


@pytest.mark.parametrize("z", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_range_of_pivots_against_the_twin(kernel, z):
    points, weights = some_points(2_500, 14), np.random.default_rng(1).exponential(size=2_500)
    pivots = np.arange(0, 2_500, 250)
    ranges = np.array([[0, 4], [3, 10], [9, 10]])
    found = nothing_found(2_500)
    RowPoints(kernel, points).compare(weights, pivots, ranges, 5, z, found)
    table = naive.squared_distances(kernel.to_dict(), points, points[pivots])
    squared, onward = found.distances ** (2 / z), found.onward ** (2 / z)
    for tile, (first, last) in enumerate(ranges):
        rows = np.arange(1024 * tile, min(1024 * tile + 1024, 2_500))
        best = table[rows, first:last].min(axis=1)
        size = table.max()
        assert_allclose(squared[rows], best, rtol=1e-4, atol=1e-5 * size)
        assert_allclose(table[rows, found.nearest[rows] - 5], best, rtol=1e-4, atol=1e-5 * size)
        after = found.nearest[rows] - 4
        known = after < len(pivots)
        assert_allclose(onward[rows][known], table[rows, np.minimum(after, 9)][known], rtol=1e-4, atol=1e-5 * size)
        assert found.tile_costs[tile] == pytest.approx(weights[rows] @ found.distances[rows])
    assert_array_equal(found.distances[pivots[[0, 1, 2, 3, 5, 6, 7]]], np.zeros(7))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int16, np.int32])
@pytest.mark.parametrize("kernel", [Gaussian(300.0), Linear(), Cosine()], ids=repr)
def test_short_numbers_give_the_coreset_of_the_same_numbers_in_float64(kernel, dtype):
    points = (60.0 * np.abs(some_points(6_000, 20))).astype(dtype)
    given = build_coreset(points, 5, kernel, 100, seed=3)
    as_floats = build_coreset(points.astype(np.float64), 5, kernel, 100, seed=3)
    assert_array_equal(given.points, as_floats.points)
    assert_array_equal(given.weights, as_floats.weights)
    assert given.points.dtype == np.float64


@pytest.mark.parametrize("kernel", [Gaussian(4.0), Linear(), Gaussian(3.0) + 0.5 * Linear()], ids=repr)
def test_an_offset_changes_nothing(kernel):
    # Steps of 2^-12 are exact beside 1e12, so the differences of the points are the same.
    points = np.rint(4096.0 * some_points(3_000, 16)) / 4096.0
    pivots = np.arange(0, 3_000, 30)
    found, moved = nothing_found(3_000), nothing_found(3_000)
    RowPoints(kernel, points).compare(np.ones(3_000), pivots, None, 0, 2.0, found)
    RowPoints(kernel, points + 1e12).compare(np.ones(3_000), pivots, None, 0, 2.0, moved)
    assert_allclose(moved.distances, found.distances, rtol=1e-4)
    assert (moved.nearest == found.nearest).mean() > 0.99


@pytest.mark.parametrize("kernel", [Gaussian(4.0), Cosine()], ids=repr)
def test_rows_that_are_not_copied_stay_as_they_are(kernel):
    points = some_points(3_000, 16).astype(np.float32)
    given = points.copy()
    build_coreset(points, 4, kernel, 100)
    assert_array_equal(points, given)


@pytest.mark.parametrize("copied", [0, 1 << 30])
def test_rows_taken_in_another_order(copied, monkeypatch):
    monkeypatch.setattr("kernelcoreset.coresets.points.MOST_COPIED", copied)
    points, order = some_points(3_000, 15), np.random.default_rng(0).permutation(3_000)[:2_000]
    few = RowPoints(Linear(), points).take(order)
    again = few.take(np.arange(1_999, -1, -1))
    assert few.shape == again.shape == (2_000, 15)
    assert_array_equal(again.rows(np.array([0, 7])), points[order[[1_999, 1_992]]])
    assert_array_equal(few.columns, points[order].T)
    one, other = nothing_found(2_000), nothing_found(2_000)
    few.compare(np.ones(2_000), np.array([3, 9, 11]), None, 0, 2.0, one)
    RowPoints(Linear(), points[order]).compare(np.ones(2_000), np.array([3, 9, 11]), None, 0, 2.0, other)
    assert_array_equal(one.distances, other.distances)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_equal_points_are_at_distance_zero(kernel):
    points = np.repeat(1e3 + some_points(6, 40), 500, axis=0)
    seeding = draw_pivots(RowPoints(kernel, points), np.ones(3_000), 200, 2.0, np.random.default_rng(0))
    assert len(seeding.pivots) < 100
    assert seeding.cost == 0.0


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e25])
def test_points_of_any_scale(scale):
    # float32 has no squares of the smallest and the largest of these.
    points = scale * some_points(2_000, 12)
    rows, columns = nothing_found(2_000), nothing_found(2_000)
    pivots = np.arange(0, 2_000, 100)
    RowPoints(Linear(), points).compare(np.ones(2_000), pivots, None, 0, 2.0, rows)
    cloud = points_of(Linear(), points[:, :1]).evaluator.cloud(np.ascontiguousarray(points.T))
    ColumnPoints(Linear(), cloud).compare(np.ones(2_000), pivots, None, 0, 2.0, columns)
    assert_allclose(rows.distances, columns.distances, rtol=1e-3)


def test_narrow_clusters_far_apart():
    # Within a cluster, float32 products are all rounding.
    generator = np.random.default_rng(0)
    points = 1e4 * generator.normal(size=(4, 16))[generator.integers(4, size=3_000)] + 1e-3 * generator.normal(
        size=(3_000, 16)
    )
    found, pivots = nothing_found(3_000), np.arange(0, 3_000, 60)
    RowPoints(Linear(), points).compare(np.ones(3_000), pivots, None, 0, 2.0, found)
    table = np.square(points[:, None] - points[pivots]).sum(axis=2)  # exact for near points
    assert_allclose(found.distances, table[np.arange(3_000), found.nearest], rtol=1e-9)
    assert found.distances.sum() < 1.2 * table.min(axis=1).sum()


@pytest.mark.parametrize("count", [30, 600])
def test_pivots_from_a_sample_cost_as_much_as_pivots_from_all(count):
    points = some_points(20_000, 16)
    sampled, from_all = (
        np.mean([draw(RowPoints(Linear(), points), np.ones(20_000), count, 2.0, np.random.default_rng(seed)).cost
                 for seed in range(4)])
        for draw in (seed_cells, draw_pivots)
    )  # fmt: skip
    assert sampled < 1.15 * from_all


def test_the_draws_to_halve_fit_in_memory(monkeypatch):
    sizes = []

    def halve(recipe, points, *rest):
        sizes.append(points.shape)
        return halving.halve(recipe, points, *rest)

    monkeypatch.setattr("kernelcoreset.coresets.sampling.MOST_NUMBERS", 500 * 14)
    monkeypatch.setattr("kernelcoreset.coresets.sampling.halve", halve)
    build_coreset(some_points(3_000, 14), 3, Linear(), 100)
    assert sizes == [(400, 14)]


def test_far_points_that_a_sample_misses_become_pivots():
    points = some_points(30_000, 16)
    points[[70, 20_000]] *= 1e4
    seeding = seed_cells(RowPoints(Linear(), points), np.ones(30_000), 40, 2.0, np.random.default_rng(0))
    assert {70, 20_000} <= set(seeding.pivots.tolist())
    assert seeding.cost == pytest.approx(seeding.distances.sum())
    assert seeding.cost < 1e3 * len(points)


@pytest.mark.parametrize("kernel", [*KERNELS, Laplacian(3.0)], ids=repr)
def test_distances_between_against_the_twin(kernel):
    points, others = some_points(300, 13), some_points(20, 13, seed=1)
    expected = naive.squared_distances(kernel.to_dict(), others, points)
    assert_allclose(distances_between(kernel, others, points), expected, rtol=1e-4, atol=1e-5 * expected.max())
    large = distances_between(Linear(), 1e25 * others, 1e25 * points)
    assert_allclose(large, 1e50 * naive.squared_distances(Linear().to_dict(), others, points), rtol=1e-9)
