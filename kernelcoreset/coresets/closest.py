"""The nearest of some pivots for many rows, from blocks of matrix products or of distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Ints
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.loops.products import Reals
from kernelcoreset.kernels.loops.tiles import FAST
from kernelcoreset.kernels.products import Products, Rows


class Closest:
    """The nearest of some pivots, the one after it and the first one, for many rows, block by block.

    If the distance of a kernel grows with |x - y|, the nearest pivot is found by |x - y|^2, and only three kernel
    values per row are evaluated.

    Parameters
    ----------
    products : Products
        The prepared pivots.
    n : int
        Number of rows.
    space : ndarray
        Memory for a block: at least `products.block_rows` numbers per pivot, of the precision of the products.
    """

    def __init__(self, products: Products, n: int, space: Reals) -> None:
        self.products = products
        self.at = np.empty(n, dtype=np.int32)
        self._space = space
        self._found: Reals = np.empty((3, n), dtype=space.dtype)
        self._keys: Reals = np.empty(len(products), dtype=space.dtype)
        self._bits: Ints = self._keys.view(f"i{space.dtype.itemsize}")

    def find(self, rows: Rows, count: int, some: slice) -> None:
        """Compare a block of rows with the first `count` prepared pivots."""
        pivots, size, m = self.products.points, some.stop - some.start, len(self.products)
        space, found = self._space[: m * size], [part[some] for part in self._found]
        if self.products.exact:
            # In this layout BLAS takes a third less time than in that of `Products.inner`.
            block = np.matmul(rows.vectors, pivots.vectors.T, out=space.reshape(size, m))
            keys = self._keys, self._bits
            closest_by_squares(block, pivots.side.norms, rows.side.norms, count, *keys, self.at[some], *found)
        else:
            closest(self.products.squared_distances(rows, space.reshape(m, size)), count, self.at[some], *found)

    def distances(self) -> Reals:
        """Return the squared distances to the three pivots, shape (3, n)."""
        return self.products.distances_of_squares(self._found) if self.products.exact else self._found


def closest_among(block: Reals, count: int) -> tuple[NDArray[np.int32], Reals]:
    """Return the nearest of the first `count` pivots, and distances to it, the next one (or 0) and the first one.

    `block` has the squared distances of shape (pivots, n), the result shapes (n,) and (3, n).
    """
    at, found = np.empty(block.shape[1], dtype=np.int32), np.empty((3, block.shape[1]), dtype=block.dtype)
    closest(block, count, at, *found)
    return at, found


@compiled(fastmath=FAST)
def closest(block: Reals, count: int, at: Ints, nearest: Reals, following: Reals, start: Reals) -> None:
    """Find the least block[r, i] over the first `count` r: a squared distance.

    `at` is this r, `following` the distance of r + 1, or 0 if there is none, and `start` that of r = 0.
    """
    zero = block.dtype.type(0.0)
    for i in range(len(at)):
        nearest[i] = np.inf
        at[i] = 0
    # Two rows at a time: if what is stored depends on the old value alone, processors store only some lanes, slowly.
    for r in range(0, count, 2):
        s = min(r + 1, count - 1)
        one, two = block[r], block[s]
        index, other_index = np.int32(r), np.int32(s)
        for i in range(one.shape[0]):
            closer = one[i] < nearest[i]
            least, place = one[i] if closer else nearest[i], index if closer else at[i]
            closer = two[i] < least
            nearest[i] = two[i] if closer else least
            at[i] = other_index if closer else place
    for i in range(len(at)):
        after = at[i] + 1
        start[i] = block[0, i]
        following[i] = block[after, i] if after < len(block) else zero


@compiled(fastmath=FAST)
def closest_by_squares(
    block: Reals,
    norms: Reals,
    own: Reals,
    count: int,
    keys: Reals,
    bits: Any,
    at: Ints,
    nearest: Reals,
    following: Reals,
    start: Reals,
) -> None:
    """As `closest`, of own[i] + (norms[r] - 2 block[i, r]): squares of distances. None is below 0.

    `keys` is working space, and `bits` is the same memory as whole numbers.
    """
    zero, two = block.dtype.type(0.0), block.dtype.type(2.0)
    whole = bits.dtype.type
    sign, most = whole(8 * bits.itemsize - 1), whole(np.iinfo(bits.dtype).max)
    for i in range(len(at)):
        products = block[i]
        for r in range(count):
            keys[r] = norms[r] - two * products[r]
        # The least of whole numbers is found by vectors, that of floats is not: with all bits of a negative number but
        # its sign turned, both have the same order.
        least = most
        for r in range(count):
            key = whole(bits[r] ^ ((bits[r] >> sign) & most))
            bits[r] = key
            least = min(least, key)
        place = whole(count - 1)
        for r in range(count):
            place = min(place, whole(r) if bits[r] == least else whole(count - 1))
        after = place + 1
        at[i] = place
        nearest[i] = max(own[i] + (norms[place] - two * products[place]), zero)
        start[i] = max(own[i] + (norms[0] - two * products[0]), zero)
        following[i] = max(own[i] + (norms[after] - two * products[after]), zero) if after < len(norms) else zero
