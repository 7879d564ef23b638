"""Loops over graphs, alone and in several threads, compared with dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from kernelcoreset import DataError, Graph, fit_graph, graph_normalized_cut
from kernelcoreset.graphs.coreset import build_graph_coreset, coreset_similarities, draw_nodes, leading_vectors
from kernelcoreset.graphs.csr import seed_nodes
from kernelcoreset.graphs.moves import improve, measure
from kernelcoreset.graphs.walks import meet, meetings, walk
from tests import naive_graph
from tests.unit.test_graph import TRIANGLES, blocks, random_matrix


def test_the_normalized_cut_is_the_twins():
    matrix = random_matrix()
    labels = np.random.default_rng(1).integers(0, 4, len(matrix))
    assert graph_normalized_cut(labels, matrix) == pytest.approx(naive_graph.normalized_cut(labels, matrix))


def test_labels_of_any_size_are_taken():
    matrix = random_matrix()
    labels = np.random.default_rng(1).integers(0, 4, len(matrix))
    expected = pytest.approx(graph_normalized_cut(labels, matrix))
    assert graph_normalized_cut(labels * 1_000_003, matrix) == expected
    alone = np.pad(matrix, (0, 1))
    assert graph_normalized_cut(np.append(labels * 1_000_003, -1), alone) == expected


def test_seeding_by_look_up_has_the_distances_of_the_dense_kernel():
    matrix = random_matrix(200, 0.05)
    graph = Graph.from_matrix(matrix)
    kernel = naive_graph.look_up_kernel(matrix, graph.shift)
    uniforms = np.random.default_rng(0).random(30)
    pivots, distances, nearest, _, cost = seed_nodes(graph.rows, graph.degrees, np.diag(kernel).copy(), uniforms)
    expected = naive_graph.distances_to_pivots(kernel, pivots)
    np.testing.assert_allclose(distances, expected, rtol=1e-9, atol=1e-12)
    assert cost == pytest.approx(graph.degrees @ expected)
    own = np.diag(kernel)
    to_nearest = own + own[pivots[nearest]] - 2 * kernel[np.arange(200), pivots[nearest]]
    to_nearest[pivots] = 0.0
    np.testing.assert_allclose(to_nearest, expected, rtol=1e-9, atol=1e-12)


def test_seeding_stops_when_every_node_is_a_pivot():
    graph = Graph.from_edges(*TRIANGLES)
    own = np.ones(6)
    pivots, distances, *_ = seed_nodes(graph.rows, graph.degrees, own, np.linspace(0, 0.99, 20))
    assert sorted(pivots.tolist()) == list(range(6))
    assert not distances.any()


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_walks_meet_by_the_diffused_kernel_of_the_twin(hops, lazy):
    matrix = random_matrix()
    graph = Graph.from_matrix(matrix)
    nodes = np.array([3, 5, 8, 21])
    ends = walk(graph.rows, graph.degrees, nodes, hops, lazy)
    for r in range(len(nodes)):
        assert ends.masses[ends.starts[r] : ends.starts[r + 1]].sum() == pytest.approx(1.0, rel=1e-5)
    similarities = np.zeros((4, 4), dtype=np.float32)
    meet(meetings(ends, graph.n), graph.degrees, similarities)
    expected = naive_graph.diffused_kernel(matrix, hops, lazy)[np.ix_(nodes, nodes)]
    np.testing.assert_allclose(similarities, expected, rtol=1e-4)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_makes_the_moves_of_the_twin(seed, whole):
    matrix = random_matrix(30, 0.2, seed)
    graph = Graph.from_matrix(matrix)
    labels = np.random.default_rng(seed).integers(-1, 4, 30).astype(np.int16)
    labels[:4] = range(4)
    before, expected = labels.copy(), naive_graph.improve(matrix, labels, 4)
    volumes, inner = measure(0, graph.rows, graph.degrees, labels, 4, np.empty(0))
    waiting = np.ones(30, dtype=bool)
    moved = improve(0, graph.rows, graph.degrees, labels, volumes, inner, waiting, whole)
    np.testing.assert_array_equal(labels, expected)
    assert moved > 0
    again = measure(0, graph.rows, graph.degrees, labels, 4, np.empty(0))
    np.testing.assert_allclose(volumes, again[0])
    np.testing.assert_allclose(inner, again[1], atol=1e-12)
    # Neighbours of a moved node that were visited before wait for the next sweep; in a whole sweep all nodes do.
    last = int(np.flatnonzero(before != labels)[-1])
    assert waiting.all() if whole else waiting[:last][matrix[last, :last] > 0].all()
    assert whole or not waiting.all()


@pytest.mark.parametrize("k", [64, 65])  # up to 64 clusters, all gains are computed at once
def test_a_sweep_with_many_clusters_makes_the_moves_of_the_twin(k):
    matrix = random_matrix(130, 0.05, 1)
    graph = Graph.from_matrix(matrix)
    labels = np.random.default_rng(1).integers(-1, k, 130).astype(np.int16)
    labels[:k] = range(k)
    before, expected = labels.copy(), naive_graph.improve(matrix, labels, k)
    volumes, inner = measure(0, graph.rows, graph.degrees, labels, k, np.empty(0))
    moved = improve(0, graph.rows, graph.degrees, labels, volumes, inner, np.ones(130, dtype=bool), True)
    np.testing.assert_array_equal(labels, expected)
    assert moved == np.count_nonzero(labels != before) > 50


def test_a_sweep_of_many_waiting_nodes_of_a_large_graph_leaves_waiting_all_that_may_move(monkeypatch):
    monkeypatch.setattr("kernelcoreset.graphs.csr._MANY_ENTRIES", 1)
    matrix = random_matrix(120, 0.1, 2)
    graph = Graph.from_matrix(matrix)
    labels = np.random.default_rng(2).integers(-1, 3, 120).astype(np.int16)
    expected = naive_graph.improve(matrix, labels, 3)
    volumes, inner = graph.measure(labels, 3)
    waiting = np.ones(120, dtype=bool)
    assert graph.sweep(labels, volumes, inner, waiting, whole=False) > 0
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose([volumes, inner], measure(0, graph.rows, graph.degrees, labels, 3, np.empty(0)))
    moved = np.flatnonzero(naive_graph.improve(matrix, labels, 3) != labels)
    assert waiting[moved[:1]].all()  # the first move is made with the same sums
    assert 0 < np.count_nonzero(waiting) < 120


@pytest.mark.parametrize("seed", range(8))
def test_nodes_that_are_passed_over_are_those_that_stay_in_the_twin(seed):
    """Clear blocks of unequal size with self-loops: most nodes are settled, and some are on the edge."""
    generator = np.random.default_rng(seed)
    blocks = np.repeat(np.arange(3), (6, 14, 20))
    share = np.where(blocks[:, None] == blocks, 0.5, 0.2)
    matrix = np.triu(generator.random((40, 40)) * (generator.random((40, 40)) < share))
    matrix = matrix + matrix.T
    graph = Graph.from_matrix(matrix)
    labels = np.where(generator.random(40) < 0.3, generator.integers(0, 3, 40), blocks).astype(np.int16)
    for sweep in range(4):
        expected = naive_graph.improve(matrix, labels, 3)
        volumes, inner = measure(0, graph.rows, graph.degrees, labels, 3, np.empty(0))
        improve(0, graph.rows, graph.degrees, labels, volumes, inner, np.ones(40, dtype=bool), True)
        np.testing.assert_array_equal(labels, expected, err_msg=f"sweep {sweep}")


def test_parts_that_are_swept_at_once_leave_exact_sums_and_only_unsettled_nodes_waiting(monkeypatch):
    monkeypatch.setattr("kernelcoreset.graphs.csr._MANY_ENTRIES", 1)
    generator = np.random.default_rng(0)
    blocks = generator.permutation(np.repeat(np.arange(3), 40))
    share = np.where(blocks[:, None] == blocks, 0.3, 0.15)
    matrix = np.triu(generator.random((120, 120)) * (generator.random((120, 120)) < share))
    graph = Graph.from_matrix(matrix + matrix.T)
    labels = np.where(generator.random(120) < 0.8, generator.integers(-1, 3, 120), blocks).astype(np.int16)
    before, waiting = labels.copy(), np.ones(120, dtype=bool)
    volumes, inner = graph.measure(labels, 3)
    cut = np.sum(inner / volumes)
    assert graph.first_sweep(labels, volumes, inner, waiting) == np.count_nonzero(labels != before) > 0
    again = measure(0, graph.rows, graph.degrees, labels, 3, np.empty(0))
    np.testing.assert_allclose([volumes, inner], again, rtol=1e-12)
    assert np.sum(inner / volumes) > cut
    moved = np.flatnonzero(naive_graph.improve(matrix + matrix.T, labels, 3) != labels)
    assert waiting[moved[:1]].all()  # the first move is made with the same sums
    assert 0 < np.count_nonzero(waiting) < 120


def test_parts_that_together_would_empty_a_cluster_are_swept_one_after_another(monkeypatch):
    monkeypatch.setattr("kernelcoreset.graphs.csr._MANY_ENTRIES", 1)
    # Two cliques, and a cluster of one node of each, which are in different parts.
    matrix = np.kron(np.eye(2), np.ones((8, 8))) - np.eye(16)
    graph, labels = Graph.from_matrix(matrix), np.repeat([0, 1], 8).astype(np.int16)
    labels[[0, 15]] = 2
    volumes, inner = graph.measure(labels, 3)
    graph.first_sweep(labels, volumes, inner, np.ones(16, dtype=bool))
    assert set(labels) == {0, 1, 2}
    np.testing.assert_allclose([volumes, inner], graph.measure(labels, 3))


def test_a_new_node_goes_where_the_twin_sends_it():
    matrix = random_matrix(60, 0.1)
    model = fit_graph(matrix, 4)
    generator = np.random.default_rng(0)
    rows = generator.random((50, 60)) * (generator.random((50, 60)) < 0.08)
    rows[0] = 0.0
    expected = [naive_graph.best_cluster_of_new(row, model.labels, matrix, 4) for row in rows]
    np.testing.assert_array_equal(model.predict(rows), expected)
    np.testing.assert_array_equal(model.predict(sparse.csr_matrix(rows)), expected)
    assert expected[0] == -1


def test_leading_vectors_span_what_numpy_finds_on_small_and_larger_matrices():
    generator = np.random.default_rng(0)
    for s in (6, 300, 1100):
        basis = np.linalg.qr(generator.normal(size=(s, s)))[0]
        values = np.concatenate([[1.0, 0.9, 0.8], np.linspace(-0.4, 0.4, s - 3)])
        matrix = ((basis * values) @ basis.T).astype(np.float32)
        found = leading_vectors(matrix, 3, generator)
        overlap = np.linalg.svd(basis[:, :3].T @ found, compute_uv=False)
        assert overlap.min() > 0.99


def test_drawn_nodes_estimate_the_sum_of_all_degrees():
    matrix, _ = blocks(2_000, 4, 12, 3, 0)
    graph = Graph.from_matrix(matrix)
    generator = np.random.default_rng(0)
    sums = [draw_nodes(graph, 4, 200, generator)[1].sum() for _ in range(50)]
    # Evenly spaced draws: each sum is within a few percent of the truth, and 50 of them average it out.
    assert np.mean(sums) == pytest.approx(graph.degrees.sum(), rel=0.02)


def test_clipping_leaves_a_symmetric_matrix_without_diagonal():
    matrix, _ = blocks(600, 3, 15, 2, 0)
    graph = Graph.from_matrix(matrix)
    coreset = build_graph_coreset(graph, 3, 100, np.random.default_rng(0))
    similarities = coreset_similarities(graph, coreset)
    assert not np.diag(similarities).any()
    np.testing.assert_array_equal(similarities, similarities.T)


def test_several_threads_find_what_one_finds(monkeypatch):
    matrix = random_matrix(120, 0.2)

    def found():
        graph = Graph.from_matrix(matrix)
        ends = walk(graph.rows, graph.degrees, np.arange(3, 100, 7), 2, False)
        similarities = np.zeros((14, 14), dtype=np.float32)
        met = meetings(ends, graph.n)
        meet(met, graph.degrees, similarities)
        labels = (np.arange(120) % 5 - 1).astype(np.int16)
        return graph.degrees, graph.loops, *met, similarities, graph.measure(labels, 4), fit_graph(graph, 4).labels

    alone = found()
    monkeypatch.setattr("kernelcoreset.graphs.csr._MANY_ENTRIES", 1)
    *same, sums, labels = zip(alone, found(), strict=True)
    for one, other in [*same, labels]:
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(*sums, rtol=1e-14)
    skewed, bad = matrix.copy(), matrix.copy()
    skewed[100, 119] += 1.0
    with pytest.raises(DataError, match=r"must be symmetric; entries \(119, 100\) and \(100, 119\) differ"):
        Graph.from_matrix(skewed)
    bad[110, 111] = bad[50, 51] = -1.0
    with pytest.raises(
        DataError, match=rf"got -1.0 at entry {np.count_nonzero(bad[:50]) + np.count_nonzero(bad[50, :51])}"
    ):
        Graph.from_matrix(bad)
