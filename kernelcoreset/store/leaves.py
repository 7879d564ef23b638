"""The leaves of a store: one Parquet file per key, named by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelcoreset.checks import check_same_dimension
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import ConflictError, DataError, FormatError
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.manifest import Manifest, newest

LEAVES = "leaves"

Entry = Mapping[str, Any]
"""What a manifest says of a leaf: file, sha256, content, rows, points, weight, dimension, ids, tag."""


@dataclass(frozen=True, eq=False)
class LeafUpdate:
    """The leaf of a key as it was built elsewhere, on a Spark executor for instance.

    Parameters
    ----------
    coreset : Coreset or None
        None, or an empty one, where the partition has no row of positive weight.
    rows : int, optional
        Rows that were read.
    tag : plain data, optional
        Whatever tells the caller later whether the partition has changed: size and time of its files, a version.
    """

    coreset: Coreset | None
    rows: int | None = None
    tag: Any = None


def write_leaf(folder: Folder, key: str, update: LeafUpdate) -> Entry:
    """Write the file of a leaf and return what the manifest is to say of it. An empty leaf has no file."""
    coreset = update.coreset
    entry = {"rows": update.rows, "tag": update.tag, "points": 0, "weight": 0.0}
    if coreset is None or not len(coreset):
        return entry | {"file": None, "sha256": None, "content": None, "dimension": None, "ids": None}
    content = coreset.to_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    # Named by content: a retry writes the same file, and what other versions name is never overwritten by another.
    name = f"{LEAVES}/{re.sub('[^A-Za-z0-9._=-]+', '_', key)[:80]}-{sha256[:24]}.parquet"
    folder.write(name, content)
    return entry | {
        "file": name,
        "sha256": sha256,
        "content": _digest_of(coreset),
        "points": len(coreset),
        "weight": float(coreset.weights.sum()),
        "dimension": coreset.points.shape[1],
        "ids": None if coreset.ids is None else _ID_KINDS.get(coreset.ids.dtype.kind, coreset.ids.dtype.name),
    }


_ID_KINDS = {"i": "whole numbers", "u": "whole numbers", "U": "texts", "S": "bytes"}


def read_leaf(folder: Folder, manifest: Manifest, key: str) -> Coreset:
    """Return the leaf of a key that has one, or raise an error that names the key and says how to mend it."""
    entry = manifest.leaves[key]
    remedy = f"Build it again with replace({key!r}, points), or take it out with expire({key!r})."
    try:
        content = folder.read(entry["file"])
    except FileNotFoundError:
        found = newest(folder)
        if found is not None and found.leaves.get(key) != entry:
            raise ConflictError(
                f"The leaf of {key!r} belonged to version {manifest.version} of the store at {folder.path} and was "
                f"cleared away; the store is at version {found.version}. Open it again."
            ) from None
        raise FormatError(f"The leaf of {key!r} is missing: there is no file {entry['file']}. {remedy}") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise FormatError(
            f"The leaf of {key!r} is damaged or truncated: the checksum of {entry['file']} is wrong. {remedy}"
        )
    return Coreset.from_bytes(content, entry["file"])


def refuse_unlike(kept: Mapping[str, Entry], new: Mapping[str, Entry]) -> None:
    """Refuse leaves that could not be merged with those that stay, or with one another."""
    full = {key: entry for key, entry in [*kept.items(), *new.items()] if entry["file"] is not None}
    first, other = next(iter(full.items()), ("", {}))
    for key in full.keys() & new.keys():
        entry = full[key]
        check_same_dimension("points", entry["dimension"], other["dimension"], f"those of {first!r} in the store")
        if entry["ids"] != other["ids"]:
            raise DataError(
                f"Leaves must all have ids of one kind or none; those of {key!r} are {entry['ids']}, those of "
                f"{first!r} {other['ids']}."
            )


def _digest_of(coreset: Coreset) -> str:
    """A digest of points, weights and ids: the file may differ by the version of Parquet's writer, the content not."""
    state = hashlib.sha256(repr(coreset.points.shape).encode())
    for array in (coreset.points, coreset.weights, coreset.ids):
        if array is not None:
            state.update(array.dtype.str.encode())
            state.update(array.tobytes())
    return state.hexdigest()
