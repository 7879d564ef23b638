"""Tables as Parquet files that carry a digest of all their bytes, and values of their columns that are checked."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kernelcoreset.errors import FormatError

# Coordinates rarely repeat: dictionaries and compression make a file slower to read and no smaller.
_PARQUET: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
_REMEDY = "Restore it, or make it again."
_KEY = b"kernelcoreset.sha256"
_EMPTY = b"0" * 64
# As the footer of a Parquet file holds it: the key, then a text (0x18) of 64 characters.
_MARK = _KEY + b"\x18\x40"


def table_to_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file whose schema metadata hold the SHA-256 of the file.

    The digest is that of the file with 64 zeros in its place, so every byte counts.
    """
    metadata = {**(table.schema.metadata or {}), _KEY: _EMPTY}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink, **_PARQUET)
    content = bytes(sink.getvalue().to_pybytes())
    place = _place_of_digest(content)
    if place is None:
        raise FormatError("This version of pyarrow writes the metadata of Parquet files in another way. Use another.")
    return content[:place] + _digest(content) + content[place + len(_EMPTY) :]


def table_from_bytes(content: bytes, name: str) -> pa.Table:
    """Return the table in a Parquet file, or raise a FormatError that names the file.

    A file without a digest, of an earlier version or of another program, is checked by the sums of its pages only.
    """
    place = _place_of_digest(content)
    if place is not None:
        end = place + len(_EMPTY)
        digest = content[place:end]
        # A program that copies the table copies the zeros that stand in the schema.
        if digest not in (_EMPTY, _digest(content[:place] + _EMPTY + content[end:])):
            raise FormatError(f"{name} is damaged: its digest is wrong. {_REMEDY}")
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        table = file.read(use_threads=False)  # these tables are too small for threads
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FormatError(f"{name} is not a readable Parquet file ({reason}). It is damaged. {_REMEDY}") from None
    return table


def float_column(table: pa.Table, column: str, name: str) -> NDArray[np.float64]:
    """Return a column of finite numbers, or raise a FormatError that names the file."""
    array = _column(table, column, name)
    if not pa.types.is_floating(array.type):
        raise FormatError(f"The column {column} of {name} must hold numbers; it holds {array.type}.")
    values = np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    if not np.isfinite(values).all():
        raise FormatError(f"The column {column} of {name} must hold finite numbers; some are not.")
    return values


def label_column(table: pa.Table, column: str, name: str, least: int, count: int) -> NDArray[np.int32]:
    """Return a column of whole numbers from `least` to `count` - 1, or raise a FormatError that names the file."""
    array = _column(table, column, name)
    values = array.to_numpy(zero_copy_only=False) if pa.types.is_integer(array.type) else None
    if values is None or (len(values) and not least <= int(values.min()) <= int(values.max()) < count):
        raise FormatError(f"The column {column} of {name} must hold whole numbers from {least} to {count - 1}.")
    return np.asarray(values, dtype=np.int32)


def vector_column(table: pa.Table, column: str, name: str, dimension: int) -> NDArray[np.float64]:
    """Return a column of lists of `dimension` numbers as an array of shape (n, dimension), or raise FormatError."""
    array = _one_column(table, column, name)
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if not is_list or not pa.types.is_floating(array.type.value_type):
        raise FormatError(f"The column {column} of {name} must hold lists of numbers; it holds {array.type}.")
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    values = array.flatten()
    if array.null_count or values.null_count or (lengths != dimension).any():
        raise FormatError(f"{name} must hold {dimension} coordinates in every row; some are missing.")
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(table), dimension)


def _column(table: pa.Table, column: str, name: str) -> pa.Array:
    array = _one_column(table, column, name)
    if array.null_count:
        raise FormatError(f"The column {column} of {name} must hold a value in every row; some are missing.")
    return array


def _one_column(table: pa.Table, column: str, name: str) -> pa.Array:
    if table.column_names.count(column) != 1:
        raise FormatError(f"{name} must have one column {column}; it has {', '.join(table.column_names)}.")
    return table[column].combine_chunks()


def _place_of_digest(content: bytes) -> int | None:
    mark = content.rfind(_MARK)
    return None if mark < 0 else mark + len(_MARK)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
