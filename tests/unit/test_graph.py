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
from kernelcoreset.graphs.model import GraphModel
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
