"""Nearest neighbors: their graph, walks over it, labels by the nearest point, and the model that is cut from it."""

import json

import numpy as np
import pytest
from scipy.sparse import csgraph
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

import kernelcoreset as kc
from kernelcoreset.clustering.cut import cut_labels
from kernelcoreset.clustering.problem import most_points
from kernelcoreset.labelling.nearest import LabelledPoints
from kernelcoreset.neighbors.graph import neighbor_graph
from kernelcoreset.neighbors.persistence import Walks
from kernelcoreset.spectral.model import load_model
from tests import naive_neighbors
from tests.cases import some_points


@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 2), (80, 2), (200, 5)])
def test_the_graph_is_that_of_the_formula(n, d):
    points = some_points(n, d)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=n)
    graph = neighbor_graph(points, weights).toarray()
    np.testing.assert_allclose(graph, naive_neighbors.graph(points, weights), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(graph, graph.T, rtol=1e-12)


def test_components_are_joined_in_the_order_of_their_distance():
    """Four groups in a row, the middle gap the widest: two clusters are the two pairs, whatever the sizes."""
    starts = np.repeat([0.0, 10.0, 100.0, 110.0], [20, 40, 30, 25])
    points = np.column_stack([starts, np.zeros(115)]) + 0.1 * np.random.default_rng(0).normal(size=(115, 2))
    labels = cut_labels(neighbor_graph(points, np.ones(115)), np.ones(115), 2, 5, np.random.default_rng(0))
    assert adjusted_rand_score(starts > 50.0, labels) == 1.0


def test_indices_are_those_that_every_scipy_takes(monkeypatch):
    """That of version 1.11 silently finds no component if they have 64 bits."""
    seen, whole = [], csgraph.connected_components

    def look(graph, **options):
        seen.append(graph.indices.dtype)
        return whole(graph, **options)

    monkeypatch.setattr(csgraph, "connected_components", look)
    points = np.concatenate([some_points(30, 2), some_points(30, 2) + 1e3])
    neighbor_graph(points, np.ones(60))
    assert seen == [np.int32, np.int32]  # two parts, then one


def test_large_graphs_are_cut_like_small_ones(monkeypatch):
    points, truth = make_moons(600, noise=0.06, random_state=0)
    graph = neighbor_graph(points, np.ones(600))
    dense = cut_labels(graph, np.ones(600), 2, 5, np.random.default_rng(0))
    monkeypatch.setattr("kernelcoreset.clustering.cut._MOST_DENSE", 100)
    sparse = cut_labels(graph, np.ones(600), 2, 5, np.random.default_rng(0))
    assert adjusted_rand_score(dense, sparse) == 1.0
    assert adjusted_rand_score(truth, sparse) > 0.99


def test_every_cluster_has_a_point():
    matrix = np.ones((6, 6))  # all rows of the eigenvectors but the first are arbitrary
    labels = cut_labels(matrix, np.ones(6), 6, 2, np.random.default_rng(0))
    assert sorted(set(labels.tolist())) == list(range(6))


# --- walks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4])
def test_persistence_is_that_of_matrix_powers(k):
    points = some_points(60, 2)
    walks = Walks.of(points)
    labels = np.random.default_rng(k).integers(k, size=60)
    assert walks.persistence(labels, k) == pytest.approx(naive_neighbors.persistence(points, labels, k), abs=1e-9)


def test_persistence_of_separate_random_and_single_clusters():
    noise = np.random.default_rng(0).normal(size=(180, 2))
    points = np.repeat([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]], 60, axis=0) + noise
    walks = Walks.of(points)
    truth = np.repeat([0, 1, 2], 60)
    assert walks.persistence(truth, 3) > 0.95
    # Two of the three groups together are as separate, but of unequal size.
    assert walks.persistence(np.minimum(truth, 1), 2) == pytest.approx((1 - 5 / 9) / 0.5, abs=0.04)
    assert abs(walks.persistence(np.random.default_rng(0).integers(3, size=180), 3)) < 0.2
    assert walks.persistence(np.zeros(180, dtype=int), 1) == 0.0


