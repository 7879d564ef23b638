"""Kernel values from matrix products: against the plain formulas, within the proved bounds."""

import numpy as np
import pytest

from kernelcoreset import Cosine, Exponential, Gaussian, Laplacian, Linear, Polynomial, UserKernel
from kernelcoreset.kernels.combined import Normalized
from kernelcoreset.kernels.products import has_products, products_of, products_pay
from tests import naive
from tests.cases import KERNELS, some_points, spaced_out
from tests.user_kernels import rational

PRECISIONS = ["float32", "float64"]
WITH_PRODUCTS = [kernel for kernel in KERNELS if has_products(kernel)]


def sets(d, offset=0.0, scale=0.3):
    """Prepared points and rows, some of which are equal."""
    points, rows = some_points(57, d, seed=1) * scale + offset, some_points(83, d, seed=2) * scale + offset
    rows[:5] = points[:5]
    return points, rows


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("kernel", WITH_PRODUCTS, ids=repr)
def test_values_and_distances_are_those_of_the_formula_within_the_bound(kernel, offset, precision):
    points, rows = sets(20, offset)
    products = products_of(kernel, points, precision)
    prepared = products.frame.prepare(rows)
    exact = naive.gram(kernel.to_dict(), points, rows)
    bound = products.value_bound(prepared)
    assert (np.abs(products.values(prepared) - exact) <= bound.absolute + bound.relative * np.abs(exact)).all()
    found = products.squared_distances(prepared)
    assert (found >= 0.0).all()
    # The direct evaluation, since the naive one loses as much to the offset as it proves.
    direct = kernel.squared_distances(points, rows)
    assert (np.abs(found - direct) <= products.distance_bound(prepared).total).all()
    assert products.distance_bound(prepared).total.max() < 0.1 * direct.max() or offset > 0.0 or precision == "float32"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30, 1e140])
@pytest.mark.parametrize("kernel", [Gaussian(sigma=1.0), Linear(), Cosine(), Exponential(sigma=1.0)], ids=repr)
def test_the_bound_holds_at_every_scale(kernel, scale, precision):
    points, rows = sets(16, scale=scale)
    if kernel == Gaussian(sigma=1.0):
        kernel = Gaussian(sigma=scale)
    products = products_of(kernel, points, precision)
    with np.errstate(over="ignore", invalid="ignore"):
        prepared = products.frame.prepare(rows)
        gap = np.abs(products.squared_distances(prepared) - kernel.squared_distances(points, rows))
    bound = products.distance_bound(prepared).total
    assert not (gap > bound).any()
    assert np.isfinite(bound[~np.isfinite(gap).all(axis=0)]).sum() == 0


def test_the_bound_is_a_few_units_at_ordinary_scales():
    points, rows = sets(100)
    products = products_of(Gaussian(sigma=5.0), points, "float32")
    assert products.value_bound(products.frame.prepare(rows)).total.max() < 1e-4


def test_the_nearest_point_makes_the_bound_of_a_root_smaller():
    points, rows = sets(20)
    rows = rows[5:]
    kernel = Exponential(sigma=2.0)
    products = products_of(kernel, points, "float32")
    prepared = products.frame.prepare(rows)
    nearest = Linear().squared_distances(points, rows).min(axis=0)
    bound = products.value_bound(prepared, nearest)
    assert (bound.total < 0.1 * products.value_bound(prepared).total).all()
    exact = naive.gram(kernel.to_dict(), points, rows)
    assert (np.abs(products.values(prepared) - exact) <= bound.total).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8, np.int16])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_of_any_type_and_layout(kind, precision):
    points, rows = sets(13, offset=5.0, scale=4.0)
    rows = np.clip(rows, 0.0, 255.0).astype(kind)
    products = products_of(Gaussian(sigma=20.0), points, precision)
    exact = naive.gram({"kernel": "Gaussian", "sigma": 20.0}, points, rows.astype(float))
    for given in (rows, np.asfortranarray(rows), spaced_out(rows.astype(float))):
        np.testing.assert_allclose(products.values(given), exact, atol=1e-5 if precision == "float32" else 1e-13)


def test_a_common_mean_lets_objects_share_rows_and_out_is_used():
    points, rows = sets(20)
    mean = rows.mean(axis=0)
    one, two = (products_of(Gaussian(sigma=2.0), some, mean=mean) for some in (points[:10], points[10:]))
    prepared = one.frame.prepare(rows)
    out = np.empty((57, 83))
    assert np.shares_memory(one.values(prepared, out[:10]), out)
    two.values(prepared, out[10:])
    np.testing.assert_allclose(out, Gaussian(sigma=2.0).block(points, rows), atol=1e-13)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_are_used_where_they_are_if_nothing_is_subtracted(precision):
    points, rows = sets(20)
    rows = rows.astype(precision)
    frame = products_of(Gaussian(sigma=2.0), points, precision, mean=np.zeros(20)).frame
    read_only = rows.copy()
    read_only.setflags(write=False)
    assert frame.prepare(rows).vectors is rows
    for other in (read_only, np.asfortranarray(rows), rows.astype(np.longdouble)):
        copied = frame.prepare(other)
        assert copied.vectors.flags.writeable
        assert not np.shares_memory(copied.vectors, other)
        np.testing.assert_array_equal(copied.norms, frame.prepare(rows).norms)


def test_prepared_points_do_not_change_with_those_given():
    points, rows = sets(20)
    products = products_of(Cosine(), points)
    before = products.values(rows)
    points *= -1.0
    np.testing.assert_array_equal(products.values(rows), before)


def test_zero_vectors_have_cosine_zero_and_no_bound():
    points, rows = sets(12)
    points[3], rows[7] = 0.0, 0.0
    products = products_of(Cosine(), points)
    prepared = products.frame.prepare(rows)
    np.testing.assert_allclose(products.values(prepared), Cosine().block(points, rows), atol=1e-14)
    assert np.flatnonzero(np.isinf(products.value_bound(prepared).absolute)).tolist() == [7]


def test_which_kernels_have_products():
    assert not has_products(Laplacian(sigma=1.0))
    assert not has_products(UserKernel(rational) + Gaussian(sigma=1.0))
    assert not has_products(Normalized(Gaussian(sigma=1.0)))
    assert has_products(Polynomial(degree=3) * Gaussian(sigma=1.0))
    assert products_pay(Linear(), 64)
    assert not products_pay(Linear(), 2)
