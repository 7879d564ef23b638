"""The nearest pivots from blocks, against the plain definition."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import Gaussian
from kernelcoreset.coresets.closest import Closest, closest_among
from kernelcoreset.kernels.products import products_of
from tests import naive


@pytest.mark.parametrize("count", [1, 2, 5, 40, 41])
@pytest.mark.parametrize("more", [0, 1])
def test_the_nearest_of_a_block_is_that_of_the_twin(count, more):
    block = np.random.default_rng(count).integers(20, size=(count + more, 70)).astype(float)  # with ties
    at, found = closest_among(block, count)
    expected_at, expected = naive.closest(block, count)
    assert_array_equal(at, expected_at)
    assert_array_equal(found, expected)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 5, 40, 41])
@pytest.mark.parametrize("more", [0, 1])
def test_the_nearest_by_products_is_that_of_the_twin(precision, count, more):
    """Rows and pivots of small whole numbers: squares are exact, so ties are broken alike; some rows are pivots."""
    generator = np.random.default_rng(count)
    pivots = generator.integers(-2, 3, size=(count + more, 12)).astype(float)
    rows = np.concatenate([generator.integers(-2, 3, size=(70, 12)), pivots]).astype(precision)
    products = products_of(Gaussian(3.0), pivots, precision, mean=np.zeros(12))
    space = np.empty(len(pivots) * 50, dtype=precision)
    found = Closest(products, len(rows), space)
    for low in range(0, len(rows), 50):
        some = slice(low, min(low + 50, len(rows)))
        found.find(products.frame.prepare(rows[some]), count, some)
    squares = ((pivots[:, None] - rows.astype(float)) ** 2).sum(axis=2)
    expected_at, expected = naive.closest(squares, count)
    if more == 0:  # there is no next pivot: its square counts as 0
        assert (expected[1][expected_at == count - 1] == 0.0).all()
    assert_array_equal(found.at, expected_at)
    assert_allclose(found.distances(), -2.0 * np.expm1(-expected / 18.0), rtol=1e-5, atol=0)
