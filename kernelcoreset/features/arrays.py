"""Numbers from Arrow arrays, as float64 or in their own short type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, is_rounded

_EXACT = 2.0**53  # every whole number up to this one is a float64
_SHORT_TYPES = (pa.float32(), pa.uint8(), pa.int8(), pa.uint16(), pa.int16(), pa.int32())


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of numbers; not that of true and false."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def to_floats(array: pa.Array, *, exact: bool = True) -> Floats:
    """Return a numeric Arrow array as float64, nulls as NaN; copied only if something changes.

    With `exact`, whole numbers that float64 would round are NaN.
    """
    floats = array
    if not pa.types.is_floating(array.type):
        floats = array.cast(pa.float64(), safe=False)
    result = np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)
    if exact and pa.types.is_int64(array.type) and (np.abs(result) >= _EXACT).any():
        rounded = is_rounded(array.fill_null(0).to_numpy())
        result = np.where(rounded, np.nan, result)
    return result


def to_numbers(array: pa.Array) -> NDArray[Any]:
    """Return a numeric Arrow array in its own type if that is short and no value is missing, else as float64."""
    if array.null_count == 0 and array.type in _SHORT_TYPES:
        return np.asarray(array.to_numpy())
    return to_floats(array)


def has_finite_sum(values: NDArray[Any]) -> bool:
    """Return whether the sum is finite. Then all terms are; otherwise each has to be checked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))
