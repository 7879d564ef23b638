"""Fits of many rows per cluster by a sample, with Linear and Cosine."""

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_by_clusters
from kernelcoreset.models import sampled
from kernelcoreset.models.sampled import fit_by_sample, sample_pays
from tests import naive_centers

N = 40_000


def topics(n=N, d=24, k=12, seed=0):
    generator = np.random.default_rng(seed)
    middles = generator.normal(size=(k, d))
    return (middles[generator.integers(k, size=n)] + 0.7 * generator.normal(size=(n, d))).astype(np.float32)


def recipe_of(kernel, k=12, size=300):
    return Recipe(k, kernel, size, seed=0)


@pytest.mark.parametrize("has_many_rows", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("kernel", [kc.Linear(), kc.Cosine()], ids=repr)
def test_the_cost_is_that_of_lloyd_over_all_rows(kernel, is_large, has_many_rows, monkeypatch):
    if is_large:
        monkeypatch.setattr(sampled, "_LARGE", 0)
    if has_many_rows:
        monkeypatch.setattr(sampled, "_LAST_SHARE", 2)
    rows, weights = topics(), np.ones(N)
    model, found = fit_by_sample(rows, weights, recipe_of(kernel), 10, 300)
    vectors = naive_centers.vectors(rows, isinstance(kernel, kc.Cosine))
    end = naive_centers.lloyd(model.means, vectors, weights, 10)
    best = sum(np.square(part[:, None] - end).sum(axis=2).min(axis=1).sum() for part in np.array_split(vectors, 20))
    assert best <= np.square(found.distances).sum() <= 1.005 * best
    assert (found.labels == model.predict(rows)).all()
    # Clusters of the coreset are those of its rows, and its cost and weights estimate those of all rows.
    assert (model.solution.labels == model.predict(model.coreset.points)).all()
    assert model.coreset.weights.sum() == pytest.approx(N, rel=0.05)
    assert model.solution.cost == pytest.approx(best, rel=0.1)
    np.testing.assert_allclose(model.solution.coefficients.sum(axis=1), 1.0)


def test_the_coreset_of_given_clusters_is_unbiased():
    """The mean weight over 400 draws is off by less than five of its standard errors."""
    rows = topics(n=500)
    weights = np.random.default_rng(1).exponential(size=500)
    labels = np.random.default_rng(2).integers(12, size=500).astype(np.int32)
    costs = np.random.default_rng(3).exponential(size=500)
    totals = np.zeros((400, 2))
    for seed in range(400):
        coreset, indices = reduce_by_clusters(
            rows, weights, labels, costs, recipe_of(kc.Linear()).varied(seed=seed, size=60)
        )
        assert (coreset.points == rows[indices]).all()
        assert len(coreset) <= 60
        totals[seed] = coreset.weights.sum(), coreset.weights @ costs[indices]
    expected = np.array([weights.sum(), weights @ costs])
    assert (np.abs(totals.mean(axis=0) - expected) < 5.0 * totals.std(axis=0) / 20.0).all()


def test_the_coreset_of_a_fit_is_about_as_good_as_one_that_is_built():
    """Largest errors over 100 sets of centers. A mean of five seeds; uniform draws have far rows too rarely.

    With 12 to 64 columns the fit's coreset had 1.5 to 1.7 times the error of one that is built, and 0.25 to
    0.42 times that of uniform and of independent draws.
    """
    rows = topics(d=16)
    rows[::100] *= 4.0
    errors = []
    for seed in range(5):
        fit = kc.KernelKMeans(12, kernel="linear", coreset_size=300, random_state=seed).fit(rows)
        assert fit.model_.means is not None
        recipe = {"k": 12, "kernel": kc.Linear()}
        others = [kc.build_coreset(rows, size=300, seed=seed, draw=draw, **recipe) for draw in ("ordered", "uniform")]
        own = (fit.coreset_, *others)
        errors.append([kc.empirical_error(rows, each, n_center_sets=100, seed=99, **recipe) for each in own])
    fitted, built, uniform = np.mean(errors, axis=0)
    assert fitted < 2.0 * built
    assert fitted < 0.6 * uniform


def test_a_sample_that_misses_far_rows_is_not_used():
    rows = topics()
    rows[7:11] += 1e3
    assert fit_by_sample(rows, np.ones(N), recipe_of(kc.Linear()), 1, 300) is None
    options = {"n_clusters": 12, "kernel": "linear", "coreset_size": 300, "random_state": 0}
    model = kc.KernelKMeans(**options).fit(rows)
    assert np.bincount(model.labels_)[model.labels_[7]] == 4


@pytest.mark.parametrize("share", [2, 4])
def test_rows_beyond_float32_are_not_lost_in_the_sample(share, monkeypatch):
    monkeypatch.setattr(sampled, "_LAST_SHARE", share)
    rows = topics().astype(np.float64)
    rows[::1_000] *= 1e60
    assert fit_by_sample(rows, np.ones(N), recipe_of(kc.Linear()), 1, 300) is None


def test_fewer_distinct_rows_in_the_sample_than_clusters_are_found_out():
    rows = np.zeros((N, 3))
    rows[:11] = np.random.default_rng(0).normal(size=(11, 3))
    assert fit_by_sample(rows, np.ones(N), recipe_of(kc.Linear()), 1, 300) is None
    assert kc.KernelKMeans(12, kernel="linear", random_state=0).fit(rows).inertia_ == pytest.approx(0.0, abs=1e-12)


def test_a_sample_pays_if_it_is_smaller_than_the_rows_and_larger_than_the_coreset():
    recipe = recipe_of(kc.Linear(), k=100, size=2_000)
    assert sample_pays(51_201, 3, recipe)
    assert not sample_pays(51_200, 3, recipe)
    assert not sample_pays(10**9, 3, recipe.varied(size=12_801))
    assert not sample_pays(32_768, 3, recipe_of(kc.Linear()))


def test_a_search_of_vectors_does_with_fewer_rows_per_cluster():
    recipe = recipe_of(kc.Linear(), k=1_000, size=20_000)
    assert sample_pays(96_001, 32, recipe)
    assert not sample_pays(96_000, 32, recipe)
    assert not sample_pays(96_001, 3, recipe)
    assert sample_pays(32_769, 32, recipe_of(kc.Linear(), k=100, size=2_000))
    assert not sample_pays(32_768, 32, recipe_of(kc.Linear(), k=100, size=2_000))


@pytest.mark.parametrize("kernel", [kc.Linear(), kc.Cosine()], ids=repr)
def test_many_clusters_of_few_columns_are_found_in_all_of_them(kernel):
    """110 rows per cluster: the sample is nearly all of them, and the planted clusters are found."""
    k, n = 300, 33_000
    rows = topics(n, d=32, k=k)
    model, found = fit_by_sample(rows, np.ones(n), recipe_of(kernel, k=k, size=6_000), 1, 300)
    vectors = naive_centers.vectors(rows, isinstance(kernel, kc.Cosine))
    planted = np.random.default_rng(0)
    planted.normal(size=(k, 32))
    groups = planted.integers(k, size=n)
    means = np.stack([vectors[groups == c].mean(axis=0) for c in range(k)])
    assert np.square(found.distances).sum() <= 1.01 * np.square(vectors - means[groups]).sum()
    assert (found.labels == model.predict(rows)).all()


def test_the_estimator_uses_the_sample_and_its_weights():
    rows = topics()
    options = {"n_clusters": 12, "kernel": "linear", "coreset_size": 300, "random_state": 0}
    rough, fine = (kc.KernelKMeans(**options, refine_iter=steps).fit(rows) for steps in (0, 3))
    assert fine.inertia_ < rough.inertia_
    assert len(fine.coreset_) <= 300
    assert (fine.labels_ == fine.predict(rows)).all()
    assert fine.inertia_ == pytest.approx(fine.model_.cost(rows), rel=1e-3)
    # Equal weights change nothing, and rows of weight 0 count for nothing.
    weighted = kc.KernelKMeans(**options).fit(rows, sample_weight=np.ones(N))
    assert weighted.inertia_ == pytest.approx(fine.inertia_, rel=1e-12)
    wild = rows.copy()
    wild[35_000:] *= 1e3
    part = kc.KernelKMeans(**options).fit(wild, sample_weight=np.repeat([1.0, 0.0], [35_000, 5_000]))
    alone = kc.KernelKMeans(**options).fit(rows[:35_000])
    assert part.inertia_ == pytest.approx(alone.inertia_, rel=0.02)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [kc.Linear(), kc.Cosine()], ids=repr)
