"""The coreset as data: points, weights, ids, and its file form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_ids, check_points, check_weights
from kernelcoreset.errors import DataError, FormatError

_FORMAT_VERSION = 1
_METADATA_KEY = b"kernelcoreset"
# Coordinates rarely repeat: dictionaries and compression make the file slower to read and no smaller.
_PARQUET: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}


@dataclass(frozen=True, eq=False)
class Coreset:
    """A weighted set of points that represents a much larger one. Immutable.

    Parameters
    ----------
    points : array-like of shape (s, d)
    weights : array-like of shape (s,)
        Above 0 and finite.
    ids : array-like of shape (s,), optional
        Ids of the original rows, to join the coreset with its table.
    settings : mapping, optional
        How it was built, as plain data: k, z, kernel, size, draw, seed.

    Examples
    --------
    >>> coreset = Coreset([[0.0], [1.0]], [2.0, 3.0])
    >>> len(coreset), coreset.weights.sum()
    (2, np.float64(5.0))
    """

    points: Floats
    weights: Floats
    ids: NDArray[Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        points = np.array(check_points(self.points, allow_empty=True), order="C")
        weights = np.array(check_weights(self.weights, len(points)))
        if (weights == 0).any():
            raise DataError("`weights` of a coreset must be above 0; drop the points of weight 0.")
        ids = check_ids(self.ids, len(points))
        ids = None if ids is None else np.array(ids)
        for array in (points, weights, ids):
            if array is not None:
                array.setflags(write=False)
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        with_ids = "" if self.ids is None else " with ids"
        return (
            f"Coreset({len(self)} points in {self.points.shape[1]} dimensions{with_ids}, "
            f"total weight {self.weights.sum():g})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Coreset, (self.points, self.weights, self.ids, dict(self.settings))

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns point, weight and, if there are ids, id. Its metadata holds the settings.

        Examples
        --------
        >>> Coreset([[0.0], [1.0]], [2.0, 3.0]).to_arrow().column_names
        ['point', 'weight']
        """
        d = self.points.shape[1]
        offsets = pa.array(np.arange(len(self) + 1, dtype=np.int32) * d)
        columns = {
            "point": pa.ListArray.from_arrays(offsets, pa.array(self.points.ravel())),
            "weight": pa.array(self.weights),
        }
        if self.ids is not None:
            columns["id"] = pa.array(self.ids)
        about = {"format": _FORMAT_VERSION, "dimension": d, "settings": dict(self.settings)}
        return pa.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(about)})

    @staticmethod
    def from_arrow(table: pa.Table) -> Coreset:
        """Return the coreset that `to_arrow` wrote.

        Examples
        --------
        >>> Coreset.from_arrow(Coreset([[0.0], [1.0]], [2.0, 3.0]).to_arrow())
        Coreset(2 points in 1 dimensions, total weight 5)
        """
        about = _read_metadata(table.schema.metadata or {})
        missing = {"point", "weight"} - set(table.column_names)
        if missing:
            raise FormatError(
                f"A coreset table needs the columns point and weight; missing: {sorted(missing)}, "
                f"there: {table.column_names}."
            )
        points, weights = table["point"].combine_chunks(), table["weight"].combine_chunks()
        values = points.flatten().to_numpy(zero_copy_only=False)
        lengths = points.value_lengths().to_numpy(zero_copy_only=False)
        if points.null_count or weights.null_count or (lengths != about["dimension"]).any():
            raise FormatError(
                f"A coreset table must hold {about['dimension']} coordinates and a weight in every row; "
                "some are missing. It is damaged: build it again."
            )
        ids = table["id"].to_numpy() if "id" in table.column_names else None
        return Coreset(
            values.reshape(len(table), about["dimension"]),
            weights.to_numpy(zero_copy_only=False),
            ids,
            about["settings"],
        )

    def write_parquet(self, path: str | PathLike[str]) -> None:
        """Write the coreset as one Parquet file, with the settings in the schema's metadata."""
        pq.write_table(self.to_arrow(), path, **_PARQUET)

    def to_bytes(self) -> bytes:
        """Return the bytes that `write_parquet` writes, for storage that is not a local file.

        Examples
        --------
        >>> Coreset.from_bytes(Coreset([[0.0], [1.0]], [2.0, 3.0]).to_bytes())
        Coreset(2 points in 1 dimensions, total weight 5)
        """
        sink = pa.BufferOutputStream()
        pq.write_table(self.to_arrow(), sink, **_PARQUET)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def from_bytes(content: bytes, name: str = "This") -> Coreset:
        """Return the coreset that `to_bytes` wrote. Error messages call it `name`."""
        try:
            file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
            table = file.read(use_threads=False)  # a coreset is too small for threads
        except (pa.ArrowInvalid, pa.ArrowIOError) as error:
            raise FormatError(_unreadable(name, error)) from None
        return Coreset.from_arrow(table)

    @staticmethod
    def read_parquet(path: str | PathLike[str]) -> Coreset:
        """Return the coreset that `write_parquet` wrote."""
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, pa.ArrowIOError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise FormatError(_unreadable(path, error)) from None
        return Coreset.from_arrow(table)


def _unreadable(name: str | PathLike[str], error: Exception) -> str:
    return f"{name} is not a readable Parquet file ({error}). It is damaged: build it again."


def _read_metadata(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    if _METADATA_KEY not in metadata:
        raise FormatError("This table is not a coreset: its schema has no 'kernelcoreset' metadata.")
    try:
        about = json.loads(metadata[_METADATA_KEY])
        version, dimension, settings = about["format"], about["dimension"], about["settings"]
    except (ValueError, KeyError, TypeError):
        raise FormatError("The 'kernelcoreset' metadata of this table is damaged: build the coreset again.") from None
    if version > _FORMAT_VERSION:
        raise FormatError(
            f"This coreset has format {version}; this version reads up to {_FORMAT_VERSION}. Upgrade kernelcoreset."
        )
    return {"dimension": dimension, "settings": settings}
