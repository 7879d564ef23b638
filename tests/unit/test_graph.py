"""Graphs: accepted and refused input, the loops compared with dense matrices, and clusters known beforehand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

from kernelcoreset import DataError, FormatError, Graph, GraphClustering, SettingError, fit_graph, graph_normalized_cut
from kernelcoreset.graphs.coreset import build_graph_coreset, coreset_similarities, draw_nodes, leading_vectors
from kernelcoreset.graphs.csr import seed_nodes
from kernelcoreset.graphs.model import GraphModel
from kernelcoreset.graphs.moves import improve, measure
from kernelcoreset.graphs.walks import meet, meetings, walk
from tests import naive_graph

TRIANGLES = ([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])


def random_matrix(n=40, density=0.15, seed=0, *, loops=True):
    """A symmetric matrix of random weights in which every node has an edge."""
    generator = np.random.default_rng(seed)
    matrix = np.triu(generator.random((n, n)) * (generator.random((n, n)) < density), 0 if loops else 1)
    matrix[np.arange(n - 1), np.arange(1, n)] += 0.1
    return matrix + np.triu(matrix, 1).T


def blocks(n, k, inside, outside, seed):
    """A stochastic block model: `inside` and `outside` edges per node on average."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, k, n)
    p = np.where(truth[:, None] == truth, inside * k / n, outside * k / (n * (k - 1)))
    upper = np.triu(generator.random((n, n)) < p, 1)
    return sparse.csr_matrix((upper | upper.T).astype(float)), truth


# --- making a graph ---------------------------------------------------------------------------------------------------


def test_an_edge_list_makes_the_matrix_of_the_twin():
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, 12, (2, 60))
    weights = generator.random(60)
    graph = Graph.from_edges(source, target, weights, n=14)
    expected = naive_graph.matrix_of_edges(source, target, weights, 14)
    found = sparse.csr_matrix((graph.rows.data, graph.rows.indices, graph.rows.starts), (14, 14)).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_allclose(graph.degrees, expected.sum(axis=1))
    np.testing.assert_allclose(graph.loops, np.diag(expected))
    assert graph.n_edges == np.count_nonzero(np.triu(expected))
    assert "2 without edges" in repr(graph)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dense", "own", "float32", "read-only"])
def test_matrices_of_every_form_make_one_graph(form):
    matrix = random_matrix()
    given = {
        "dense": lambda: matrix,
        "own": lambda: SimpleNamespace(**vars_of(sparse.csr_matrix(matrix))),
        "float32": lambda: sparse.csr_matrix(matrix.astype(np.float32)),
        "read-only": lambda: read_only(sparse.csr_matrix(matrix)),
    }.get(form, lambda: getattr(sparse, f"{form}_matrix")(matrix))()
    expected = fit_graph(Graph.from_matrix(matrix), 3)
    np.testing.assert_array_equal(fit_graph(given, 3).labels, expected.labels)


def vars_of(matrix):
    return {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data, "shape": matrix.shape}


def read_only(matrix):
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.setflags(write=False)
    return matrix


def test_a_row_with_an_index_twice_has_the_sum():
    twice = sparse.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 2))
    graph = Graph.from_matrix(twice)
    assert graph.rows.data.tolist() == [3.0, 3.0]


def test_the_input_is_not_changed():
    matrix, _ = blocks(200, 3, 10, 1, 0)
    before = matrix.copy()
    GraphClustering(3, random_state=0).fit(matrix)
    assert (matrix != before).nnz == 0


def test_rounding_does_not_make_a_matrix_asymmetric():
    matrix = random_matrix()
    matrix[3, 4] *= 1 + 1e-13
    Graph.from_matrix(matrix)


