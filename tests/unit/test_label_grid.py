"""Labels by polynomials on a grid: those of direct evaluation, within the proved error."""

import numpy as np
import pytest

from kernelcoreset import Exponential, Gaussian, Laplacian, Linear, Matern, Polynomial
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.smoothness import derivative_bounds
from kernelcoreset.labelling import centers as centers_module
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.rungs import new_nearest
from tests import naive_grid
from tests.cases import some_points

SMOOTH = [
    Gaussian(sigma=3.0),
    2.5 * Gaussian(sigma=4.0),
    Gaussian(sigma=2.5) + 0.5 * Gaussian(sigma=6.0),
    Gaussian(sigma=6.0) * Gaussian(sigma=5.0),
]


def centers_of(kernel, d, k=5, s=120, offset=0.0):
    generator = np.random.default_rng(0)
    points = some_points(s, d) + offset
    owner = np.concatenate([np.arange(k), generator.integers(k, size=s - k)])
    coefficients = np.where(owner == np.arange(k)[:, None], generator.uniform(0.5, 1.5, size=s), 0.0)
    return Centers(points, coefficients / coefficients.sum(axis=1, keepdims=True), kernel)


def rows_near(centers, n):
    generator = np.random.default_rng(1)
    points = centers.points[generator.integers(len(centers.points), size=n)]
    return points + generator.normal(scale=0.3, size=points.shape)


def run(centers, rows):
    level = centers.grid
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    error = level.run(np.ascontiguousarray(rows.T), out, sure)
    return level, out, sure, error


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_labels_and_distances_are_the_direct_ones(kernel, d):
    centers = centers_of(kernel, d)
    rows = np.concatenate([rows_near(centers, 3000), centers.points])
    direct = centers.label(rows, margins=True, exact_distances=True)
    _, out, sure, error = run(centers, rows)
    assert sure.mean() > 0.9
    assert 0.0 < error <= ACCURACY * centers.typical
    np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])
    for found, true in ((out.first, direct.distances), (out.second, direct.distances + direct.margins)):
        assert (np.abs(found[sure] - true[sure] ** 2) <= error).all()
    for accuracy in (ACCURACY, LABELS_ONLY):
        found = centers.label_rows(rows, accuracy=accuracy, many=True)
        np.testing.assert_array_equal(found.labels, direct.labels)
    found = centers.label_rows(rows, margins=True, many=True)
    assert found.certified >= sure.mean()
    allowed = found.distance_error + 1e-12
    assert (np.abs(found.distances**2 - direct.distances**2) <= allowed).all()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_loop_does_what_its_slow_twin_does(d):
    centers = centers_of(Gaussian(sigma=20.0), d)
    rows = 2.0 * rows_near(centers, 300)
    level, out, sure, _ = run(centers, rows)
    outside = 0
    for i, row in enumerate(rows):
        slow = naive_grid.squared_distances(level.grid, len(centers), row)
        if slow is None:
            outside += 1
            assert not sure[i]
            continue
        order = np.argsort(slow, kind="stable")
        assert sure[i] == (slow[order[1]] - slow[order[0]] > 2.0 * level.error)
        assert out.labels[i] == order[0]
        np.testing.assert_allclose([out.first[i], out.second[i]], slow[order[:2]], rtol=1e-9, atol=1e-12)
    assert 0 < outside < len(rows)


def test_many_rows_begin_with_a_grid_and_few_do_not(monkeypatch):
    centers = centers_of(Gaussian(sigma=3.0), 2)
    rows = rows_near(centers, 500)
    centers.label(rows)
    assert "grid" not in vars(centers)
    monkeypatch.setattr(centers_module, "MANY_ROWS", 500)
    direct = centers.label(rows, exact_distances=True)
    assert "grid" not in vars(centers)
    np.testing.assert_array_equal(centers.label(rows).labels, direct.labels)
    assert "grid" in vars(centers)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9, 1e14])
def test_points_far_from_zero_are_labelled_right_or_not_at_all(offset):
    centers = centers_of(Gaussian(sigma=3.0), 2, offset=offset)
    rows = rows_near(centers, 2000)
    direct = centers.label(rows, exact_distances=True)
    np.testing.assert_array_equal(centers.label_rows(rows, many=True).labels, direct.labels)
    if centers.grid is not None:
        _, out, sure, error = run(centers, rows)
        assert (np.abs(out.first[sure] - direct.distances[sure] ** 2) <= error).all()
    assert (centers.grid is None) == (offset > 1e8)


def test_rows_that_are_no_points_of_the_grid_are_never_sure():
    centers = centers_of(Gaussian(sigma=3.0), 2)
    rows = np.array([[np.nan, 0.0], [0.0, np.inf], [-np.inf, 0.0], [1e300, -1e300], [0.0, 0.0]])
    _, _, sure, _ = run(centers, rows)
    assert sure.tolist()[:4] == [False] * 4


def test_two_equal_centers_are_evaluated_directly():
    points = some_points(50, 2)
    centers = Centers(points, np.full((2, 50), 1 / 50), Gaussian(sigma=3.0))
    found = centers.label_rows(rows_near(centers, 300), many=True)
    assert (found.labels == 0).all()
    assert found.certified == 0.0


def test_one_center_and_nine_centers():
    for k in (1, 9):
        centers = centers_of(Gaussian(sigma=3.0), 2, k=k)
        rows = rows_near(centers, 2000)
        _, out, sure, _ = run(centers, rows)
        direct = centers.label(rows, exact_distances=True)
        assert sure.mean() > 0.8
        np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])


@pytest.mark.parametrize(
    "kernel",
    [
        Linear(),
        Polynomial(degree=3),
        Exponential(sigma=1.0),
        Laplacian(sigma=1.0),
        Matern(sigma=1.0),
        Gaussian(sigma=1.0) + Linear(),
        Gaussian(sigma=1.0) * Polynomial(degree=2),
        Gaussian(sigma=1.0) + Exponential(sigma=1.0),
    ],
    ids=repr,
)
def test_other_kernels_have_none(kernel):
    assert centers_of(kernel, 2).grid is None


def test_sharp_kernels_and_many_columns_have_none():
    assert centers_of(Gaussian(sigma=0.01), 2).grid is None
    assert centers_of(Gaussian(sigma=50.0), 4).grid is None


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_derivatives_are_within_their_bounds(kernel):
    """Derivatives along a line by differences of values at Chebyshev points, where polynomials of high degree fit."""
    bounds = derivative_bounds(evaluator_of(kernel).values, 6)
    direction = np.array([0.6, 0.8])
    times = np.linspace(-20.0, 20.0, 4001)
    values = np.array([kernel(t * direction, np.zeros(2)) for t in times])
    fitted = np.polynomial.Chebyshev.fit(times, values, 120)
    for n in range(1, 5):
        largest = np.abs(fitted.deriv(n)(times[200:-200])).max()
        assert 0.25 * bounds[n] < largest <= 1.0001 * bounds[n]
