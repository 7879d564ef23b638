"""A user's own kernel function: what is taken, how it is saved, and the errors of bad ones."""

import math

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose

from kernelcoreset import FormatError, Gaussian, Kernel, KernelError, Linear, SettingError, UserKernel, build_coreset
from kernelcoreset.kernels import Normalized
from kernelcoreset.kernels.loops import passes
from tests import naive
from tests.cases import some_points
from tests.user_kernels import ill, rational


def test_a_user_kernel_is_saved_by_its_import_path():
    assert UserKernel(rational).to_dict() == {"kernel": "UserKernel", "function": "tests.user_kernels:rational"}


def test_a_plain_function_is_compiled_once():
    def plain(x, y):
        return x[0] * y[0]

    assert UserKernel(plain) == UserKernel(plain)


@pytest.mark.parametrize("function", [math.sqrt, "rational", None, Gaussian(1.0)])
def test_a_user_kernel_needs_a_function(function):
    with pytest.raises(SettingError, match=r"`function` must be a function f\(x, y\) compiled with numba.njit; got"):
        UserKernel(function)


def test_a_function_without_import_path_is_not_saved():
    def inner(x, y):
        return x[0] * y[0]

    with pytest.raises(KernelError, match=r"saved by its import path; .*inner has none. Move the function"):
        UserKernel(inner).to_dict()


@pytest.mark.parametrize("path", ["no_such_module_anywhere:f", "tests.user_kernels:missing", "tests.no_module:f"])
def test_a_user_kernel_that_cannot_be_imported_is_refused(path):
    with pytest.raises(FormatError, match=f"user kernel '{path}' cannot be imported .* Add its module to this process"):
        Kernel.from_dict(
            {"kernel": "UserKernel", "function": path}, trusted_modules=["tests", "no_such_module_anywhere"]
        )


@pytest.mark.parametrize("path", ["tests.user_kernels", "", ":f", "tests.user_kernels:", 7, None, ["a:b"]])
def test_a_user_kernel_must_have_an_import_path(path):
    with pytest.raises(FormatError, match="must name its function as 'module:function'; got"):
        Kernel.from_dict({"kernel": "UserKernel", "function": path}, trusted_modules=["tests"])


@pytest.mark.parametrize(
    "path", ["tests.user_kernels:NOT_A_FUNCTION", "math:pi", "os:system", "collections:OrderedDict"]
)
def test_a_user_kernel_must_name_a_function(path):
    with pytest.raises(FormatError, match=f"user kernel '{path}' must name a function; it names a"):
        Kernel.from_dict({"kernel": "UserKernel", "function": path}, trusted_modules=[path.partition(":")[0]])


def test_a_user_kernel_that_is_not_symmetric_is_refused():
    with pytest.raises(
        KernelError, match=r"must be symmetric; UserKernel\(tests.user_kernels.ill\) gives K\(x, y\) = "
    ):
        build_coreset([[3.0], [4.0], [5.0]], k=1, kernel=UserKernel(ill), size=2)


def test_a_user_kernel_that_gives_nan_is_refused():
    with pytest.raises(
        KernelError, match=r"must be finite; UserKernel\(tests.user_kernels.ill\) gives NaN or infinity"
    ):
        build_coreset([[1.0], [4.0], [5.0]], k=1, kernel=UserKernel(ill), size=2)


def test_a_user_kernel_with_a_negative_diagonal_is_refused():
    with pytest.raises(KernelError, match=r"K\(x, x\) must be at least 0; UserKernel\(.*ill\) gives -1 at row 0"):
        build_coreset([[2.0], [2.0], [2.0]], k=1, kernel=UserKernel(ill), size=2)


def test_a_bad_part_makes_the_whole_kernel_bad():
    with pytest.raises(KernelError, match="must be symmetric"):
        build_coreset([[3.0], [4.0], [5.0]], k=1, kernel=Linear() + UserKernel(ill), size=2)


def test_a_bad_user_kernel_is_found_if_the_input_itself_is_the_coreset():
    with pytest.raises(KernelError, match="must be symmetric"):
        build_coreset([[3.0], [4.0]], k=1, kernel=UserKernel(ill), size=2)


@njit
def fails_beyond_one(x, y):
    if x[0] > 1.0:
        raise ValueError("too far")
    return x[0] * y[0]


def test_an_exception_in_a_users_function_is_never_a_value():
    kernel = UserKernel(fails_beyond_one)
    np.testing.assert_array_equal(kernel.block([[1.0], [0.5]], [[1.0]]), [[1.0], [0.5]])
    with pytest.raises(KernelError, match=r"raises an exception, for K\(x, y\)"):
        kernel.block([[1.0]], [[2.0]])


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025])
def test_a_users_function_never_sees_the_degree(n):
    # A normalized kernel keeps the degree in the last row of the columns, which the user's loop must leave out.
    points, degrees = some_points(n, 3), 1.0 + np.arange(n) % 7
    lifted = np.column_stack([points, degrees])
    plain, kernel = UserKernel(rational).to_dict(), Normalized(UserKernel(rational))
    expected = naive.gram(plain, points, points[:5]) / degrees[:, None] / degrees[:5]
    assert_allclose(kernel.block(lifted, lifted[:5]), expected, rtol=1e-12)
    assert_allclose(kernel.diagonal(lifted), naive.diagonal(plain, points) / degrees**2, rtol=1e-12)


def test_users_functions_share_the_compiled_passes():
    before = len(passes.block.signatures)
    for factor in (2.0, 3.0):
        own = njit(lambda x, y, factor=factor: factor * x[0] * y[0])
        assert UserKernel(own)([2.0], [3.0]) == 6.0 * factor
    assert len(passes.block.signatures) <= max(before, 1)
