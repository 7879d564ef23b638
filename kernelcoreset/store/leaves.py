"""The files of a store: leaves by key, and cached nodes of the tree over them, named by what they are made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from kernelcoreset.checks import check_factor, check_same_dimension
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.errors import ConflictError, DataError, FormatError
from kernelcoreset.files.atomic import is_temporary
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.key_tree import LEAST_SHARE, Leaf, Node, digest, grow
from kernelcoreset.store.manifest import Manifest, load, manifest_name, newest, versions

LEAVES, NODES = "leaves", "nodes"
_TREE_VERSION = 1  # goes into the names of cached nodes: raise it when they are merged in another way

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


class Recent:
    """Coresets read or written lately, by the names of their files: a name made of its content never goes stale."""

    def __init__(self, most_numbers: int = 8 * 1024**2) -> None:
        self._most_numbers = most_numbers  # 64 MiB
        self._numbers = 0
        self._coresets: dict[str, Coreset] = {}  # the longest unused first

    def get(self, name: str, make: Callable[[], Coreset]) -> Coreset:
        """Return the coreset of a name, made if it is not at hand."""
        coreset = self._coresets.pop(name, None)
        if coreset is None:
            coreset = make()
            self._numbers += coreset.points.size
        self._coresets[name] = coreset
        while self._numbers > self._most_numbers and len(self._coresets) > 1:
            oldest = next(iter(self._coresets))
            self._numbers -= self._coresets.pop(oldest).points.size
        return coreset


@dataclass(frozen=True)
class Merger:
    """Merges the leaves of one version of a store along its tree."""

    folder: Folder
    manifest: Manifest
    recipe: Recipe
    recent: Recent

    def weighted_leaves(self, keys: Iterable[str], weight_of: Callable[[str], float] | None) -> list[Leaf]:
        """Return the leaves of some keys that have rows, each with its factor; those of no weight are left out."""
        entries = self.manifest.leaves
        full = [key for key in dict.fromkeys(keys) if entries[key]["file"] is not None]
        scales = {key: 1.0 if weight_of is None else check_factor(key, weight_of(key)) for key in full}
        least = LEAST_SHARE * max(scales.values(), default=0.0)
        return [Leaf(key, entries[key]["content"], scales[key]) for key in full if scales[key] > least]

    def result(self, leaves: Sequence[Leaf], size: int) -> Coreset:
        """Return the coreset of some leaves, refined; itself a cached node."""
        root = grow(leaves, self._context)
        found = self._cached(
            self._result_name(root, size),
            lambda: self._merge(root, self.recipe.varied(size=size, seed=self.seed("result", root.name)), refine=True),
        )
        settings = {**found.settings, "seed": self.recipe.seed}
        return replace(found, weights=found.weights * root.scale, settings=settings)

    def files(self) -> Iterator[str]:
        """Names of all files of this version: its leaves, and the nodes that its plain result reads."""
        full = {key: entry for key, entry in self.manifest.leaves.items() if entry["file"] is not None}
        if not full:
            return
        yield from (entry["file"] for entry in full.values())
        root = grow([Leaf(key, entry["content"]) for key, entry in full.items()], self._context)
        yield _node_file(self._result_name(root, self.recipe.size))
        nodes = [root]
        while nodes:
            below = [child for child, _ in nodes.pop().parts if isinstance(child, Node)]
            yield from (_node_file(child.name) for child in below)
            nodes += below

    def seed(self, *what: str) -> int:
        """A seed of its own for every leaf, node and result: a draw from a draw needs independent numbers.

        Those of nodes and results come from their names, so from all below: a result may be put into the store again.
        """
        return int(digest([self.recipe.seed, *what])[:16], 16)

    @property
    def _context(self) -> Any:
        return [_TREE_VERSION, dict(self.manifest.settings)]

    def _result_name(self, root: Node, size: int) -> str:
        return digest([root.name, "result", size])

    def _merge(self, node: Node, recipe: Recipe, *, refine: bool) -> Coreset:
        """One coreset of a node's children, each cached or merged in turn."""
        parts = []
        for child, factor in node.parts:
            coreset = self._node(child) if isinstance(child, Node) else self._leaf(child.key)
            parts.append(coreset if factor == 1.0 else replace(coreset, weights=coreset.weights * factor))
        return reduce_union(parts, recipe, refine=refine)

    def _leaf(self, key: str) -> Coreset:
        file = self.manifest.leaves[key]["file"]
        return self.recent.get(file, lambda: read_leaf(self.folder, self.manifest, key))

    def _node(self, node: Node) -> Coreset:
        # As many points as a leaf: on 15 million rows nodes twice to eight times as large were no better.
        recipe = self.recipe.varied(size=self.manifest.settings["leaf_size"], seed=self.seed("node", node.name))
        return self._cached(node.name, lambda: self._merge(node, recipe, refine=False))

    def _cached(self, name: str, make: Callable[[], Coreset]) -> Coreset:
        """A node by its name. What cannot be read counts as absent: it is made again, and is the same."""
        file = _node_file(name)

        def read_or_make() -> Coreset:
            try:
                return Coreset.from_bytes(self.folder.read(file), file)
            except (FileNotFoundError, FormatError):
                coreset = make()
            self.folder.write(file, coreset.to_bytes(), durable=False)
            return coreset

        return self.recent.get(file, read_or_make)


def unused_files(folder: Folder, recipe: Recipe, older_than: float) -> list[str]:
    """Names of files that no version names which is in use or was within so many seconds; manifests first."""
    limit = datetime.now(UTC) - timedelta(seconds=older_than)
    present = versions(folder)
    numbers = list(present)
    outdated = [version for version, later in pairwise(numbers) if present[later] <= limit]
    named: set[str] = set()
    for version in numbers:
        manifest = None if version in outdated else load(folder, version)
        if manifest is not None:
            named.update(Merger(folder, manifest, recipe, Recent()).files())
    unused = [manifest_name(version) for version in outdated]
    for under in ("", LEAVES, NODES):
        for name, changed in folder.names(under).items():
            if name not in named and changed <= limit and (under or is_temporary(name)):
                unused.append(name)
    return unused


def _digest_of(coreset: Coreset) -> str:
    """A digest of points, weights and ids: the file may differ by the version of Parquet's writer, the content not."""
    state = hashlib.sha256(repr(coreset.points.shape).encode())
    for array in (coreset.points, coreset.weights, coreset.ids):
        if array is not None:
            state.update(array.dtype.str.encode())
            state.update(array.tobytes())
    return state.hexdigest()


def _node_file(name: str) -> str:
    return f"{NODES}/{name[:48]}.parquet"
