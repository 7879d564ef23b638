"""Kernels: every fast loop against its naive twin, every memory layout, every error."""

import json
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelcoreset import (
    Cosine,
    DataError,
    Exponential,
    FormatError,
    Gaussian,
    Kernel,
    KernelError,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    SettingError,
    UserKernel,
)
from tests import naive
from tests.cases import KERNELS, read_only, some_points, spaced_out
from tests.user_kernels import rational

DECAYING = [Gaussian(1.0), Exponential(1.0), Laplacian(1.0), Matern(1.0, 1.5), Matern(1.0, 2.5)]


def assert_is_gram(found, kernel, points, others):
    plain = kernel.to_dict()
    # |K(x, y)| <= sqrt(K(x, x) K(y, y)): rounding is measured against that, not against a value that cancelled.
    scale = np.sqrt(np.outer(naive.diagonal(plain, points), naive.diagonal(plain, others)))
    assert (np.abs(found - naive.gram(plain, points, others)) <= 1e-12 * scale).all()


def assert_are_squared_distances(found, kernel, points, others):
    plain = kernel.to_dict()
    scale = np.add.outer(naive.diagonal(plain, points), naive.diagonal(plain, others))
    assert (np.abs(found - naive.squared_distances(plain, points, others)) <= 1e-12 * scale).all()
    assert (found >= 0).all()


# --- the loops against their twins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_block_distances_and_diagonal_in_any_dimension(kernel, d):
    points, others = some_points(40, d, seed=1), some_points(7, d, seed=2)
    assert_is_gram(kernel.block(points, others), kernel, points, others)
    assert_are_squared_distances(kernel.squared_distances(points, others), kernel, points, others)
    assert_allclose(kernel.diagonal(points), naive.diagonal(kernel.to_dict(), points), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 2500])
def test_block_distances_and_diagonal_around_the_tile_size(kernel, n):
    points, others = some_points(3, 2, seed=1), some_points(n, 2, seed=2)
    assert_is_gram(kernel.block(points, others), kernel, points, others)
    assert_are_squared_distances(kernel.squared_distances(points, others), kernel, points, others)
    assert_allclose(kernel.diagonal(others), naive.diagonal(kernel.to_dict(), others), rtol=1e-12)


LAYOUTS = {
    "fortran": np.asfortranarray,
    "read-only": read_only,
    "gaps": spaced_out,
    "reversed": lambda points: points[::-1][::-1],
    "list": np.ndarray.tolist,
    "objects": lambda points: points.astype(object),
    "big-endian": lambda points: points.astype(">f8"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_input_changes_nothing(kernel, layout):
    points, others = some_points(30, 3, seed=1), some_points(5, 3, seed=2)
    change = LAYOUTS[layout]
    assert_array_equal(kernel.block(change(points), change(others)), kernel.block(points, others))
    assert_array_equal(
        kernel.squared_distances(change(points), change(others)), kernel.squared_distances(points, others)
    )
    assert_array_equal(kernel.diagonal(change(points)), kernel.diagonal(points))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int32, np.uint8, bool])
def test_other_number_types_are_taken_at_their_value(kernel, dtype):
    points = np.abs(some_points(20, 3)).round().astype(dtype)
    assert_array_equal(kernel.block(points, points), kernel.block(points.astype(float), points.astype(float)))


def test_a_call_is_one_entry_of_a_block(kernel):
    x, y = some_points(2, 3)
    value = kernel(x, y)
    assert isinstance(value, float)
    assert value == kernel.block([x], [y])[0, 0]


@pytest.mark.parametrize(
    ("kernel", "x", "y", "value"),
    [
        (Gaussian(2.0), [1.0, 0.0], [0.0, 2.0], math.exp(-5 / 8)),
        (Exponential(2.0), [3.0, 0.0], [0.0, 4.0], math.exp(-5 / 8)),
        (Laplacian(2.0), [1.0, 0.0], [0.0, 2.0], math.exp(-1.5)),
        (Matern(2.0, 1.5), [3.0], [1.0], (1 + math.sqrt(3)) * math.exp(-math.sqrt(3))),
        (Matern(2.0, 2.5), [3.0], [1.0], (1 + math.sqrt(5) + 5 / 3) * math.exp(-math.sqrt(5))),
        (Polynomial(3, 1.0), [1.0, 2.0], [3.0, -1.0], 8.0),
        (Linear(), [1.0, 2.0], [3.0, -1.0], 1.0),
        (Cosine(), [3.0, 4.0], [4.0, 3.0], 24 / 25),
        (Cosine(), [0.0, 0.0], [4.0, 3.0], 0.0),
        (2 * Linear() + Linear() * Linear(), [2.0], [3.0], 48.0),
        (UserKernel(rational), [1.0], [3.0], 0.2),
    ],
    ids=repr,
)
def test_values_done_by_hand(kernel, x, y, value):
    assert kernel(x, y) == pytest.approx(value, rel=1e-14)


