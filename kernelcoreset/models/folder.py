"""The folder of a saved model: model.json, which has a checksum, and Parquet files."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kernelcoreset.errors import FormatError
from kernelcoreset.files.atomic import write_folder
from kernelcoreset.files.folder import Folder

ABOUT = "model.json"
_FORMAT_VERSION = 1


class KeptAsFolder(ABC):
    """A model that is saved as a folder of a few files."""

    FILES: ClassVar[tuple[str, ...]]
    """Names of the files."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as a folder: model.json and Parquet files, nothing pickled.

        The folder is there as a whole or not at all.

        Parameters
        ----------
        path : path-like
            A local folder, or a URI that pyarrow can open.
        overwrite : bool
            Replace a model that is there; without it, that is a FileExistsError.
        """
        _write_model(path, self.to_files(), overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the model that `save` wrote, or raise a FormatError that says what is wrong with the folder."""
        return cls.from_files(_read_model(path, cls.FILES))

    @abstractmethod
    def to_files(self) -> dict[str, bytes]:
        """Return the model as files by name, for storage that is not a local folder."""

    @classmethod
    @abstractmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Self:
        """Return the model that `to_files` gave, or raise FormatError."""


def pack(about: Mapping[str, Any], name: str, table: pa.Table) -> dict[str, bytes]:
    """Return two files: the table as Parquet, and model.json with the checksum of the table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    parquet = sink.getvalue().to_pybytes()
    signed = {"format": _FORMAT_VERSION, **about, "sha256": hashlib.sha256(parquet).hexdigest()}
    signed["checksum"] = _checksum(signed)
    return {ABOUT: (json.dumps(signed, indent=2) + "\n").encode(), name: parquet}


def unpack_about(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the checked content of model.json."""
    content = files[ABOUT]
    try:
        about = json.loads(content)
        version = about["format"]
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"{ABOUT} of the model is damaged: its content was changed. Save the model again.") from None
    if not isinstance(version, int) or version > _FORMAT_VERSION:
        raise FormatError(
            f"The model has format {version}; this version reads up to {_FORMAT_VERSION}. Upgrade kernelcoreset."
        )
    if about.pop("checksum", None) != _checksum(about):
        raise FormatError(f"{ABOUT} of the model is damaged: its checksum is wrong. Save the model again.")
    return dict(about)


def unpack_table(files: Mapping[str, bytes], name: str, about: Mapping[str, Any]) -> pa.Table:
    """Return a table by its file name, checked by the checksum in model.json."""
    if hashlib.sha256(files[name]).hexdigest() != about["sha256"]:
        raise FormatError(f"{name} of the model is damaged or truncated: its checksum is wrong. Save the model again.")
    return pq.read_table(pa.BufferReader(files[name]))


def _checksum(about: Mapping[str, Any]) -> str:
    """A checksum of the content of model.json; white space does not matter."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _write_model(path: str | os.PathLike[str], files: Mapping[str, bytes], overwrite: bool) -> None:
    folder = Folder(path)
    if folder.kind() != fs.FileType.NotFound:
        if not overwrite:
            raise FileExistsError(f"{path} is there already. Pass overwrite=True, or choose another path.")
        if folder.kind(ABOUT) != fs.FileType.File:
            raise FileExistsError(f"{path} is there and is not a model; it is left alone. Choose another path.")
    write_folder(folder.system, folder.path, files)


def _read_model(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, bytes]:
    folder = Folder(path)
    if folder.kind() != fs.FileType.Directory:
        raise FileNotFoundError(f"There is no model folder at {path}.")
    missing = [name for name in names if folder.kind(name) != fs.FileType.File]
    if missing:
        raise FormatError(f"{path} is not a whole model: {' and '.join(missing)} missing. Save it again.")
    return {name: folder.read(name) for name in names}
