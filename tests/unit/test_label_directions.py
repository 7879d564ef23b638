"""Labels by products in a few directions: right wherever they are sure, and sure for most rows that lie near them."""

import numpy as np
import pytest

from kernelcoreset import Exponential, Gaussian, Linear
from kernelcoreset.labelling import directions
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.directions import ByDirections, by_directions
from kernelcoreset.labelling.products import BySums
from kernelcoreset.labelling.rungs import new_nearest
from tests import naive_directions

D = 160


def some_rows(n, *, seed, decay=1.5, offset=0.0, scale=1.0):
    """Rows of a few groups, whose columns vary less and less."""
    generator = np.random.default_rng(seed)
    widths = np.arange(1.0, D + 1.0) ** -decay
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))
    groups = np.random.default_rng(1).normal(size=(4, D)) * widths
    rows = (groups[generator.integers(4, size=n)] + 0.7 * generator.normal(size=(n, D)) * widths) @ rotation
    return rows * scale + offset


def centers_of(kernel=None, *, k=4, s=400, **kinds):
    generator = np.random.default_rng(0)
    points = some_rows(s, seed=2, **kinds)
    # Each center has the points near one of k points.
    owner = np.argmin(((points[:, None, :] - points[None, :k, :]) ** 2).sum(axis=2), axis=1)
    coefficients = np.where(owner == np.arange(k)[:, None], generator.uniform(0.5, 1.5, size=s), 0.0)
    scale = kinds.get("scale", 1.0)
    return Centers(
        points, coefficients / coefficients.sum(axis=1, keepdims=True), kernel or Gaussian(sigma=1.2 * scale)
    )


def with_boundary(centers, rows):
    """The rows, the coreset's own points, and rows as near to a boundary as bisection brings them."""
    left, right = rows[:60].copy(), rows[60:120].copy()
    start = centers.label(left, exact_distances=True).labels
    for _ in range(45):
        middle = left + (right - left) / 2
        same = (centers.label(middle, exact_distances=True).labels == start)[:, None]
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return np.concatenate([rows, centers.points, left, right])


def run(level, rows):
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    level.run(rows, out, sure)
    return out, sure


def check(centers, rows):
    """All labels that are sure are those of direct evaluation, and so are those of the whole ladder."""
    direct = centers.label(rows, exact_distances=True)
    out, sure = run(by_directions(centers.many, LABELS_ONLY), rows)
    np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])
    np.testing.assert_array_equal(centers.predict(rows), direct.labels)
    return sure


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("offset", [0.0, 30.0, 1e6])
def test_labels_that_are_sure_are_right(decay, offset):
    centers = centers_of(decay=decay, offset=offset)
    sure = check(centers, with_boundary(centers, some_rows(600, seed=3, decay=decay, offset=offset)))
    if decay == 1.5:
        assert sure[:600].mean() > 0.9
    assert not sure[-60:].all()  # of two rows beside a boundary