BAD = [
    (lambda: Graph.from_matrix([[0.0, 1.0], [0.5, 0.0]]), r"symmetric; entries \(0, 1\) and \(1, 0\) differ"),
    (lambda: Graph.from_matrix([[0.0, 1.0], [0.0, 0.0]]), "must be symmetric"),
    (lambda: Graph.from_matrix(np.ones((2, 3))), r"square; got shape \(2, 3\)"),
    (lambda: Graph.from_matrix(np.ones(3)), "two dimensions"),
    (lambda: Graph.from_matrix(-np.ones((2, 2))), "at least 0; got -1.0 at entry 0"),
    (lambda: Graph.from_matrix([[0.0, np.nan], [np.nan, 0.0]]), "finite and at least 0; got nan"),
    (lambda: Graph.from_matrix(np.full((3, 3), 1e308)), "finite sum"),
    (lambda: Graph.from_edges([0, 1], [1, 2], [1e-320, 1e-320]), r"sum to 1e-150 to 1e.150.* Multiply all weights by"),
    (lambda: Graph.from_edges([0, 1], [1, 2], [1e200, 1e200]), r"sum to 1e-150 to 1e.150.*; got 1e.200 to 2e.200"),
    (lambda: Graph.from_edges(np.ma.MaskedArray([0, 1], mask=[0, 1]), [1, 2]), "`source` must have no masked values"),
    (lambda: Graph.from_matrix(np.zeros((0, 0))), "at least one node"),
    (lambda: Graph.from_matrix([["a", "b"], ["b", "a"]]), "must be numbers"),
    (
        lambda: Graph.from_matrix(SimpleNamespace(indptr=[0, 1], indices=[7], data=[1.0], shape=(1, 1))),
        "must be nodes from 0 to 0; got 7 at entry 0",
    ),
    (lambda: Graph.from_edges([0, 1], [1]), "same length; got 2 and 1"),
    (lambda: Graph.from_edges([0], [1], [-2.0]), "got -2.0 at edge 0"),
    (lambda: Graph.from_edges([0], [1], [np.inf]), "got inf at edge 0"),
    (lambda: Graph.from_edges([0], [1], [1.0, 2.0]), "one per edge"),
    (lambda: Graph.from_edges([0], [5], n=3), r"from 0 to n - 1 \(2\); got 5"),
    (lambda: Graph.from_edges([-1], [1]), "got -1"),
    (lambda: Graph.from_edges([0.5], [1.0]), "whole numbers; got dtype float64"),
    (lambda: Graph.from_edges([], []), "at least one node; got none"),
    (lambda: fit_graph(Graph.from_edges([], [], n=3), 1), "has no edges"),
    (lambda: fit_graph(Graph.from_edges([0], [1], [0.0]), 1), "has no edges"),
    (lambda: graph_normalized_cut([0, 1], Graph.from_edges([0], [2])), r"shape \(3,\)"),
    (
        lambda: graph_normalized_cut([0, -1], Graph.from_edges([0], [1])),
        "-1 for a node without edges; got -1 for node 1",
    ),
    (lambda: fit_graph(Graph.from_edges(*TRIANGLES), 2).predict(np.ones((1, 4))), "column for each of the 6"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_graphs_are_refused_with_the_reason(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 7}, r"nodes with edges \(6\); got 7"),
        ({"k": 0}, "`k` must be at least 1"),
        ({"k": 2, "size": 1}, "`size` must be at least 2"),
        ({"k": 2, "size": 20_001}, "`size` must be at most 20,000"),
        ({"k": 20_001}, "`k` must be at most 20,000"),
        ({"k": 2, "n_init": 0}, "`n_init`"),
        ({"k": 2, "seed": -1}, "`seed`"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        fit_graph(Graph.from_edges(*TRIANGLES), **options)


# --- loops compared with dense matrices -------------------------------------------------------------------------------


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


# --- clusters ---------------------------------------------------------------------------------------------------------


def test_two_triangles_by_hand():
    model = fit_graph(Graph.from_edges(*TRIANGLES), 2)
    assert model.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert model.normalized_cut == pytest.approx(2 / 7)
    assert model.shift == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_a_sparse_graph_are_found(seed):
    matrix, truth = blocks(3_000, 5, 12, 3, seed)
    model = fit_graph(matrix, 5, seed=seed)
    alone = np.asarray(matrix.sum(axis=1)).ravel() == 0
    assert adjusted_rand_score(truth[~alone], model.labels[~alone]) > 0.98
    truly = np.where(alone, -1, truth)
    assert model.normalized_cut <= graph_normalized_cut(truly, matrix) + 1e-9
    assert model.normalized_cut == pytest.approx(graph_normalized_cut(model.labels, matrix))


@pytest.mark.parametrize("seed", range(2))
def test_two_rings_are_found_by_their_neighbours(seed):
    points, truth = make_circles(1_200, factor=0.5, noise=0.04, random_state=seed)
    near = kneighbors_graph(points, 10)
    labels = GraphClustering(2, random_state=seed).fit_predict(near.maximum(near.T))
    assert adjusted_rand_score(truth, labels) == 1.0


def test_the_sides_of_a_bipartite_graph_are_no_clusters():
    """Two dense bipartite graphs joined by few edges: the clusters are the two, not the sides."""
    generator = np.random.default_rng(0)
    sides = np.arange(400) % 2
    truth = np.arange(400) // 200
    p = np.where(sides[:, None] == sides, 0.0, np.where(truth[:, None] == truth, 0.3, 0.02))
    upper = np.triu(generator.random((400, 400)) < p, 1)
    assert adjusted_rand_score(truth, fit_graph((upper | upper.T).astype(float), 2).labels) > 0.98


def test_one_bipartite_graph_is_not_cut_into_its_sides():
    sides = np.arange(300) % 2
    matrix = ((sides[:, None] != sides) & (np.random.default_rng(0).random((300, 300)) < 0.2)).astype(float)
    matrix = np.maximum(matrix, matrix.T)
    model = fit_graph(matrix, 2)
    assert model.normalized_cut < 1.0 < graph_normalized_cut(sides, matrix)


def test_nodes_without_edges_have_no_cluster():
    model = fit_graph(Graph.from_edges(*TRIANGLES, n=9), 2)
    assert model.labels.tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1]


def test_components_are_not_cut():
    """Fifty cliques of 4: every cluster is a union of cliques."""
    cliques = np.kron(np.eye(50), np.ones((4, 4)) - np.eye(4))
    model = fit_graph(cliques, 5)
    assert model.normalized_cut == pytest.approx(0.0, abs=1e-12)
    assert len(np.unique(model.labels)) == 5
    assert (model.labels.reshape(50, 4) == model.labels[::4, None]).all()


def test_components_that_no_walk_has_seen_go_to_the_lightest_cluster():
    """Two cliques, and more pairs than walks from a coreset of 6 nodes can reach."""
    heavy = np.kron(np.eye(2), np.ones((60, 60)))
    pairs = np.kron(np.eye(30), np.ones((2, 2)) - np.eye(2))
    matrix = sparse.block_diag([heavy, pairs], format="csr")
    model = fit_graph(matrix, 2, size=6)
    assert (model.labels >= 0).all()
    assert (model.labels[120:].reshape(30, 2) == model.labels[120::2, None]).all()
    assert model.normalized_cut == pytest.approx(0.0, abs=1e-12)


def test_as_many_clusters_as_nodes():
    model = fit_graph(Graph.from_edges(*TRIANGLES), 6)
    assert sorted(model.labels.tolist()) == list(range(6))
    assert model.normalized_cut == pytest.approx(6.0)


def test_one_cluster_is_everything():
    model = fit_graph(Graph.from_edges(*TRIANGLES), 1)
    assert model.labels.tolist() == [0] * 6
    assert model.normalized_cut == pytest.approx(0.0)


def test_self_loops_lower_the_shift():
    heavy = Graph.from_edges([*TRIANGLES[0], *range(6)], [*TRIANGLES[1], *range(6)], [1.0] * 7 + [5.0] * 6)
    assert heavy.shift == 0.0
    assert fit_graph(heavy, 2).labels.tolist() == [0, 0, 0, 1, 1, 1]


# --- the estimator, saved and loaded ----------------------------------------------------------------------------------


def test_the_same_random_state_gives_the_same_labels():
    matrix, _ = blocks(800, 4, 6, 3, 0)
    one, other = (GraphClustering(4, random_state=3).fit(matrix) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.normalized_cut_ == other.normalized_cut_
    assert one.get_params()["n_clusters"] == 4


def test_a_saved_model_predicts_the_same(tmp_path):
    matrix, _ = blocks(500, 3, 10, 1, 0)
    model = GraphClustering(3, random_state=0).fit(matrix)
    model.save(tmp_path / "model")
    loaded = GraphClustering.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_array_equal(loaded.predict(matrix[:50]), model.predict(matrix[:50]))
    np.testing.assert_array_equal(loaded.model_.coreset_nodes, model.model_.coreset_nodes)
    assert loaded.normalized_cut_ == model.normalized_cut_
    assert loaded.n_clusters == 3
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    fit_graph(Graph.from_edges(*TRIANGLES), 2).save(tmp_path / "model")
    nodes, about = tmp_path / "model" / "nodes.parquet", tmp_path / "model" / "model.json"
    whole = nodes.read_bytes()
    nodes.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match=r"nodes\.parquet of the model is damaged"):
        GraphModel.load(tmp_path / "model")
    nodes.write_bytes(whole)
    changed = json.loads(about.read_text())
    about.write_text(json.dumps(changed | {"hops": 99}))
    with pytest.raises(FormatError, match="checksum is wrong"):
        GraphModel.load(tmp_path / "model")
    nodes.unlink()
    with pytest.raises(FormatError, match=r"nodes\.parquet missing"):
        GraphModel.load(tmp_path / "model")


def test_predicting_before_fitting_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        GraphClustering(2).predict([[1.0]])


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
