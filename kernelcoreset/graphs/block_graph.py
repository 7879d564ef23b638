"""A graph whose rows are elsewhere, in blocks: one process has what is per node, and asks for the rows that walks pass.

Walks pass few rows, and each sweep over all rows visits the blocks independently. So a graph takes a hundred bytes per
node here, whatever the number of its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.graphs.blocks import (
    Arrays,
    Block,
    describe_block,
    entries_of,
    improve_block,
    measure_block,
    rows_in_block,
)
from kernelcoreset.graphs.csr import Indices, Rows, ShortLabels
from kernelcoreset.graphs.graph import Graph, check_degrees


class Blocks(Protocol):
    """The blocks of a graph, wherever they are."""

    def each(self, work: Callable[[Block], Arrays]) -> Iterable[Arrays]:
        """Return the result of `work` for every block, in any order."""


class BlockGraph(Graph):
    """A graph in blocks, for `fit_graph`. `rows` holds only the rows that were asked for so far.

    Parameters
    ----------
    blocks : Blocks
    n : int
        Number of nodes, named by an edge or not.

    Attributes
    ----------
    named : ndarray of shape (n,)
        Which nodes are named by an edge, be it of weight 0.

    Notes
    -----
    A sweep moves the nodes of a block one after the other, and all blocks at the same time. If that does not lower the
    normalized cut it is undone, and the moves end.
    """

    def __init__(self, blocks: Blocks, n: int) -> None:
        degrees, loops = np.zeros(n), np.zeros(n)
        self.named = np.zeros(n, dtype=np.bool_)
        self._blocks, self._entries = blocks, 0
        for about, *parts in blocks.each(describe_block):
            first, entries = about.tolist()
            self._entries += entries
            for whole, part in zip((degrees, loops, self.named), parts, strict=True):
                whole[first : first + len(part)] = part
        check_degrees(degrees)
        super().__init__(_no_rows(n), degrees, loops)
        self._here = np.zeros(n, dtype=np.bool_)

    @property
    def n_edges(self) -> int:
        return (self._entries + int(np.count_nonzero(self.loops))) // 2

    def near(self, nodes: Indices, hops: int) -> Rows:
        """Fetch the rows that walks of `hops` steps from these nodes pass, in one visit of all blocks per step."""
        for hop in range(hops):
            nodes = np.unique(nodes)
            self._fetch(nodes[~self._here[nodes]])
            if hop + 1 < hops:
                starts = self.rows.starts
                nodes = self.rows.indices[entries_of(starts[nodes], starts[nodes + 1] - starts[nodes])].astype(np.int64)
        return self.rows

    def measure(self, labels: ShortLabels, k: int) -> tuple[Floats, Floats]:
        inner = np.zeros(k)
        for _, part in self._blocks.each(partial(measure_block, labels, k)):
            inner += part
        labelled = labels >= 0
        volumes: Floats = np.bincount(labels[labelled], self.degrees[labelled], minlength=k).astype(np.float64)
        return volumes, inner

    def sweep(
        self, labels: ShortLabels, volumes: Floats, inner: Floats, waiting: NDArray[np.bool_], *, whole: bool
    ) -> int:
        k, before = len(volumes), labels.copy()
        for moved, clusters in self._blocks.each(partial(improve_block, before, volumes, inner)):
            labels[moved] = clusters
        new_volumes, new_inner = self.measure(labels, k)
        reached = np.count_nonzero(before < 0) - np.count_nonzero(labels < 0)
        # Blocks do not see each other's moves: together they can empty a cluster, or move two ends of an edge apart.
        if not (new_volumes > 0.0).all() or (
            not reached and np.sum(new_inner / new_volumes) <= np.sum(inner / volumes)
        ):
            labels[:] = before
            return 0
        volumes[:], inner[:] = new_volumes, new_inner
        return int(np.count_nonzero(labels != before))

    def first_sweep(self, labels: ShortLabels, volumes: Floats, inner: Floats, waiting: NDArray[np.bool_]) -> int:
        return self.sweep(labels, volumes, inner, waiting, whole=True)

    def fill(self, labels: ShortLabels, volumes: Floats, inner: Floats) -> None:
        left = np.flatnonzero((labels < 0) & (self.degrees > 0.0))
        if len(left):
            self.near(left, 1)
            super().fill(labels, volumes, inner)
            volumes[:], inner[:] = self.measure(labels, len(volumes))

    def _fetch(self, nodes: Indices) -> None:
        """Add the rows of these nodes, which are not here yet, to `rows`."""
        if not len(nodes):
            return
        parts = [self._rows_here(), *self._blocks.each(partial(rows_in_block, nodes.astype(np.int32)))]
        known, lengths, indices, data = (np.concatenate(column) for column in zip(*parts, strict=True))
        counts = np.zeros(len(self.degrees), dtype=np.int64)
        counts[known] = lengths
        starts = np.concatenate([[0], np.cumsum(counts)])
        at = entries_of(starts[known], lengths)
        rows = Rows(starts, np.empty(len(at), dtype=np.int32), np.empty(len(at)))
        rows.indices[at], rows.data[at] = indices, data
        self.rows = rows
        self._here[nodes] = True

    def _rows_here(self) -> Arrays:
        known = np.flatnonzero(self._here).astype(np.int32)
        lengths = np.diff(self.rows.starts)[known]
        return [known, lengths, self.rows.indices, self.rows.data]


def _no_rows(n: int) -> Rows:
    return Rows(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0))
