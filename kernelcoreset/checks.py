"""Checks of user input: points, weights, ids and parameters. Public functions check once, inner code relies on it."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.errors import DataError, SettingError

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
LARGEST = 2**63 - 1
"""The largest count: compiled loops and files hold counts in 64 bits."""
LARGEST_SEED = 2**128 - 1
"""The largest seed: as many bits as numpy's own entropy."""

LEAST_SPREAD = 1e-152
"""Points must differ by this much, or be equal: squares of smaller differences have no digits left in float64."""

_LEAST_WEIGHT = 1e-100  # the largest weight is scaled to about 1 if it is smaller than this or larger than the inverse
_LEAST_SHARE = 1e-140
_EXACT = 2**53  # every whole number up to this one is a float64
_MOST_SHOWN = 200
_SHORT = tuple(np.dtype(kind) for kind in ("f4", "u1", "i1", "u2", "i2", "u4", "i4"))  # exact in float64


def shown(value: Any) -> str:
    """Return a value as text for an error message, shortened if it is long.

    Examples
    --------
    >>> shown([1, 2]), len(shown(list(range(10_000))))
    ('[1, 2]', 200)
    """
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # deeply nested data; whole numbers of thousands of digits
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a float if it is a finite number above zero."""
    number = _number(name, value, "a finite number above 0")
    if not (math.isfinite(number) and number > 0):
        raise SettingError(f"`{name}` must be a finite number above 0; got {shown(value)}.")
    return number


def check_at_least(name: str, value: Any, least: float, remedy: str = "") -> float:
    """Return `value` as a float if it is finite and at least `least`."""
    number = _number(name, value, f"a finite number of at least {least:g}")
    if not (math.isfinite(number) and number >= least):
        raise SettingError(
            f"`{name}` must be a finite number of at least {least:g}; got {shown(value)}. {remedy}".rstrip()
        )
    return number


def check_count(name: str, value: Any, least: int = 1, remedy: str = "", *, most: int = LARGEST) -> int:
    """Return `value` as an int if it is a whole number of at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise SettingError(f"`{name}` must be a whole number; got {shown(value)} ({type(value).__name__}).")
    if value < least:
        raise SettingError(f"`{name}` must be at least {least}; got {shown(value)}. {remedy}".rstrip())
    if int(value) > most:
        raise SettingError(f"`{name}` must be at most {most:,}; got {shown(value)}. {remedy}".rstrip())
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        meant = closest_name(value, choices) if isinstance(value, str) else None
        hint = f" Did you mean {meant!r}?" if meant else ""
        raise SettingError(f"`{name}` must be one of {', '.join(map(repr, choices))}; got {shown(value)}.{hint}")
    return str(value)


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None if none is similar.

    Case does not matter. The first name that contains the given one comes before names that are spelled like it.

    Examples
    --------
    >>> closest_name("size", ["seed", "coreset_size"]), closest_name("lable", ["label"]), closest_name("x", ["label"])
    ('coreset_size', 'label', None)
    """
    by_lower = {other.lower(): other for other in known}
    wanted = name.lower()
    longer = [other for other in by_lower if len(wanted) > 2 and wanted in other]
    found = [wanted] if wanted in by_lower else longer or difflib.get_close_matches(wanted, by_lower, n=1)
    return by_lower[found[0]] if found else None


def check_columns(wanted: Mapping[str, Sequence[str]], existing: Sequence[str]) -> None:
    """Raise SettingError if a setting names a column that does not exist.

    Parameters
    ----------
    wanted : mapping
        The columns that each setting names, by the name of the setting.
    existing : sequence of str
        The columns of the data.

    Examples
    --------
    >>> check_columns({"cols": ["agee"]}, ["id", "age"])
    Traceback (most recent call last):
        ...
    kernelcoreset.errors.SettingError: `cols`: there is no column `agee`; did you mean `age`? The columns are: id, age.
    """
    missing = [(setting, name) for setting, names in wanted.items() for name in names if name not in existing]
    if not missing:
        return
    sentences = []
    for setting, name in missing:
        meant = closest_name(name, existing)
        hint = f"; did you mean `{meant}`?" if meant else "."
        sentences.append(f"`{setting}`: there is no column `{name}`{hint}")
    columns = f"The columns are: {', '.join(existing) or 'none'}."
    if any(name != f"_c{place}" for place, name in enumerate(existing)) or not existing:
        raise SettingError(f"{' '.join(sentences)} {columns}")
    # What to do comes first: logs shorten long messages.
    raise SettingError(
        f"{sentences[0]} The columns have the names that Spark gives those of a CSV without a header: set header=True "
        "and inferSchema=True in spark.read.csv, or input.options = {header = true, inferSchema = true} in the "
        f"settings of a job. {columns}"
    )


def check_seed(seed: Any) -> int:
    """Return a seed as a whole number of at least 0. There is no random default, so every call can be repeated."""
    remedy = "Any whole number will do; the same one gives the same result."
    return check_count("seed", seed, least=0, remedy=remedy, most=LARGEST_SEED)


def check_points(points: ArrayLike, name: str = "points", *, allow_empty: bool = False) -> Floats:
    """Return `points` as a finite float64 array of shape (n, d), n >= 1, d >= 1. Never changes its input.

    Accepts read-only, Fortran-ordered, float32, integer and non-contiguous arrays. float64 arrays are not copied.
    Whole numbers must be exact in float64.
    """
    return _two_dimensional(as_numeric(points, name, exact=True), name, allow_empty)


def check_rows(points: ArrayLike, name: str = "points", *, allow_empty: bool = False) -> NDArray[Any]:
    """Return `points` as `check_points` does, but float32 and whole numbers of up to 32 bits in their own type.

    For callers that go through the rows block by block and never need all of them in float64.

    Examples
    --------
    >>> check_rows(np.zeros((2, 3), dtype=np.uint8)).dtype, check_rows([[1, 2]]).dtype
    (dtype('uint8'), dtype('float64'))
    """
    if isinstance(points, np.ndarray) and not np.ma.isMaskedArray(points) and points.dtype in _SHORT:
        return _two_dimensional(points, name, allow_empty)
    return check_points(points, name, allow_empty=allow_empty)


def _two_dimensional(array: NDArray[Any], name: str, allow_empty: bool) -> NDArray[Any]:
    if array.ndim != 2:
        hint = (
            " One column is `points.reshape(-1, 1)`; one point is `points.reshape(1, -1)`." if array.ndim == 1 else ""
        )
        raise DataError(f"`{name}` must have two dimensions (n, d); got shape {array.shape}.{hint}")
    if array.shape[1] == 0:
        raise DataError(f"`{name}` must have at least one column; got shape {array.shape}.")
    if array.shape[0] == 0 and not allow_empty:
        raise DataError(f"`{name}` must have at least one row; got none. Check the filter or the path that made it.")
    if array.dtype.kind == "f":
        _refuse_bad_rows(array, name)
    return array


def check_same_dimension(name: str, found: int, expected: int, whose: str) -> None:
    """Raise DataError if points do not have as many columns as what they are used with."""
    if found != expected:
        raise DataError(
            f"`{name}` must have {expected} columns like {whose}; got {found}. Use the same columns in the same order."
        )


def check_weights(weights: ArrayLike | None, n: int, name: str = "weights", *, allow_all_zero: bool = False) -> Floats:
    """Return weights of shape (n,), finite, at least 0 and not all 0. The default is 1 for every point."""
    if weights is None:
        return np.ones(n)
    array = as_numeric(weights, name)
    if array.shape != (n,):
        raise DataError(f"`{name}` must have shape ({n},), one number per point; got shape {array.shape}.")
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        first = int(np.argmax(bad))
        raise DataError(
            f"`{name}` must be finite and at least 0; got {int(bad.sum())} bad of {n}, the first at row {first}: "
            f"{array[first]}. Drop these rows or set their weight to 0."
        )
    with np.errstate(over="ignore"):
        total = float(array.sum())
    if n > 0 and not total > 0 and not allow_all_zero:
        raise DataError(f"`{name}` must not all be 0; got {n} zeros. A point of weight 0 is never sampled.")
    if not math.isfinite(total):
        raise DataError(f"`{name}` must have a finite sum; got {total}. Divide them all by a constant.")
    return np.require(array, requirements=["C", "W"])  # the layout that the loops are compiled for


def scaled_weights(weights: Floats) -> tuple[Floats, float]:
    """Return weights whose squares fit in float64, and the power of two they were divided by, 1 for ordinary weights.

    A weight below 1e-140 of the largest counts as that much: it changes no sum. Zeros stay zeros. Assumes validated
    weights, not all 0.

    Examples
    --------
    >>> scaled_weights(np.array([1.0, 2.0]))
    (array([1., 2.]), 1.0)
    >>> scaled_weights(np.array([2.0**-1000, 0.0]))[0]
    array([1., 0.])
    """
    largest = float(weights.max())
    unit = 1.0 if _LEAST_WEIGHT < largest < 1.0 / _LEAST_WEIGHT else math.ldexp(1.0, math.frexp(largest)[1] - 1)
    if unit != 1.0:
        weights = weights / unit
    least = _LEAST_SHARE * largest / unit
    if float(weights.min()) < least:
        weights = np.where((weights > 0.0) & (weights < least), least, weights)
    return weights, unit


def check_ids(ids: ArrayLike | None, n: int) -> NDArray[Any] | None:
    """Return ids of shape (n,), integers, strings or bytes, or None if there are none."""
    if ids is None:
        return None
    refuse_masked(ids, "ids")
    array = np.asarray(ids)
    if array.shape != (n,):
        raise DataError(f"`ids` must have shape ({n},), one id per point; got shape {array.shape}.")
    if array.dtype == object:
        kinds = sorted({type(value).__name__ for value in array})
        if kinds not in ([], ["str"], ["int"], ["bytes"]):
            raise DataError(f"`ids` must be of one plain type (integers or strings); got {', '.join(kinds)}.")
        array = np.array(array.tolist())
    return array


def check_key(key: Any) -> str:
    """Return the key of a partition if it is a string that is not empty."""
    if not isinstance(key, str) or not key:
        raise SettingError(f"`key` must be a string that is not empty; got {key!r}. Use str(key).")
    return key


def check_factor(key: str, factor: Any) -> float:
    """Return the factor by which a key's weights are multiplied, if it is a finite number of at least 0."""
    try:
        number = float(factor)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0.0):
        raise SettingError(f"`weight_of` must give a finite number of at least 0; got {factor!r} for {key!r}.")
    return number


