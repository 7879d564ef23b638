"""The coreset as data: points, weights, ids, and its file form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from pyarrow import fs

from kernelcoreset.checks import Floats, check_ids, check_points, check_weights
from kernelcoreset.errors import DataError, FormatError
from kernelcoreset.features.preparation import KEY, Preparation
from kernelcoreset.files.atomic import read_file, write_file
from kernelcoreset.files.documents import Fields, parse_json
from kernelcoreset.files.outputs import why_no_file
from kernelcoreset.files.paths import open_path
from kernelcoreset.files.tables import float_column, table_from_bytes, table_to_bytes, vector_column
from kernelcoreset.reporting.notebook import card

if TYPE_CHECKING:
    from kernelcoreset.coresets.certificate import Certificate
    from kernelcoreset.kernels.kernel import Kernel

_FORMAT_VERSION = 2  # from 2 on, points may be prepared features; without them 1 is written
_METADATA_KEY = b"kernelcoreset"


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

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        about = {name: self.settings.get(name) for name in ("k", "z", "draw", "seed")}
        kernel = self.settings.get("kernel")
        facts = {
            "points": len(self),
            "dimensions": self.points.shape[1],
            "total weight": float(self.weights.sum()),
            "kernel": kernel and ", ".join(str(value) for value in kernel.values()),
            **about,
        }
        return card("Coreset", facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return Coreset, (self.points, self.weights, self.ids, dict(self.settings))

    def with_preparation(self, preparation: Preparation | None) -> Coreset:
        """Return the same coreset, whose points this preparation made of rows; without one, itself."""
        if preparation is None:
            return self
        return Coreset(self.points, self.weights, self.ids, {**self.settings, KEY: preparation.to_dict()})

    def certify(
        self,
        points: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        k: int | None = None,
        kernel: Kernel | None = None,
        n_center_sets: int = 100,
        most_rows: int | None = None,
        cost: float | None = None,
        seed: int = 0,
    ) -> Certificate:
        """Return how good this coreset is for points: what was measured, what is proved, and what both mean.

        Parameters
        ----------
        points : array-like of shape (n, d)
            The points that the coreset was built from.
        weights : array-like of shape (n,), optional
        k, kernel : optional
            Those that the coreset was built with by default.
        n_center_sets : int
            Random center sets of each kind to measure.
        most_rows : int, optional
            About how many rows to look at; by default as many as take 100 million kernel values, and 100,000 if that
            takes 400 million. If there are more, a random sample is used, far rows with a higher probability, and the
            proof has a confidence of 99 %.
        cost : float, optional
            Cost of a clustering on all points, such as `inertia_`, to compare with the optimum.
        seed : int

        Returns
        -------
        Certificate

        Notes
        -----
        Takes a kernel value per row and coreset point.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelcoreset import Gaussian, build_coreset
        >>> points = np.random.default_rng(0).normal(size=(3_000, 1))
        >>> coreset = build_coreset(points, k=2, kernel=Gaussian(sigma=2.0), size=200, seed=0)
        >>> found = coreset.certify(points)
        >>> found.measured["largest_error"] < found.proved["error"]
        True
        """
        from kernelcoreset.coresets.certificate import certify  # which needs this class

        return certify(
            self,
            points,
            weights=weights,
            k=k,
            kernel=kernel,
            n_center_sets=n_center_sets,
            most_rows=most_rows,
            cost=cost,
            seed=seed,
        )

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
        about = {
            "format": _FORMAT_VERSION if KEY in self.settings else 1,
            "dimension": d,
            "settings": dict(self.settings),
        }
        return pa.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(about)})

    @staticmethod
    def from_arrow(table: pa.Table) -> Coreset:
        """Return the coreset that `to_arrow` wrote.

        Examples
        --------
        >>> Coreset.from_arrow(Coreset([[0.0], [1.0]], [2.0, 3.0]).to_arrow())
        Coreset(2 points in 1 dimensions, total weight 5)
        """
        return _from_table(table, "This table")

    def write_parquet(self, path: str | PathLike[str]) -> None:
        """Write the coreset as one Parquet file, with the settings and a digest in the schema's metadata.

        A coreset that is there is replaced as a whole: a crash leaves the old one or the new one. Anything else that is
        there is left alone, with a FileExistsError.

        Parameters
        ----------
        path : path-like
            A local path, or a URI that pyarrow can open.
        """
        reason = why_no_coreset(path)
        if reason is not None:
            raise FileExistsError(
                f"{path} exists and is not a coreset: {reason}. Remove it yourself, or choose another path."
            )
        write_file(*open_path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes that `write_parquet` writes, for storage that is not a local file.

        Examples
        --------
        >>> Coreset.from_bytes(Coreset([[0.0], [1.0]], [2.0, 3.0]).to_bytes())
        Coreset(2 points in 1 dimensions, total weight 5)
        """
        return table_to_bytes(self.to_arrow())

    @staticmethod
    def from_bytes(content: bytes, name: str = "This") -> Coreset:
        """Return the coreset that `to_bytes` wrote, or raise a FormatError. Error messages call it `name`."""
        return _from_table(table_from_bytes(content, name), name)

    @staticmethod
    def read_parquet(path: str | PathLike[str]) -> Coreset:
        """Return the coreset that `write_parquet` wrote, or raise a FormatError if the file is damaged."""
        try:
            content = read_file(*open_path(path))
        except IsADirectoryError:
            raise FormatError(f"{fspath(path)} is a folder, not a coreset file.") from None
        return Coreset.from_bytes(content, fspath(path))


def why_no_coreset(path: str | PathLike[str]) -> str | None:
    """Return why a coreset must not be written to a path; None if nothing, an empty file or a coreset is there."""
    system, place = open_path(path)
    reason = why_no_file(system, place)
    info = system.get_file_info(place)
    if reason is not None or info.type == fs.FileType.NotFound or not info.size:
        return reason
    try:
        with system.open_input_file(place) as file:
            metadata = pq.read_schema(file).metadata or {}
    except (pa.ArrowInvalid, pa.ArrowIOError):
        return "it is not a whole Parquet file"
    return None if _METADATA_KEY in metadata else "it is a Parquet file without the metadata of a coreset"


def _from_table(table: pa.Table, name: str) -> Coreset:
    metadata = table.schema.metadata or {}
    if _METADATA_KEY not in metadata:
        raise FormatError(f"{name} is not a coreset: its schema has no 'kernelcoreset' metadata.")
    about = Fields(parse_json(metadata[_METADATA_KEY], f"The 'kernelcoreset' metadata of {name}"), name)
    about.version(_FORMAT_VERSION)
    dimension, settings = about.whole("dimension", least=1), about.mapping("settings")
    if table.column_names.count("id") > 1:
        raise FormatError(f"{name} must have one column id; it has {', '.join(table.column_names)}.")
    missing = {"point", "weight"} - set(table.column_names)
    if missing:
        raise FormatError(
            f"{name} needs the columns point and weight of a coreset; missing: {sorted(missing)}, "
            f"there: {table.column_names}."
        )
    points = vector_column(table, "point", name, dimension)
    weights = float_column(table, "weight", name)
    ids = table["id"].to_numpy() if "id" in table.column_names else None
    try:
        return Coreset(points, weights, ids, settings)
    except DataError as error:
        raise FormatError(f"{name} is damaged: {error}") from None