def test_a_sample_of_walks_follows_the_weights():
    points = some_points(4_000, 2)
    weights = np.where(points[:, 0] > 0, 3.0, 1.0)
    walks = Walks.of(points, weights)
    share = weights[points[:, 0] > 0].sum() / weights.sum()
    drawn = walks.weights @ (walks.points[:, 0] > 0) / walks.weights.sum()
    # Systematic draws of 500 along a random order: at most as varied as independent ones, 5 standard errors.
    assert abs(drawn - share) < 5 * np.sqrt(share * (1 - share) / 500)
    np.testing.assert_array_equal(walks.points, points[walks.rows])
    assert Walks.of(points[:300], weights[:300]).points.shape == (300, 2)


def test_equal_points_count_as_one_of_their_weight():
    points = some_points(50, 2)
    copies = np.repeat(points, 3, axis=0)
    once, thrice = Walks.of(points), Walks.of(copies)
    labels = (points[:, 0] > 0).astype(int)
    assert thrice.persistence(np.repeat(labels, 3), 2) == pytest.approx(once.persistence(labels, 2), rel=1e-9)


# --- labels by the nearest point ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 12, 13, 40])
def test_labels_and_margins_are_those_of_all_distances(d):
    points, new = some_points(300, d), some_points(5_000, d, seed=7)
    clusters = np.random.default_rng(0).integers(4, size=300).astype(np.int32)
    found = LabelledPoints(points, clusters, 4).label_rows(new, margins=True)
    labels, distances, margins = naive_neighbors.label(points, clusters, new)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-9)
    np.testing.assert_allclose(found.margins, margins, rtol=1e-7, atol=1e-12)


def test_a_single_cluster_has_an_infinite_margin():
    found = LabelledPoints(some_points(9, 2), np.zeros(9, np.int32), 1).label_rows(np.zeros((3, 2)), margins=True)
    assert np.isinf(found.margins).all()
    empty = LabelledPoints(some_points(9, 2), np.zeros(9, np.int32), 1).label_rows(np.zeros((0, 2)), margins=True)
    assert len(empty.labels) == len(empty.margins) == 0


@pytest.mark.parametrize("d", [2, 20])
def test_near_points_far_from_the_origin_are_told_apart(d):
    points = 1e6 + 1e-3 * some_points(200, d)
    found = LabelledPoints(points, np.arange(200, dtype=np.int32), 200).label_rows(points)
    np.testing.assert_array_equal(found.labels, np.arange(200))


# --- the model ------------------------------------------------------------------------------------------------------

SHAPES = {
    "moons": make_moons(4_000, noise=0.05, random_state=0),
    "rings": make_circles(4_000, factor=0.5, noise=0.05, random_state=0),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6])
def test_shapes_at_any_scale_without_a_width(name, scale):
    points, truth = SHAPES[name]
    model = kc.fit_neighbors(scale * points, 2, 800, seed=1)
    assert adjusted_rand_score(truth, model.predict(scale * points)) > 0.99
    assert 0.0 <= model.normalized_cut < 0.01
    assert model.cluster_weights.sum() == pytest.approx(4_000)
    assert (np.diff(model.cluster_weights) <= 0).all()
    assert model.cluster_sizes.sum() == len(model.coreset) <= 800


def test_weights_count_as_copies():
    points = some_points(120, 2) + 6.0 * (np.arange(120) % 3 == 0)[:, None]
    counts = np.random.default_rng(0).integers(1, 4, size=120)
    once = kc.fit_neighbors(points, 3, weights=counts)
    many = kc.fit_neighbors(np.repeat(points, counts, axis=0), 3)
    np.testing.assert_array_equal(once.predict(points), many.predict(points))
    assert once.normalized_cut == pytest.approx(many.normalized_cut, rel=1e-9)


def test_the_default_estimator_uses_neighbors_and_a_kernel_if_one_is_given():
    points, truth = SHAPES["moons"]
    model = kc.SpectralClustering(2, coreset_size=500, random_state=0).fit(points)
    assert (model.affinity_, model.kernel_, model.n_iter_) == ("nearest_neighbors", None, 1)
    assert adjusted_rand_score(truth, model.labels_) > 0.99
    np.testing.assert_array_equal(model.predict(points), model.labels_)
    assert len(model.coreset_) <= 500
    for options in ({"kernel": kc.Gaussian(sigma=0.1)}, {"sigma": 0.1}, {"affinity": "kernel"}, {"affinity": "rbf"}):
        other = kc.SpectralClustering(2, coreset_size=500, random_state=0, **options).fit(points)
        assert other.affinity_ == "kernel"
        assert isinstance(other.model_, kc.SpectralModel)
        assert adjusted_rand_score(truth, other.labels_) > 0.99


