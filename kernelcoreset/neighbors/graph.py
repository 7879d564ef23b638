"""A graph of nearest neighbors with locally scaled weights: similarities that need no width.

Each point gets a scale of its own, the distance to its 7th nearest neighbor, so tight and wide groups are treated
alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.families import Linear

NEIGHBORS = 15
"""Neighbors that a point has edges to."""
SCALE_RANK = 7
"""The neighbor whose distance is the scale of a point."""

# The least weight of an edge is exp(-5). Without a limit, a few outliers that are close to each other, compared with
# the rest, would make a cluster.
_LARGEST_EXPONENT = 5.0
# Weight of the edge that links two components, beside weights of about 1: it decides only what components are joined.
_LINK = 1e-3


def neighbor_graph(points: Floats, weights: Floats) -> Any:
    """Return the similarities of points to their nearest neighbors, a symmetric sparse matrix of shape (s, s).

    A(x, y) = exp(-d(x, y)^2 / (s_x s_y)), at least exp(-5), if x is one of the 15 nearest neighbors of y or y is one
    of x; else 0. s_x is the distance from x to its 7th neighbor. Rows and columns are multiplied by the root of the
    weights. Components are linked by single weak edges, the closest ones first, so that the graph is connected.

    Parameters
    ----------
    points : ndarray of shape (s, d)
        Distinct, s at least 2. Assumes validated input.
    weights : ndarray of shape (s,)
        Above 0.

    Returns
    -------
    scipy.sparse.csr_array

    Notes
    -----
    Takes s^2 distances and s^2 floats of memory.

    Examples
    --------
    >>> import numpy as np
    >>> neighbor_graph(np.array([[0.0], [1.0], [2.0]]), np.ones(3)).toarray().round(2)
    array([[0.  , 0.61, 0.37],
           [0.61, 0.  , 0.61],
           [0.37, 0.61, 0.  ]])
    """
    from scipy.sparse import csr_array  # slow to import, and executors build no graphs

    s = len(points)
    squared = Linear().squared_distances(points, points)
    np.fill_diagonal(squared, np.inf)
    count = min(NEIGHBORS, s - 1)
    nearest = np.argpartition(squared, count - 1, axis=1)[:, :count]
    own = np.take_along_axis(squared, nearest, axis=1)
    scales = np.sqrt(np.partition(own, min(SCALE_RANK, count) - 1, axis=1)[:, min(SCALE_RANK, count) - 1])
    exponents = np.sqrt(own) / scales[:, np.newaxis] * (np.sqrt(own) / scales[nearest])
    values = np.exp(-np.minimum(exponents, _LARGEST_EXPONENT))
    # Of 32 bits: `connected_components` of scipy 1.11 does nothing for indices of 64.
    rows, columns = np.repeat(np.arange(s, dtype=np.int32), count), nearest.astype(np.int32).ravel()
    graph = csr_array((values.ravel(), (rows, columns)), shape=(s, s))
    graph = _linked(graph.maximum(graph.T), squared)
    root = np.sqrt(weights / weights.mean())
    return graph.multiply(root[:, np.newaxis]).multiply(root[np.newaxis]).tocsr()


def _linked(graph: Any, squared: Floats) -> Any:
    """Return the graph with components joined by their shortest connections, as a minimum spanning tree does.

    A longer connection gets a smaller weight. So components that are far apart are separated before near ones are.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    shortest = 0.0
    while True:
        count, component = connected_components(graph, directed=False)
        if count == 1:
            return graph
        pairs = _closest_pairs(squared, component, count)
        lengths = squared[pairs[:, 0], pairs[:, 1]]
        shortest = shortest or float(lengths.min())
        values = _LINK * shortest / lengths
        links = csr_array((values, (pairs[:, 0], pairs[:, 1])), shape=graph.shape)
        graph = graph.maximum(links).maximum(links.T).tocsr()


def _closest_pairs(squared: Floats, component: NDArray[Any], count: int) -> NDArray[np.int32]:
    """For every component, the closest pair of a point inside and a point outside, shape (count, 2)."""
    pairs = np.empty((count, 2), dtype=np.int32)
    for own in range(count):
        inside, outside = np.flatnonzero(component == own), np.flatnonzero(component != own)
        block = squared[np.ix_(inside, outside)]
        i, j = np.unravel_index(int(np.argmin(block)), block.shape)
        pairs[own] = inside[i], outside[j]
    return pairs