def test_many_columns_are_searched_in_fewer(kernel, kind, monkeypatch):
    """Groups that are well apart in 400 columns are all found, and their cost is that of their means."""
    generator = np.random.default_rng(3)
    group = generator.integers(12, size=N)
    rows = (generator.normal(size=(12, 400))[group] + 1.5 * generator.normal(size=(N, 400))).astype(kind)
    weights = generator.integers(1, 4, size=N).astype(float)
    sizes = []
    original = sampled.search_vectors
    monkeypatch.setattr(sampled, "search_vectors", lambda *given: sizes.append(given[0].shape[1]) or original(*given))
    model, found = fit_by_sample(rows, weights, recipe_of(kernel), 10, 300)
    assert sizes == [192]
    assert (found.labels == model.predict(rows)).all()
    assert len({*zip(group.tolist(), found.labels.tolist(), strict=True)}) == 12
    vectors = naive_centers.vectors(rows, isinstance(kernel, kc.Cosine))
    means = np.stack([np.average(vectors[group == g], axis=0, weights=weights[group == g]) for g in range(12)])
    cost = weights @ np.square(vectors - means[group]).sum(axis=1)
    assert weights @ np.square(found.distances) == pytest.approx(cost, rel=1e-4)
    # Clusters are numbered by their weight in the sample, so nearly by that of all rows.
    assert (np.diff(np.bincount(found.labels, weights)) < 0.15 * weights.sum() / 12).all()
    again = fit_by_sample(rows, weights, recipe_of(kernel), 10, 300)
    assert again.model.means.tobytes() == model.means.tobytes()
