"""D^z seeding: the loop against its naive twin, and the probabilities of its draws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import Gaussian, KernelError, Linear, Polynomial
from kernelcoreset.coresets.seeding import pick, seed_by_matrix, seed_pivots
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from tests import naive
from tests.cases import LARGEST_SCORE, some_points, standard_scores


def seeded(kernel, points, count, *, weights=None, z=2.0, seed=0, **options):
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
    cloud = evaluator_of(kernel).cloud(as_columns(np.asarray(points, dtype=float)))
    return seed_pivots(kernel, cloud, weights, count, z, np.random.default_rng(seed), **options)


def assert_is_nearest(seeding, kernel, points, weights, z):
    """Distances, nearest pivots and cost equal those of the naive twin, up to rounding and ties."""
    plain = kernel.to_dict()
    table = naive.squared_distances(plain, points, points[seeding.pivots])
    best, _ = naive.nearest(plain, points, points[seeding.pivots])
    rounding = 1e-12 * naive.diagonal(plain, points).max() * 2
    assert_allclose(seeding.distances ** (2 / z), best, rtol=1e-9, atol=rounding)
    assert (table[np.arange(len(points)), seeding.nearest] <= best + 2 * rounding).all()
    followed = np.flatnonzero(seeding.nearest < len(seeding.pivots) - 1)  # the last pivot has none after it
    after = table[followed, seeding.nearest[followed] + 1]
    assert_allclose(seeding.onward[followed] ** (2 / z), after, rtol=1e-9, atol=rounding)
    assert seeding.cost == pytest.approx(float((weights * seeding.distances).sum()), rel=1e-12)


@pytest.mark.parametrize("z", [1.0, 2.0, 3.5])
def test_nearest_pivot_against_the_twin(kernel, z):
    points = some_points(200, 3)
    weights = np.random.default_rng(1).exponential(size=200)
    seeding = seeded(kernel, points, 6, weights=weights, z=z)
    assert len(set(seeding.pivots.tolist())) == 6
    assert_is_nearest(seeding, kernel, points, weights, z)


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("batched", [False, True])
def test_nearest_pivot_around_the_tile_size(n, batched):
    for kernel in (Gaussian(1.0), Polynomial(2, 1.0)):
        points = some_points(n, 2)
        seeding = seeded(kernel, points, 8, batched=batched)
        assert len(seeding.pivots) <= min(n, 8)
        assert_is_nearest(seeding, kernel, points, np.ones(n), 2.0)


def test_pivots_are_their_own_nearest():
    seeding = seeded(Linear(), some_points(100, 2), 10)
    assert_array_equal(seeding.nearest[seeding.pivots], np.arange(10))
    assert_array_equal(seeding.distances[seeding.pivots], np.zeros(10))


def test_seeding_stops_early_when_every_distance_is_zero(kernel):
    # With 3 distinct points there are never more than 3 pivots, for any kernel.
    seeding = seeded(kernel, np.repeat([[0.5, 1.0], [1.0, 3.0], [4.0, 1.0]], 5, axis=0), 7)
    assert len(seeding.pivots) <= 3
    assert seeding.cost == 0.0
    assert_array_equal(seeding.distances, np.zeros(15))


def test_points_of_weight_zero_are_never_pivots():
    points = some_points(40, 2)
    weights = np.where(np.arange(40) % 4 == 0, 1.0, 0.0)
    for seed in range(50):
        assert (weights[seeded(Linear(), points, 10, weights=weights, seed=seed).pivots] > 0).all()


def test_points_of_weight_zero_do_not_keep_the_seeding_going():
    seeding = seeded(Linear(), [[0.0], [0.0], [5.0]], 3, weights=[1.0, 1.0, 0.0])
    assert len(seeding.pivots) == 1
    assert seeding.cost == 0.0


def test_an_overflow_of_the_cost_is_an_error():
    with pytest.raises(KernelError, match="overflows for the clustering cost"):
        seeded(Linear(), [[1e160], [-1e160], [0.0]], 1)


@pytest.mark.parametrize("z", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Polynomial(2, 1.0)], ids=repr)
def test_pivots_are_drawn_with_the_probabilities_of_the_twin(kernel, z):
    points, weights = some_points(5, 2, seed=3), np.array([1.0, 3.0, 0.5, 2.0, 1.0])
    expected = naive.pair_probabilities(kernel.to_dict(), points, weights, z)
    drawn = np.zeros((4000, 5, 5))
    for seed in range(4000):
        drawn[(seed, *seeded(kernel, points, 2, weights=weights, z=z, seed=seed).pivots)] = 1.0
    often = expected > 5e-3  # at least 20 expected hits, so that the count is nearly normal
    assert often.sum() >= 12
    assert np.abs(standard_scores(drawn[:, often], expected[often])).max() < LARGEST_SCORE
    assert drawn[:, expected == 0].sum() == 0


@pytest.mark.parametrize("n", [1, 5, 1023, 1024, 1025, 3000])
def test_pick_finds_the_share_of_the_mass(n):
    # Whole masses and shares of 1/64 make every sum exact, so the twin must agree to the last index.
    generator = np.random.default_rng(n)
    best, weights = generator.integers(0, 3, n).astype(float), generator.integers(0, 3, n).astype(float)
    best[n // 2] = weights[n // 2] = 1.0
    tile_costs = np.array([(best * weights)[low : low + 1024].sum() for low in range(0, n, 1024)])
    shares = np.arange(64) / 64
    found = pick(best, weights, tile_costs, shares)
    assert found.tolist() == naive.pick((best * weights).tolist(), shares)


def test_pick_never_leaves_the_points_with_mass():
    best = np.zeros(3000)
    best[[10, 1500]] = 1.0
    tile_costs = np.array([1.0, 1.0, 0.0])
    assert pick(best, np.ones(3000), tile_costs, np.array([0.0, 0.499, 0.5, 1.0 - 2**-53])).tolist() == [
        10,
        10,
        1500,
        1500,
    ]


@pytest.mark.parametrize("z", [1.0, 2.0])
@pytest.mark.parametrize("copies", [1, 3])
def test_seeds_by_a_matrix_of_distances_are_the_same(z, copies):
    points = np.repeat(some_points(3_000 // copies, 3), copies, axis=0)
    weights = np.random.default_rng(1).integers(0, 3, len(points)).astype(float)
    kernel = Gaussian(sigma=2.0)
    squared = kernel.squared_distances(points, points)
    for seed in range(5):
        expected = seeded(kernel, points, 12, weights=weights, z=z, seed=seed)
        found = seed_by_matrix(squared, weights, 12, z, np.random.default_rng(seed))
        assert_array_equal(found.pivots, expected.pivots)
        assert_array_equal(found.nearest, expected.nearest)
        assert_allclose(found.distances, expected.distances, atol=1e-12)
        assert_allclose(found.onward, expected.onward, atol=1e-12)
        assert found.cost == pytest.approx(expected.cost)


def test_seeds_by_a_matrix_end_if_there_are_fewer_distinct_points():
    points = np.repeat([[0.0], [3.0]], 5, axis=0)
    found = seed_by_matrix((points - points.T) ** 2, np.ones(10), 4, 2.0, np.random.default_rng(0))
    assert (len(found.pivots), found.cost) == (2, 0.0)