def check_spread(points: Floats, name: str = "points") -> None:
    """Raise DataError if the points differ, but by so little that the squares of the differences underflow.

    Assumes finite points of shape (n, d).
    """
    ranges = np.ptp(points, axis=0)
    column = int(np.argmax(ranges))
    if 0.0 < ranges[column] < LEAST_SPREAD:
        raise DataError(
            f"`{name}` must differ by at least {LEAST_SPREAD:g} in some column, or squared distances underflow; "
            f"column {column}, the widest, ranges over {ranges[column]:g}. Multiply all columns by a constant."
        )


def coarse_columns(points: Floats) -> list[int]:
    """Return the columns where float64 is too coarse for the data: an offset leaves a few steps, or none, of digits.

    A column counts if it spans fewer than 100 steps of float64, or is constant where these steps are larger than 1; but
    not if these steps are tiny beside the range of another column.

    Examples
    --------
    >>> coarse_columns(np.array([[0.0, 1e17], [1.0, 1e17 + 32.0]]))
    [1]
    """
    low, high = points.min(axis=0), points.max(axis=0)
    steps = np.spacing(np.maximum(np.abs(low), np.abs(high)))
    coarse = np.where(high > low, high - low < 100.0 * steps, steps > 1.0)
    return np.flatnonzero(coarse & (steps > 1e-8 * (high - low).max())).tolist()


