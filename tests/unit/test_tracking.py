"""Clusters keep their numbers from fit to fit."""

import itertools

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.models.tracking import match_labels, refit_tracked

KERNEL = kc.Gaussian(sigma=4.0)


def clouds(seed, places, n=60):
    generator = np.random.default_rng(seed)
    points = np.repeat(np.asarray(places, dtype=float), n, axis=0) + generator.normal(
        scale=0.5, size=(n * len(places), 2)
    )
    return kc.Coreset(points, generator.uniform(0.5, 2.0, size=len(points)))


def kept(names, before, after, weights):
    return weights[names[after] == before].sum()


@pytest.mark.parametrize("seed", range(20))
def test_no_other_names_keep_more_weight(seed):
    """Compared with all permutations."""
    generator = np.random.default_rng(seed)
    k, n = int(generator.integers(1, 6)), 40
    after = np.concatenate([np.arange(k), generator.integers(k, size=n - k)])
    before = generator.integers(int(generator.integers(1, 7)), size=n)
    weights = generator.random(n)
    names = match_labels(before, after, weights)
    assert sorted(names.tolist()) == list(range(k))
    best = max(kept(np.array(other), before, after, weights) for other in itertools.permutations(range(k)))
    assert kept(names, before, after, weights) == pytest.approx(best)


@pytest.mark.parametrize("shuffled", list(itertools.permutations(range(3))))
def test_the_same_labels_under_other_names(shuffled):
    before = np.random.default_rng(0).integers(3, size=50)
    after = np.array(shuffled)[before]
    np.testing.assert_array_equal(match_labels(before, after, np.ones(50))[after], before)


def test_a_refit_keeps_names_and_says_what_moved():
    places = [[0, 0], [9, 0], [0, 30]]
    first = refit_tracked(clouds(0, places), 3, KERNEL, seed=1)
    assert first.moved is None
    # The last place is now the heaviest: numbered by weight it would be the first.
    heavy = kc.Coreset(*(np.concatenate(part) for part in zip(*_parts(1, places), strict=True)))
    second = refit_tracked(heavy, 3, KERNEL, first.model, seed=2)
    assert second.moved == 0.0
    for place in places:
        assert second.model.predict([place]) == first.model.predict([place])
    assert np.argmax(second.model.cluster_weights) == first.model.predict([places[2]])[0]
    np.testing.assert_array_equal(second.model.solution.labels, second.model.predict(heavy.points))


def _parts(seed, places):
    coreset = clouds(seed, places)
    yield coreset.points, np.where(coreset.points[:, 1] > 15, 9.0, 1.0)


def test_what_moves_is_counted_by_weight():
    before = refit_tracked(clouds(0, [[0, 0], [20, 0]]), 2, KERNEL).model
    # Between the two, 8 is nearer to 0; once most of the weight of that cluster is at 30, it stays, and 20 moves.
    now = kc.Coreset([[0.0, 0.0], [20.0, 0.0], [24.0, 0.0]], [1.0, 1.0, 2.0])
    tracked = refit_tracked(now, 2, kc.Linear(), before)
    assert tracked.moved == 0.0
    swapped = kc.Coreset([[0.0, 0.0], [9.0, 0.0], [11.0, 0.0], [100.0, 0.0]], [1.0, 2.0, 3.0, 4.0])
    tracked = refit_tracked(swapped, 2, kc.Linear(), before)
    # 0, 9 and 11 are one cluster now: 11 was in that of 20, which 100 keeps.
    assert tracked.moved == pytest.approx(3.0 / 10.0)


def test_another_number_of_clusters():
    places = [[0, 0], [9, 0], [0, 30], [30, 30]]
    four = refit_tracked(clouds(0, places), 4, KERNEL).model
    three = refit_tracked(clouds(0, places[:3]), 3, KERNEL, four).model
    assert sorted(three.predict(places[:3]).tolist()) == [0, 1, 2]
    # The fourth place is far from all three centers; being light, it takes no other cluster's number.
    light = clouds(1, places)
    light = kc.Coreset(light.points, np.where(light.points.min(axis=1) > 15, 0.1, 1.0))
    again = refit_tracked(light, 4, KERNEL, three).model
    np.testing.assert_array_equal(again.predict(places[:3]), three.predict(places[:3]))


def test_shapes_must_fit():
    with pytest.raises(kc.DataError, match=r"`before`, `after` and `weights` must have the same shape"):
        match_labels([0, 1], [0], [1.0])
