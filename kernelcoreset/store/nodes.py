"""The nodes of a store: coresets merged along the tree over its keys, cached under names made of their content."""

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
from kernelcoreset.store.key_tree import LEAST_SHARE, Leaf, Node, digest, grow
from kernelcoreset.store.leaves import read_leaf
from kernelcoreset.store.manifest import Manifest

NODES = "nodes"
_TREE_VERSION = 1  # goes into the names of cached nodes: raise it when they are merged in another way


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


def _node_file(name: str) -> str:
    return f"{NODES}/{name[:48]}.parquet"
