"""Balanced halving: pairs of neighbours, groups of coins, and the bound for every center set."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import Gaussian, Linear, build_coreset
from kernelcoreset.coresets import sampling
from kernelcoreset.coresets.halving import (
    IN_FEW_DIMENSIONS,
    IN_MANY_DIMENSIONS,
    OF_MANY_DRAWS,
    Effort,
    balanced_turns,
    halve,
    neighbours_together,
    set_costs,
    tail_factor,
)
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.sampling import pick_evenly
from tests import naive
from tests.cases import some_points

RECIPE = Recipe(k=2, kernel=Gaussian(1.0), size=16)


# --- one draw from each stratum --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_picks_are_those_of_the_running_sum(seed):
    """The fast loop never sorts; its twin walks along the sorted places."""
    generator = np.random.default_rng(seed)
    n, n_places, size = 60, 7, int(generator.integers(1, 30))
    probabilities = generator.random(n) * generator.integers(0, 2, n)
    probabilities[0] = 1.0
    places = generator.integers(n_places, size=n).astype(np.int32)
    offsets = generator.random(size)
    order = np.argsort(places, kind="stable")
    expected = order[naive.pick(probabilities[order], (np.arange(size) + offsets) / size)]
    assert_array_equal(pick_evenly(probabilities, places, n_places, offsets), expected)


def test_strata_have_no_more_variance_than_independent_draws():
    """For any function: the exact variances, by the law of total variance, and the loop's own draws beside them."""
    generator = np.random.default_rng(0)
    n, size, draws = 40, 8, 4_000
    p = 0.3 + generator.random(n)
    p /= p.sum()
    functions = np.column_stack(
        [
            np.ones(n),
            np.arange(n) % 2 * 2.0 - 1.0,  # turns from point to point: the order does not help at all
            np.repeat([0.0, 1.0], n // 2),
            (np.arange(n) == 17) * 50.0,  # one point alone
            generator.standard_cauchy(n),
            1.0 / p,
        ]
    )
    values = functions / p[:, None]  # w f / p with w = 1
    places = np.arange(n, dtype=np.int32)
    estimates = np.array([values[pick_evenly(p, places, n, generator.random(size))].mean(axis=0) for _ in range(draws)])
    # Row j: how much of each point is in stratum j.
    ends = np.concatenate([[0.0], np.cumsum(p)])
    parts = [np.diff(np.clip(ends, j / size, (j + 1) / size)) * size for j in range(size)]
    stratified = sum(part @ values**2 - (part @ values) ** 2 for part in parts) / size**2
    independent = (p @ values**2 - functions.sum(axis=0) ** 2) / size
    assert (stratified <= independent * (1 + 1e-12)).all()
    # The empirical variance of 4,000 draws is within a few percent; heavy tails need more room. Seeds are fixed.
    assert_allclose(estimates.var(axis=0), stratified, rtol=0.25, atol=1e-9)
    assert (estimates.var(axis=0) <= 1.1 * independent + 1e-9).all()


def test_strata_are_independent():
    """The picks of two strata are uncorrelated: |correlation| of 4,000 draws stays below 5.5 / sqrt(4000)."""
    generator = np.random.default_rng(1)
    p, places = np.full(32, 1 / 32), np.arange(32, dtype=np.int32)
    picks = np.array([pick_evenly(p, places, 32, generator.random(4)) for _ in range(4_000)]) % 8
    assert picks.std(axis=0).min() > 2.0
    correlations = np.corrcoef(picks.T) - np.eye(4)
    assert np.abs(correlations).max() < 5.5 / np.sqrt(4_000)


# --- halving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 24, 88, 1_000])
def test_the_order_keeps_blocks_of_neighbours(n):
    rows = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    order = neighbours_together(rows, 8)
    assert_array_equal(np.sort(order), np.arange(n))
    pairs = rows[order].reshape(-1, 2, 3)
    apart = ((pairs[:, 0] - pairs[:, 1]) ** 2).sum(axis=1).mean()
    assert apart < 0.7 * 2 * rows.var(axis=0).sum() or n == 8


def test_equal_points_are_ordered_too():
    assert_array_equal(np.sort(neighbours_together(np.zeros((64, 2), np.float32), 8)), np.arange(64))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("n", [1, 700])
def test_costs_of_sets_against_the_twin(k, n):
    generator = np.random.default_rng(k)
    distances, weights = generator.random((12, n), dtype=np.float32), generator.random(n, dtype=np.float32)
    order, sets = generator.permutation(n), generator.integers(12, size=(20, k))
    costs, scales = set_costs(distances, weights, order, sets, 0)
    expected = naive.landmark_set_costs(distances, weights, order, sets)
    assert_array_equal(costs, expected)
    assert_allclose(scales, 1.0 / expected.sum(axis=1, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 5, 9])
def test_the_turns_are_as_good_as_all_of_them_for_few_groups(groups):
    vectors = np.random.default_rng(groups).normal(size=(groups, 4))
    found = balanced_turns(vectors @ vectors.T, np.random.default_rng(0).random((32, 3)))
    least = min(((np.array(signs) @ vectors) ** 2).sum() for signs in itertools.product([-1.0, 1.0], repeat=groups))
    assert ((found @ vectors) ** 2).sum() == pytest.approx(least)


@pytest.mark.parametrize("effort", [Effort(64, 256, 64), Effort(16, 8, 4), IN_MANY_DIMENSIONS, OF_MANY_DRAWS])
@pytest.mark.parametrize("halvings", [1, 3, 5])
def test_one_of_every_pair_is_kept(halvings, effort):
    points = some_points(16 << halvings, 3)
    kept = halve(RECIPE, points, np.ones(len(points)), halvings, np.random.default_rng(0), effort)
    assert len(kept) == len(set(kept.tolist())) == 16
    again = halve(RECIPE, points, np.ones(len(points)), halvings, np.random.default_rng(0), effort)
    assert_array_equal(kept, again)


def test_turning_the_coins_keeps_the_other_points():
    """So every point is kept with probability exactly 1/2, whatever the groups do."""

    class Turned:
        """The same random numbers, but every coin shows its other side."""

        def __init__(self, turn):
            self.numbers, self.turn = np.random.default_rng(5), turn

        def integers(self, *args, **options):
            return self.numbers.integers(*args, **options)

        def random(self, size):
            drawn = self.numbers.random(size)
            return 1.0 - drawn if self.turn and np.ndim(size) == 0 else drawn

    points, weights = some_points(400, 2), 1.0 + np.random.default_rng(1).random(400)
    one, other = (halve(RECIPE, points, weights, 1, Turned(turn)) for turn in (False, True))
    assert_array_equal(np.sort(np.concatenate([one, other])), np.arange(400))


def test_the_tail_bound_holds_for_adversarial_center_sets():
    """A cost is rarely off by more than the bound, and on balanced costs by much less.

    The functions are costs of center sets that the halving has not seen. With failure probability 0.5 per function the
    bound may fail in half of the draws; the proof counts all 2^4 ways to turn 4 groups, so it hardly ever does.
    """
    points = some_points(128, 2, seed=3)
    weights = np.random.default_rng(2).random(128) + 0.5
    effort = Effort(16, 8, 4)
    sets = np.random.default_rng(3).integers(128, size=(20, 2))
    costs = np.column_stack([naive.nearest(RECIPE.kernel.to_dict(), points, points[own])[0] for own in sets])
    costs *= weights[:, None]
    fails = np.zeros(len(sets))
    for seed in range(200):
        kept = halve(RECIPE, points, weights, 1, np.random.default_rng(seed), effort)
        changes = 2 * costs[kept].sum(axis=0) - costs.sum(axis=0)
        # Of each pair one point is kept and the other is not: the change is a sum of as many differences.
        rest = np.setdiff1d(np.arange(128), kept)
        assert_allclose(changes, costs[kept].sum(axis=0) - costs[rest].sum(axis=0), rtol=1e-9, atol=1e-12)
        largest = np.sqrt(((np.abs(costs[kept]).max(axis=0)) ** 2) * len(kept))
        fails += np.abs(changes) > tail_factor(0.5, effort.groups) * largest
    assert fails.max() == 0


def test_the_factor_of_the_tail_by_hand():
    assert tail_factor(np.exp(-2.0), groups=0) == pytest.approx(2.0)
    assert tail_factor(0.01, groups=8) ** 2 == pytest.approx(2 * (8 * np.log(2) + np.log(100)))


@pytest.fixture
def halvings(monkeypatch):
    """Calls of `halve` by builds: draws, halvings and effort."""
    seen = []

    def watched(recipe, points, weights, count, generator, effort):
        seen.append((len(points), count, effort))
        return halve(recipe, points, weights, count, generator, effort)

    monkeypatch.setattr(sampling, "halve", watched)
    return seen


@pytest.mark.parametrize(("d", "expected"), [(2, (1_024, 4)), (48, (512, 3))])
def test_as_much_is_balanced_as_takes_little_of_the_time(d, expected, halvings):
    build_coreset(some_points(2_000, d), 3, Gaussian(3.0), 64, seed=0)
    assert halvings == [(*expected, IN_FEW_DIMENSIONS)]


@pytest.mark.parametrize(
    ("n", "size", "first", "last"),
    [(2_000, 64, 3, 3), (20_000, 64, 5, 3), (300, 64, 1, 3), (5_000, 512, 2, 3), (9_000, 4_096, 1, 2)],
)
def test_more_is_balanced_in_many_dimensions(n, size, first, last, halvings):
    """From 16 to 47 columns, also if a build takes a fraction of a second longer: few draws per row, few in memory."""
    build_coreset(some_points(n, 20), 3, Gaussian(3.0), size, seed=0)
    draws = size << (first + last)
    assert halvings == [(draws, first, OF_MANY_DRAWS), (draws >> first, last, IN_MANY_DIMENSIONS)]
    assert draws <= max(8 * size, 4 * n)


@pytest.mark.parametrize(("d", "least"), [(2, 0.6), (20, 0.3), (60, 0.6)])
def test_every_cell_has_its_share_of_the_probability(d, least, monkeypatch):
    """At least the share `least` w / (P W(cell)) for P pivots, and a tenth of that of the cost: step 1 of the proof."""
    seen = []
    true = sampling.sensitivities

    def watched(seeding, weights, *shares):
        kept = seeding._replace(distances=seeding.distances.copy(), nearest=seeding.nearest.copy())
        seen.append((kept, weights, true(seeding, weights, *shares)))
        return seen[-1][-1]

    monkeypatch.setattr(sampling, "sensitivities", watched)
    build_coreset(some_points(1_000, d), 3, Gaussian(3.0), 64, seed=0)
    ((seeding, weights, probabilities),) = seen
    of_cell = np.bincount(seeding.nearest, weights)[seeding.nearest]
    assert (probabilities >= least * (1 - 1e-9) * weights / (len(seeding.pivots) * of_cell)).all()
    assert (probabilities >= 0.1 * (1 - 1e-9) * weights * seeding.distances / seeding.cost).all()


def test_many_points_are_halved_more_often():
    """With 64 times as many points as draws there are four halvings: the error falls more than by chance."""
    points = some_points(70_000, 2)
    kernel = Linear()
    few, many = (build_coreset(own, 2, kernel, 64, seed=0, ids=np.arange(len(own))) for own in (points[:3_000], points))
    for coreset, own in ((few, points[:3_000]), (many, points)):
        assert coreset.weights.sum() == pytest.approx(len(own), rel=0.05)
        assert_array_equal(coreset.points, own[coreset.ids])
