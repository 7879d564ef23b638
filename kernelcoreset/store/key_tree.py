"""The tree over the keys of a store. Its shape depends on the keys alone, not on the order in which they came.

The hash of a key is a sequence of hexadecimal digits. All keys are below the root. If a node has more than
`MOST_LEAVES` keys below it, they are divided among 16 children by their next digit. So adding or removing a key changes
only the nodes on its own path, about log_16 of the number of keys.

A node's name is a digest of its input, above all of the names of its children. If anything below a node changes, its
name changes too, so a file of that name never gets outdated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_LEAVES = 32
# A key whose factor is below this share of the largest adds less than the rounding error.
LEAST_SHARE = 1e-15
_DIGITS = 9  # significant digits of the ratio between two factors


@dataclass(frozen=True)
class Leaf:
    """A key in the tree."""

    key: str
    name: str
    """Digest of its content."""
    scale: float = 1.0
    """Factor of its weights."""


@dataclass(frozen=True)
class Node:
    """Nodes, or at most `MOST_LEAVES` leaves, that are merged into one coreset."""

    prefix: str
    """The first digits of all hashes below it."""
    parts: tuple[tuple[Leaf | Node, float], ...]
    """Its children, each with a factor for its weights."""
    name: str
    scale: float
    """Factor of the weights of its coreset."""


def grow(leaves: Sequence[Leaf], context: Any = None) -> Node:
    """Return the root of the tree over at least one leaf.

    Parameters
    ----------
    leaves : sequence of Leaf
        With different keys, in any order.
    context : plain data
        Everything else that the merged nodes depend on; it becomes part of their names.
    """
    hashed = sorted((digest(leaf.key), leaf) for leaf in leaves)
    return _node(hashed, "", context)


def digest(value: Any) -> str:
    """Return the SHA-256 of plain data, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _node(hashed: Sequence[tuple[str, Leaf]], prefix: str, context: Any) -> Node:
    children: list[Leaf | Node]
    if len(hashed) <= MOST_LEAVES:
        children = [leaf for _, leaf in hashed]
    else:
        depth = len(prefix)
        groups: dict[str, list[tuple[str, Leaf]]] = {}
        for pair in hashed:
            groups.setdefault(pair[0][depth], []).append(pair)
        children = [_node(group, prefix + digit, context) for digit, group in groups.items()]
    # Scales are relative and rounded. With exponential decay all factors shrink by the same ratio from day to day: then
    # the names change only on the path of a new key.
    scale = max(child.scale for child in children)
    parts = tuple((child, float(f"{child.scale / scale:.{_DIGITS}g}")) for child in children)
    name = digest([context, prefix, [[child.name, factor] for child, factor in parts]])
    return Node(prefix, parts, name, scale)
