"""Checks of user input: each kind of bad input has its own message."""

import math
from decimal import Decimal

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kernelcoreset import DataError, KernelCoresetError, Linear, SettingError, build_coreset
from kernelcoreset.checks import (
    check_at_least,
    check_choice,
    check_columns,
    check_count,
    check_ids,
    check_points,
    check_positive,
    check_same_dimension,
    check_seed,
    check_spread,
    check_weights,
    closest_name,
    coarse_columns,
    scaled_weights,
)
from kernelcoreset.kernels.kernel import check_kernel
from tests.cases import read_only

# --- points ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_null_nan_and_infinity_are_named_with_their_row(bad):
    shown = "nan" if bad is None else str(bad)
    with pytest.raises(
        DataError, match=rf"`points` must be finite; got 2 bad rows of 3, the first at row 1, column 0: {shown}"
    ):
        check_points([[1.0, 2.0], [bad, 2.0], [3.0, bad]])


def test_infinities_that_cancel_are_seen():
    with pytest.raises(DataError, match="2 bad rows"):
        check_points([[math.inf], [-math.inf], [0.0]])


def test_finite_points_with_an_infinite_sum_are_fine():
    points = np.full((3, 2), 1.7e308)
    assert_array_equal(check_points(points), points)


def test_ragged_rows_are_refused():
    with pytest.raises(DataError, match="`points` must be rectangular: every row needs the same number of columns"):
        check_points([[1.0, 2.0], [3.0]])


@pytest.mark.parametrize(
    "values",
    [
        [["a", "b"]],
        np.array([["a", "b"]], dtype=object),
        np.array([["2020-01-01"]], dtype="datetime64[D]"),
        [[1 + 2j]],
        [[{}]],
        [[b"1"]],
    ],
    ids=["text", "object", "date", "complex", "dict", "bytes"],
)
def test_what_is_no_number_is_refused(values):
    with pytest.raises(DataError, match=r"`points` must be numbers; got dtype .* Encode text and dates"):
        check_points(values)


def test_decimals_and_booleans_are_numbers():
    assert_array_equal(check_points([[Decimal("1.5"), 2]]), [[1.5, 2.0]])
    assert_array_equal(check_points([[True, False]]), [[1.0, 0.0]])


def test_no_rows_is_refused():
    with pytest.raises(DataError, match=r"`points` must have at least one row; got none. Check the filter"):
        check_points(np.empty((0, 3)))
    assert check_points(np.empty((0, 3)), allow_empty=True).shape == (0, 3)


def test_no_columns_is_refused():
    with pytest.raises(DataError, match=r"`points` must have at least one column; got shape \(3, 0\)"):
        check_points(np.empty((3, 0)))


def test_one_dimension_is_refused_with_both_remedies():
    with pytest.raises(DataError, match=r"two dimensions \(n, d\); got shape \(2,\). One column is .* one point is"):
        check_points([1.0, 2.0])


@pytest.mark.parametrize("values", [3.0, np.ones((2, 2, 2))])
def test_other_numbers_of_dimensions_are_refused(values):
    with pytest.raises(DataError, match=r"two dimensions \(n, d\); got shape \(.*\)\.$"):
        check_points(values)


def test_float64_is_not_copied():
    for points in (np.ones((3, 2)), np.asfortranarray(np.ones((3, 2))), read_only(np.ones((3, 2)))):
        assert np.shares_memory(check_points(points), points)


def test_another_dimension_is_refused():
    with pytest.raises(DataError, match=r"`new` must have 2 columns like the old; got 3. Use the same columns"):
        check_same_dimension("new", 3, 2, "the old")


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, None])
def test_negative_nan_and_infinite_weights_are_named_with_their_row(bad):
    shown = "nan" if bad is None else str(bad)
    with pytest.raises(
        DataError, match=f"`weights` must be finite and at least 0; got 1 bad of 3, the first at row 1: {shown}"
    ):
        check_weights([1.0, bad, 0.0], 3)


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(
        DataError, match=r"`weights` must not all be 0; got 2 zeros. A point of weight 0 is never sampled"
    ):
        check_weights([0.0, 0.0], 2)
    assert_array_equal(check_weights([0.0, 0.0], 2, allow_all_zero=True), [0.0, 0.0])


