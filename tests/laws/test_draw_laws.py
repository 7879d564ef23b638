"""What holds for every draw on any input."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import (
    Coreset,
    CoresetTree,
    Cosine,
    Exponential,
    Gaussian,
    Linear,
    Polynomial,
    build_coreset,
    merge_coresets,
)
from tests.cases import DRAWS, read_only

kernels = st.sampled_from(
    [Gaussian(1.0), Exponential(1.0), Polynomial(2, 1.0), Linear(), Cosine(), Linear() + Cosine()]
)
draws = st.sampled_from(DRAWS)
powers = st.sampled_from([1.0, 1.5, 2.0, 3.0])
seeds = st.integers(0, 2**32)


@st.composite
def weighted_points(draw, max_rows=60):
    """Points with duplicates, weights with zeros (never all of them), all read-only."""
    n, d = draw(st.integers(1, max_rows)), draw(st.integers(1, 3))
    points = draw(hnp.arrays(np.float64, (n, d), elements=st.floats(-10, 10, width=32)))
    weights = draw(hnp.arrays(np.float64, n, elements=st.one_of(st.just(0.0), st.just(1.0), st.floats(0.01, 100.0))))
    weights[draw(st.integers(0, n - 1))] = 1.0
    return read_only(points), read_only(weights)


def assert_same(left, right):
    assert left.points.tobytes() == right.points.tobytes()
    assert left.weights.tobytes() == right.weights.tobytes()
    assert (left.ids is None) == (right.ids is None)
    if left.ids is not None:
        assert_array_equal(left.ids, right.ids)


@given(weighted_points(), kernels, st.integers(1, 4), st.integers(0, 20), powers, draws, seeds)
def test_a_coreset_is_a_weighted_part_of_its_input(data, kernel, k, more, z, draw, seed):
    points, weights = data
    options = {"k": k, "kernel": kernel, "size": k + more, "z": z, "weights": weights, "seed": seed, "draw": draw}
    coreset = build_coreset(points, ids=read_only(np.arange(len(points))), **options)
    assert 1 <= len(coreset) <= k + more
    assert len(set(coreset.ids.tolist())) == len(coreset)
    assert_array_equal(coreset.points, points[coreset.ids])
    assert (weights[coreset.ids] > 0).all()
    assert (coreset.weights > 0).all()
    assert np.isfinite(coreset.weights).all()
    if np.count_nonzero(weights) <= k + more:
        assert_array_equal(coreset.ids, np.flatnonzero(weights))
        assert_array_equal(coreset.weights, weights[coreset.ids])
    assert_same(coreset, build_coreset(points, ids=np.arange(len(points)), **options))
    without_ids = build_coreset(points, **options)
    assert_array_equal(without_ids.points, coreset.points)
    assert_array_equal(without_ids.weights, coreset.weights)


@given(weighted_points(), kernels, draws, seeds, st.integers(-100, 100))
def test_scaled_weights_change_no_choice(data, kernel, draw, seed, exponent):
    # A power of two scales without rounding, so that not even a tie may fall the other way.
    points, weights = data
    ids = np.arange(len(points))
    plain = build_coreset(points, 2, kernel, 5, weights=weights, ids=ids, seed=seed, draw=draw)
    scaled = build_coreset(points, 2, kernel, 5, weights=weights * 2.0**exponent, ids=ids, seed=seed, draw=draw)
    assert_array_equal(scaled.ids, plain.ids)
    assert_allclose(scaled.weights, plain.weights * 2.0**exponent, rtol=1e-12)


@given(weighted_points(), draws, seeds)
def test_points_of_weight_zero_are_as_good_as_absent(data, draw, seed):
    points, weights = data
    coreset = build_coreset(points, 1, Linear(), 4, weights=weights, seed=seed, draw=draw)
    kept = {tuple(point) for point in points[weights > 0]}
    assert all(tuple(point) in kept for point in coreset.points)


@given(weighted_points(), weighted_points(), kernels, draws, seeds)
def test_the_union_with_an_empty_coreset_is_the_identity(left, right, kernel, draw, seed):
    d = min(left[0].shape[1], right[0].shape[1])
    parts = [
        build_coreset(points[:, :d], 2, kernel, 10, weights=weights, ids=np.arange(len(points)) + offset)
        for (points, weights), offset in ((left, 0), (right, 1000))
    ]
    empty = Coreset(np.empty((0, d)), np.empty(0))
    options = {"k": 2, "kernel": kernel, "size": 8, "seed": seed, "draw": draw}
    merged = merge_coresets(parts, **options)
    assert_same(merge_coresets([parts[0], empty, parts[1], empty], **options), merged)
    everything = np.concatenate([left[0][:, :d], np.full((1000 - len(left[0]), d), np.nan), right[0][:, :d]])
    assert_array_equal(merged.points, everything[merged.ids])
    alone = merge_coresets([empty, parts[0]], k=2, kernel=kernel, size=10)
    assert_same(alone, parts[0])


@given(weighted_points(), draws, seeds)
def test_arrow_gives_back_every_byte(data, draw, seed):
    points, weights = data
    coreset = build_coreset(
        points, 2, Gaussian(1.0), 6, weights=weights, ids=np.arange(len(points)), seed=seed, draw=draw
    )
    again = Coreset.from_arrow(coreset.to_arrow())
    assert_same(again, coreset)
    assert dict(again.settings) == dict(coreset.settings)


@given(weighted_points(max_rows=80), st.lists(st.integers(0, 80), max_size=6), kernels, st.integers(2, 4), seeds)
def test_a_tree_does_not_see_how_its_rows_were_cut(data, cuts, kernel, fan_in, seed):
    points, weights = data
    ids = np.arange(len(points))
    options = {"k": 2, "kernel": kernel, "size": 3, "leaf_size": 4, "chunk_size": 5, "fan_in": fan_in, "seed": seed}
    whole, cut = CoresetTree(**options), CoresetTree(**options)
    whole.add(points, weights, ids)
    for rows in np.split(ids, sorted(cuts)):
        cut.add(points[rows], weights[rows], ids[rows])
    assert_same(cut.result(), whole.result())
    assert_array_equal(whole.result().points, points[whole.result().ids])
    assert (weights[whole.result().ids] > 0).all()
    assert len(whole.nodes()) <= 8 * fan_in
