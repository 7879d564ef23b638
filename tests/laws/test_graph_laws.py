"""Laws of graphs: order, names and units of edges do not matter; the shifted kernel is positive semidefinite."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernelcoreset import Graph, fit_graph, graph_normalized_cut
from kernelcoreset.graphs.walks import meet, meetings, walk
from tests import naive_graph

SEEDS = st.integers(0, 2**32 - 1)
N = 24


@st.composite
def edges(draw):
    """An edge list in which every node has an edge: a path, and some more with weights, loops and duplicates."""
    more = draw(st.integers(0, 60))
    ends = draw(arrays(np.int64, (2, more), elements=st.integers(0, N - 1)))
    weights = draw(arrays(np.float64, N - 1 + more, elements=st.floats(0.125, 8.0, width=16)))
    return np.append(np.arange(N - 1), ends[0]), np.append(np.arange(1, N), ends[1]), weights


@given(edges(), st.integers(1, 5), SEEDS)
def test_the_order_and_direction_of_edges_do_not_matter(graph, k, seed):
    source, target, weights = graph
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(source))
    turned = generator.random(len(source)) < 0.5
    one = fit_graph(Graph.from_edges(source, target, weights), k)
    shuffled = np.where(turned, target, source)[order], np.where(turned, source, target)[order], weights[order]
    other = fit_graph(Graph.from_edges(*shuffled), k)
    np.testing.assert_array_equal(one.labels, other.labels)


@given(edges(), st.integers(1, 5), st.integers(-30, 30))
def test_a_common_factor_of_all_weights_changes_nothing(graph, k, power):
    source, target, weights = graph
    one = fit_graph(Graph.from_edges(source, target, weights), k)
    other = fit_graph(Graph.from_edges(source, target, weights * 2.0**power), k)
    np.testing.assert_array_equal(one.labels, other.labels)


@given(edges(), st.integers(1, 5))
def test_an_edge_twice_is_an_edge_of_twice_the_weight(graph, k):
    source, target, weights = graph
    one = fit_graph(Graph.from_edges(source, target, 2 * weights), k)
    other = fit_graph(Graph.from_edges(np.tile(source, 2), np.tile(target, 2), np.tile(weights, 2)), k)
    np.testing.assert_array_equal(one.labels, other.labels)


@given(edges(), st.integers(1, 6), SEEDS)
def test_every_fit_has_k_clusters_at_rest_and_tells_their_cut(graph, k, seed):
    own = Graph.from_edges(*graph)
    model = fit_graph(own, k, seed=seed)
    assert sorted(set(model.labels.tolist())) == list(range(k))
    matrix = naive_graph.matrix_of_edges(*graph, N)
    assert abs(model.normalized_cut - naive_graph.normalized_cut(model.labels, matrix)) < 1e-9
    assert abs(graph_normalized_cut(model.labels, own) - model.normalized_cut) < 1e-9
    np.testing.assert_array_equal(naive_graph.improve(matrix, model.labels, k), model.labels)
    assert (np.diff(model.volumes) <= 1e-9 * model.volumes.sum()).all()


@given(edges())
def test_the_shifted_kernel_is_positive_semidefinite(graph):
    own = Graph.from_edges(*graph)
    kernel = naive_graph.look_up_kernel(naive_graph.matrix_of_edges(*graph, N), own.shift)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] >= -1e-9 * values[-1]
    assert 0.0 <= own.shift <= 1.0


@given(edges(), st.integers(1, 4), st.booleans())
def test_the_diffused_kernel_needs_no_shift(graph, hops, lazy):
    own = Graph.from_edges(*graph)
    met = meetings(walk(own.rows, own.degrees, np.arange(N), hops, lazy), N)
    kernel = np.zeros((N, N), dtype=np.float32)
    meet(met, own.degrees, kernel)
    values = np.linalg.eigvalsh(kernel.astype(np.float64))
    assert values[0] >= -1e-5 * values[-1]


@given(SEEDS)
def test_new_names_of_the_nodes_permute_the_labels(seed):
    """Four cliques of 30 in a ring, joined by single edges: there is only one good solution."""
    matrix = np.kron(np.eye(4), np.ones((30, 30)) - np.eye(30))
    for c in range(4):
        i, j = 30 * c, (30 * c + 31) % 120
        matrix[i, j] = matrix[j, i] = 1.0
    order = np.random.default_rng(seed).permutation(120)
    one = fit_graph(matrix, 4).labels
    other = fit_graph(matrix[np.ix_(order, order)], 4).labels
    together = one[:, None] == one
    np.testing.assert_array_equal(other[:, None] == other, together[np.ix_(order, order)])