@pytest.mark.parametrize("weights", [[1.0], [[1.0], [1.0]], 1.0])
def test_weights_need_one_number_per_point(weights):
    with pytest.raises(DataError, match=r"`weights` must have shape \(2,\), one number per point; got shape \("):
        check_weights(weights, 2)


def test_weights_whose_sum_overflows_are_refused():
    with pytest.raises(DataError, match=r"`weights` must have a finite sum; got inf. Divide them all by a constant"):
        check_weights([1e308, 1e308], 2)


def test_weights_must_be_numbers():
    with pytest.raises(DataError, match="`weights` must be numbers"):
        check_weights(["a", "b"], 2)


def test_no_weights_are_ones():
    assert_array_equal(check_weights(None, 3), np.ones(3))


# --- ids -------------------------------------------------------------------------------------------------------------


def test_there_is_one_id_per_point():
    with pytest.raises(DataError, match=r"`ids` must have shape \(2,\), one id per point; got shape \(3,\)"):
        check_ids([1, 2, 3], 2)


@pytest.mark.parametrize("ids", [["a", None], [1, "a"], [{}, {}]])
def test_ids_must_be_of_one_plain_type(ids):
    with pytest.raises(DataError, match=r"`ids` must be of one plain type \(integers or strings\); got"):
        check_ids(np.array(ids, dtype=object), 2)


@pytest.mark.parametrize("values", [["a", "bc"], [1, 2], [b"a", b"bc"]])
def test_ids_that_came_as_objects_get_their_type(values):
    found = check_ids(np.array(values, dtype=object), 2)
    assert found.dtype == np.array(values).dtype
    assert found.tolist() == values


def test_no_ids_at_all_may_be_objects():
    assert check_ids(np.array([], dtype=object), 0).shape == (0,)


# --- numbers and choices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1.5, "3", None, True, np.float64(3.0)])
def test_a_count_must_be_whole(value):
    with pytest.raises(SettingError, match="`k` must be a whole number; got"):
        check_count("k", value)


def test_a_count_has_a_least_value():
    assert check_count("k", np.int32(4)) == 4
    with pytest.raises(SettingError, match=r"`k` must be at least 1; got 0. Take more.$"):
        check_count("k", 0, remedy="Take more.")


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1", True])
def test_a_positive_number(value):
    with pytest.raises(SettingError, match="`sigma` must be a finite number above 0; got"):
        check_positive("sigma", value)


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf, "1", True])
def test_a_number_with_a_least_value(value):
    with pytest.raises(SettingError, match="`z` must be a finite number of at least 1; got"):
        check_at_least("z", value, 1.0)


def test_a_choice_names_the_others():
    with pytest.raises(SettingError, match="`draw` must be one of 'iid', 'uniform'; got 'random'"):
        check_choice("draw", "random", ("iid", "uniform"))


@pytest.mark.parametrize("seed", [-1, 0.5, None, np.random.default_rng(0)])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(SettingError, match=r"`seed` must be (at least 0|a whole number); got"):
        check_seed(seed)


def test_a_kernel_class_is_not_a_kernel():
    with pytest.raises(SettingError, match=r"must be a kernel object; got the class Linear. Write Linear\(...\)"):
        check_kernel(Linear)


@pytest.mark.parametrize(
    ("kernel", "remedy"), [("rbf", r"write Gaussian\(sigma=...\)"), (None, "as UserKernel"), (max, "as UserKernel")]
)
def test_a_name_or_function_is_not_a_kernel(kernel, remedy):
    with pytest.raises(SettingError, match=rf"such as Gaussian\(sigma=1.0\); got .* {remedy}"):
        check_kernel(kernel)


def test_every_error_is_one_of_ours_and_a_value_error():
    with pytest.raises(KernelCoresetError) as caught:
        build_coreset([[1.0]], k=0, kernel=Linear(), size=1)
    assert isinstance(caught.value, ValueError)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Age", "age"),
        ("agee", "age"),
        ("size", "coreset_size"),
        ("SIZE", "coreset_size"),
        ("ag", "age"),
        ("xyz", None),
        ("", None),
    ],
)
def test_the_closest_name_is_the_one_that_was_meant(name, meant):
    assert closest_name(name, ["pages", "age", "coreset_size", "leaf_size"]) == meant


