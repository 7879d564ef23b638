"""The tree over the keys of a store: its shape follows from the keys alone, so their order of arrival leaves no trace.

The hash of a key is a row of hexadecimal digits. All keys hang below the root; where more than `MOST_LEAVES` hang
below a node, they are shared out to 16 children by their next digit. So a key that comes or goes changes the nodes on
its own path and no others, about log_16 of the number of keys.

A node's name is a digest of what goes into it, the names of its children above all. What is kept under that name is
right for ever, and where anything below changes, the name does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_LEAVES = 32
# A factor of a key below this share of the largest adds nothing but rounding.
LEAST_SHARE = 1e-15
_DIGITS = 9  # of the ratio between two factors


@dataclass(frozen=True)
class Leaf:
    """A key's place in the tree."""

    key: str
    name: str
    """Digest of its content."""
    scale: float = 1.0
    """What its weights are multiplied by."""


@dataclass(frozen=True)
class Node:
    """What is merged to one coreset: nodes, or at most `MOST_LEAVES` leaves."""

    prefix: str
    """The digits that all keys below it begin with."""
    parts: tuple[tuple[Leaf | Node, float], ...]
    """Its children, each with the factor of its weights."""
    name: str
    scale: float
    """What the weights of its own coreset are multiplied by."""


def grow(leaves: Sequence[Leaf], context: Any = None) -> Node:
    """Return the root of the tree over some leaves, at least one.

    Parameters
    ----------
    leaves : sequence of Leaf
        Of different keys, in any order.
    context : plain data
        Whatever else decides how nodes are merged; it goes into their names.
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
    # Scales are kept relative, and rounded: where all factors shrink alike from day to day, as they do by exponential
    # decay, every node but those on the path of a new key stays what it was.
    scale = max(child.scale for child in children)
    parts = tuple((child, float(f"{child.scale / scale:.{_DIGITS}g}")) for child in children)
    name = digest([context, prefix, [[child.name, factor] for child, factor in parts]])
    return Node(prefix, parts, name, scale)