# --- near and far ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12])
def test_near_points_keep_their_distance(gap):
    # 2 - 2 exp(-t) by subtraction would be pure rounding below a gap of 1e-8.
    found = {
        kernel: kernel.squared_distances([[0.0, 0.0]], [[gap, 0.0]])[0, 0]
        for kernel in (Gaussian(2.0), Exponential(2.0), Laplacian(2.0), Linear(), 3 * Gaussian(2.0) + Linear())
    }
    gaussian = -2 * math.expm1(-(gap**2) / 8)
    assert list(found.values()) == pytest.approx(
        [gaussian, -2 * math.expm1(-gap / 8), -2 * math.expm1(-gap / 2), gap**2, 3 * gaussian + gap**2], rel=1e-6
    )


def test_exponentials_are_right_to_the_last_digits_everywhere():
    t = np.concatenate([np.linspace(0, 40, 4001), np.geomspace(1e-300, 700, 4001)])
    values = Laplacian(1.0).block([[0.0]], t[:, None])[0]
    distances = Laplacian(1.0).squared_distances([[0.0]], t[:, None])[0]
    assert_allclose(distances, -2 * np.expm1(-t), rtol=1e-15 * 4)
    # K is computed as 1 + expm1(-t), so its rounding error is relative to 1, not to K.
    assert_allclose(values, np.exp(-t), atol=2.3e-16)
    assert (values >= 0).all()


@pytest.mark.parametrize("kernel", DECAYING, ids=repr)
@pytest.mark.parametrize("far", [1e5, 1e200, 1.7e308])
def test_far_points_have_nothing_in_common(kernel, far):
    points = [[far, 0.0], [-far, far], [0.0, 0.0]]
    assert_array_equal(kernel.block(points, points), np.eye(3))
    assert_array_equal(kernel.squared_distances(points, points), 2 - 2 * np.eye(3))


def test_equal_points_are_at_distance_zero(kernel):
    points = some_points(50, 10)
    assert_array_equal(np.diag(kernel.squared_distances(points, points)), np.zeros(50))


def test_near_directions_of_very_different_lengths():
    """The shorter vector must not vanish beside the longer one."""
    points = np.array([[1.0, 1.0], [1e-17, 1e-17], [-1e-3, -1e-3], [0.0, 0.0]])
    expected = [[0, 0, 4, 1], [0, 0, 4, 1], [4, 4, 0, 1], [1, 1, 1, 0]]
    np.testing.assert_allclose(Cosine().squared_distances(points, points), expected, atol=1e-15)


# --- overflow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["block", "squared_distances"])
def test_overflow_of_a_polynomial_names_kernel_and_remedy(call):
    kernel = Polynomial(degree=4)
    with pytest.raises(KernelError, match=r"fit in float64; Polynomial\(degree=4, c=0.0\) overflows.*Scale the points"):
        getattr(kernel, call)([[1e100]], [[1e100]])


def test_overflow_of_the_diagonal():
    with pytest.raises(KernelError, match=r"overflows for K\(x, x\)"):
        Polynomial(degree=4).diagonal([[1e100]])


def test_overflow_of_plain_distances():
    with pytest.raises(KernelError, match="overflows"):
        Linear().squared_distances([[1e200]], [[-1e200]])


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Gaussian, Exponential, Laplacian, Matern])
@pytest.mark.parametrize("sigma", [0, -1.0, math.nan, math.inf])
def test_sigma_must_be_above_zero(family, sigma):
    with pytest.raises(SettingError, match="`sigma` must be a finite number above 0; got"):
        family(sigma=sigma)


@pytest.mark.parametrize("sigma", ["1", None, True, [1.0]])
def test_sigma_must_be_a_number(sigma):
    with pytest.raises(
        SettingError, match=r"`sigma` must be a finite number above 0; got .*\((str|NoneType|bool|list)\)"
    ):
        Gaussian(sigma=sigma)


@pytest.mark.parametrize("family", [Gaussian, Exponential, Laplacian, Matern])
@pytest.mark.parametrize("sigma", [1e-200, 1e200])
def test_sigma_whose_square_leaves_float64_is_refused(family, sigma):
    with pytest.raises(
        SettingError, match=r"`sigma` must be between (2e-76 and 5e.75|1e-152 and 1e.152); got 1e.*Scale the data"
    ):
        family(sigma=sigma)


@pytest.mark.parametrize(
    "kernel", [family(sigma) for family in (Gaussian, Laplacian) for sigma in (1e-149, 1e149)], ids=repr
)
def test_the_last_sigmas_that_are_taken_work(kernel):
    values = kernel.block([[0.0], [1.0]], [[0.0], [1.0]])
    assert_array_equal(values, np.eye(2) if kernel.sigma < 1 else np.ones((2, 2)))