@pytest.mark.parametrize("scale", [1e-150, 1e-60, 1e-30, 1e-12, 1e12, 1e30, 1e60])
def test_labels_that_are_sure_are_right_at_every_scale(scale):
    centers = centers_of(scale=scale)
    rows = some_rows(300, seed=3, scale=scale)
    if by_directions(centers.many, LABELS_ONLY) is None:
        assert scale >= 1e30
        np.testing.assert_array_equal(centers.predict(rows), centers.label(rows, exact_distances=True).labels)
    else:
        sure = check(centers, rows)
        assert sure.mean() > 0.9 if abs(np.log10(scale)) < 15 else not sure.any() or scale == 1e-30


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.5, 1.2, 20.0, 1e4])
@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_sums_and_bounds_are_those_of_the_slow_twin(sigma, decay):
    centers = centers_of(Gaussian(sigma=sigma), decay=decay)
    level = by_directions(centers.many, LABELS_ONLY)
    rows = with_boundary(centers, some_rows(150, seed=5, decay=decay))[::3]
    out = new_nearest(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        errors = level.score(rows, out).errors
    for i, row in enumerate(rows):
        slow = naive_directions.sums(level, row)
        least = [offset - 2.0 * (middle + half) for offset, (middle, half) in zip(level.offsets, slow, strict=True)]
        exact = centers.distances(rows[i : i + 1])[0] ** 2
        if not errors[i] < 1.0:  # says nothing: a squared distance is at most 2
            assert sigma < 1.0
            continue
        for c, (middle, half) in enumerate(slow):  # the bound is proved ...
            assert abs(exact[c] - (level.offsets[c] - 2.0 * middle)) <= 2.0 * half + 1e-12
        c = out.labels[i]
        middle, half = slow[c]
        allowance = max(2e-3, 0.1 * errors[i])
        # ... it is that of the compiled loop, whose rounding comes on top ...
        assert abs(out.first[i] - (level.offsets[c] - 2.0 * middle)) <= allowance
        assert 2.0 * half * (1.0 - 1e-3) <= errors[i]
        assert sigma < 1.0 or errors[i] <= 2.0 * half + allowance
        assert abs(out.first[i] - exact[c]) <= errors[i] + 1e-12
        # ... and no center can be nearer than the least bounds.
        assert least[c] <= min(least) + allowance
        assert out.second[i] - errors[i] <= np.delete(exact, c).min() + 1e-12


def test_rows_and_points_of_few_directions_are_all_sure():
    centers = centers_of(decay=1.5)
    flat = centers.points.copy()
    flat[:, 60:] = 0.0
    centers = Centers(flat, centers.coefficients, centers.kernel)
    rows = some_rows(500, seed=4)
    level = by_directions(centers.many, LABELS_ONLY)
    assert level.rest.longest < 1e-6  # the directions are float32
    _, sure = run(level, rows)
    assert sure.mean() > 0.99


def test_rows_between_two_equal_centers_are_not_sure():
    centers = centers_of()
    twice = Centers(centers.points, np.concatenate([centers.coefficients, centers.coefficients]), centers.kernel)
    _, sure = run(by_directions(twice.many, LABELS_ONLY), centers.points)
    assert not sure.any()
    assert (twice.predict(centers.points) < len(centers)).all()


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_rows_of_other_types_are_labelled_the_same(kind):
    kinds = {"scale": 40.0, "offset": 120.0}
    centers = centers_of(**kinds)
    rows = some_rows(400, seed=6, **kinds).clip(0, 255).astype(kind)
    expected = run(by_directions(centers.many, LABELS_ONLY), rows.astype(np.float64))
    for given in (rows, np.asfortranarray(rows)):
        out, sure = run(by_directions(centers.many, LABELS_ONLY), given)
        np.testing.assert_array_equal(out.labels[sure & expected[1]], expected[0].labels[sure & expected[1]])
        np.testing.assert_array_equal(
            centers.predict(given), centers.label(rows.astype(float), exact_distances=True).labels
        )


def test_labels_begin_with_directions_and_distances_do_not():
    centers = centers_of(s=1000)
    kinds = [type(level) for level in centers.ladder(LABELS_ONLY).method.levels]
    assert kinds == [ByDirections, BySums, BySums]
    assert ByDirections not in [type(level) for level in centers.ladder(ACCURACY).method.levels]
    rows = with_boundary(centers, some_rows(3000, seed=8))
    np.testing.assert_array_equal(centers.predict(rows), centers.label(rows, exact_distances=True).labels)


def test_rows_that_are_too_long_or_not_finite_are_not_sure():
    centers = centers_of()
    rows = some_rows(4, seed=9)
    rows[0, 0], rows[1, 0], rows[2, 0] = 1e20, np.inf, np.nan
    with np.errstate(all="ignore"):
        _, sure = run(by_directions(centers.many, LABELS_ONLY), rows)
    np.testing.assert_array_equal(sure[:3], False)


def test_other_kernels_and_few_columns_have_none():
    assert by_directions(centers_of(Linear()).many, LABELS_ONLY) is None
    assert by_directions(centers_of(Exponential(sigma=1.0)).many, LABELS_ONLY) is None
    assert by_directions(centers_of(2.0 * Gaussian(sigma=1.0)).many, LABELS_ONLY) is None
    assert by_directions(centers_of().many, ACCURACY) is None
    assert by_directions(centers_of(s=150).many, LABELS_ONLY) is None
    plain = centers_of()
    narrow = Centers(plain.points[:, :100].copy(), plain.coefficients, plain.kernel)
    assert by_directions(narrow.many, LABELS_ONLY) is None
    coefficients = plain.coefficients.copy()
    inside = np.flatnonzero(coefficients[0])[:2]
    coefficients[0, inside] += [-0.5, 0.5]
    assert (coefficients < 0).any()
    assert by_directions(Centers(plain.points, coefficients, plain.kernel).many, LABELS_ONLY) is None


def test_a_wrong_bound_is_noticed():
    """The rows of these tests need the bound: without it, some labels are wrong."""
    centers = centers_of(decay=0.3)
    level = by_directions(centers.many, LABELS_ONLY)
    rows = with_boundary(centers, some_rows(600, seed=3, decay=0.3))
    rest = level.rest._replace(roots=0.0 * level.rest.roots)
    without = directions.ByDirections(**{**vars(level), "rest": rest})
    out, sure = run(without, rows)
    assert (out.labels[sure] != centers.label(rows, exact_distances=True).labels[sure]).any()
