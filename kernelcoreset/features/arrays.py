"""Numbers from Arrow arrays, as float64 or in their own short type, and back.

`to_numpy` and `pa.array` of pyarrow import pandas, which takes half a second and 40 MB in every new Python worker. The
functions here need it only for what is rare: missing values, texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, is_rounded

_EXACT = 2.0**53  # every whole number up to this one is a float64
_TYPES = {getattr(pa, name)(): np.dtype(name) for name in ("float64", "float32", "int64", "int32", "int16", "int8")}
_TYPES |= {getattr(pa, name)(): np.dtype(name) for name in ("uint64", "uint32", "uint16", "uint8")}
_SHORT_TYPES = (pa.float32(), pa.uint8(), pa.int8(), pa.uint16(), pa.int16(), pa.int32())


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of numbers; not that of true and false."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def view(array: pa.Array) -> NDArray[Any]:
    """Return the values of an Arrow array, not copied and read-only if they are numbers and none is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> view(pa.array([1, 2, 3])[1:])
    array([2, 3])
    """
    kind = _TYPES.get(array.type)
    if kind is None or array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    content = array.buffers()[1]
    found = np.frombuffer(b"" if content is None else content, kind, len(array), array.offset * kind.itemsize)
    found.flags.writeable = False
    return found


def to_arrow(values: NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Return an Arrow array of a NumPy one, without missing values; not copied if they are numbers of that type.

    Examples
    --------
    >>> to_arrow(np.arange(3), pa.float64()).to_pylist()
    [0.0, 1.0, 2.0]
    """
    if kind is None:
        kind = next((each for each, own in _TYPES.items() if own == values.dtype), None)
    if kind not in _TYPES or values.dtype not in _TYPES.values():
        return pa.array(values, kind)
    content = pa.py_buffer(np.ascontiguousarray(values, _TYPES[kind]))
    return pa.Array.from_buffers(kind, len(values), [None, content])


def to_floats(array: pa.Array, *, exact: bool = True) -> Floats:
    """Return a numeric Arrow array as float64, nulls as NaN; copied only if something changes.

    With `exact`, whole numbers that float64 would round are NaN.
    """
    floats = array
    if not pa.types.is_floating(array.type):
        floats = array.cast(pa.float64(), safe=False)
    result = np.asarray(view(floats), dtype=np.float64)
    if exact and pa.types.is_int64(array.type) and (np.abs(result) >= _EXACT).any():
        rounded = is_rounded(array.fill_null(0).to_numpy())
        result = np.where(rounded, np.nan, result)
    return result


def to_numbers(array: pa.Array) -> NDArray[Any]:
    """Return a numeric Arrow array in its own type if that is short and no value is missing, else as float64."""
    if array.null_count == 0 and array.type in _SHORT_TYPES:
        return view(array)
    return to_floats(array)


def has_finite_sum(values: NDArray[Any]) -> bool:
    """Return whether the sum is finite. Then all terms are; otherwise each has to be checked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))
