"""`build_coreset` and `merge_coresets`: what they return, and what they refuse."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import (
    Coreset,
    DataError,
    Gaussian,
    KernelError,
    Linear,
    Polynomial,
    SettingError,
    build_coreset,
    empirical_error,
    merge_coresets,
)
from kernelcoreset.coresets.points import points_of
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.sampling import draw_sample
from tests import naive
from tests.cases import read_only, some_points, spaced_out

KERNEL = Gaussian(sigma=1.0)


def built(points, **changes):
    options = {"k": 2, "kernel": KERNEL, "size": 10} | changes
    return build_coreset(points, **options)


def assert_is_a_draw(coreset, points, weights, size):
    """At most `size` different rows of the input, of positive weight, ids with their points."""
    assert 0 < len(coreset) <= size
    assert len(set(coreset.ids.tolist())) == len(coreset)
    assert_array_equal(coreset.points, points[coreset.ids])
    assert (weights[coreset.ids] > 0).all()
    assert np.isfinite(coreset.weights).all()
    assert (coreset.weights > 0).all()


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [1.0, 2.0, 4.5])
def test_a_coreset_of_every_kernel(kernel, draw, z):
    points, weights = some_points(300, 3), np.random.default_rng(0).integers(0, 3, 300).astype(float)
    coreset = build_coreset(points, k=3, kernel=kernel, size=40, z=z, weights=weights, ids=np.arange(300), draw=draw)
    assert_is_a_draw(coreset, points, weights, 40)
    assert len(coreset) > 10


@pytest.mark.parametrize("n", [1023, 1024, 1025, 2500])
def test_a_coreset_around_the_tile_size(draw, n):
    points = some_points(n, 2)
    coreset = built(points, size=100, ids=np.arange(n), draw=draw)
    assert_is_a_draw(coreset, points, np.ones(n), 100)
    assert coreset.weights.sum() == pytest.approx(n, rel=0.5)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 10, 40])
def test_a_coreset_in_any_dimension(draw, d):
    points = some_points(200, d)
    assert_is_a_draw(
        built(points, kernel=Gaussian(3.0), size=30, ids=np.arange(200), draw=draw), points, np.ones(200), 30
    )


def test_draw_sample_gives_what_build_coreset_gives(draw):
    points, weights = some_points(100, 2), np.random.default_rng(1).exponential(size=100)
    index, new_weights = draw_sample(points_of(KERNEL, points), weights, Recipe(3, KERNEL, 20, draw=draw, seed=5))
    coreset = build_coreset(points, 3, KERNEL, 20, weights=weights, ids=np.arange(100), seed=5, draw=draw)
    assert_array_equal(coreset.ids, index)
    assert_array_equal(coreset.weights, new_weights)


def test_a_merge_balances_more_draws_than_a_build_of_as_many_points():
    """Means of 40 merges of ten coresets of 4,000 points to 1,000, beside builds from the same 40,000 points.

    The ratio of the means is 0.77. An error has a standard deviation of 20 % of its mean, so that ratio has one of
    4.5 % of itself: it is below 0.9 in 999 of 1,000 cases. Without any gain it would be in one of 100.
    """
    kernel, points = Gaussian(sigma=2.0), some_points(100_000, 2)
    errors = []
    for first in range(0, 40, 10):
        leaves = [build_coreset(points[i::10], 5, kernel, 4000, seed=first + 100 * i) for i in range(10)]
        rows, weights = (np.concatenate([getattr(leaf, name) for leaf in leaves]) for name in ("points", "weights"))
        for seed in range(first, first + 10):
            merged = merge_coresets(leaves, 5, kernel, 1000, seed=seed)
            built = build_coreset(rows, 5, kernel, 1000, weights=weights, seed=seed)
            errors.append(
                [empirical_error(rows, each, 5, kernel, weights=weights, n_center_sets=50) for each in (merged, built)]
            )
    merged, built = np.mean(errors, axis=0)
    assert merged < 0.9 * built, (merged, built)


@pytest.mark.parametrize("z", [1.0, 2.0])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Polynomial(2, 1.0)], ids=repr)
def test_the_iid_draw_has_the_sensitivities_of_the_paper(kernel, z):
    # A point drawn once has the weight w / p, which shows p. For k = 1 there are n possible pivots.
    points, weights = some_points(6, 2), np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
    possible = [weights / naive.sensitivities(kernel.to_dict(), points, weights, [i], z) for i in range(6)]
    for seed in range(60):
        coreset = build_coreset(points, 1, kernel, 1, z=z, weights=weights, ids=np.arange(6), seed=seed, draw="iid")
        gaps = [abs(one[coreset.ids[0]] / coreset.weights[0] - 1) for one in possible]
        assert min(gaps) < 1e-7  # for the naive twin a point is at distance sqrt(1e-16) = 1e-8 from itself, not at 0


@pytest.mark.parametrize("seed", range(5))
def test_the_uniform_draw_gives_equal_weights_to_equal_weights(seed):
    coreset = built(some_points(50, 2), size=20, seed=seed, draw="uniform")
    picks = coreset.weights / (50 / 20)
    assert_allclose(picks, picks.round(), rtol=1e-12)
    assert picks.sum() == pytest.approx(20)


@pytest.mark.parametrize("size", [5, 6, 1000])
def test_a_size_of_n_or_more_returns_the_input(draw, size):
    points, weights = some_points(5, 2), np.arange(1.0, 6.0)
    coreset = built(points, size=size, weights=weights, ids=list("abcde"), draw=draw)
    assert_array_equal(coreset.points, points)
    assert_array_equal(coreset.weights, weights)
    assert coreset.ids.tolist() == list("abcde")


def test_points_of_weight_zero_do_not_count_as_input(draw):
    points, weights = some_points(50, 2), np.where(np.arange(50) < 10, 2.0, 0.0)
    coreset = built(points, size=10, weights=weights, ids=np.arange(50), draw=draw)
    assert_array_equal(coreset.ids, np.arange(10))
    assert_array_equal(coreset.weights, np.full(10, 2.0))


def test_one_point(kernel, draw):
    coreset = build_coreset([[1.0, 2.0]], k=1, kernel=kernel, size=1, draw=draw)
    assert_array_equal(coreset.points, [[1.0, 2.0]])
    assert_array_equal(coreset.weights, [1.0])


def test_all_points_equal(kernel, draw):
    coreset = build_coreset(np.ones((40, 2)), k=3, kernel=kernel, size=5, draw=draw)
    assert_array_equal(coreset.points, np.ones((len(coreset), 2)))
    assert len(coreset) <= 5
    assert coreset.weights.sum() == pytest.approx(40)


def test_fewer_distinct_points_than_k(kernel, draw):
    points = np.repeat([[0.5, 1.0], [3.0, 1.0]], 20, axis=0)
    coreset = build_coreset(points, k=5, kernel=kernel, size=8, ids=np.arange(40), draw=draw)
    assert_is_a_draw(coreset, points, np.ones(40), 8)


def test_all_weight_on_one_point(draw):
    weights = np.zeros(30)
    weights[17] = 4.0
    coreset = built(some_points(30, 2), weights=weights, ids=np.arange(30), draw=draw)
    assert_array_equal(coreset.ids, [17])
    assert_array_equal(coreset.weights, [4.0])


@pytest.mark.parametrize("scale", [2.0**-830, 2.0**830], ids=["1e-250", "1e250"])
def test_very_small_and_very_large_weights(draw, scale):
    # A power of two scales without rounding: the draw is the same, and so is every bit of the weights but the exponent.
    points, weights = some_points(60, 2), np.random.default_rng(3).exponential(size=60)
    coreset = built(points, weights=scale * weights, ids=np.arange(60), draw=draw)
    assert_is_a_draw(coreset, points, weights, 10)
    plain = built(points, weights=weights, ids=np.arange(60), draw=draw)
    assert_array_equal(coreset.ids, plain.ids)
    assert_array_equal(coreset.weights, scale * plain.weights)


def test_weights_of_very_different_size(draw):
    points, weights = some_points(60, 2), np.geomspace(1e-200, 1e100, 60)
    assert_is_a_draw(built(points, weights=weights, ids=np.arange(60), draw=draw), points, weights, 10)


LAYOUTS = {
    "fortran": np.asfortranarray,
    "read-only": read_only,
    "gaps": spaced_out,
    "float32": lambda points: points.astype(np.float32),
    "integers": lambda points: points.astype(np.int64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_input_changes_nothing(draw, layout):
    points = some_points(100, 2).round()
    plain, other = built(points, draw=draw), built(LAYOUTS[layout](points), draw=draw)
    assert_array_equal(plain.points, other.points)
    assert_array_equal(plain.weights, other.weights)


def test_inputs_are_never_changed(draw):
    points, weights, ids = some_points(100, 2), np.arange(100.0), np.arange(100)
    for order in "CF":
        own = np.array(points, order=order)
        kept = own.copy(), weights.copy(), ids.copy()
        coreset = built(own, weights=weights, ids=ids, draw=draw)
        merge_coresets([coreset, coreset], k=2, kernel=KERNEL, size=5, draw=draw)
        for array, before in zip((own, weights, ids), kept, strict=True):
            assert_array_equal(array, before)


def test_a_coreset_knows_how_it_was_built():
    coreset = built(some_points(50, 2), z=1.5, seed=7, draw="iid")
    assert coreset.settings == {
        "k": 2, "z": 1.5, "kernel": KERNEL.to_dict(), "size": 10, "draw": "iid", "seed": 7,
    }  # fmt: skip


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_null_nan_and_infinity(bad):
    with pytest.raises(DataError, match="`points` must be finite; got 1 bad rows of 2, the first at row 1"):
        built([[1.0, 2.0], [3.0, bad]])


def test_ragged():
    with pytest.raises(DataError, match="`points` must be rectangular"):
        built([[1.0, 2.0], [3.0]])


def test_non_numeric():
    with pytest.raises(DataError, match="`points` must be numbers"):
        built([["a", "b"], ["c", "d"]])


def test_empty():
    with pytest.raises(DataError, match="`points` must have at least one row"):
        built(np.empty((0, 2)))


def test_size_below_k():
    with pytest.raises(SettingError, match=r"`size` must be at least k \(20\); got 8. Ask for more coreset points or"):
        built(some_points(50, 2), k=20, size=8)


@pytest.mark.parametrize("size", [0, -1])
def test_size_below_one(size):
    with pytest.raises(SettingError, match=f"`size` must be at least 1; got {size}"):
        built(some_points(50, 2), size=size)


@pytest.mark.parametrize("k", [0, 2.5, None])
def test_k_is_a_count(k):
    with pytest.raises(SettingError, match="`k` must be"):
        built(some_points(50, 2), k=k)


def test_negative_weights():
    with pytest.raises(
        DataError, match="`weights` must be finite and at least 0; got 1 bad of 2, the first at row 1: -1"
    ):
        built([[1.0], [2.0]], weights=[1.0, -1.0])


def test_nan_weights():
    with pytest.raises(DataError, match="`weights` must be finite and at least 0"):
        built([[1.0], [2.0]], weights=[1.0, math.nan])


def test_weights_all_zero():
    with pytest.raises(DataError, match="`weights` must not all be 0"):
        built([[1.0], [2.0]], weights=[0.0, 0.0])


@pytest.mark.parametrize("z", [0.5, 0.0, -1.0, math.nan, math.inf])
def test_z_below_one(z):
    with pytest.raises(SettingError, match=r"`z` must be a finite number of at least 1; got .* Use z=2 for k-means"):
        built(some_points(50, 2), z=z)


@pytest.mark.parametrize("draw", ["ordered", "iid"])  # the uniform draw evaluates no kernel
def test_overflow_of_a_polynomial(draw):
    with pytest.raises(KernelError, match=r"Polynomial\(degree=4, c=0.0\) overflows.*Scale the points"):
        built(some_points(50, 2) * 1e80, kernel=Polynomial(degree=4), draw=draw)


@pytest.mark.parametrize("draw", ["ordered", "iid"])  # the uniform draw evaluates no kernel
def test_overflow_of_the_cost_only(draw):
    with pytest.raises(KernelError, match=r"Linear.*overflows for the clustering cost"):
        built(some_points(50, 2) * 1e153, kernel=Linear(), z=8, draw=draw)


def test_unknown_draw():
    with pytest.raises(SettingError, match="`draw` must be one of 'ordered', 'iid', 'uniform'; got 'random'"):
        built(some_points(50, 2), draw="random")


def test_seed_must_be_whole():
    with pytest.raises(SettingError, match=r"`seed` must be at least 0; got -1. Any whole number will do"):
        built(some_points(50, 2), seed=-1)


def test_ids_of_the_wrong_length():
    with pytest.raises(DataError, match=r"`ids` must have shape \(50,\), one id per point; got shape \(3,\)"):
        built(some_points(50, 2), ids=[1, 2, 3])


def test_a_kernel_is_needed():
    with pytest.raises(SettingError, match="`kernel` must be a kernel object; got the class Gaussian"):
        built(some_points(50, 2), kernel=Gaussian)


@pytest.mark.parametrize("both", [{"size": None}, {"size": 10, "eps": 0.1}])
def test_either_size_or_eps(both):
    with pytest.raises(SettingError, match="Give either `size` or `eps`; got size="):
        built(some_points(50, 2), **both)


@pytest.mark.parametrize("eps", [0.0, -0.1, math.nan])
def test_eps_is_positive(eps):
    with pytest.raises(SettingError, match="`eps` must be a finite number above 0; got"):
        built(some_points(50, 2), size=None, eps=eps)


def test_eps_is_below_one():
    with pytest.raises(SettingError, match=r"`eps` must be between 0 and 1; got 5. 0.05 keeps every cost within 5 %"):
        built(some_points(50, 2), size=None, eps=5)


# --- merging ---------------------------------------------------------------------------------------------------------


def parts(**changes):
    points = some_points(200, 2)
    return [
        built(points[low : low + 100], size=30, ids=np.arange(low, low + 100), seed=low, **changes) for low in (0, 100)
    ]


def merged(coresets, **changes):
    return merge_coresets(coresets, **({"k": 2, "kernel": KERNEL, "size": 10} | changes))


def test_a_merge_is_a_draw_of_the_union(draw):
    halves = parts()
    coreset = merged(halves, size=12, draw=draw)
    assert_is_a_draw(coreset, some_points(200, 2), np.ones(200), 12)
    assert set(coreset.ids.tolist()) <= set(halves[0].ids.tolist()) | set(halves[1].ids.tolist())


def test_a_merge_with_room_is_the_union():
    halves = parts()
    coreset = merged(halves, size=60)
    assert_array_equal(coreset.points, np.concatenate([half.points for half in halves]))
    assert_array_equal(coreset.weights, np.concatenate([half.weights for half in halves]))
    assert_array_equal(coreset.ids, np.concatenate([half.ids for half in halves]))


@pytest.mark.parametrize("d", [2, 5])
def test_an_empty_coreset_adds_nothing(d):
    halves, empty = parts(), Coreset(np.empty((0, d)), [])
    plain, more = merged(halves), merged([empty, halves[0], empty, halves[1]])
    assert_array_equal(plain.points, more.points)
    assert_array_equal(plain.weights, more.weights)
    assert_array_equal(plain.ids, more.ids)


@pytest.mark.parametrize("count", [0, 2])
def test_a_merge_of_nothing_is_refused(count):
    with pytest.raises(DataError, match=f"needs at least one coreset that is not empty; got {count} empty ones"):
        merged([Coreset(np.empty((0, 2)), [])] * count)


def test_a_merge_needs_one_dimension():
    with pytest.raises(DataError, match="`coresets` must have 2 columns like the first; got 1"):
        merged([Coreset([[1.0, 2.0]], [1.0]), Coreset([[1.0]], [1.0])])


def test_a_merge_needs_ids_everywhere_or_nowhere():
    with pytest.raises(DataError, match="must all have ids or none; got 1 of 2 with ids"):
        merged([Coreset([[1.0]], [1.0], [4]), Coreset([[1.0]], [1.0])])


def test_a_merge_needs_one_kernel():
    with pytest.raises(SettingError, match=r"needs one kernel; got Linear\(\) for a coreset built with .*'Gaussian'"):
        merged(parts(), kernel=Linear())


def test_a_merge_needs_one_z():
    with pytest.raises(SettingError, match="needs one z; got z=1 for a coreset built with z=2"):
        merged(parts(), z=1)


def test_a_merge_cannot_serve_more_clusters():
    with pytest.raises(
        SettingError, match=r"built for k=2 works for that many centers or fewer; got k=3. Build the coresets"
    ):
        merged(parts(), k=3)
    assert len(merged(parts(), k=1)) <= 10


def test_a_merge_takes_coresets_only():
    with pytest.raises(SettingError, match="`coresets` must be Coreset objects; got ndarray"):
        merged([np.ones((3, 2))])


def test_a_merge_checks_its_size():
    with pytest.raises(SettingError, match=r"`size` must be at least k \(2\); got 1"):
        merged(parts(), size=1)
