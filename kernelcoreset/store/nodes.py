"""The nodes of a store: coresets merged along the tree over its keys, cached in files named by their content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelcoreset.checks import check_factor
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_union
from kernelcoreset.errors import FormatError
from kernelcoreset.files.folder import Folder
from kernelcoreset.files.tables import table_from_bytes, table_to_bytes
from kernelcoreset.store.key_tree import LEAST_SHARE, Leaf, Node, digest, grow
from kernelcoreset.store.leaves import read_leaf
from kernelcoreset.store.manifest import Manifest

NODES = "nodes"
_NAME = b"kernelcoreset.node"
_TREE_VERSION = 1  # part of the names of cached nodes: raise it when the way of merging changes


class CoresetCache:
    """The coresets used last, by the names of their files. Names are made of the content, so no entry gets outdated.

    Parameters
    ----------
    most_numbers : int
        Coordinates to keep in memory, by default 64 MiB of them.
    """

    def __init__(self, most_numbers: int = 8 * 1024**2) -> None:
        self._most_numbers = most_numbers
        self._numbers = 0
        self._coresets: dict[str, Coreset] = {}  # least recently used first

    def get(self, name: str, make: Callable[[], Coreset]) -> Coreset:
        """Return the coreset of a name; `make` is called if it is not in the cache."""
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
class MergeTree:
    """The tree over the leaves of one version of a store, merged node by node."""

    folder: Folder
    manifest: Manifest
    recipe: Recipe
    cache: CoresetCache

    def weighted_leaves(self, keys: Iterable[str], weight_of: Callable[[str], float] | None) -> list[Leaf]:
        """Return the leaves of some keys, each with its factor. Empty leaves and those of weight 0 are left out."""
        entries = self.manifest.leaves
        full = [key for key in dict.fromkeys(keys) if entries[key]["file"] is not None]
        scales = {key: 1.0 if weight_of is None else check_factor(key, weight_of(key)) for key in full}
        least = LEAST_SHARE * max(scales.values(), default=0.0)
        return [Leaf(key, entries[key]["content"], scales[key]) for key in full if scales[key] > least]

    def result(self, leaves: Sequence[Leaf], size: int) -> Coreset:
        """Return the coreset of some leaves, refined. It is cached like a node."""
        root = grow(leaves, self._context)
        found = self._cached(
            self._result_name(root, size),
            lambda: self._merge(root, self.recipe.varied(size=size, seed=self.seed("result", root.name)), refine=True),
        )
        settings = {**found.settings, "seed": self.recipe.seed}
        return replace(found, weights=found.weights * root.scale, settings=settings)

    def files(self) -> Iterator[str]:
        """Yield the names of all files of this version: its leaves, and the nodes that `result` of all keys reads."""
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
        """Return the seed of a leaf, node or result. Each has its own: a draw from a draw needs independent numbers.

        The name of a node or result depends on all leaves below it, and so does its seed. So even a result may be put
        into the store again.
        """
        return int(digest([self.recipe.seed, *what])[:16], 16)

    @property
    def _context(self) -> Any:
        return [_TREE_VERSION, dict(self.manifest.settings)]

    def _result_name(self, root: Node, size: int) -> str:
        return digest([root.name, "result", size])

    def _merge(self, node: Node, recipe: Recipe, *, refine: bool) -> Coreset:
        """One coreset of a node's children, each read from the cache or merged first."""
        parts = []
        for child, factor in node.parts:
            coreset = self._node(child) if isinstance(child, Node) else self._leaf(child.key)
            parts.append(coreset if factor == 1.0 else replace(coreset, weights=coreset.weights * factor))
        return reduce_union(parts, recipe, refine=refine)

    def _leaf(self, key: str) -> Coreset:
        file = self.manifest.leaves[key]["file"]
        return self.cache.get(file, lambda: read_leaf(self.folder, self.manifest, key))

    def _node(self, node: Node) -> Coreset:
        # As many points as a leaf: on 15 million rows, nodes of two to eight times the size were no better.
        recipe = self.recipe.varied(size=self.manifest.settings["leaf_size"], seed=self.seed("node", node.name))
        return self._cached(node.name, lambda: self._merge(node, recipe, refine=False))

    def _cached(self, name: str, make: Callable[[], Coreset]) -> Coreset:
        """A node by its name. If its file is missing or damaged it is merged again, with the same result."""
        file = _node_file(name)

        def read_or_make() -> Coreset:
            try:
                return _read_node(self.folder.read(file), file)
            except (FileNotFoundError, FormatError):
                coreset = make()
            self.folder.write(file, _node_bytes(coreset, file), durable=False)
            return coreset

        return self.cache.get(file, read_or_make)


def _node_bytes(coreset: Coreset, file: str) -> bytes:
    """The file of a node. It holds its own name, so that no other file can take its place."""
    table = coreset.to_arrow()
    return table_to_bytes(table.replace_schema_metadata({**table.schema.metadata, _NAME: file}))


def _read_node(content: bytes, file: str) -> Coreset:
    table = table_from_bytes(content, file)
    if (table.schema.metadata or {}).get(_NAME) != file.encode():
        raise FormatError(f"{file} holds another node, or an earlier version wrote it.")
    return Coreset.from_arrow(table)


def _node_file(name: str) -> str:
    return f"{NODES}/{name[:48]}.parquet"
