"""Laws of the store: its content alone decides, no row is lost or counted twice, and every cost is unbiased."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import _MockFileSystem

import kernelcoreset as kc
from kernelcoreset.store import key_tree
from tests.cases import LARGEST_SCORE, some_points, standard_scores

KERNEL = kc.Gaussian(sigma=1.0)

KEYS = [f"day {i}" for i in range(12)]
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "put", "expire", "result"]), st.sampled_from(KEYS), st.integers(0, 5))
)


def rows(key, version):
    return some_points(3 * version, 2, seed=100 * KEYS.index(key) + version)


def in_memory(size, **options):
    return kc.CoresetStore.create("store", 2, KERNEL, size, filesystem=_MockFileSystem(), **options)


def put(store, key, version):
    (store.replace if key in store else store.add)(key, rows(key, version))


def apply(store, changes):
    """Make the changes, and return what must be there: the last version of every key."""
    there = {}
    for what, key, version in changes:
        if what == "put":
            put(store, key, version)
            there[key] = version
        elif what == "expire" and key in there:
            store.expire(key)
            del there[key]
        elif what == "result" and any(there.values()):
            store.result()
    return there


@given(CHANGES, st.integers(1, 4), st.randoms())
@settings(max_examples=30)
def test_only_the_content_decides(changes, most_leaves, shuffler):
    key_tree.MOST_LEAVES, before = most_leaves, key_tree.MOST_LEAVES
    try:
        store = in_memory(4, leaf_size=6)
        there = apply(store, changes)
        assert store.keys() == sorted(there)
        if not any(there.values()):
            return
        keys = list(there)
        shuffler.shuffle(keys)
        fresh = in_memory(4, leaf_size=6)
        for key in keys:
            put(fresh, key, there[key])
        assert store.result().to_bytes() == fresh.result().to_bytes()
        assert set(store._tree.files()) == set(fresh._tree.files())
    finally:
        key_tree.MOST_LEAVES = before


@given(CHANGES, st.integers(1, 4), st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=12, max_size=12))
@settings(max_examples=30)
def test_no_row_is_lost_or_counted_twice(changes, most_leaves, factors):
    key_tree.MOST_LEAVES, before = most_leaves, key_tree.MOST_LEAVES
    try:
        store = in_memory(1_000)  # room for all rows, so that each must come out
        factor = dict(zip(KEYS, factors, strict=True))
        there = {key: version for key, version in apply(store, changes).items() if version and factor[key]}
        if not there:
            return
        result = store.result(weight_of=factor.get)
        expected = np.concatenate([np.c_[rows(key, v), np.full(3 * v, factor[key])] for key, v in there.items()])
        found = np.c_[result.points, result.weights]
        # By the coordinates, which come out as they went in; weights are rounded to nine digits.
        found, expected = (table[np.lexsort(table[:, :2].T)] for table in (found, expected))
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    finally:
        key_tree.MOST_LEAVES = before


def test_every_cost_is_unbiased(monkeypatch):
    monkeypatch.setattr(key_tree, "MOST_LEAVES", 2)
    days = {f"day {i}": some_points(30, 2, seed=i) for i in range(12)}
    factor = {key: 0.8**i for i, key in enumerate(days)}
    points = np.concatenate(list(days.values()))
    weights = np.repeat(list(factor.values()), 30)
    sets = kc.draw_center_sets(points, 2, KERNEL, n_center_sets=10)
    estimates = []
    for seed in range(200):
        store = in_memory(8, leaf_size=8, seed=seed)
        store.change(
            {key: kc.build_coreset(rows, 2, KERNEL, 8, seed=store.leaf_seed(key)) for key, rows in days.items()}
        )
        result = store.result(weight_of=factor.get)
        estimates.append(kc.center_set_costs(result.points, sets, KERNEL, weights=result.weights))
    exact = kc.center_set_costs(points, sets, KERNEL, weights=weights)
    assert np.abs(standard_scores(estimates, exact)).max() < LARGEST_SCORE
