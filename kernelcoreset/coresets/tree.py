"""Merge-and-reduce: one coreset of a stream of any length, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import (
    Floats,
    check_count,
    check_ids,
    check_rows,
    check_same_dimension,
    check_weights,
)
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.coresets.reduce import Part, concatenate, reduce_part
from kernelcoreset.errors import DataError
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.products import products_pay

_MOST_LEVELS = 8
_CHUNK_ROWS = 131_072
_CHUNK_NUMBERS = 4_194_304  # 32 MiB of coordinates
_MOST_NUMBERS = 8_388_608
_FAN_IN = 16
_MERGED_NUMBERS = 16_777_216  # coordinates of the nodes that are merged at once


class CoresetTree:
    """Builds a coreset of all rows added so far without keeping the rows.

    Rows are collected in chunks of `chunk_size`. Each full chunk is reduced to a leaf of `leaf_size` points. `fan_in`
    nodes of one level are merged and reduced to one node of the next level; the last level merges into itself. So there
    are never more than `8 * fan_in` nodes, however long the stream is. The result depends on the rows, their order and
    the seed, not on how the rows were split into calls of `add`.

    Parameters
    ----------
    k : int
    kernel : Kernel
    size : int
        Points of the final coreset, at least k.
    z : float
    leaf_size : int, optional
        Points that a node keeps, at least `size`; 4 * size by default. Reducing one large union loses less than many
        levels of small nodes, so nodes keep more points than the result.
    chunk_size : int, optional
        Rows reduced at once. By default 131,072, fewer if there are many columns, but at least 8 * leaf_size, or
        2 * leaf_size if these rows are above 8 million numbers.
    fan_in : int, optional
        Nodes merged at once, at least 2. By default 16, fewer if these nodes are above 16 million numbers.
    seed : int

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import CoresetTree, Gaussian
    >>> tree = CoresetTree(k=5, kernel=Gaussian(sigma=1.0), size=200, chunk_size=2_000, seed=0)
    >>> for _ in range(20):
    ...     tree.add(np.random.default_rng(0).normal(size=(1_000, 2)))
    >>> coreset = tree.result()
    >>> len(coreset) <= 200, tree.n_rows
    (True, 20000)
    """

    def __init__(
        self,
        k: int,
        kernel: Kernel,
        size: int,
        *,
        z: float = 2.0,
        leaf_size: int | None = None,
        chunk_size: int | None = None,
        fan_in: int | None = None,
        seed: int = 0,
    ) -> None:
        self.recipe = Recipe(k, kernel, size, z=z, seed=seed)
        self.leaf_size = leaf_size_of(self.recipe.size, leaf_size)
        self.chunk_size = None if chunk_size is None else check_count("chunk_size", chunk_size)
        self.fan_in = None if fan_in is None else check_count("fan_in", fan_in, 2)
        self.n_rows = 0
        self.n_weighted = 0
        self.n_reductions = 0
        self._levels: list[list[Part]] = []
        self._buffer: _Buffer | None = None

    @classmethod
    def from_recipe(cls, recipe: Recipe, leaf_size: int | None = None, fan_in: int | None = None) -> CoresetTree:
        """Return an empty tree whose reductions follow a recipe."""
        tree = cls(recipe.k, recipe.kernel, recipe.size, leaf_size=leaf_size, fan_in=fan_in)
        tree.recipe = recipe
        return tree

    @property
    def k(self) -> int:
        """Number of clusters the coreset is for."""
        return self.recipe.k

    @property
    def kernel(self) -> Kernel:
        """The kernel the coreset is for."""
        return self.recipe.kernel

    @property
    def size(self) -> int:
        """Number of points of the final coreset."""
        return self.recipe.size

    @property
    def z(self) -> float:
        """Exponent of the distances."""
        return self.recipe.z

    @property
    def seed(self) -> int:
        """The seed of the tree; every reduction has one of its own, derived from it."""
        return self.recipe.seed

    def add(self, points: ArrayLike, weights: ArrayLike | None = None, ids: ArrayLike | None = None) -> None:
        """Add rows.

        Parameters
        ----------
        points : array-like of shape (m, d)
        weights : array-like of shape (m,), optional
        ids : array-like of shape (m,), optional
            Give ids in every call or in none.
        """
        points = check_rows(points, allow_empty=True)
        weights = check_weights(weights, len(points), allow_all_zero=True)
        ids = check_ids(ids, len(points))
        buffer = self._buffer_for(points, ids)
        start = 0
        while start < len(points):
            start += buffer.fill(points[start:], weights[start:], None if ids is None else ids[start:])
            if buffer.is_full:
                leaf = self._leaf(buffer)
                buffer.clear()  # before nodes are merged: its memory is needed there
                self._add_node(leaf, level=0)
        self.n_rows += len(points)
        self.n_weighted += int(np.count_nonzero(weights))

    def result(self, size: int | None = None, *, refine: bool = True) -> Coreset:
        """Return the coreset of all rows so far. More rows can be added afterwards.

        Parameters
        ----------
        size : int, optional
            Size of this result if it differs from the tree's, at least k.
        refine : bool
            Whether to refine the draw by halving. Not worth its time if the result is merged and reduced again.

        Returns
        -------
        Coreset
        """
        recipe = self.recipe.varied(size=size)
        part = self.part(size, refine=refine)
        settings = recipe.varied(seed=self._seed(is_result=True)).settings
        return Coreset(part.points, part.weights, part.ids, settings)

    def part(self, size: int | None = None, *, refine: bool = True) -> Part:
        """Return `result` with the points in the type of the rows, to be merged with others."""
        return self._reduce(*concatenate(self._parts()), self.recipe.varied(size=size).size, refine, is_result=True)

    def last_part(self, size: int | None = None, *, refine: bool = True) -> Part:
        """Return `part` and forget all rows first, to need less memory: nothing can be added afterwards."""
        nodes = self._parts()
        self._levels, self._buffer = [], None
        union = concatenate(nodes)
        del nodes
        return self._reduce(*union, self.recipe.varied(size=size).size, refine, is_result=True)

    def add_part(self, part: Part) -> None:
        """Add a coreset of other rows as a node."""
        self.n_weighted += len(part)
        self._add_node(part, level=0)

    def nodes(self) -> list[Coreset]:
        """Return the coresets whose union represents all rows so far."""
        return [Coreset(part.points, part.weights, part.ids, self.recipe.settings) for part in self._parts()]

    def _parts(self) -> list[Part]:
        nodes = [node for level in reversed(self._levels) for node in level]
        if self._buffer is not None and self._buffer.filled:
            nodes.append(self._leaf(self._buffer))
        if not any(len(node) for node in nodes):
            raise DataError("A coreset needs at least one row of positive weight; none was added. Call `add` first.")
        return nodes

    def _buffer_for(self, points: NDArray[Any], ids: NDArray[Any] | None) -> _Buffer:
        d = points.shape[1]
        if self._buffer is None:
            rows = self.chunk_size or _chunk_rows(d, self.leaf_size)
            kind = points.dtype if products_pay(self.kernel, d) else None
            self._buffer = _Buffer(d, rows, kind, ids is not None)
        check_same_dimension("points", d, self._buffer.points.shape[1], "the rows before")
        if (ids is not None) != self._buffer.with_ids:
            raise DataError("`ids` must be given in every call of `add` or in none; this call differs from the first.")
        return self._buffer

    def _leaf(self, buffer: _Buffer) -> Part:
        return self._reduce(*buffer.rows(), self.leaf_size)

    def _reduce(
        self,
        points: NDArray[Any],
        weights: Floats,
        ids: NDArray[Any] | None,
        size: int,
        refine: bool = False,
        is_result: bool = False,
    ) -> Part:
        recipe = self.recipe.varied(size=size, seed=self._seed(is_result))
        return reduce_part(points, weights, ids, recipe, refine=refine, of_coresets=is_result)

    def _seed(self, is_result: bool) -> int:
        """The seed of a reduction depends only on the tree's seed and the number of reductions so far."""
        return reduction_seed(self.recipe.seed, self.n_reductions, int(is_result))

    def _add_node(self, node: Part, level: int) -> None:
        """Add a node to a level. A full level becomes one node of the next level; the last level merges into itself."""
        self.n_reductions += 1
        if not len(node):  # all rows had weight 0
            return
        if level == len(self._levels):
            self._levels.append([])
        nodes = self._levels[level]
        nodes.append(node)
        if len(nodes) == (self.fan_in or _fan_in(self.leaf_size * node.points.shape[1])):
            union = concatenate(nodes)
            nodes.clear()  # before the reduction: its memory is needed there
            merged = self._reduce(*union, self.leaf_size)
            del union
            self._add_node(merged, min(level + 1, _MOST_LEVELS - 1))