def test_missing_columns_are_named_with_their_settings():
    check_columns({"features": ["a", "b"], "weight_col": []}, ["b", "a"])
    with pytest.raises(SettingError) as caught:
        check_columns({"input.features": ["a", "heigth", "zz"], "input.weight_col": ["W"]}, ["a", "height", "w"])
    assert str(caught.value) == (
        "`input.features`: there is no column `heigth`; did you mean `height`? "
        "`input.features`: there is no column `zz`. "
        "`input.weight_col`: there is no column `W`; did you mean `w`? The columns are: a, height, w."
    )
    with pytest.raises(SettingError, match=r"there is no column `a`\. The columns are: none\."):
        check_columns({"features": ["a"]}, [])


# --- numbers at the edge of float64 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [np.ma.array([[1.0, 2.0]], mask=[[False, True]]), [np.ma.array([1.0], mask=[True])]])
def test_masked_values_are_not_read_through_the_mask(values):
    with pytest.raises(DataError, match=r"`points` must have no masked values; got 1\. Fill them"):
        check_points(values)


def test_masked_weights_and_ids_are_refused_and_an_empty_mask_is_fine():
    masked = np.ma.array([1, 2], mask=[False, True])
    with pytest.raises(DataError, match="`weights` must have no masked values"):
        check_weights(masked, 2)
    with pytest.raises(DataError, match="`ids` must have no masked values"):
        check_ids(masked, 2)
    assert_array_equal(check_points(np.ma.array([[1.0, 2.0]])), [[1.0, 2.0]])


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0], [2**53 + 1]]),
        np.array([[0], [-(2**53) - 1]]),
        np.array([[0], [2**64 - 1]], dtype=np.uint64),
        np.array([[0], [2**53 + 1]], dtype=object),
    ],
    ids=repr,
)
def test_whole_numbers_that_float64_rounds_are_refused(values):
    with pytest.raises(DataError, match=r"whole numbers beyond 2\^53; got 1 .* first at row 1, column 0: .*Subtract"):
        check_points(values)


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**62, -(2**63), 3 * 2**60])
def test_whole_numbers_that_float64_holds_are_fine(value):
    assert check_points(np.array([[value]]))[0, 0] == value
    assert check_points(np.array([[value]], dtype=object))[0, 0] == value


def test_whole_numbers_beyond_float64_are_refused():
    with pytest.raises(DataError, match="`points` must fit in float64"):
        check_points([[10**400]])
    with pytest.raises(SettingError, match=r"`sigma` must be a finite number above 0; got .*which no float can hold"):
        check_positive("sigma", 10**400)


def test_differences_whose_squares_underflow_are_refused():
    with pytest.raises(DataError, match=r"column 1, the widest, ranges over 1e-160\. Multiply all columns"):
        check_spread(np.array([[0.0, 0.0], [0.0, 1e-160]]))
    check_spread(np.array([[3.0, 3.0], [3.0, 3.0]]))
    check_spread(np.array([[0.0, 0.0], [1.0, 1e-160]]))


def test_columns_where_float64_is_too_coarse_are_found():
    assert coarse_columns(np.array([[1e17, 0.0], [1e17, 1.0]])) == [0]
    assert coarse_columns(np.array([[1e15, 0.0], [1e15 + 1, 1.0]])) == [0]
    assert coarse_columns(np.array([[1e12, 0.1 + 0.2], [1e12 + 1, 0.3]])) == []


@pytest.mark.parametrize("largest", [1e-323, 1e-300, 1e300])
def test_extreme_weights_are_scaled_by_a_power_of_two(largest):
    weights, unit = scaled_weights(np.array([largest, 0.0]))
    assert 1.0 <= weights[0] < 2.0
    assert weights[0] * unit == largest
    assert math.frexp(unit)[0] == 0.5


def test_a_count_may_have_a_largest_value():
    with pytest.raises(SettingError, match="`k` must be at most 1,000; got 1001"):
        check_count("k", 1001, most=1000)