def test_bad_affinities():
    points = some_points(50, 2)
    with pytest.raises(kc.SettingError, match="`affinity` must be one of 'auto', 'nearest_neighbors', 'kernel'"):
        kc.SpectralClustering(2, affinity="knn").fit(points)
    with pytest.raises(kc.SettingError, match="'nearest_neighbors' uses no kernel; got one, or its width"):
        kc.SpectralClustering(2, affinity="nearest_neighbors", sigma=1.0).fit(points)


def test_what_the_model_refuses():
    with pytest.raises(kc.DataError, match=r"at most the number of distinct coreset points \(1\); got 2"):
        kc.fit_neighbors(np.ones((5, 2)), 2)
    with pytest.raises(kc.DataError, match="`coreset` must have at least one point; got none"):
        kc.NeighborModel.fit_coreset(kc.Coreset(np.empty((0, 2)), np.empty(0)), 1)
    most = most_points()
    with pytest.raises(kc.DataError, match=f"`coreset` must have at most {most:,} points"):
        kc.NeighborModel.fit_coreset(kc.Coreset(np.zeros((most + 1, 1)), np.ones(most + 1)), 1)
    with pytest.raises(kc.DataError, match="`points` must have 2 columns like the coreset; got 3"):
        kc.fit_neighbors(some_points(50, 2), 2).predict(np.zeros((1, 3)))
    assert kc.fit_neighbors(np.ones((5, 2)), 1).predict([[0.0, 0.0]]).tolist() == [0]


def test_save_load_and_refit(tmp_path):
    points = some_points(2_000, 2)
    model = kc.fit_neighbors(points, 3, 300, seed=2)
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "neighbors.parquet"]
    for loaded in (kc.NeighborModel.load(tmp_path / "model"), load_model(tmp_path / "model")):
        assert isinstance(loaded, kc.NeighborModel)
        np.testing.assert_array_equal(loaded.predict(points), model.predict(points))
        assert loaded.normalized_cut == model.normalized_cut
        assert loaded.refit(2).k == 2
    estimator = kc.SpectralClustering.load(tmp_path / "model")
    assert (estimator.n_clusters, estimator.affinity, estimator.n_features_in_) == (3, "nearest_neighbors", 2)
    np.testing.assert_array_equal(estimator.predict(points), model.predict(points))
    estimator.save(tmp_path / "model", overwrite=True)


def test_damaged_and_foreign_folders(tmp_path):
    model = kc.fit_neighbors(some_points(100, 2), 3)
    files = model.to_files()
    with pytest.raises(kc.FormatError, match=r"neighbors.parquet of the model is damaged or truncated"):
        kc.NeighborModel.from_files({**files, "neighbors.parquet": files["neighbors.parquet"][:-9]})
    about = {**json.loads(files["model.json"]), "k": 2}
    with pytest.raises(kc.FormatError, match=r"model.json of the model"):
        kc.NeighborModel.from_files({**files, "model.json": json.dumps(about).encode()})
    coreset = kc.build_coreset(some_points(90, 2), 2, kc.Gaussian(1.0), 40)
    kc.KernelKMeansModel.fit_coreset(coreset, 2, kc.Gaussian(1.0)).save(tmp_path / "plain")
    with pytest.raises(kc.FormatError, match=r"not a whole model: neighbors.parquet missing"):
        kc.NeighborModel.load(tmp_path / "plain")
    assert isinstance(load_model(tmp_path / "plain"), kc.KernelKMeansModel)


def test_scores_compare_widths_and_numbers_of_clusters():
    points, _ = SHAPES["moons"]
    scores = {
        (sigma, k): kc.SpectralClustering(k, sigma=sigma, coreset_size=400, random_state=0).fit(points).score(points)
        for sigma in (0.1, 2.0)
        for k in (2, 3)
    }
    assert max(scores, key=scores.get) == (0.1, 2)
    plain = kc.KernelKMeans(1, random_state=0).fit(points)
    assert plain.score(points) == 0.0
