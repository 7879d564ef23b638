"""Labels among many centers by the near ones: those of direct evaluation, from few kernel values."""

import numpy as np
import pytest

from kernelcoreset import Exponential, Gaussian, Laplacian, Linear, Matern, Polynomial
from kernelcoreset.errors import KernelError
from kernelcoreset.kernels.loops.neighborhoods import ROUNDINGS
from kernelcoreset.labelling import neighborhoods as module
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.neighborhoods import ByNeighborhoods, by_neighborhoods
from kernelcoreset.labelling.rungs import new_nearest
from tests import naive_neighborhoods

KERNELS = [
    Gaussian(sigma=3.0),
    Gaussian(sigma=0.5),
    Laplacian(sigma=4.0),
    Exponential(sigma=2.0),
    Matern(sigma=2.0),
    Linear(),
    Polynomial(degree=3),
    Gaussian(sigma=2.0) + Linear(),
    2.0 * Gaussian(sigma=2.0) * Polynomial(degree=2),
]


def clusters(kernel, d=2, k=100, each=6, offset=0.0, spread=10.0):
    """Centers of some points each around random places, and rows around these points."""
    generator = np.random.default_rng(0)
    places = generator.uniform(-spread, spread, size=(k, d)) + offset
    points = np.repeat(places, each, axis=0) + generator.normal(scale=0.3, size=(k * each, d))
    order = generator.permutation(k * each)
    coefficients = np.kron(np.eye(k), np.ones(each)) * generator.uniform(0.5, 1.5, size=k * each)
    coefficients /= coefficients.sum(axis=1, keepdims=True)
    rows = points[generator.integers(k * each, size=1500)] + generator.normal(scale=0.3, size=(1500, d))
    return Centers(points[order], coefficients[:, order], kernel), rows


def level_of(centers, *, accuracy=LABELS_ONLY, both=False):
    return by_neighborhoods(centers.many, centers.combinations, accuracy, both)


def run(level, rows):
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    error = level.run(rows, out, sure)
    return out, sure, error


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_labels_and_distances_are_the_direct_ones(kernel, d, both):
    centers, rows = clusters(kernel, d)
    direct = centers.label(rows, margins=True, exact_distances=True)
    out, sure, error = run(level_of(centers, accuracy=ACCURACY, both=both), rows)
    assert sure.any() or (both and d == 5)  # many centers are equally far there, and only 64 are listed
    np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])
    first, second = direct.distances**2, (direct.distances + direct.margins) ** 2
    allowed = error + 1e-12 * (1.0 + second)
    assert (np.abs(out.first - first) <= allowed)[sure].all()
    if both:
        assert (np.abs(out.second - second) <= allowed)[sure].all()
    else:
        assert (out.second <= second + allowed)[sure].all()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kernel", [Gaussian(sigma=3.0), Laplacian(sigma=4.0), Polynomial(degree=2)], ids=repr)
def test_the_loop_does_what_its_slow_twin_does(kernel, both, monkeypatch):
    monkeypatch.setattr(module, "_LENGTH", 12)  # so that some lists end too early
    centers, rows = clusters(kernel)
    rows = np.concatenate([rows[:200], np.random.default_rng(1).uniform(-12.0, 12.0, size=(100, 2))])
    level = level_of(centers, both=both)
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    roundings, _ = level.search(rows, out, sure)
    assert not sure.all()
    assert sure.any()
    for i, row in enumerate(rows):
        label, first, second, is_sure = naive_neighborhoods.search(
            kernel, level.near, row, roundings[i], both, ROUNDINGS
        )
        assert (out.labels[i], sure[i]) == (label, is_sure)
        scale = kernel(row, row) + 1.0
        np.testing.assert_allclose(out.first[i], first, rtol=1e-9, atol=1e-12 * scale)
        if both and is_sure:
            np.testing.assert_allclose(out.second[i], second, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_lists_are_sorted_and_hold_at_most_the_true_distances(kernel):
    centers, _ = clusters(kernel)
    near = level_of(centers).near
    true = centers.distances(near.pivots.columns.T.copy())
    for own, apart, distances in zip(near.centers, near.apart, true, strict=True):
        assert (np.diff(apart) >= 0.0).all()
        assert (apart[:-1] <= distances[own]).all()
        assert (apart[-1] <= np.delete(distances, own)).all()
        np.testing.assert_allclose(apart[:-1], distances[own], rtol=1e-2, atol=1e-3 * distances.max())


def test_few_values_are_needed():
    centers, rows = clusters(Gaussian(sigma=3.0), k=400, each=8, spread=20.0)
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    _, values = level_of(centers).search(rows, out, sure)
    assert sure.mean() > 0.99
    assert values < 0.05 * len(rows) * len(centers.points)


def test_many_centers_use_it_and_few_do_not():
    centers, rows = clusters(Gaussian(sigma=3.0), k=400, each=8, spread=20.0)
    direct = centers.label(rows, margins=True, exact_distances=True)
    for accuracy in (LABELS_ONLY, ACCURACY):
        (level,) = centers.ladder(accuracy).method.levels
        assert isinstance(level, ByNeighborhoods)
        assert level.both == (accuracy == ACCURACY)
        found = centers.label_rows(rows.astype(np.float32).astype(np.float64), margins=True, accuracy=accuracy)
        assert found.certified > 0.95
    np.testing.assert_array_equal(centers.predict(rows), direct.labels)
    found = centers.label(rows, margins=True)
    np.testing.assert_array_equal(found.labels, direct.labels)
    np.testing.assert_allclose(found.margins, direct.margins, atol=1e-9)
    few, _ = clusters(Gaussian(sigma=3.0), k=5)
    assert few.ladder(LABELS_ONLY).method.levels == ()


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("kernel", [Gaussian(sigma=3.0), Linear(), Polynomial(degree=2)], ids=repr)
def test_points_far_from_zero_are_labelled_right_or_not_at_all(kernel, offset):
    centers, rows = clusters(kernel, offset=offset)
    direct = centers.label(rows, exact_distances=True)
    out, sure, _ = run(level_of(centers), rows)
    np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])
    np.testing.assert_array_equal(centers.predict(rows), direct.labels)


def test_rows_between_two_centers_are_not_sure():
    centers, _ = clusters(Gaussian(sigma=3.0))
    twice = Centers(centers.points, np.concatenate([centers.coefficients, centers.coefficients]), centers.kernel)
    rows = centers.points[:50].copy()
    _, sure, _ = run(level_of(twice), rows)
    assert not sure.any()
    assert (twice.predict(rows) < len(centers)).all()


def test_rows_that_overflow_are_an_error():
    centers, rows = clusters(Polynomial(degree=4))
    rows[0] = [1e80, 0.0]
    with pytest.raises(KernelError, match="overflows"):
        run(level_of(centers), rows)


def test_few_centers_and_centers_of_many_points_have_none():
    assert level_of(clusters(Gaussian(sigma=3.0), k=10)[0]) is None
    assert level_of(clusters(Gaussian(sigma=3.0), k=30, each=1000)[0]) is None


def test_float32_rows_and_rows_in_columns_are_labelled_the_same():
    centers, rows = clusters(Gaussian(sigma=3.0))
    level = level_of(centers)
    short = rows.astype(np.float32)
    one, _, _ = run(level, short)
    two, _, _ = run(level, np.asfortranarray(short.astype(np.float64)))
    for found, same in zip(one, two, strict=True):
        np.testing.assert_array_equal(found, same)
