"""Whatever holds a table in Python, as named Arrow columns: pandas, polars, Arrow, mappings of columns, and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kernelcoreset.checks import refuse_masked
from kernelcoreset.errors import DataError
from kernelcoreset.features.arrays import is_numeric

Columns = dict[str, pa.Array]
"""Arrow arrays of equal lengths, by column name."""


def columns_of(table: Any) -> Columns:
    """Return the columns of a table by name. Those of an array without names are x0, x1, ...

    Parameters
    ----------
    table : pandas or polars DataFrame, pyarrow.Table, mapping of columns, or array-like of shape (n, d)

    Examples
    --------
    >>> list(columns_of([[1.0, 2.0], [3.0, 4.0]]))
    ['x0', 'x1']
    """
    if isinstance(table, pa.Table | pa.RecordBatch):
        pairs = list(zip(table.schema.names, table.columns, strict=True))
    elif hasattr(table, "__arrow_c_stream__") and not hasattr(table, "iloc"):  # such as a polars DataFrame
        return columns_of(pa.table(table))
    elif isinstance(table, Mapping):
        pairs = list(table.items())
    elif hasattr(table, "columns") and hasattr(table, "iloc"):
        pairs = [(name, table.iloc[:, place]) for place, name in enumerate(table.columns)]
    else:
        refuse_masked(table, "table")
        array = np.asarray(table) if hasattr(table, "dtype") else np.asarray(table, dtype=object)
        if array.ndim != 2:
            raise DataError(f"The table must have rows and columns; got an array of shape {array.shape}.")
        pairs = [(f"x{place}", array[:, place]) for place in range(array.shape[1])]
    columns = {str(name): _array(str(name), values) for name, values in pairs}
    if len(columns) < len(pairs):
        raise DataError("Several columns have the same name. Rename or drop all but one.")
    if len({len(values) for values in columns.values()}) > 1:
        raise DataError("The columns of a table must have equal lengths.")
    return columns


def refuse_texts(table: Any) -> None:
    """Raise DataError if a table with named columns has columns of texts or dates."""
    if not hasattr(table, "columns"):
        return
    usable = (is_numeric, pa.types.is_boolean, pa.types.is_null)
    wrong = [name for name, values in columns_of(table).items() if not any(fits(values.type) for fits in usable)]
    if wrong:
        raise DataError(
            f"All columns must hold numbers; these do not: {', '.join(wrong)}. Leave them out, or say how to use them: "
            f"features=kc.Features(categorical={wrong})."
        ) from None


def _array(name: str, values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    try:
        found = pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(f"Column {name} mixes types, or has one that Arrow does not know ({error}). Cast it.") from None
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
