"""Centers that move from clusters that hardly need them into others."""

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.labelling.exchanges import exchange_centers, prune_centers
from kernelcoreset.labelling.written_out import lloyd_over_rows
from tests import naive_centers

KERNELS = [kc.Linear(), kc.Cosine()]


def blobs(k=8, n=2_000, d=16, seed=0, spread=0.1):
    """Rows around k directions, the directions, and which row is around which."""
    generator = np.random.default_rng(seed)
    middles = generator.normal(size=(k, d))
    which = generator.integers(k, size=n)
    return (middles[which] + spread * generator.normal(size=(n, d))).astype(np.float32), middles, which


def cost(means, rows, weights, kernel):
    vectors = naive_centers.vectors(rows, isinstance(kernel, kc.Cosine))
    return weights @ np.square(vectors[:, None] - means).sum(axis=2).min(axis=1)


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_two_centers_in_one_cluster_and_one_for_two_clusters_are_found(kernel, offset):
    if offset and isinstance(kernel, kc.Cosine):
        offset = 0.1
    rows, _, which = blobs()
    rows = rows + np.float32(offset)
    weights = np.random.default_rng(1).exponential(size=len(rows))
    vectors = naive_centers.vectors(rows, isinstance(kernel, kc.Cosine))
    best = np.array([np.average(vectors[which == c], axis=0, weights=weights[which == c]) for c in range(8)])
    start = best.copy()
    start[0], start[1] = (best[0] + best[1]) / 2.0, best[2] + 0.01
    stuck = lloyd_over_rows(start, rows, weights, kernel, 20)
    moved = lloyd_over_rows(exchange_centers(stuck, rows, weights, kernel), rows, weights, kernel, 20)
    least = cost(best, rows, weights, kernel)
    assert cost(stuck, rows, weights, kernel) > 1.5 * least
    assert cost(moved, rows, weights, kernel) == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_cost_never_rises(kernel, seed):
    """Seeds drawn anywhere, so that many clusters are removed at once and some estimates are wrong."""
    rows, _, _ = blobs(k=30, n=1_500, d=4, seed=seed, spread=0.3)
    weights = np.random.default_rng(seed).exponential(size=len(rows))
    means = naive_centers.vectors(rows[:30].astype(np.float64), isinstance(kernel, kc.Cosine))
    before = cost(means, rows, weights, kernel)
    moved = exchange_centers(means, rows, weights, kernel)
    assert cost(moved, rows, weights, kernel) <= (1.0 + 1e-6) * before
    assert moved.shape == means.shape


def test_good_centers_stay_and_so_does_one_center():
    rows, middles, _ = blobs()
    means = lloyd_over_rows(middles, rows, np.ones(len(rows)), kc.Linear(), 5)
    np.testing.assert_array_equal(exchange_centers(means, rows, np.ones(len(rows)), kc.Linear()), means)
    alone = means[:1]
    np.testing.assert_array_equal(exchange_centers(alone, rows, np.ones(len(rows)), kc.Linear()), alone)


def test_rows_of_weight_zero_and_centers_without_rows_do_no_harm():
    rows, middles, _ = blobs()
    weights = np.ones(len(rows))
    weights[::2] = 0.0
    means = np.vstack([middles[:6], middles[:1] + 50.0, middles[:1] - 50.0])
    least = cost(lloyd_over_rows(middles, rows, weights, kc.Linear(), 5), rows, weights, kc.Linear())
    for _ in range(2):  # one cluster may have the rows of both that have no center, and is split once at a time
        means = lloyd_over_rows(exchange_centers(means, rows, weights, kc.Linear()), rows, weights, kc.Linear(), 5)
    assert cost(means, rows, weights, kc.Linear()) == pytest.approx(least, rel=1e-3)
    same = np.ones((50, 4))
    np.testing.assert_array_equal(exchange_centers(same[:3], same, np.ones(50), kc.Linear()), same[:3])


def test_pruning_by_hand():
    """Of the centers 0, 1, 10 and 30 the first costs least to remove: its two rows pay 1 each, those at 1 pay 3."""
    rows = np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [10.0], [30.0]])
    means = np.array([[0.0], [1.0], [10.0], [30.0]])
    found = prune_centers(means, rows, np.ones(7), kc.Linear(), 3)
    np.testing.assert_allclose(np.sort(found, axis=0), [[0.6], [10.0], [30.0]])
    # The weight of a row counts.
    heavy = np.array([9.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(np.sort(prune_centers(means, rows, heavy, kc.Linear(), 3), axis=0)[0], 3.0 / 21.0)


def test_centers_without_rows_go_first_and_as_many_are_left_as_asked_for():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(500, 16)) + 20.0 * np.repeat(np.eye(5, 16), 100, axis=0)
    means = np.concatenate([20.0 * np.eye(5, 16), generator.normal(size=(35, 16)) - 500.0])
    found = prune_centers(means, rows, np.ones(500), kc.Linear(), 5)
    expected = rows.reshape(5, 100, 16).mean(axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert prune_centers(found, rows, np.ones(500), kc.Linear(), 5) is found


@pytest.mark.parametrize("kernel", [kc.Linear(), kc.Cosine()], ids=repr)
def test_more_seeds_than_centers_find_every_group(kernel):
    """Lloyd from 20 rows at random misses some of 20 groups in each run; 160 rows of which 20 stay miss none."""
    generator = np.random.default_rng(0)
    middles = 3.0 * generator.normal(size=(20, 16))
    group = generator.integers(20, size=4_000)
    rows = (middles[group] + 0.3 * generator.normal(size=(4_000, 16))).astype(np.float32)
    vectors = naive_centers.vectors(rows, isinstance(kernel, kc.Cosine))
    missed = np.zeros(2, dtype=int)
    for _ in range(10):
        chosen = generator.choice(4_000, size=160, replace=False)
        few = lloyd_over_rows(vectors[chosen[:20]], rows, np.ones(4_000), kernel, 12)
        more = prune_centers(vectors[chosen], rows, np.ones(4_000), kernel, 20)
        for i, means in enumerate((few, more)):
            nearest = ((vectors[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
            missed[i] += 20 - len(np.unique(nearest[np.unique(group, return_index=True)[1]]))
    assert missed[0] >= 10
    assert missed[1] <= 1


@pytest.mark.parametrize("unit", [2.0**-400, 2.0**400])
def test_the_unit_of_weights_changes_nothing(unit):
    rows, middles, _ = blobs()
    start = middles.copy()
    start[0], start[1] = (middles[0] + middles[1]) / 2.0, middles[2] + 0.01
    weights = np.random.default_rng(1).exponential(size=len(rows))
    expected = exchange_centers(start, rows, weights, kc.Linear())
    assert not np.array_equal(expected, start)
    np.testing.assert_array_equal(exchange_centers(start, rows, unit * weights, kc.Linear()), expected)
