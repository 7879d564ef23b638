"""What holds for every kernel on any points: symmetry, positive semidefiniteness, agreement with the naive twin."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelcoreset import Gaussian, Kernel, Linear, Matern, Polynomial
from kernelcoreset.kernels.combined import Normalized
from tests import naive, naive_exact
from tests.cases import KERNELS, point_sets

kernels = st.sampled_from(KERNELS)
orders = st.sampled_from("CF")


@given(kernels, point_sets(), orders)
def test_gram_matrices_are_those_of_the_twin(kernel, points, order):
    expected = naive.gram(kernel.to_dict(), points, points)
    found = kernel.block(np.array(points, order=order), np.array(points, order=order))
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(found - expected) <= 1e-12 * scale).all()


@given(kernels, point_sets())
def test_gram_matrices_are_symmetric_and_positive_semidefinite(kernel, points):
    gram = kernel.block(points, points)
    largest = np.abs(gram).max()
    assert np.abs(gram - gram.T).max() <= 1e-12 * largest
    assert np.linalg.eigvalsh((gram + gram.T) / 2).min() >= -1e-8 * largest


@given(kernels, point_sets(), orders)
def test_squared_distances_are_those_of_the_twin(kernel, points, order):
    found = kernel.squared_distances(np.array(points, order=order), points)
    own = naive.diagonal(kernel.to_dict(), points)
    expected = naive.squared_distances(kernel.to_dict(), points, points)
    assert (np.abs(found - expected) <= 1e-12 * np.add.outer(own, own)).all()
    assert (found >= 0).all()
    assert (np.diag(found) == 0).all()


@given(kernels, point_sets(min_rows=3))
def test_distances_obey_the_triangle_inequality(kernel, points):
    distance = np.sqrt(kernel.squared_distances(points, points))
    rounding = 1e-5 * np.sqrt(kernel.diagonal(points).max())
    assert (distance[:, None, :] <= distance[:, :, None] + distance[None, :, :] + rounding).all()


@given(point_sets(), st.floats(0.01, 100.0))
def test_scaling_scales(points, factor):
    for kernel in (Gaussian(1.0), Polynomial(2, 1.0), Linear() + Matern(1.0)):
        scaled = factor * kernel
        assert scaled.block(points, points) == pytest.approx(factor * kernel.block(points, points), rel=1e-14)
        assert scaled.diagonal(points) == pytest.approx(factor * kernel.diagonal(points), rel=1e-14)


@given(kernels, kernels, point_sets(max_rows=8))
def test_sums_and_products_are_those_of_the_values(left, right, points):
    a, b = left.block(points, points), right.block(points, points)
    scale = np.abs(a).max() + np.abs(b).max()
    assert np.abs((left + right).block(points, points) - (a + b)).max() <= 1e-14 * scale
    assert np.abs((left * right).block(points, points) - a * b).max() <= 1e-14 * np.abs(a).max() * np.abs(b).max()


def combined(parts):
    scales = st.floats(0.1, 10.0)
    return st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(lambda factor, a: factor * a, scales, parts),
    )


@given(st.recursive(kernels, combined, max_leaves=6), point_sets(max_rows=5, largest=2.0))
def test_any_combination_works_and_survives_its_plain_form(kernel, points):
    assert Kernel.from_dict(kernel.to_dict(), trusted_modules=["tests.user_kernels"]) == kernel
    expected = naive.gram(kernel.to_dict(), points, points)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(kernel.block(points, points) - expected) <= 1e-12 * scale).all()


NEAR_KERNELS = [kernel for kernel in KERNELS if "UserKernel" not in repr(kernel)]


@given(
    kernel=st.sampled_from(NEAR_KERNELS),
    exponent=st.integers(-12, 0),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
    seed=st.integers(0, 1_000),
)
def test_squared_distances_of_near_points_are_exact(kernel, exponent, offset, seed):
    """For all built-in kernels, their sums and products, to the rounding of coordinates: near points, far from 0."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(4, 2)) * 10.0**exponent + offset + 1.0
    exact = naive_exact.distances_among(kernel.to_dict(), points)
    assume(exact.max() < 1e280)
    found = kernel.squared_distances(points, points)
    # Products and powers multiply the rounding of their parts. Directions are told apart to about 1e-31, twice the
    # digits of float64; points whose directions differ by less have the same one.
    same = 1e-61 if "Cosine" in repr(kernel) else 0.0
    np.testing.assert_allclose(found, exact.astype(float), rtol=1e-8, atol=same)


def test_squared_distances_of_near_points_are_exact_with_degrees():
    """A normalized kernel, whose last coordinate is the degree of a point."""
    generator = np.random.default_rng(0)
    points = np.column_stack([1e6 + generator.normal(size=(6, 2)), 3.0 + 1e-9 * generator.random(6)])
    inner = Gaussian(sigma=1e5)
    found = Normalized(inner).squared_distances(points, points)
    with naive_exact.precise():
        rows = naive_exact.decimals(points)
        gram = [[naive_exact.kernel_value(inner.to_dict(), x[:2], y[:2]) / (x[2] * y[2]) for y in rows] for x in rows]
        exact = [[float(gram[i][i] + gram[j][j] - 2 * gram[i][j]) for j in range(6)] for i in range(6)]
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert found[~np.eye(6, dtype=bool)].min() > 0.0
