"""The keys of micro-batches in a store: as they get older, the leaves of several are merged into one."""

from __future__ import annotations

from kernelcoreset.coresets.build import merge_coresets
from kernelcoreset.store.store import CoresetStore, LeafUpdate


def key_of(level: int, first: int, last: int) -> str:
    """Return the key of the micro-batches first, ..., last, whose leaves have been merged `level` times."""
    return f"{level}:{first:012d}-{last:012d}"


def compacted(store: CoresetStore, key: str, leaf: LeafUpdate, fan_in: int) -> tuple[dict[str, LeafUpdate], list[str]]:
    """Return what to put and what to expire in order to add a leaf; if its level is then full, it is merged.

    `fan_in` keys of one level become one key of the next. There are at most (fan_in - 1) log_fan_in(micro-batches)
    keys, so the memory and time that a micro-batch takes stay nearly constant.
    """
    expired: list[str] = []
    level = 0
    while True:
        siblings = [name for name in store.keys() if name.startswith(f"{level}:")]  # noqa: SIM118
        if len(siblings) + 1 < fan_in:
            return {key: leaf}, expired
        parts = [part for name in siblings if (part := store.leaf(name)) is not None]
        parts += [] if leaf.coreset is None else [leaf.coreset]
        rows = sum(store.info(name)["rows"] for name in siblings) + (leaf.rows or 0)
        first, last = min([*siblings, key]).partition(":")[2][:12], key[-12:]
        level += 1
        key = key_of(level, int(first), int(last))
        merged = merge_coresets(parts, store.k, store.kernel, store.leaf_size, z=store.z, seed=store.leaf_seed(key))
        leaf = LeafUpdate(merged, rows=rows)
        expired += siblings
