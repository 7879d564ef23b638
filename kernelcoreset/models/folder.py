"""The folder a model is kept in: model.json, which has a checksum, and Parquet files; whole or not there."""

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
from kernelcoreset.files.paths import open_path

ABOUT = "model.json"
_FORMAT_VERSION = 1


class KeptAsFolder(ABC):
    """A model that is saved as a folder of a few files."""

    FILES: ClassVar[tuple[str, ...]]
    """Names of the files."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as a folder: model.json and Parquet files, nothing pickled.

        The folder appears whole or not at all. A folder that is there already is kept unless `overwrite`.

        Parameters
        ----------
        path : path-like
        overwrite : bool
        """
        _write_folder(path, self.to_files(), overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the model that `save` wrote, or raise FormatError saying what is wrong with the folder."""
        return cls.from_files(_read_folder(path, cls.FILES))

    @abstractmethod
    def to_files(self) -> dict[str, bytes]:
        """Return the model as files by name, for storage that is not a local folder."""

    @classmethod
    @abstractmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Self:
        """Return the model that `to_files` gave, or raise FormatError."""


def pack(about: Mapping[str, Any], name: str, table: pa.Table) -> dict[str, bytes]:
    """Return two files: model.json, and a table under a name, whose checksum the former holds."""
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
        raise FormatError(f"{ABOUT} of the model is damaged: it is not what was saved. Save it again.") from None
    if not isinstance(version, int) or version > _FORMAT_VERSION:
        raise FormatError(
            f"The model has format {version}; this version reads up to {_FORMAT_VERSION}. Upgrade kernelcoreset."
        )
    if about.pop("checksum", None) != _checksum(about):
        raise FormatError(f"{ABOUT} of the model is damaged: its checksum is wrong. Save the model again.")
    return dict(about)


def unpack_table(files: Mapping[str, bytes], name: str, about: Mapping[str, Any]) -> pa.Table:
    """Return the table of a name, checked by what model.json says of it."""
    if hashlib.sha256(files[name]).hexdigest() != about["sha256"]:
        raise FormatError(f"{name} of the model is damaged or truncated: its checksum is wrong. Save it again.")
    return pq.read_table(pa.BufferReader(files[name]))


def _checksum(about: Mapping[str, Any]) -> str:
    """A checksum of model.json's content, whatever its white space."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _write_folder(path: str | os.PathLike[str], files: Mapping[str, bytes], overwrite: bool) -> None:
    system, place = open_path(path)
    if system.get_file_info(place).type != fs.FileType.NotFound:
        if not overwrite:
            raise FileExistsError(f"{path} is there already. Pass overwrite=True, or choose another path.")
        if system.get_file_info(f"{place}/{ABOUT}").type != fs.FileType.File:
            raise FileExistsError(f"{path} is there and is not a model; it is left alone. Choose another path.")
    write_folder(system, place, files)


def _read_folder(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, bytes]:
    folder = Folder(path)
    if folder.system.get_file_info(folder.path).type != fs.FileType.Directory:
        raise FileNotFoundError(f"There is no model folder at {path}.")
    missing = [name for name in names if name not in folder.names()]
    if missing:
        raise FormatError(f"{path} is not a whole model: {' and '.join(missing)} missing. Save it again.")
    return {name: folder.read(name) for name in names}
