"""A coreset of a graph: nodes drawn by importance, and their similarities by short random walks.

Nodes drawn from a sparse graph are hardly ever neighbours, so the kernel D^-1 A D^-1 is 0 between nearly all of them.
Walks of a few steps that start at these nodes do meet. The diffused kernel

    K_t = P^t D^-1 (P^t)^T,   P = D^-1 A,

is the inner product of two such walks, so it is positive semidefinite without a shift, and has the same eigenvectors.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from kernelcoreset.blas import one_blas_thread, own_threads
from kernelcoreset.checks import Floats
from kernelcoreset.clustering.starts import plain_k_means
from kernelcoreset.coresets.sampling import merge_picks, pick_evenly, sensitivities
from kernelcoreset.coresets.seeding import Seeding
from kernelcoreset.graphs.csr import Indices, Labels, in_threads, seed_nodes
from kernelcoreset.graphs.graph import Graph
from kernelcoreset.graphs.walks import Singles, Walks, meet, meetings, walk
from kernelcoreset.kernels.threads import equal_parts

MOST_DRAWN = 20_000
"""Most nodes of a coreset; the matrix of all their pairs takes 1.6 GB."""

_PIVOTS_PER_CLUSTER = 4
_LEAST_SIZE, _LEAST_PER_CLUSTER, _MOST_SIZE = 500, 20, 4_000
# Every node should be reached by more than one walk, and a walk should meet this many others: in random graphs the
# clusters show from a few hundred meetings on.
_COVERAGE, _MEETINGS = 1.25, 500.0
_MOST_HOPS = 24
_LEAST_COVERAGE, _MOST_COVERAGE, _MOST_ENDS = 0.5, 8.0, 4_000_000
_PROBED = 32
# Walks from neighbouring nodes meet far more often than all others. Unclipped, each such pair would be a cluster.
_CLIPPED_ABOVE = 0.99
_CLIP_SAMPLE = 200_000
_PART = 500_000  # numbers per part of a matrix
_SUBSPACE_STEPS, _UNCHECKED_STEPS, _SPARE_COLUMNS, _GAP_SHARE = 24, 3, 8, 0.1
_LOBPCG_STEPS, _NEAR = 40, 1e-4
_MOST_EXACT = 1_000


@dataclass(frozen=True, eq=False)
class GraphCoreset:
    """A weighted sample of the nodes of a graph, and where walks from them end.

    Parameters
    ----------
    nodes : ndarray of shape (s,)
        In ascending order.
    weights : ndarray of shape (s,)
        Their sum estimates the sum of all degrees.
    hops : int
        Steps of a walk.
    met : Walks
        For every node of the graph, the walks that end there and their probabilities.
    """

    nodes: Indices
    weights: Floats
    hops: int
    met: Walks


def draw_nodes(graph: Graph, k: int, size: int, generator: np.random.Generator) -> tuple[Indices, Floats]:
    """Return nodes and weights drawn by sensitivity for the kernel D^-1 A D^-1. Assumes validated input.

    D^2 sampling reads the neighbours of each pivot only; one pass over the nodes follows. If at most `size` nodes have
    edges, all of them are taken.
    """
    degrees = graph.degrees
    there = np.flatnonzero(degrees)
    if len(there) <= size:
        return there, degrees[there]
    own = np.divide(
        np.divide(graph.loops, degrees, out=np.zeros(graph.n), where=degrees > 0) + graph.shift,
        degrees,
        out=np.zeros(graph.n),
        where=degrees > 0,
    )
    uniforms = generator.random(min(_PIVOTS_PER_CLUSTER * k, len(there)))
    seeding = Seeding(*seed_nodes(graph.rows, degrees, own, uniforms))
    probabilities = sensitivities(seeding, degrees, 0.5, 0.0, 0.5)
    places = np.zeros(graph.n, dtype=np.int32)
    picks = pick_evenly(probabilities, places, 1, generator.random(size))
    return merge_picks(picks, degrees[picks] / (probabilities[picks] * size))


def plan_walks(graph: Graph, k: int, size: int | None, generator: np.random.Generator) -> tuple[int, int]:
    """Return the size of the coreset and the number of steps per walk, from the reach of a few trial walks."""
    there = np.flatnonzero(graph.degrees)
    probes = generator.choice(there, size=min(_PROBED, len(there)), replace=False)
    least = min(max(_LEAST_SIZE, _LEAST_PER_CLUSTER * k), MOST_DRAWN)
    most = max(_MOST_SIZE, least)
    chosen, covered = (0, 0), 0.0
    for hops in range(1, _MOST_HOPS + 1):
        ends = walk(graph.near(probes, hops), graph.degrees, probes, hops, False)
        reach = len(ends.nodes) / len(probes)
        wanted = size or int(min(max(1.2 * _COVERAGE * len(there) / reach, least), most))
        wanted = min(wanted, len(there))
        coverage = wanted * reach / len(there)
        if covered >= _LEAST_COVERAGE and coverage > _MOST_COVERAGE and wanted * reach > _MOST_ENDS:
            break  # one more step would cost more time than it improves the clusters
        chosen, covered = (wanted, hops), coverage
        # Longer walks than a good part of a cluster no longer depend on where they started.
        if (coverage >= _COVERAGE and coverage * reach >= _MEETINGS) or reach >= len(there) / (4 * k):
            break
    return chosen


def build_graph_coreset(
    graph: Graph, k: int, size: int | None, generator: np.random.Generator, *, lazy: bool = False
) -> GraphCoreset:
    """Return the coreset of a graph. Assumes validated input.

    Takes O(n) for drawing, and the sum of the degrees of all nodes that the walks pass.
    """
    size, hops = plan_walks(graph, k, size, generator)
    nodes, weights = draw_nodes(graph, k, size, generator)
    ends = walk(graph.near(nodes, hops), graph.degrees, nodes, hops, lazy)
    return GraphCoreset(nodes, weights, hops, meetings(ends, graph.n))


def cluster_coreset(graph: Graph, coreset: GraphCoreset, k: int, n_init: int, generator: np.random.Generator) -> Labels:
    """Return the cluster of every coreset node, by k-means in the leading eigenvectors of their similarities."""
    similarities = coreset_similarities(graph, coreset)
    weights = coreset.weights / coreset.weights.sum()
    degrees = _scale(similarities, weights.astype(np.float32))
    root = np.divide(1.0, np.sqrt(degrees), out=np.zeros_like(degrees), where=degrees > 0)
    _scale(similarities, root)
    vectors = leading_vectors(similarities, min(k, len(weights)), generator)
    points = np.ascontiguousarray(vectors * root[:, np.newaxis], dtype=np.float64)
    masses = np.maximum(degrees.astype(np.float64), 0.0) + 1e-9 * weights
    with one_blas_thread():  # two threads that wait for such small products cost up to 0.1 s each time
        start = _nearest(points, points[_spread_rows(vectors, k)])
        return plain_k_means(points, masses, k, generator, runs=n_init, start=start)


def _scale(matrix: Singles, factors: Singles) -> Singles:
    """Multiply every row and every column by its factor, and return the sums of the rows."""
    sums = np.empty(len(matrix), dtype=np.float32)

    def scale_rows(part: slice) -> None:
        rows = matrix[part]
        rows *= factors[part, np.newaxis]
        rows *= factors
        sums[part] = rows.sum(axis=1)

    in_threads(scale_rows, _row_parts(matrix))
    return sums


def _row_parts(matrix: Singles) -> list[slice]:
    """Return parts of the rows for threads, which fit in the cache."""
    return equal_parts(len(matrix), max(1, matrix.size // _PART))


def _spread_rows(vectors: Singles, k: int) -> Indices:
    """Return k rows that are as orthogonal to each other as possible: one per cluster if the clusters are clear."""
    from scipy.linalg import qr  # slow to import, and executors cluster no graphs

    pivots: Indices = qr(vectors.T, mode="r", pivoting=True)[1]
    return pivots[:k]


def _nearest(points: Floats, centers: Floats) -> Labels:
    away = np.square(centers).sum(axis=1) - 2.0 * points @ centers.T
    labels: Labels = away.argmin(axis=1).astype(np.int32)
    return labels


def coreset_similarities(graph: Graph, coreset: GraphCoreset) -> Singles:
    """Return the diffused kernel between the coreset's nodes, clipped and with zeros on the diagonal, shape (s, s).

    A walk meets itself and those of close neighbours far more often than all others, so that each would be a cluster.
    The many weak similarities are what makes a cluster.
    """
    s = len(coreset.nodes)
    similarities = np.zeros((s, s), dtype=np.float32)
    # Relative to the largest degree: single precision could underflow for small weights.
    meet(coreset.met, graph.degrees / graph.degrees.max(), similarities)
    np.fill_diagonal(similarities, 0.0)
    some = similarities[:: max(1, s * s // _CLIP_SAMPLE)].ravel()
    some = some[some > 0]
    if len(some):
        most = np.quantile(some, _CLIPPED_ABOVE)
        in_threads(lambda part: np.minimum(similarities[part], most, out=similarities[part]), _row_parts(similarities))
    return similarities


def leading_vectors(matrix: Singles, count: int, generator: np.random.Generator) -> Singles:
    """Return the `count` eigenvectors of the largest eigenvalues of a symmetric matrix, shape (s, count).

    A few steps of subspace iteration find them if the graph has clear clusters. Eigenvalues that lie close together
    (chains, grids) or are equal (components) need a better method: a dense one for a small matrix, else LOBPCG. Both
    find all vectors of a repeated eigenvalue; Lanczos from a single vector does not.
    """
    from scipy.linalg import eigh  # slow to import, and executors cluster no graphs

    s = len(matrix)
    if count + _SPARE_COLUMNS < s:
        with own_threads():
            block, is_near = _iterate_subspace(matrix, count, generator)
        if is_near:
            return block[:, :count]
        if s > _MOST_EXACT:
            return _refine(matrix, block)[:, :count]
    # In double precision: eigenvalues of a chain differ by less than single precision resolves.
    with one_blas_thread():  # several threads would wait for each other, on a busy machine for seconds
        _, exact = eigh(matrix.astype(np.float64), subset_by_index=(s - count, s - 1), check_finite=False)
    vectors: Singles = exact[:, ::-1].astype(np.float32)
    return vectors


def _iterate_subspace(matrix: Singles, count: int, generator: np.random.Generator) -> tuple[Singles, bool]:
    """Return approximate eigenvectors, a few more than `count`, and whether the first `count` are accurate enough.

    Their residuals must be at most a tenth of the gap between the eigenvalues `count` and `count` + 1.
    """
    block = generator.normal(size=(len(matrix), count + _SPARE_COLUMNS)).astype(np.float32)
    block = _times(matrix, block)
    for step in range(2, _SUBSPACE_STEPS + 1):
        block = np.linalg.qr(block)[0]
        product = _times(matrix, block)
        if step > _UNCHECKED_STEPS:
            values, turn = np.linalg.eigh(block.T @ product)
            values, turn = values[::-1], turn[:, ::-1]
            vectors: Singles = block @ turn
            residuals = np.linalg.norm(product @ turn - vectors * values, axis=0)[:count]
            if residuals.max() <= _GAP_SHARE * (values[count - 1] - values[count]):
                return vectors, True
        block = product
    return vectors, False


def _times(matrix: Singles, block: Singles) -> Singles:
    """Return matrix @ block, the same for any number of threads."""
    product = np.empty_like(block)
    in_threads(lambda part: np.matmul(matrix[part], block, out=product[part]), _row_parts(matrix))
    return product


def _refine(matrix: Singles, block: Singles) -> Singles:
    """Return better eigenvectors than the approximate ones in `block`."""
    from scipy.sparse.linalg import lobpcg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if the tolerance is not reached, which a start does not need
        values, vectors = lobpcg(matrix, block, largest=True, tol=_NEAR, maxiter=_LOBPCG_STEPS)
    refined: Singles = vectors[:, np.argsort(-values)].astype(np.float32, copy=False)
    return refined
