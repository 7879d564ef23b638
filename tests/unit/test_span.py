"""Coordinates in the span of a few points, and fits of many clusters in it."""

import json
import tracemalloc

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.files.documents import signed, unsigned
from kernelcoreset.labelling.span import span_of
from kernelcoreset.models import spanned
from kernelcoreset.models.spanned import fit_by_span, span_pays
from tests import naive_centers
from tests.cases import some_points

K, N = 60, 40_000
KERNEL = kc.Gaussian(sigma=12.0)


def topics(n=N, d=32, k=K, seed=0):
    generator = np.random.default_rng(seed)
    middles = generator.normal(size=(k, d))
    return (middles[generator.integers(k, size=n)] + 0.5 * generator.normal(size=(n, d))).astype(np.float32)


@pytest.fixture(scope="module")
def fit():
    return fit_by_span(topics(), np.ones(N), Recipe(K, KERNEL, 1_200, seed=0))


@pytest.mark.parametrize("kernel", [kc.Gaussian(sigma=5.0), kc.Polynomial(degree=2, c=1.0), kc.Matern(sigma=5.0)])
def test_coordinates_are_those_of_the_projection_onto_the_span(kernel):
    points, rows = some_points(30, 16, seed=1), some_points(50, 16, seed=2)
    span = span_of(kernel, points)
    coordinates = span.coordinates(rows).astype(float)
    # Coefficients that sum to 1 and bring a combination of the points nearest to phi(x), by Lagrange's equations.
    gram, cross = kernel.block(points, points), kernel.block(points, rows)
    left = np.block([[gram, np.ones((30, 1))], [np.ones((1, 30)), np.zeros((1, 1))]])
    expected = np.linalg.solve(left, np.vstack([cross, np.ones((1, 50))]))[:30].T
    found = span.coefficients(coordinates)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    # The same points of the feature space: what is left out of the axes makes coefficients differ, but not these.
    gap = np.einsum("ij,jl,il->i", found - expected, gram, found - expected)
    assert gap.max() < 1e-3 * np.diag(gram).max()
    # Distances of coordinates are those of the combinations.
    for i in range(10):
        a = found[i] - found[i + 1]
        assert np.square(coordinates[i] - coordinates[i + 1]).sum() == pytest.approx(a @ gram @ a, rel=1e-3)


