"""The leaves of a store: one Parquet file per key, named by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelcoreset.checks import check_count, check_same_dimension
from kernelcoreset.coresets.build import check_mergeable
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.errors import ConflictError, DataError, FormatError, SettingError
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.manifest import Manifest, newest, plain

LEAVES = "leaves"
_ID_KINDS = {"i": "whole numbers", "u": "whole numbers", "U": "texts", "S": "bytes"}

Entry = Mapping[str, Any]
"""What a manifest holds for a leaf: file, sha256, content, rows, points, weight, dimension, ids, tag."""


@dataclass(frozen=True, eq=False)
class LeafUpdate:
    """The leaf of a key, built outside the store, for instance on a Spark executor.

    Parameters
    ----------
    coreset : Coreset or None
        None, or empty, if the partition has no row of positive weight.
    rows : int, optional
        Rows that were read.
    tag : plain data, optional
        For the caller, to find out later whether the partition has changed: sizes and times of its files, a version.
    """

    coreset: Coreset | None
    rows: int | None = None
    tag: Any = None


def checked_update(manifest: Manifest, recipe: Recipe, key: str, update: LeafUpdate | Coreset) -> LeafUpdate:
    """Return the leaf that a caller gave for a key, or raise an error if it does not fit the store."""
    if isinstance(update, Coreset):
        update = LeafUpdate(update)
    if not isinstance(update, LeafUpdate):
        raise SettingError(f"`put` takes a Coreset or a LeafUpdate per key; got {type(update).__name__} for {key!r}.")
    if update.coreset is not None:
        check_mergeable(update.coreset, recipe)
        check_dimension(manifest, update.coreset.points.shape[1])
    rows = None if update.rows is None else check_count("rows", update.rows, least=0)
    return LeafUpdate(update.coreset, rows, plain(update.tag, "tag"))


def check_dimension(manifest: Manifest, d: int) -> None:
    """Refuse points of another dimension than those in the store."""
    for leaf in manifest.leaves.values():
        if leaf["dimension"] is not None:
            check_same_dimension("points", d, leaf["dimension"], "the store's")
            return


def write_leaf(folder: Folder, key: str, update: LeafUpdate) -> Entry:
    """Write the file of a leaf and return its entry for the manifest. An empty leaf has no file."""
    coreset = update.coreset
    entry = {"rows": update.rows, "tag": update.tag, "points": 0, "weight": 0.0}
    if coreset is None or not len(coreset):
        return entry | {"file": None, "sha256": None, "content": None, "dimension": None, "ids": None}
    content = coreset.to_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    # Named by content: a retry writes the same file, and no file of another version is ever overwritten.
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


def read_leaf(folder: Folder, manifest: Manifest, key: str) -> Coreset:
    """Return the leaf of a key that is not empty, or raise an error that names the key and says how to fix it."""
    entry = manifest.leaves[key]
    remedy = f"Build it again with replace({key!r}, points), or remove it with expire({key!r})."
    try:
        content = folder.read(entry["file"])
    except FileNotFoundError:
        found = newest(folder)
        if found is not None and found.leaves.get(key) != entry:
            raise ConflictError(
                f"The leaf of {key!r} belonged to version {manifest.version} of the store at {folder.path} and was "
                f"removed; the store is at version {found.version}. Open it again."
            ) from None
        raise FormatError(f"The leaf of {key!r} is missing: there is no file {entry['file']}. {remedy}") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise FormatError(
            f"The leaf of {key!r} is damaged or truncated: the checksum of {entry['file']} is wrong. {remedy}"
        )
    return Coreset.from_bytes(content, entry["file"])


def check_alike(kept: Mapping[str, Entry], new: Mapping[str, Entry]) -> None:
    """Refuse new leaves that cannot be merged with the kept ones or with each other."""
    full = {key: entry for key, entry in [*kept.items(), *new.items()] if entry["file"] is not None}
    first, other = next(iter(full.items()), ("", {}))
    for key in full.keys() & new.keys():
        entry = full[key]
        check_same_dimension("points", entry["dimension"], other["dimension"], f"those of {first!r} in the store")
        if entry["ids"] != other["ids"]:
            raise DataError(
                f"Leaves must all have ids of the same kind, or all have none; those of {key!r} are {entry['ids']}, "
                f"those of {first!r} are {other['ids']}."
            )


def _digest_of(coreset: Coreset) -> str:
    """A digest of points, weights and ids. Unlike that of the file, it does not depend on the Parquet writer."""
    state = hashlib.sha256(repr(coreset.points.shape).encode())
    for array in (coreset.points, coreset.weights, coreset.ids):
        if array is not None:
            state.update(array.dtype.str.encode())
            state.update(array.tobytes())
    return state.hexdigest()
