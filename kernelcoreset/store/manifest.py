"""The manifest of a store: a JSON file per version, with the entries of all leaves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyarrow import fs

from kernelcoreset.checks import LARGEST_SEED
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.files.documents import Fields, parse_json
from kernelcoreset.files.exclusive import intended
from kernelcoreset.files.folder import Folder
from kernelcoreset.files.outputs import why_no_folder
from kernelcoreset.kernels.kernel import Kernel

_FORMAT_VERSION = 1
_NAME = re.compile(r"manifest-(\d+)\.json")
_LEAF_FILE = re.compile(r"leaves/[^/]+\.parquet")
_ENTRY = ("file", "sha256", "content", "rows", "points", "weight", "dimension", "ids", "tag")
_END = b"}\n"
_REMEDY = "Restore it, or delete it to go back to the version before."


@dataclass(frozen=True)
class Manifest:
    """One version of a store. Immutable plain data."""

    version: int
    settings: Mapping[str, Any]
    leaves: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The entry of each key: file, sha256, content, rows, points, weight, dimension, ids, tag."""
    state: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, with a checksum of the exact bytes before it."""
        body = json.dumps(
            {
                "format": _FORMAT_VERSION,
                "version": self.version,
                "settings": self.settings,
                "leaves": self.leaves,
                "state": self.state,
            },
            allow_nan=False,
        ).encode()
        return _head(body) + body + _END

    @staticmethod
    def from_bytes(content: bytes, name: str) -> Manifest:
        """Return the manifest that `to_bytes` gave, or raise FormatError."""
        data = Fields(parse_json(content, name, _REMEDY), name, _REMEDY).mapping("manifest")
        fields = Fields(data, name, _REMEDY)
        fields.version(_FORMAT_VERSION)
        body = content[len(_head(b"")) : -len(_END)]
        if content != _head(body) + body + _END:
            raise FormatError(_damaged(name))
        settings = Fields(fields.mapping("settings"), name, _REMEDY)
        for part in ("k", "size", "leaf_size"):
            settings.whole(part, least=1)
        settings.whole("seed", most=LARGEST_SEED)
        settings.number("z")
        settings.mapping("kernel")
        leaves = fields.mapping("leaves")
        for key, entry in leaves.items():
            _check_entry(Fields(entry, f"The entry of {key!r} in {name}", _REMEDY))
        return Manifest(fields.whole("version"), settings.data, leaves, fields.mapping("state"))


def _check_entry(entry: Fields) -> None:
    """Raise FormatError unless the entry of a leaf has all its fields."""
    for part in _ENTRY:
        if part not in entry.data:
            raise entry.wrong(part, "present")
    for part in ("rows", "dimension"):
        if entry.data.get(part) is not None:
            entry.whole(part)
    entry.whole("points")
    entry.number("weight")
    if entry.data.get("file") is None:
        return
    entry.whole("dimension", least=1)
    for part in ("sha256", "content"):
        entry.text(part)
    if not _LEAF_FILE.fullmatch(entry.text("file")):
        raise entry.wrong("file", "the name of a leaf")


def settings_of(
    k: int, kernel: Kernel, size: int, z: float = 2.0, leaf_size: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Return the settings of a new store as plain data, or raise SettingError."""
    recipe = Recipe(k, kernel, size, z=z, seed=seed)
    return {
        "k": recipe.k,
        "kernel": plain(recipe.kernel.to_dict(), "kernel"),
        "size": recipe.size,
        "z": recipe.z,
        "leaf_size": leaf_size_of(recipe.size, leaf_size),
        "seed": recipe.seed,
    }


def plain(value: Any, name: str) -> Any:
    """Return plain data after a round trip through JSON, or raise SettingError."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SettingError(f"`{name}` must be plain data that JSON can hold; got {value!r} ({error}).") from None


def versions(folder: Folder) -> dict[int, datetime]:
    """Return the versions that have a finished manifest, oldest first, with the time of each."""
    names = folder.names()
    for name in {intended(name) for name in names}:
        if name in names and folder.is_unfinished(name):
            del names[name]
    found = {int(match[1]): changed for name, changed in names.items() if (match := _NAME.fullmatch(name))}
    return dict(sorted(found.items()))


def newest(folder: Folder) -> Manifest | None:
    """Return the manifest of the newest version, None if there is no store."""
    while found := versions(folder):
        manifest = load(folder, max(found))
        if manifest is not None:
            return manifest
    return None


def load(folder: Folder, version: int) -> Manifest | None:
    """Return the manifest of a version, None if it was removed or its writer has not finished it."""
    name = manifest_name(version)
    path = f"{folder.path}/{name}"
    content = None
    while True:
        try:
            before, content = content, folder.read(name)
        except FileNotFoundError:
            return None
        try:
            manifest = Manifest.from_bytes(content, path)
            break
        except FormatError:
            if folder.is_unfinished(name):
                return None
            if content == before:  # else its writer finished it a moment ago
                raise
    if manifest.version != version:
        raise FormatError(_damaged(path))
    return manifest


def why_no_store(folder: Folder) -> str | None:
    """Return why a store must not be made in a folder; None if nothing, an empty folder or a store is there."""
    reason = why_no_folder(folder.system, folder.path)
    if reason is not None or versions(folder):
        return reason
    found = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    # A process that was killed before its first commit leaves hidden files and perhaps an unfinished manifest.
    names = sorted(info.base_name for info in found if not info.base_name.startswith((".", "manifest-")))
    return f"it holds {names[0]}, but no manifest" if names else None


def manifest_name(version: int) -> str:
    """Return the file name of a version's manifest."""
    return f"manifest-{version:010d}.json"


def _damaged(name: str) -> str:
    return f"{name} is damaged: its content was changed. {_REMEDY}"


def _head(body: bytes) -> bytes:
    return b'{"checksum": "%s", "manifest": ' % hashlib.sha256(body).hexdigest().encode()
