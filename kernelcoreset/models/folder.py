"""The folder of a saved model: model.json, which has a digest of itself and of all other files, and Parquet files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyarrow import fs

from kernelcoreset.errors import FormatError
from kernelcoreset.files.atomic import is_local, write_folder
from kernelcoreset.files.documents import Fields, parse_json, signed, unsigned
from kernelcoreset.files.folder import Folder
from kernelcoreset.files.outputs import why_no_folder
from kernelcoreset.files.tables import table_from_bytes, table_to_bytes

ABOUT = "model.json"
_NAMED_ABOUT = f"{ABOUT} of the model"
_REMEDY = "Save the model again."
_FORMAT_VERSION = 1
# The files of a saved model or Spark ML stage, and what a file system leaves beside them.
_NAMES = re.compile(
    r"model\.json|(coreset|nodes|degrees|neighbors)(-[0-9a-f]{16})?\.parquet|metadata|\.(.+\.crc|.+\.tmp|DS_Store)"
)
_SIGNS = {"checksum", "kernelcoresetVersion"}


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
            Replace a model that is there; without it, that is a FileExistsError. Anything but a model is left alone.
        """
        _write_model(path, self.to_files(), overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, trusted_modules: Iterable[str] = ()) -> Self:
        """Return the model that `save` wrote, or raise a FormatError that says what is wrong with the folder.

        Parameters
        ----------
        path : path-like
        trusted_modules : iterable of str
            Modules that may be imported if the kernel is a user's function, as in `Kernel.from_dict`.
        """
        return cls.from_files(_read_model(path, cls.FILES), trusted_modules=trusted_modules)

    @abstractmethod
    def to_files(self) -> dict[str, bytes]:
        """Return the model as files by name, for storage that is not a local folder."""

    @classmethod
    @abstractmethod
    def from_files(cls, files: Mapping[str, bytes], *, trusted_modules: Iterable[str] = ()) -> Self:
        """Return the model that `to_files` gave, or raise FormatError."""


def pack(
    about: Mapping[str, Any], name: str, table: pa.Table, others: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """Return the files of a model: a table as Parquet, others as they are, and model.json with the digests of all."""
    parquet = table_to_bytes(table)
    content: dict[str, Any] = {"format": _FORMAT_VERSION, **about, "sha256": _sha256(parquet)}
    if others:
        content["files"] = {other: _sha256(bytes_) for other, bytes_ in others.items()}
    return {ABOUT: (json.dumps(signed(content), indent=2) + "\n").encode(), name: parquet, **(others or {})}


def unpack_about(files: Mapping[str, bytes]) -> Fields:
    """Return the checked content of model.json. The digests of other files than the table are checked with it."""
    content = parse_json(_file(files, ABOUT), _NAMED_ABOUT, _REMEDY)
    Fields(content, _NAMED_ABOUT, _REMEDY).version(_FORMAT_VERSION)
    about = Fields(unsigned(content, _NAMED_ABOUT, _REMEDY), _NAMED_ABOUT, _REMEDY)
    others = about.mapping("files") if "files" in about.data else {}
    for name, digest in others.items():
        if name in files:
            _check_digest(files, name, digest)
    return about


def unpack_table(files: Mapping[str, bytes], name: str, about: Fields) -> pa.Table:
    """Return a table by its file name, checked by the digest in model.json."""
    _check_digest(files, name, about.text("sha256"))
    return table_from_bytes(files[name], f"{name} of the model")


def _check_digest(files: Mapping[str, bytes], name: str, digest: Any) -> None:
    if _sha256(_file(files, name)) != digest:
        raise FormatError(f"{name} of the model is damaged or truncated: its checksum is wrong. {_REMEDY}")


def _file(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise FormatError(f"This is not a whole model: {name} is missing. Save it again.")
    return files[name]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_model(path: str | os.PathLike[str], files: Mapping[str, bytes], overwrite: bool) -> None:
    folder = Folder(path)
    if folder.kind() != fs.FileType.NotFound:
        if not overwrite:
            raise FileExistsError(f"{path} already exists. Pass overwrite=True, or choose another path.")
        reason = why_no_model(path)
        if reason is not None:
            raise FileExistsError(
                f"{path} exists and is not a model: {reason}. Remove it yourself, or choose another path."
            )
    write_model_files(folder, files)


def write_model_files(folder: Folder, files: Mapping[str, bytes]) -> None:
    """Write the files of a model or a Spark ML stage in place of those that are there.

    On a local disk all change in one step. Elsewhere tables get new names, by their content, and model.json, which
    holds the digests of all, is written last: a crash at any moment leaves the old model or the new one.
    """
    if not is_local(folder.system):
        files = {_name_by_content(name, _sha256(content)): content for name, content in files.items()}
    write_folder(folder.system, folder.path, dict(sorted(files.items(), key=lambda file: file[0] == ABOUT)))


def read_model_files(folder: Folder, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a model by name, or raise FormatError if one is missing. Their content is not checked."""
    found = {name: name for name in names}
    if not is_local(folder.system):
        about = parse_json(folder.read(ABOUT), _NAMED_ABOUT, _REMEDY) if folder.kind(ABOUT) == fs.FileType.File else {}
        digests = about.get("files")
        for name in names:
            digest = digests.get(name) if isinstance(digests, dict) and name in digests else about.get("sha256")
            by_content = _name_by_content(name, str(digest))
            if folder.kind(by_content) == fs.FileType.File:
                found[name] = by_content
    missing = [name for name in names if folder.kind(found[name]) != fs.FileType.File]
    if missing:
        raise FormatError(f"{folder.path} is not a whole model: {' and '.join(missing)} missing. Save it again.")
    return {name: folder.read(found[name]) for name in names}


def _name_by_content(name: str, digest: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return f"{stem}-{digest[:16]}.{ending}" if dot and ending == "parquet" else name


def why_no_model(path: str | os.PathLike[str], about: str = ABOUT) -> str | None:
    """Return why a model must not be written to a path; None if nothing, an empty folder or a model is there.

    Parameters
    ----------
    path : path-like
    about : str
        The file that tells what the folder is, a JSON object.
    """
    folder = Folder(path)
    reason = why_no_folder(folder.system, folder.path)
    if reason is not None:
        return reason
    found = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    names = sorted(info.base_name for info in found)
    foreign = [name for name in names if not _NAMES.fullmatch(name)]
    if foreign:
        return f"it holds {foreign[0]}"
    if not names:
        return None
    try:
        known = parse_json(folder.read(about), about)
    except (FileNotFoundError, FormatError):
        return f"it has no readable {about}"
    return None if isinstance(known, dict) and _SIGNS & known.keys() else f"its {about} is not that of a model"


def _read_model(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, bytes]:
    folder = Folder(path)
    if folder.kind() != fs.FileType.Directory:
        raise FileNotFoundError(f"There is no model folder at {path}.")
    return read_model_files(folder, names)