def reduction_seed(*path: int) -> int:
    """Return the seed of one reduction, derived from the tree's seed and the position of the reduction in the tree."""
    return int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0])


def _chunk_rows(d: int, leaf_size: int) -> int:
    least = min(8 * leaf_size, max(2 * leaf_size, _MOST_NUMBERS // d))
    return max(least, min(_CHUNK_ROWS, _CHUNK_NUMBERS // d))


def _fan_in(node_numbers: int) -> int:
    return min(_FAN_IN, max(2, _MERGED_NUMBERS // node_numbers))


class _Buffer:
    """The rows of an unfinished chunk: as columns in float64 for compiled loops, or as rows for matrix products.

    If `kind` is given, they are rows of this type, or of a wider one if a later row needs it.
    """

    def __init__(self, d: int, rows: int, kind: np.dtype[Any] | None, with_ids: bool) -> None:
        self.with_ids = with_ids
        self._shape, self._kind = (rows, d), kind
        self.clear()

    def clear(self) -> None:
        """Forget all rows, and give their memory back."""
        rows, d = self._shape
        self.points: NDArray[Any] = np.empty((d, rows)).T if self._kind is None else np.empty((rows, d), self._kind)
        self.weights = np.empty(rows)
        self.ids: list[NDArray[Any]] = []
        self.filled = 0

    @property
    def is_full(self) -> bool:
        return self.filled == len(self.weights)

    def fill(self, points: NDArray[Any], weights: Floats, ids: NDArray[Any] | None) -> int:
        """Add as many rows as there is room for, and return how many."""
        taken = min(len(points), len(self.weights) - self.filled)
        room = slice(self.filled, self.filled + taken)
        if not np.can_cast(points.dtype, self.points.dtype):
            self._kind = np.result_type(points.dtype, self.points.dtype)
            self.points = self.points.astype(self._kind)
        self.points[room] = points[:taken]
        self.weights[room] = weights[:taken]
        if ids is not None:
            self.ids.append(ids[:taken].copy())  # the caller may change its array
        self.filled += taken
        return taken

    def rows(self) -> tuple[NDArray[Any], Floats, NDArray[Any] | None]:
        """Return points, weights and ids. The points are a view."""
        ids = np.concatenate(self.ids) if self.with_ids else None
        return self.points[: self.filled], self.weights[: self.filled], ids
