"""Graphs in blocks: the same rows and, up to the order of moves, the same clusters as a graph in one piece."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from kernelcoreset import DataError, Graph, fit_graph, graph_normalized_cut
from kernelcoreset.graphs.block_graph import BlockGraph
from kernelcoreset.graphs.blocks import assemble, from_bytes, pack_block, pack_edges, to_bytes, unpack_block


class Pieces:
    """Blocks in memory, passed as bytes both ways as Spark passes them."""

    def __init__(self, source, target, weights, n, width, parts=3):
        chunks = {}
        cuts = np.array_split(np.arange(len(source)), parts)
        for cut in reversed(cuts):  # the order of the chunks must not matter
            for chunk in pack_edges(source[cut], target[cut], None if weights is None else weights[cut], width):
                chunks.setdefault(chunk.block, []).append(chunk)
        self.content = [pack_block(assemble(found, width, n)) for found in chunks.values()]

    def each(self, work):
        for content in self.content:
            yield from_bytes(to_bytes(work(unpack_block(content))))


def random_edges(generator, n=60, m=400):
    """Edges with duplicates in both directions, self-loops, weights of 0, and two nodes without edges."""
    source, target = generator.integers(0, n - 2, (2, m))
    weights = generator.integers(0, 4, m) * 0.3
    return source, target, weights


def blocks_model(generator, n=3_000, k=5, within=20_000, between=4_000):
    size = n // k
    block = generator.integers(0, k, within)
    inside = block * size + generator.integers(0, size, (2, within))
    order = generator.permutation(n)
    source, target = order[np.concatenate([inside, generator.integers(0, n, (2, between))], axis=1)]
    truth = np.empty(n, dtype=np.int64)
    truth[order] = np.arange(n) // size
    return source, target, truth


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("width", [1, 7, 60])
def test_blocks_have_the_rows_of_the_graph(weighted, width):
    source, target, weights = random_edges(np.random.default_rng(0))
    weights = weights if weighted else None
    whole = Graph.from_edges(source, target, weights, n=60)
    found = BlockGraph(Pieces(source, target, weights, 60, width), 60)
    np.testing.assert_allclose(found.degrees, whole.degrees, rtol=1e-14)
    np.testing.assert_allclose(found.loops, whole.loops, rtol=1e-14)
    assert found.n_edges == np.count_nonzero(np.triu(dense(whole)))
    assert found.shift == pytest.approx(whole.shift)
    np.testing.assert_array_equal(found.named, np.isin(np.arange(60), np.concatenate([source, target])))
    found.near(np.arange(60), 1)
    np.testing.assert_allclose(dense(found), dense(whole), rtol=1e-14)


def dense(graph):
    matrix = np.zeros((graph.n, graph.n))
    rows = np.repeat(np.arange(graph.n), np.diff(graph.rows.starts))
    matrix[rows, graph.rows.indices] = graph.rows.data
    return matrix


def test_only_rows_that_walks_pass_are_fetched():
    chain = np.arange(99)
    found = BlockGraph(Pieces(chain, chain + 1, None, 100, 8), 100)
    rows = found.near(np.array([50, 10]), 3)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(rows.starts)), [8, 9, 10, 11, 12, 48, 49, 50, 51, 52])
    rows = found.near(np.array([11]), 3)  # one more than before
    np.testing.assert_array_equal(np.flatnonzero(np.diff(rows.starts)), [8, 9, 10, 11, 12, 13, 48, 49, 50, 51, 52])
    np.testing.assert_array_equal(rows.indices[rows.starts[13] : rows.starts[14]], [12, 14])


def test_labels_and_cut_are_exact_and_found_from_blocks():
    generator = np.random.default_rng(1)
    source, target, truth = blocks_model(generator)
    whole = Graph.from_edges(source, target, n=3_000)
    found = fit_graph(BlockGraph(Pieces(source, target, None, 3_000, 250), 3_000), 5, seed=1)
    assert adjusted_rand_score(truth, found.labels) > 0.99
    assert found.normalized_cut == pytest.approx(graph_normalized_cut(found.labels, whole), rel=1e-12)
    assert found.normalized_cut <= 1.001 * fit_graph(whole, 5, seed=1).normalized_cut
    again = fit_graph(BlockGraph(Pieces(source, target, None, 3_000, 250, parts=7), 3_000), 5, seed=1)
    np.testing.assert_array_equal(found.labels, again.labels)


def test_a_sweep_that_empties_a_cluster_is_undone():
    """Nodes 0 and 5 are cluster 1, in two blocks; each would leave, and neither block sees the other one."""
    source = np.array([0, 0, 1, 5, 5, 6, 0])
    target = np.array([1, 2, 2, 6, 7, 7, 5])
    weights = np.array([5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.01])
    graph = BlockGraph(Pieces(source, target, weights, 8, 4), 8)
    labels = np.array([1, 0, 0, -1, -1, 1, 0, 0], dtype=np.int16)
    before = labels.copy()
    volumes, inner = graph.measure(labels, 2)
    assert graph.sweep(labels, volumes, inner, np.ones(8, dtype=bool), whole=True) == 0
    np.testing.assert_array_equal(labels, before)


def test_components_that_no_walk_reached_are_filled():
    """Two dense clusters, and 40 pairs of nodes that a coreset of 4 nodes cannot all reach."""
    generator = np.random.default_rng(2)
    dense_edges = generator.integers(0, 30, (2, 300)) + 30 * generator.integers(0, 2, 300)
    pairs = 60 + np.arange(0, 80, 2)
    source, target = np.concatenate([dense_edges, [pairs, pairs + 1]], axis=1)
    found = fit_graph(BlockGraph(Pieces(source, target, None, 140, 16), 140), 2, size=4, seed=0)
    assert (found.labels >= 0).all()
    np.testing.assert_array_equal(found.labels[60::2], found.labels[61::2])
    whole = Graph.from_edges(source, target, n=140)
    assert found.normalized_cut == pytest.approx(graph_normalized_cut(found.labels, whole), rel=1e-12)


def test_weights_beyond_all_measure_are_refused():
    edges = np.array([0, 1]), np.array([1, 2]), np.array([1e-200, 1e-200])
    with pytest.raises(DataError, match="Multiply all weights by a constant"):
        BlockGraph(Pieces(*edges, 3, 2), 3)
