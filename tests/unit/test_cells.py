"""Many pivots on two levels: against the naive twin, and against one level."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import Gaussian, KernelError, Linear, build_coreset, empirical_error
from kernelcoreset.coresets.cells import seed_cells, sort_by_cell
from kernelcoreset.coresets.points import ColumnPoints
from kernelcoreset.coresets.seeding import draw_pivots
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.loops.passes import NearestPivots
from tests import naive
from tests.cases import some_points


def by_columns(kernel, points):
    return ColumnPoints(kernel, evaluator_of(kernel).cloud(as_columns(np.asarray(points, dtype=float))))


def seeded(kernel, points, count, *, weights=None, z=2.0, seed=0, function=seed_cells, form=by_columns):
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
    return function(form(kernel, points), weights, count, z, np.random.default_rng(seed))


def table_of(kernel, points, seeding, z=2.0):
    """Naive distance^z of every point to every pivot, and the rounding error of one."""
    plain = kernel.to_dict()
    rounding = 4e-12 * naive.diagonal(plain, points).max()
    return naive.squared_distances(plain, points, points[seeding.pivots]) ** (z / 2), rounding ** (z / 2)


@pytest.mark.parametrize("z", [1.0, 2.0])
def test_points_of_one_tile_get_the_nearest_pivot(kernel, z):
    points = some_points(700, 3)
    weights = np.random.default_rng(1).exponential(size=700)
    seeding = seeded(kernel, points, 80, weights=weights, z=z)
    table, rounding = table_of(kernel, points, seeding, z)
    assert 64 < len(set(seeding.pivots.tolist())) == len(seeding.pivots) <= 80
    assert_allclose(seeding.distances, table.min(axis=1), rtol=1e-9, atol=rounding)
    assert seeding.cost == pytest.approx(float((weights * seeding.distances).sum()), rel=1e-12)


@pytest.mark.parametrize(("n", "d", "count"), [(2048, 2, 100), (20_000, 2, 100), (5_000, 12, 600)])
def test_distances_belong_to_the_pivots_of_many_tiles(n, d, count):
    kernel, points = Gaussian(1.0), some_points(n, d)
    seeding = seeded(kernel, points, count)
    table, rounding = table_of(kernel, points, seeding)
    rows = np.arange(n)
    assert_allclose(seeding.distances, table[rows, seeding.nearest], rtol=1e-9, atol=rounding)
    followed = np.flatnonzero(seeding.nearest < len(seeding.pivots) - 1)
    assert_allclose(seeding.onward[followed], table[followed, seeding.nearest[followed] + 1], rtol=1e-9, atol=rounding)
    assert_array_equal(seeding.distances[seeding.pivots], np.zeros(len(seeding.pivots)))
    # Most pivots are the nearest, and the rest are near.
    assert (seeding.distances <= table.min(axis=1) + rounding).mean() > 0.7
    assert seeding.cost < 1.3 * table.min(axis=1).sum()


def test_the_cost_is_that_of_one_level():
    points = some_points(30_000, 2)
    many = [seeded(Linear(), points, 400, seed=seed).cost for seed in range(5)]
    all_compared = [seeded(Linear(), points, 400, seed=seed, function=draw_pivots).cost for seed in range(5)]
    assert np.mean(many) < 1.25 * np.mean(all_compared)


@pytest.mark.parametrize(("d", "count"), [(2, 64), (12, 512)])
def test_few_pivots_are_those_of_one_level(d, count):
    points = some_points(3_000, d)
    few = seeded(Linear(), points, count)
    one_level = seeded(Linear(), points, count, function=draw_pivots)
    assert_array_equal(few.pivots, one_level.pivots)
    assert_array_equal(few.distances, one_level.distances)


def test_pivots_that_follow_each_other_are_near():
    points = some_points(20_000, 2)
    pivots = points[seeded(Linear(), points, 300).pivots]
    assert np.median(np.linalg.norm(np.diff(pivots, axis=0), axis=1)) < 0.2 * np.median(
        np.linalg.norm(pivots[1:] - pivots[np.random.default_rng(0).permutation(len(pivots))][1:], axis=1)
    )


def test_seeding_stops_early_when_every_distance_is_zero():
    # 70 distinct points: each step finds more of them, some of them twice, until all are pivots.
    seeding = seeded(Linear(), np.repeat(some_points(70, 2), 40, axis=0), 2_000)
    assert 70 <= len(seeding.pivots) < 400
    assert seeding.cost == 0.0
    assert len(seeded(Linear(), np.repeat(some_points(5, 2), 40, axis=0), 100).pivots) < 20


def test_points_of_weight_zero_are_never_pivots():
    points = some_points(5_000, 2)
    weights = np.where(np.arange(5_000) % 4 == 0, np.random.default_rng(0).exponential(size=5_000), 0.0)
    for seed in range(5):
        assert (weights[seeded(Linear(), points, 150, weights=weights, seed=seed).pivots] > 0).all()


def test_a_tile_is_compared_with_its_range_of_pivots():
    kernel, points = Gaussian(1.0), some_points(2500, 3)
    pivots = np.arange(0, 2500, 250)
    ranges = np.array([[0, 4], [3, 10], [9, 10]])
    found = NearestPivots(np.full(2500, np.inf), np.zeros(2500, dtype=np.int32), np.zeros(2500), np.empty(3))
    by_columns(kernel, points).compare(np.ones(2500), pivots, ranges, 5, 2.0, found)
    for tile, (first, last) in enumerate(ranges):
        rows = slice(1024 * tile, 1024 * tile + 1024)
        best, which = naive.nearest(kernel.to_dict(), points[rows], points[pivots[first:last]])
        assert_allclose(found.distances[rows], best, rtol=1e-9, atol=1e-12)
        assert_array_equal(found.nearest[rows], 5 + first + which)


def test_an_overflow_of_the_cost_is_an_error():
    with pytest.raises(KernelError, match="overflows for the clustering cost"):
        seeded(Linear(), 1e160 * some_points(3_000, 2), 100)


def test_points_are_sorted_by_cell():
    cells = np.random.default_rng(0).integers(7, size=1000).astype(np.int32)
    assert_array_equal(sort_by_cell(cells, 9), np.argsort(cells, kind="stable"))


def test_a_coreset_for_many_clusters_has_less_error_than_independent_draws():
    points, kernel = some_points(20_000, 2), Gaussian(1.0)
    error = {
        draw: np.mean(
            [
                empirical_error(
                    points, build_coreset(points, 150, kernel, 600, seed=seed, draw=draw), 150, kernel, n_center_sets=10
                )
                for seed in range(3)
            ]
        )
        for draw in ("ordered", "iid")
    }
    assert error["ordered"] < 0.5 * error["iid"]
