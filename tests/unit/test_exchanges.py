"""Centers that move from clusters that hardly need them into others."""

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.labelling.exchanges import exchange_centers
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