def test_nu_must_be_one_of_two():
    with pytest.raises(SettingError, match=r"`nu` must be 1.5 or 2.5; got 3.5. For 0.5 use Exponential"):
        Matern(sigma=1.0, nu=3.5)


@pytest.mark.parametrize("degree", [0, -2])
def test_degree_must_be_at_least_one(degree):
    with pytest.raises(SettingError, match=f"`degree` must be at least 1; got {degree}"):
        Polynomial(degree=degree)


@pytest.mark.parametrize("degree", [1_000_001, 2**63, 10**400])
def test_degree_must_not_be_too_large(degree):
    with pytest.raises(SettingError, match="`degree` must be at most 1,000,000; got"):
        Polynomial(degree=degree)


@pytest.mark.parametrize("degree", [2.5, 2.0, "2", True])
def test_degree_must_be_whole(degree):
    with pytest.raises(SettingError, match="`degree` must be a whole number; got"):
        Polynomial(degree=degree)


@pytest.mark.parametrize("c", [-0.1, math.nan, math.inf])
def test_c_must_not_be_negative(c):
    with pytest.raises(SettingError, match="`c` must be a finite number of at least 0; got"):
        Polynomial(degree=2, c=c)


@pytest.mark.parametrize("factor", [0, -2.0, math.nan, math.inf])
def test_a_scale_must_be_above_zero(factor):
    with pytest.raises(SettingError, match="`scale of a kernel` must be a finite number above 0; got"):
        factor * Linear()


def test_numpy_scalars_scale_a_kernel_too():
    assert np.float64(2.0) * Linear() == 2.0 * Linear() == Linear() * np.int64(2)


@pytest.mark.parametrize("other", ["2", [2.0], np.ones(3), None])
def test_only_a_number_is_a_scale(other):
    with pytest.raises((TypeError, SettingError)):
        Linear() * other


def test_a_kernel_plus_a_number_is_refused():
    with pytest.raises(TypeError, match="unsupported operand"):
        Linear() + 1.0


def test_kernels_cannot_be_changed(kernel):
    with pytest.raises(AttributeError, match="cannot assign"):
        kernel.anything = 1.0


# --- points ----------------------------------------------------------------------------------------------------------


def test_both_sides_need_the_same_columns():
    with pytest.raises(DataError, match=r"`others` must have 2 columns like `points`; got 3. Use the same columns"):
        Linear().block(np.ones((4, 2)), np.ones((4, 3)))


def test_points_of_a_block_are_checked():
    with pytest.raises(DataError, match="`others` must be finite; got 1 bad rows of 2, the first at row 1, column 0"):
        Linear().block([[1.0]], [[1.0], [math.nan]])


# --- plain data ------------------------------------------------------------------------------------------------------


def test_the_plain_form_survives_json(kernel):
    again = Kernel.from_dict(json.loads(json.dumps(kernel.to_dict())), trusted_modules=["tests"])
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert repr(again) == repr(kernel)


def test_kernels_survive_pickle(kernel):
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    points = some_points(5, 2)
    assert_array_equal(again.block(points, points), kernel.block(points, points))


def test_different_kernels_are_different():
    assert len(set(KERNELS)) == len(KERNELS)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        FormatError, match=r"must name a known kernel; got 'Gausian'. Known: Cosine, Exponential, Gauss"
    ):
        Kernel.from_dict({"kernel": "Gausian", "sigma": 1.0})


@pytest.mark.parametrize("name", ["_Pair", "_Parametric", [], None])
def test_a_name_of_no_kernel_is_refused(name):
    with pytest.raises(FormatError, match="must name a known kernel"):
        Kernel.from_dict({"kernel": name})


@pytest.mark.parametrize("data", [{}, {"sigma": 1.0}, "Gaussian", None])
def test_a_plain_form_needs_a_name(data):
    with pytest.raises(FormatError, match="must be a mapping with the key 'kernel'; got"):
        Kernel.from_dict(data)


@pytest.mark.parametrize(
    "data",
    [
        {"kernel": "Gaussian"},
        {"kernel": "Gaussian", "sigma": 1.0, "colour": "red"},
        {"kernel": "Sum", "left": {"kernel": "Linear"}},
        {"kernel": "UserKernel"},
    ],
)
def test_a_plain_form_with_missing_or_unknown_keys_is_refused(data):
    with pytest.raises(FormatError, match=f"plain form of a {data['kernel']} kernel has missing or unknown keys"):
        Kernel.from_dict(data)


def test_a_plain_form_with_a_bad_parameter_is_refused():
    with pytest.raises(SettingError, match="`sigma` must be a finite number above 0; got -1"):
        Kernel.from_dict({"kernel": "Gaussian", "sigma": -1})
