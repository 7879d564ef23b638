"""Labels by matrix products: always those of direct evaluation, whatever the kernel, the scale and the offset."""

import numpy as np
import pytest

from kernelcoreset import Cosine, Exponential, Gaussian, Linear, Matern, Polynomial
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.mixtures import ByMixtures, by_mixtures
from kernelcoreset.labelling.products import BySums, ByVectors, by_sums, by_vectors
from kernelcoreset.labelling.rungs import new_nearest
from tests.cases import read_only, some_points

D = 20
KERNELS = [
    Gaussian(sigma=6.0),
    Gaussian(sigma=0.5),
    Gaussian(sigma=1e4),
    Exponential(sigma=2.0),
    Matern(sigma=6.0),
    Matern(sigma=6.0, nu=2.5),
    Polynomial(degree=3, c=1.0),
    Linear(),
    Cosine(),
    2.5 * Cosine(),
    0.5 * (3.0 * Linear()),
    2.5 * Gaussian(sigma=4.0),
    Gaussian(sigma=5.0) + 0.1 * Linear(),
    Gaussian(sigma=9.0) * Polynomial(degree=2, c=1.0),
    Cosine() + Gaussian(sigma=3.0),
]


def centers_of(kernel, k=5, s=200, offset=0.0, scale=1.0, seed=0, overlapping=False, shared=False):
    generator = np.random.default_rng(seed)
    points = some_points(s, D, seed=seed) * scale + offset
    owner = np.concatenate([np.arange(k), generator.integers(k, size=s - k)])
    coefficients = np.where(owner == np.arange(k)[:, None], generator.uniform(0.5, 1.5, size=s), 0.0)
    if overlapping:
        coefficients[:, :20] = 1.0
    if shared:  # all points in all centers, a third of them with a negative coefficient
        coefficients += generator.uniform(-0.05, 0.1, size=(k, s))
    return Centers(points, coefficients / coefficients.sum(axis=1, keepdims=True), kernel)


def rows_near(centers, n=600, offset=0.0, scale=1.0):
    """New rows, the coreset's own points, and rows as near to a boundary as bisection brings them."""
    new = some_points(n, D, seed=7) * scale + offset
    left, right = new[:100].copy(), new[100:200].copy()
    start = centers.label(left, exact_distances=True).labels
    for _ in range(45):
        middle = left + (right - left) / 2
        same = (centers.label(middle, exact_distances=True).labels == start)[:, None]
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return np.concatenate([new, centers.points, np.zeros((1, D)), left, right])


@pytest.mark.parametrize("offset", [0.0, 30.0, 1e6])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_labels_are_the_direct_ones(kernel, shared, offset):
    centers = centers_of(kernel, offset=offset, shared=shared)
    rows = rows_near(centers, offset=offset)
    direct = centers.label(rows, margins=True, exact_distances=True)
    found = centers.label(rows, margins=True)
    np.testing.assert_array_equal(found.labels, direct.labels)
    np.testing.assert_array_equal(centers.predict(rows), direct.labels)
    gap = np.abs(found.distances**2 - direct.distances**2)
    rounding = 1e-13 * (direct.distances**2).max()
    assert (gap <= found.distance_error + rounding).all()
    assert (gap <= ACCURACY * (direct.distances**2 + centers.typical) * 1.001 + rounding).all()


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("make", [by_sums, by_vectors, by_mixtures])
@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_every_level_is_right_where_it_is_sure(kernel, overlapping, make, precision):
    centers = centers_of(kernel, overlapping=overlapping, shared=overlapping and make is by_mixtures)
    rows = rows_near(centers)
    direct = centers.label(rows, exact_distances=True)
    level = make(centers.many, precision, LABELS_ONLY)
    if level is None:
        assert make is by_vectors
        return
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    error = level.run(rows, out, sure)
    np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])
    gap = np.abs(np.maximum(out.first[sure], 0.0) - direct.distances[sure] ** 2)
    assert (gap <= error + 1e-14 * direct.distances[sure] ** 2).all()
    if precision == "float64":  # not those at a boundary, nor the zero vector of a Cosine
        assert sure[:600].mean() > 0.9


