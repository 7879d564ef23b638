"""StreamingKernelKMeans as a scikit-learn estimator."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelcoreset as kc

KERNEL = kc.Gaussian(sigma=3.0)


@parametrize_with_checks([kc.StreamingKernelKMeans(n_clusters=3), kc.StreamingKernelKMeans(n_clusters=2, z=1.0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def batches(count=30, n=200, k=3, seed=0):
    generator = np.random.default_rng(seed)
    middles = 9.0 * np.stack([np.arange(k), np.arange(k) % 2], axis=1)
    for _ in range(count):
        truth = generator.integers(k, size=n)
        yield middles[truth] + generator.normal(size=(n, 2)), truth


def new_model(**options):
    return kc.StreamingKernelKMeans(
        **{"n_clusters": 3, "kernel": KERNEL, "coreset_size": 100, "random_state": 0} | options
    )


def test_batches_find_the_clusters_and_predict():
    model = new_model()
    for points, _ in batches():
        assert model.partial_fit(points) is model
    points, truth = next(batches(1, 1_000, seed=1))
    assert adjusted_rand_score(truth, model.predict(points)) == 1.0
    assert model.transform(points).shape == (1_000, 3)
    assert model.tree_.n_rows == 6_000
    assert model.n_batches_ == 30
    assert len(model.coreset_) <= 100
    assert not hasattr(model, "labels_")
    assert "6,000 rows in 30 batches" in model._repr_html_()


def test_the_cut_into_batches_does_not_matter():
    points = np.concatenate([points for points, _ in batches()])
    whole, parts = new_model().partial_fit(points), new_model()
    for part in np.array_split(points, 7):
        parts.partial_fit(part)
    np.testing.assert_array_equal(whole.coreset_.points, parts.coreset_.points)
    np.testing.assert_array_equal(whole.predict(points), parts.predict(points))


def test_fit_starts_over_and_equals_one_partial_fit():
    first, second = (points for points, _ in batches(2))
    model = new_model().partial_fit(first).fit(second)
    other = new_model().partial_fit(second)
    np.testing.assert_array_equal(model.labels_, other.predict(second))
    assert model.inertia_ == pytest.approx(model.model_.cost(second), rel=1e-3)
    assert model.tree_.n_rows == 200
    model.partial_fit(first)
    assert model.tree_.n_rows == 400
    assert not hasattr(model, "labels_")


def test_small_data_is_clustered_as_by_the_estimator_that_sees_it_at_once():
    points = np.concatenate([points for points, _ in batches(3, 30)])
    at_once = kc.KernelKMeans(n_clusters=3, kernel=KERNEL, coreset_size=100, random_state=0).fit(points)
    stream = new_model().fit(points)
    assert stream.inertia_ == pytest.approx(at_once.inertia_)


def test_clusters_keep_their_numbers():
    model, (probe, _) = new_model(), next(batches(1, 300, seed=9))
    labels = []
    for points, _ in batches(10):
        labels.append(model.partial_fit(points).predict(probe))
    assert all((own == labels[0]).all() for own in labels)


def test_refit_every_so_many_batches(monkeypatch):
    fits = []
    plain = kc.StreamingKernelKMeans._refit
    monkeypatch.setattr(kc.StreamingKernelKMeans, "_refit", lambda self: fits.append(self.n_batches_) or plain(self))
    model, often = new_model(refit_every=4), new_model()
    probe = np.zeros((1, 2))
    for points, _ in batches(10):
        model.partial_fit(points).predict(probe)
    assert fits == [1, 4, 8]  # the first because labels were asked for
    fits.clear()
    for points, _ in batches(3):
        often.partial_fit(points)
    assert fits == []
    often.predict(probe)
    often.transform(probe)
    assert fits == [3]


def test_weights_count_as_copies():
    points = np.concatenate([points for points, _ in batches(2, 20)])
    weights = np.arange(40) % 3
    weighted = new_model().partial_fit(points[:20], sample_weight=weights[:20])
    weighted.partial_fit(points[20:], sample_weight=weights[20:])
    copies = new_model().partial_fit(np.repeat(points, weights, axis=0))
    assert weighted.coreset_.weights.sum() == weights.sum()
    np.testing.assert_array_equal(weighted.predict(points), copies.predict(points))


def test_a_stream_survives_pickling():
    parts = [points for points, _ in batches(4)]
    model = new_model().partial_fit(parts[0])
    model.predict(parts[0])
    again = pickle.loads(pickle.dumps(model))
    for one in (model, again):
        for part in parts[1:]:
            one.partial_fit(part)
    np.testing.assert_array_equal(model.predict(parts[0]), again.predict(parts[0]))


def test_bad_input():
    points, _ = next(batches(1))
    with pytest.raises(NotFittedError):
        new_model().predict(points)
    with pytest.raises(NotFittedError):
        new_model().coreset_  # noqa: B018
    assert not hasattr(new_model(), "model_")
    with pytest.raises(ValueError, match="X has 1 features, but StreamingKernelKMeans is expecting 2 features"):
        new_model().partial_fit(points).partial_fit(points[:, :1])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        new_model().partial_fit(np.full((3, 2), np.nan))
    with pytest.raises(kc.SettingError, match=r"n_samples=2 should be >= n_clusters=3. Give more batches first"):
        new_model().partial_fit(points[:2]).predict(points)
    with pytest.raises(kc.SettingError, match=r"n_samples=2 should be >= n_clusters=3. Ask for fewer clusters"):
        new_model().fit(points[:2])
    for wrong, message in (
        ({"refit_every": 0}, "`refit_every` must be at least 1; got 0"),
        ({"coreset_size": 2}, r"`coreset_size` must be at least n_clusters \(3\); got 2"),
        ({"z": 0.5}, "`z` must be a finite number of at least 1"),
        ({"kernel": "gausian"}, "`kernel` must be one of 'gaussian'"),
    ):
        model = clone(new_model(**wrong))
        with pytest.raises(kc.SettingError, match=message):
            model.partial_fit(points)
        assert not hasattr(model, "tree_")