def describe_coarse_columns(points: Floats, columns: Sequence[int]) -> str:
    """Return the sentences that name columns where float64 is too coarse, with the remedy."""
    first = columns[0]
    value = float(points[np.argmax(np.abs(points[:, first])), first])
    others = f" (so do columns {', '.join(map(str, columns[1:]))})" if len(columns) > 1 else ""
    return (
        f"Column {first} holds numbers of about {value:g}, where float64 goes in steps of {np.spacing(abs(value)):g}, "
        f"and spans fewer than 100 such steps{others}. Subtract an offset, such as the smallest value, from the "
        "column before it becomes float64."
    )


def _number(name: str, value: Any, rule: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise SettingError(f"`{name}` must be {rule}; got {shown(value)} ({type(value).__name__}).")
    try:
        return float(value)
    except OverflowError:
        raise SettingError(f"`{name}` must be {rule}; got {shown(value)}, which no float can hold.") from None


def as_numeric(values: ArrayLike, name: str, *, exact: bool = False) -> Floats:
    """Return `values` of any shape as float64, without a copy if they are already; refuse ragged and other input.

    With `exact`, whole numbers that float64 would round are refused.
    """
    refuse_masked(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:  # numpy's message for lists of different lengths
        raise DataError(
            f"`{name}` must be rectangular: every row needs the same number of columns ({error})."
        ) from None
    if array.dtype.kind not in "fiub":
        try:
            # Decimals and numbers stored as objects are fine. None becomes NaN, which is reported with its row later.
            if array.dtype.kind != "O":
                raise TypeError
            converted = array.astype(np.float64)
        except OverflowError:
            raise _too_large(name) from None
        except (TypeError, ValueError):
            raise _not_numbers(array, name) from None
        if exact:
            _refuse_inexact_array(array, name)
        return converted
    if exact:
        _refuse_inexact_array(array, name)
    with np.errstate(over="ignore"):  # a longdouble beyond float64 becomes infinity, which is reported with its row
        return np.asarray(array, dtype=np.float64)


def refuse_misread(values: Any, name: str) -> None:
    """Raise DataError for what numpy turns into other float64 numbers without a word, and for nothing else.

    These are masked values, whole numbers that float64 rounds or cannot hold, dates, durations and texts. For callers
    whose other checks are those of a library.

    Examples
    --------
    >>> refuse_misread([1.5, 2**53], "X")  # each is a float64
    """
    refuse_masked(values, name)
    if hasattr(values, "toarray"):  # a sparse matrix
        return
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        return
    if array.dtype.kind in "mMSU":
        raise _not_numbers(array, name)
    _refuse_inexact_array(array, name)


def _refuse_inexact_array(array: NDArray[Any], name: str) -> None:
    """Raise DataError for whole numbers that float64 rounds or cannot hold."""
    if array.dtype.kind == "O":
        try:
            whole = [isinstance(v, int) and abs(v) > _EXACT and int(float(v)) != v for v in array.ravel().tolist()]
        except OverflowError:
            raise _too_large(name) from None
        _refuse_rounded(array, np.array(whole, dtype=bool).reshape(array.shape), name)
    is_long = array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size > 0
    if is_long and (array.max() > _EXACT or array.min() < -_EXACT):
        _refuse_rounded(array, is_rounded(array), name)


def _not_numbers(array: NDArray[Any], name: str) -> DataError:
    return DataError(f"`{name}` must be numbers; got dtype {array.dtype}. Encode text and dates as numbers first.")


def _too_large(name: str) -> DataError:
    return DataError(f"`{name}` must fit in float64; got a whole number above 1e308. Divide the column by a constant.")


def is_rounded(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether float64 rounds each of some 64-bit whole numbers: those with more than 53 bits.

    Zeros at the end do not count.

    Examples
    --------
    >>> is_rounded(np.array([3, 2**53 + 1, 2**62]))
    array([False,  True, False])
    """
    size = np.where(array < 0, 0 - array.astype(np.uint64), array.astype(np.uint64))
    lowest = np.maximum(size & (np.uint64(0) - size), np.uint64(1))
    rounded: NDArray[np.bool_] = size // lowest > np.uint64(_EXACT)
    return rounded


def _refuse_rounded(array: NDArray[Any], rounded: NDArray[np.bool_], name: str) -> None:
    """Raise DataError for whole numbers that float64 would round, and name the first."""
    if rounded.any():
        place = np.unravel_index(int(np.argmax(rounded)), array.shape)
        at = ", ".join(f"{word} {int(i)}" for word, i in zip(("row", "column"), place, strict=False))
        raise DataError(
            f"`{name}` must be exact in float64, which rounds whole numbers beyond 2^53; got {int(rounded.sum())} that "
            f"it rounds, the first at {at}: {array[place]}. Subtract an offset, such as the smallest value, from the "
            "column, or convert it to float64 if rounding does no harm."
        )


def refuse_masked(values: Any, name: str) -> None:
    """Raise DataError for masked values: numpy would read what is behind the mask."""
    parts = values if isinstance(values, list | tuple) else [values]
    masked = sum(int(np.ma.getmaskarray(part).sum()) for part in parts if np.ma.isMaskedArray(part))
    if masked:
        raise DataError(
            f"`{name}` must have no masked values; got {masked}. Fill them with `.filled(...)`, or drop these rows "
            "with `numpy.ma.compress_rows`."
        )


def _refuse_bad_rows(array: NDArray[Any], name: str) -> None:
    """Raise DataError for NaN or infinity and name the first bad row. A finite sum, which is cheap, means none."""
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(array.sum())):
            return
    bad_rows = ~np.isfinite(array).all(axis=1)
    if bad_rows.any():
        first = int(np.argmax(bad_rows))
        column = int(np.argmax(~np.isfinite(array[first])))
        raise DataError(
            f"`{name}` must be finite; got {int(bad_rows.sum())} bad rows of {len(array)}, the first at row {first}, "
            f"column {column}: {array[first, column]}. Drop or fill these rows."
        )