@pytest.mark.parametrize("scale", [1e-150, 1e-60, 1e-30, 1e-12, 1e12, 1e30, 1e60, 1e140])
@pytest.mark.parametrize("kind", [Gaussian, Linear, Cosine])
def test_labels_are_the_direct_ones_at_every_scale(kind, scale):
    kernel = kind(sigma=6.0 * scale) if kind is Gaussian else kind()
    centers = centers_of(kernel, scale=scale)
    rows = rows_near(centers, scale=scale)
    direct = centers.label(rows, exact_distances=True)
    np.testing.assert_array_equal(centers.label(rows).labels, direct.labels)
    np.testing.assert_array_equal(centers.predict(rows), direct.labels)


@pytest.mark.parametrize("kernel", [Gaussian(sigma=6.0), Linear(), Cosine()], ids=repr)
def test_an_offset_of_1e12_changes_no_label(kernel):
    centers = centers_of(kernel, offset=1e12, scale=100.0)
    rows = rows_near(centers, offset=1e12, scale=100.0)
    direct = centers.label(rows, exact_distances=True)
    np.testing.assert_array_equal(centers.label(rows).labels, direct.labels)


@pytest.mark.parametrize("kernel", [Gaussian(sigma=6.0), Linear(), Cosine()], ids=repr)
def test_nearly_every_label_is_proved_in_float32(kernel):
    centers = centers_of(kernel)
    level = centers.ladder(LABELS_ONLY).method.levels[0]
    assert isinstance(level, BySums if kernel == Gaussian(sigma=6.0) else ByVectors)
    assert level.frame.dtype == np.float32
    rows = some_points(3000, D, seed=9)
    sure = np.empty(len(rows), dtype=bool)
    level.run(rows, new_nearest(len(rows)), sure)
    assert sure.mean() > 0.98


def test_centers_that_share_their_points_are_labelled_by_mixtures():
    centers = centers_of(Gaussian(sigma=6.0), shared=True)
    level = centers.ladder(LABELS_ONLY).method.levels[0]
    assert isinstance(level, ByMixtures)
    rows = some_points(3000, D, seed=9)
    sure = np.empty(len(rows), dtype=bool)
    level.run(rows, new_nearest(len(rows)), sure)
    assert sure.mean() > 0.95


@pytest.mark.parametrize("kernel", [Gaussian(sigma=60.0), Linear(), Cosine()], ids=repr)
@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.int64])
def test_rows_of_other_types_give_the_labels_of_float64(kernel, kind):
    centers = centers_of(kernel, scale=10.0, offset=100.0)
    rows = (some_points(700, D, seed=5) * 10.0 + 100.0).clip(0, 255).astype(kind)
    direct = centers.label(rows.astype(float), exact_distances=True)
    for given in (rows, np.asfortranarray(rows), read_only(rows)):
        np.testing.assert_array_equal(centers.label(given).labels, direct.labels)
        np.testing.assert_array_equal(centers.predict(given), direct.labels)


@pytest.mark.parametrize("k", [1, 2, 150])
def test_one_center_and_many(k):
    centers = centers_of(Gaussian(sigma=6.0), k=k, s=400)
    rows = some_points(500, D, seed=3)
    direct = centers.label(rows, margins=True, exact_distances=True)
    found = centers.label(rows, margins=True)
    np.testing.assert_array_equal(found.labels, direct.labels)
    np.testing.assert_allclose(found.margins, direct.margins, atol=1e-2)


def test_a_negative_coefficient_is_allowed():
    points = some_points(60, D)
    coefficients = np.zeros((2, 60))
    coefficients[0, :30], coefficients[1, 30:] = 1.0, 1.0
    coefficients[:, [0, 31]] = -0.5
    coefficients[0, 31] = 0.0
    coefficients[1, 0] = 0.0
    centers = Centers(points, coefficients / coefficients.sum(axis=1, keepdims=True), Gaussian(sigma=6.0))
    rows = rows_near(centers)
    np.testing.assert_array_equal(centers.predict(rows), centers.label(rows, exact_distances=True).labels)


def test_a_zero_vector_has_the_direct_label_of_a_cosine():
    centers = centers_of(Cosine())
    rows = np.concatenate([np.zeros((2, D)), some_points(10, D)])
    direct = centers.label(rows, exact_distances=True)
    found = centers.label(rows)
    np.testing.assert_array_equal(found.labels, direct.labels)
    np.testing.assert_allclose(found.distances, direct.distances, atol=1e-3)