def test_leading_coordinates_are_the_first_of_all():
    span = span_of(KERNEL, some_points(30, 16, seed=1))
    rows = some_points(50, 16, seed=2)
    np.testing.assert_allclose(span.coordinates(rows, 7), span.coordinates(rows)[:, :7], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("unit", [1.0, 2.0**-600, 2.0**600])
def test_means_of_coordinates_are_those_of_the_rows_own_coordinates(unit):
    span = span_of(KERNEL, some_points(30, 16, seed=1))
    generator = np.random.default_rng(0)
    rows, weights = some_points(5_000, 16, seed=2), unit * generator.exponential(size=5_000)
    labels = generator.integers(40, size=5_000).astype(np.int32)
    labels[labels == 11] = 3  # no row is in cluster 11, and one has no weight
    weights[labels == 17] = 0.0
    found = span.means(rows, weights, labels, 40)
    coordinates = span.coordinates(rows).astype(float)
    for c in range(40):
        own = weights[labels == c]
        expected = np.average(coordinates[labels == c], axis=0, weights=own) if own.any() else 0.0
        np.testing.assert_allclose(found[c], expected, rtol=1e-3, atol=1e-5 * np.abs(coordinates).max())


@pytest.mark.parametrize("kernel", [kc.Gaussian(sigma=6.0), kc.Matern(sigma=12.0), kc.Polynomial(degree=2, c=1.0)])
@pytest.mark.parametrize(("n", "k"), [(N, K), (33_000, 300)])
def test_the_centers_are_near_to_the_means_of_their_clusters(kernel, n, k):
    """Also with 110 rows per cluster, and with more than 256 clusters: the span is then that of the k means alone."""
    rows = topics(n, k=k)
    model, found = fit_by_span(rows, np.ones(n), Recipe(k, kernel, 20 * k, seed=0))
    assert len(model.shared.points) == max(k, 256)
    exact = cost_by_means(kernel, rows, found.labels)
    assert exact <= np.square(found.distances).sum() <= 1.06 * exact
    planted = np.random.default_rng(0)
    planted.normal(size=(k, 32))
    assert exact <= 1.01 * cost_by_means(kernel, rows, planted.integers(k, size=n))


def cost_by_means(kernel, rows, labels):
    order = np.argsort(labels, kind="stable")
    clusters = np.split(rows[order].astype(float), np.flatnonzero(np.diff(labels[order])) + 1)
    grams = [(len(own), kernel.block(own, own)) for own in clusters]
    return sum(np.trace(gram) - gram.sum() / size for size, gram in grams)


def test_the_cost_is_that_of_kernel_k_means_on_all_rows(fit):
    """The centers of the span are nearer to the means of their clusters than those of 20 coreset points are."""
    rows = topics()
    model, found = fit
    assert (found.labels == model.predict(rows)).all()
    assert model.shared is not None
    assert len(np.unique(found.labels)) == K
    exact = cost_by_means(KERNEL, rows, found.labels)
    assert exact <= np.square(found.distances).sum() <= 1.02 * exact
    by_coreset = kc.KernelKMeans(K, kernel=KERNEL, refine_iter=0, random_state=0).fit(rows)
    assert np.square(found.distances).sum() < by_coreset.inertia_
    assert model.solution.cost == pytest.approx(np.square(found.distances).sum(), rel=0.1)


def test_labels_are_those_of_the_formula(fit):
    centers = fit.model.centers
    rows = topics(n=2_000, seed=5).astype(float)
    gram, cross = KERNEL.block(centers.points, centers.points), KERNEL.block(centers.points, rows).T
    scores = naive_centers.scores(cross, gram, centers.coefficients)
    assert naive_centers.same_labels_but_for_ties(centers.predict(rows), scores, 1e-9)


def test_a_saved_model_has_the_same_centers(fit, tmp_path):
    fit.model.save(tmp_path / "model")
    loaded = kc.KernelKMeansModel.load(tmp_path / "model")
    assert loaded.shared.points.tobytes() == fit.model.shared.points.tobytes()
    assert loaded.shared.coefficients.tobytes() == fit.model.shared.coefficients.tobytes()
    rows = topics(n=1_000, seed=6)
    np.testing.assert_array_equal(loaded.predict(rows), fit.model.predict(rows))


@pytest.mark.parametrize(
    ("field", "value"),
    [("shared_count", 7), ("shared_count", "x"), ("shared_points", "?"), ("shared_coefficients", "AAAA")],
)
def test_damaged_centers_are_refused(fit, field, value):
    files = fit.model.to_files()
    about = unsigned(json.loads(files["model.json"]), "model.json")
    about[field] = value
    with pytest.raises(kc.FormatError, match="`shared_"):
        kc.KernelKMeansModel.from_files({**files, "model.json": json.dumps(signed(about)).encode()})


def test_the_same_seed_gives_the_same_fit(fit):
    again = fit_by_span(topics(), np.ones(N), Recipe(K, KERNEL, 1_200, seed=0))
    assert again.model.shared.coefficients.tobytes() == fit.model.shared.coefficients.tobytes()


def test_clusters_far_from_their_own_mean_are_left_to_the_coreset(monkeypatch):
    """Rows are on a ring with nothing in its middle, so the span of the middles misses much of the means of phi(x)."""
    generator = np.random.default_rng(0)
    rows = 20.0 * generator.normal(size=(300, 32))[generator.integers(300, size=33_000)]
    turns = 2.0 * np.pi * generator.random(33_000)
    rows[:, 0] += 2.0 * np.cos(turns)
    rows[:, 1] += 2.0 * np.sin(turns)
    recipe = Recipe(300, kc.Gaussian(sigma=2.0), 6_000, seed=0)
    assert fit_by_span(rows, np.ones(33_000), recipe) is None
    monkeypatch.setattr(spanned, "_MORE_COST", np.inf)
    assert fit_by_span(rows, np.ones(33_000), recipe) is not None


def test_numbers_beyond_float32_are_left_to_the_coreset():
    assert fit_by_span(1e17 * topics(), np.ones(N), Recipe(K, kc.Polynomial(degree=3, c=1.0), 1_200, seed=0)) is None


def test_the_unit_of_weights_changes_no_label(fit):
    small = fit_by_span(topics(), np.full(N, 2.0**-600), Recipe(K, KERNEL, 1_200, seed=0))
    np.testing.assert_array_equal(small.labels.labels, fit.labels.labels)


def test_a_cluster_of_most_rows_needs_little_memory():
    """Not a matrix of all its pairs: here 110 MB, for 1,000 clusters up to 30 GB."""
    rows = topics()
    rows[: N * 9 // 10] = 0.0
    tracemalloc.start()
    try:
        fit_by_span(rows, np.ones(N), Recipe(K, KERNEL, 1_200, seed=0))
        assert tracemalloc.get_traced_memory()[1] < 80e6
    finally:
        tracemalloc.stop()


def test_a_span_pays_for_many_clusters_of_many_rows_and_columns():
    recipe = Recipe(K, KERNEL, 1_200)
    assert span_pays(N, 32, recipe)
    assert not span_pays(N, 8, recipe)  # products do not pay
    assert not span_pays(32_768, 32, recipe)  # the sample would be nearly all
    assert span_pays(96_001, 32, Recipe(1_000, KERNEL, 20_000))
    assert not span_pays(96_000, 32, Recipe(1_000, KERNEL, 20_000))  # too few rows per cluster
    assert not span_pays(N, 32, Recipe(49, KERNEL, 1_200))
    assert not span_pays(N, 32, Recipe(K, kc.Linear(), 1_200))
    assert not span_pays(N, 32, Recipe(K, kc.Laplacian(sigma=1.0), 1_200))


def test_the_estimator_uses_the_span_and_its_weights():
    rows = topics()
    weights = np.where(rows[:, 0] > 0.0, 1.0, 0.0)
    model = kc.KernelKMeans(K, kernel=KERNEL, random_state=0, n_init=2).fit(rows, sample_weight=weights)
    assert model.model_.shared is None  # too few rows of positive weight
    model = kc.KernelKMeans(K, kernel=KERNEL, random_state=0, n_init=2).fit(rows, sample_weight=0.5 + weights)
    assert model.model_.shared is not None
    assert model.inertia_ == pytest.approx((0.5 + weights) @ model.transform(rows).min(axis=1) ** 2, rel=1e-3)
