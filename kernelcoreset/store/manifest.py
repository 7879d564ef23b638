"""The manifest of a store: a JSON file per version, with the entries of all leaves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.files.folder import Folder

_FORMAT_VERSION = 1
_NAME = re.compile(r"manifest-(\d+)\.json")
_END = b"}\n"


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
        try:
            data = json.loads(content)["manifest"]
            version = data["format"]
            if not isinstance(version, int):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise FormatError(_damaged(name)) from None
        if version > _FORMAT_VERSION:
            raise FormatError(
                f"{name} has format {version}; this version reads up to {_FORMAT_VERSION}. Upgrade kernelcoreset."
            )
        body = content[len(_head(b"")) : -len(_END)]
        if content != _head(body) + body + _END:
            raise FormatError(_damaged(name))
        return Manifest(data["version"], data["settings"], data["leaves"], data["state"])


def plain(value: Any, name: str) -> Any:
    """Return plain data after a round trip through JSON, or raise SettingError."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SettingError(f"`{name}` must be plain data that JSON can hold; got {value!r} ({error}).") from None


def versions(folder: Folder) -> dict[int, datetime]:
    """Return the versions that have a manifest, oldest first, with the time of each."""
    found = {}
    for name, changed in folder.names().items():
        match = _NAME.fullmatch(name)
        if match:
            found[int(match[1])] = changed
    return dict(sorted(found.items()))


def newest(folder: Folder) -> Manifest | None:
    """Return the manifest of the newest version, None if there is no store."""
    while found := versions(folder):
        manifest = load(folder, max(found))
        if manifest is not None:
            return manifest
    return None


def load(folder: Folder, version: int) -> Manifest | None:
    """Return the manifest of a version, None if it was removed."""
    name = manifest_name(version)
    try:
        return Manifest.from_bytes(folder.read(name), f"{folder.path}/{name}")
    except FileNotFoundError:
        return None


def manifest_name(version: int) -> str:
    """Return the file name of a version's manifest."""
    return f"manifest-{version:010d}.json"


def _damaged(name: str) -> str:
    return f"{name} is damaged: its content was changed. Restore it, or delete it to go back to the version before."


def _head(body: bytes) -> bytes:
    return b'{"checksum": "%s", "manifest": ' % hashlib.sha256(body).hexdigest().encode()
