"""Blocks of rows of a graph: packed from edges, kept as bytes, and what is done in one block at a time.

Block b has the rows of the nodes b * width to (b + 1) * width - 1, with all their neighbours, so each edge is in one
block per direction. Executors make and visit blocks; the driver never has all of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.graphs.csr import Indices, Nodes, Rows, ShortLabels
from kernelcoreset.graphs.moves import improve, measure

Arrays = list[NDArray[Any]]

# Whole numbers up to this are kept in one byte: most graphs have no weights but for edges given several times.
_MOST_BYTE = 255
_NODE_BITS = 31


class Chunk(NamedTuple):
    """Entries of some edges that belong to one block: row within the block, neighbour, weight (None: all are 1)."""

    block: int
    places: Nodes
    neighbours: Nodes
    weights: Floats | None


class Block(NamedTuple):
    """Rows of the nodes from `first` on.

    `indices` of the rows are numbers of nodes in the whole graph. `named` says which nodes any edge names, also one of
    weight 0.
    """

    first: int
    rows: Rows
    degrees: Floats
    loops: Floats
    named: NDArray[np.bool_]


def pack_edges(source: Indices, target: Indices, weights: Floats | None, width: int) -> Iterator[Chunk]:
    """Return the entries of these edges, each in both directions and a self-loop once, by block."""
    apart = source != target
    nodes = np.concatenate([source, target[apart]])
    neighbours = np.concatenate([target, source[apart]]).astype(np.int32)
    blocks = nodes // width
    if blocks.max(initial=0) < 2**15:
        blocks = blocks.astype(np.int16)  # numpy sorts these by counting, in linear time
    order = np.argsort(blocks, kind="stable")
    places = (nodes - blocks.astype(np.int64) * width).astype(np.int32)[order]
    neighbours = neighbours[order]
    both = None if weights is None else np.concatenate([weights, weights[apart]])[order]
    numbers, starts = np.unique(blocks[order], return_index=True)
    bounds = np.append(starts, len(order))
    for number, low, high in zip(numbers.tolist(), bounds[:-1], bounds[1:], strict=True):
        yield Chunk(number, places[low:high], neighbours[low:high], None if both is None else both[low:high])


def assemble(chunks: Sequence[Chunk], width: int, n: int) -> Block:
    """Return the block of all its chunks: rows sorted, weights of an edge given several times added, zeros dropped.

    Does not depend on the order of the chunks.
    """
    first = chunks[0].block * width
    count = min(width, n - first)
    keys = np.concatenate([(chunk.places.astype(np.int64) << _NODE_BITS) | chunk.neighbours for chunk in chunks])
    if all(chunk.weights is None for chunk in chunks):
        keys.sort()
        begins = _first_of_each(keys)
        weights = np.diff(begins, append=len(keys)).astype(np.float64)
    else:
        given = np.concatenate([np.ones(len(c.places)) if c.weights is None else c.weights for c in chunks])
        # Equal keys by weight: a sum of the same numbers in another order could round differently.
        order = np.lexsort((given, keys))
        keys = keys[order]
        begins = _first_of_each(keys)
        weights = np.add.reduceat(given[order], begins)
    keys = keys[begins]
    places = keys >> _NODE_BITS
    named = np.zeros(count, dtype=np.bool_)
    named[places] = True
    there = weights > 0.0
    keys, places, weights = keys[there], places[there], weights[there]
    neighbours = (keys & (2**_NODE_BITS - 1)).astype(np.int32)
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(places, minlength=count), out=starts[1:])
    own = neighbours == places + first
    loops: Floats = np.bincount(places[own], weights[own], minlength=count).astype(np.float64)
    degrees: Floats = np.bincount(places, weights, minlength=count).astype(np.float64)
    return Block(first, Rows(starts, neighbours, weights), degrees, loops, named)


def _first_of_each(keys: Indices) -> Indices:
    """Return where each of the different sorted keys stands first."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))


# --- blocks and results as bytes --------------------------------------------------------------------------------------


def to_bytes(arrays: Iterable[NDArray[Any]]) -> bytes:
    """Return arrays as bytes for `from_bytes`, without pickles."""
    out = io.BytesIO()
    for array in arrays:
        np.save(out, array, allow_pickle=False)
    return out.getvalue()


def from_bytes(content: bytes) -> Arrays:
    """Return the arrays that `to_bytes` got."""
    source, arrays = io.BytesIO(content), []
    while source.tell() < len(content):
        arrays.append(np.load(source, allow_pickle=False))
    return arrays


def pack_block(block: Block) -> bytes:
    """Return a block as bytes, 5 per entry if all weights are small whole numbers, 12 otherwise."""
    data: NDArray[Any] = block.rows.data
    if len(data) and data.max() <= _MOST_BYTE and (data == np.trunc(data)).all():
        data = data.astype(np.uint8)
    first = np.array([block.first])
    return to_bytes([first, block.rows.starts, block.rows.indices, data, block.degrees, block.loops, block.named])


def unpack_block(content: bytes) -> Block:
    """Return the block that `pack_block` got."""
    first, starts, indices, data, degrees, loops, named = from_bytes(content)
    return Block(int(first[0]), Rows(starts, indices, data.astype(np.float64)), degrees, loops, named)


# --- what is done in one block ----------------------------------------------------------------------------------------


def describe_block(block: Block) -> Arrays:
    """Return first node, degrees, self-loops, which nodes are named, and the number of entries."""
    return [np.array([block.first, len(block.rows.indices)]), block.degrees, block.loops, block.named]


def rows_in_block(nodes: Nodes, block: Block) -> Arrays:
    """Return, for those of the sorted nodes that are in the block: nodes, lengths of their rows, indices and data."""
    low, high = np.searchsorted(nodes, [block.first, block.first + len(block.degrees)])
    places = nodes[low:high] - block.first
    starts = block.rows.starts
    lengths = starts[places + 1] - starts[places]
    entries = entries_of(starts[places], lengths)
    return [nodes[low:high], lengths, block.rows.indices[entries], block.rows.data[entries]]


def entries_of(starts: Indices, lengths: Indices) -> Indices:
    """Return the concatenated ranges starts[i], ..., starts[i] + lengths[i] - 1."""
    before = np.cumsum(lengths) - lengths
    entries: Indices = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return entries


def measure_block(labels: ShortLabels, k: int, block: Block) -> Arrays:
    """Return what the block adds to volume and inner weight of each cluster."""
    return list(measure(block.first, block.rows, block.degrees, labels, k, np.empty(0)))


def improve_block(labels: ShortLabels, volumes: Floats, inner: Floats, block: Block) -> Arrays:
    """Move single nodes of the block as if all other blocks stayed; return the nodes that moved and their clusters."""
    first, count = block.first, len(block.degrees)
    mine = labels.copy()
    waiting = np.ones(count, dtype=np.bool_)
    improve(first, block.rows, block.degrees, mine, volumes.copy(), inner.copy(), waiting, True)
    moved = first + np.flatnonzero(mine[first : first + count] != labels[first : first + count])
    return [moved.astype(np.int32), mine[moved]]
