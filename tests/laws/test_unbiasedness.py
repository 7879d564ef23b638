"""The mean of many draws is the exact sum: for every draw, through merges and through the tree.

The bound and its failure probability are worked out at `cases.standard_scores`.
"""

import numpy as np
import pytest

from kernelcoreset import CoresetTree, Gaussian, Linear, Polynomial, build_coreset, merge_coresets
from tests import naive
from tests.cases import DRAWS, LARGEST_SCORE, some_points, standard_scores

N = 48
SEEDS = 600
POINTS = some_points(N, 2, seed=4)
WEIGHTS = np.random.default_rng(2).choice([0.0, 0.5, 1.0, 4.0], size=N)


def functions(kernel, points, z):
    """Columns to be summed: a constant, the coordinates, the costs of two center sets, and an indicator per point."""
    plain = kernel.to_dict()
    costs = [naive.nearest(plain, points, points[rows])[0] ** (z / 2) for rows in ([0, 5], [7, 9])]
    return np.column_stack([np.ones(len(points)), points, *costs, np.eye(len(points))])


def assert_unbiased(coresets, columns, exact):
    """`columns` has one row for every id."""
    estimates = [coreset.weights @ columns[coreset.ids] for coreset in coresets]
    scores = standard_scores(estimates, exact)
    assert np.abs(scores).max() < LARGEST_SCORE, np.round(scores, 1)


@pytest.mark.parametrize("z", [1.0, 2.0])
@pytest.mark.parametrize("kernel", [Gaussian(1.5), Polynomial(2, 1.0)], ids=repr)
@pytest.mark.parametrize("draw", DRAWS)
def test_every_draw_is_unbiased(draw, kernel, z):
    columns = functions(kernel, POINTS, z)
    coresets = (
        build_coreset(POINTS, 2, kernel, 10, z=z, weights=WEIGHTS, ids=np.arange(N), seed=seed, draw=draw)
        for seed in range(SEEDS)
    )
    assert_unbiased(coresets, columns, WEIGHTS @ columns)


@pytest.mark.parametrize("size", [3, 11, 40])
@pytest.mark.parametrize("draw", DRAWS)
def test_every_size_is_unbiased(draw, size):
    columns = functions(Linear(), POINTS, 2.0)
    coresets = (
        build_coreset(POINTS, 3, Linear(), size, ids=np.arange(N), seed=seed, draw=draw) for seed in range(SEEDS)
    )
    assert_unbiased(coresets, columns, columns.sum(axis=0))


@pytest.mark.parametrize("draw", DRAWS)
def test_permuted_rows_keep_the_expectation(draw):
    order = np.random.default_rng(9).permutation(N)
    columns = functions(Gaussian(1.5), POINTS, 2.0)
    coresets = (
        build_coreset(POINTS[order], 2, Gaussian(1.5), 10, weights=WEIGHTS[order], ids=order, seed=seed, draw=draw)
        for seed in range(SEEDS)
    )
    assert_unbiased(coresets, columns, WEIGHTS @ columns)


@pytest.mark.parametrize("draw", DRAWS)
def test_equal_points_are_drawn_alike(draw):
    # With equal points no pivots change the order, so a draw that favours some positions would show here.
    weights = np.tile([1.0, 2.0], 30)
    coresets = (
        build_coreset(np.ones((60, 1)), 2, Linear(), 3, weights=weights, ids=np.arange(60), seed=seed, draw=draw)
        for seed in range(1500)
    )
    assert_unbiased(coresets, np.eye(60), weights)


@pytest.mark.parametrize("draw", DRAWS)
def test_weight_n_is_n_copies(draw):
    # Copies have the id of their original, so both cases estimate the same sums.
    weights = np.random.default_rng(3).integers(0, 4, N)
    copies = np.repeat(np.arange(N), weights)
    columns = functions(Gaussian(1.5), POINTS, 2.0)
    coresets = (
        build_coreset(POINTS[copies], 2, Gaussian(1.5), 10, ids=copies, seed=seed, draw=draw) for seed in range(SEEDS)
    )
    assert_unbiased(coresets, columns, weights @ columns)


@pytest.mark.parametrize("draw", ["iid", "uniform"])
def test_weight_n_is_drawn_as_often_as_n_copies(draw):
    # For independent draws, weight n and n copies are the same: a point is in the coreset equally often.
    weights = np.arange(24) % 4
    copies = np.repeat(np.arange(24), weights)
    kernel, drawn = Gaussian(1.5), np.zeros((2, 2000, 24))
    for seed in range(2000):
        by_weight = build_coreset(POINTS[:24], 2, kernel, 6, weights=weights, ids=np.arange(24), seed=seed, draw=draw)
        by_copies = build_coreset(POINTS[copies], 2, kernel, 6, ids=copies, seed=seed + 2000, draw=draw)
        drawn[0, seed, by_weight.ids] = 1.0
        drawn[1, seed, by_copies.ids] = 1.0
    often = weights > 0
    # Two samples of the same size: their difference has mean 0.
    scores = standard_scores(drawn[0][:, often] - drawn[1][:, often], 0.0)
    assert np.abs(scores).max() < LARGEST_SCORE
    assert drawn[:, :, ~often].sum() == 0


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("one_seed", [True, False])
def test_merges_are_unbiased(draw, one_seed):
    # Also if a user gives the same seed to every step.
    columns = functions(Linear(), POINTS, 2.0)

    def merged(seed):
        halves = [
            build_coreset(
                POINTS[rows], 2, Linear(), 9, ids=rows, seed=seed if one_seed else 7919 * seed + rows[0], draw=draw
            )
            for rows in np.split(np.arange(N), 2)
        ]
        return merge_coresets(halves, 2, Linear(), 6, seed=seed, draw=draw)

    assert_unbiased(map(merged, range(SEEDS)), columns, columns.sum(axis=0))


@pytest.mark.parametrize("draw", ["iid", "uniform"])
def test_a_draw_from_a_draw_with_the_same_seed_is_unbiased(draw):
    # With the same random numbers in both steps, the first of four equal points would come out a quarter too heavy.
    points, columns = np.ones((4, 1)), np.eye(4)

    def twice(seed):
        first = build_coreset(points, 1, Linear(), 2, ids=np.arange(4), seed=seed, draw=draw)
        second = merge_coresets([first], 1, Linear(), 1, seed=seed, draw=draw)
        return merge_coresets([second, second], 1, Linear(), 1, seed=seed, draw=draw)

    assert_unbiased(map(twice, range(2500)), columns, np.full(4, 2.0))


@pytest.mark.parametrize("n", [N, 43])
def test_the_tree_is_unbiased(n):
    # With 43 rows some stay in the buffer.
    columns, weights = functions(Linear(), POINTS, 2.0), np.array(WEIGHTS[:n])

    def result(seed):
        tree = CoresetTree(2, Linear(), 4, leaf_size=5, chunk_size=8, fan_in=2, seed=seed)
        tree.add(POINTS[:n], weights, np.arange(n))
        return tree.result()

    assert_unbiased(map(result, range(SEEDS)), columns, weights @ columns[:n])
