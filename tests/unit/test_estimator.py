"""KernelKMeans as a scikit-learn estimator."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelcoreset as kc


@parametrize_with_checks([kc.KernelKMeans(n_clusters=3), kc.KernelKMeans(n_clusters=2, kernel=kc.Linear(), z=1.0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def two_groups(n=1_000):
    points = np.random.default_rng(0).normal(size=(n, 2)) + 9.0 * (np.arange(n) % 2)[:, None]
    return points, np.arange(n) % 2


def test_fit_predict_transform_score():
    points, truth = two_groups()
    model = kc.KernelKMeans(n_clusters=2, kernel=kc.Gaussian(sigma=3.0), coreset_size=100, random_state=0)
    labels = model.fit_predict(points)
    assert adjusted_rand_score(truth, labels) == 1.0
    assert len(model.coreset_) <= 100
    assert model.n_iter_ >= 1
    distances = model.transform(points)
    assert distances.shape == (1_000, 2)
    assert (distances.argmin(axis=1) == labels).all()
    exact = (distances.min(axis=1) ** 2).sum()
    assert model.inertia_ == pytest.approx(exact, rel=1e-3)
    assert model.score(points) == pytest.approx(1.0, abs=0.01)
    assert model.get_feature_names_out().tolist() == ["kernelkmeans0", "kernelkmeans1"]


def test_same_random_state_same_result():
    points, _ = two_groups()
    fits = [kc.KernelKMeans(n_clusters=4, coreset_size=50, random_state=7).fit(points) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    assert fits[0].inertia_ == fits[1].inertia_


def test_weights_pull_the_clusters():
    points = np.array([[0.0], [1.0], [10.0], [11.0], [30.0]])
    model = kc.KernelKMeans(n_clusters=2, kernel="linear", random_state=0)
    light = model.fit(points, sample_weight=[1, 1, 1, 1, 1e-6]).labels_
    assert light[0] == light[1] != light[2]
    heavy = clone(model).fit(points, sample_weight=[1, 1, 1, 1, 1e6]).labels_
    assert len({*heavy[:4]}) == 1 != heavy[4]
    # A row of weight 0 takes no part: only the walks within the other four count.
    assert model.score(points, sample_weight=[1, 1, 1, 1, 0.0]) == clone(model).fit(points[:4]).score(points[:4])


@pytest.mark.parametrize("name", ["gaussian", "exponential", "laplacian", "matern", "polynomial", "linear", "cosine"])
def test_kernels_by_name(name):
    points, _ = two_groups(200)
    model = kc.KernelKMeans(n_clusters=2, kernel=name, random_state=0).fit(points)
    assert type(model.kernel_).__name__.lower() == name
    if name == "gaussian":
        assert model.kernel_.sigma == pytest.approx(kc.choose_sigma(points))


def test_rbf_is_the_name_of_scikit_learn_for_gaussian():
    assert kc.KernelKMeans(2, kernel="rbf", sigma=2.0, random_state=0).fit(two_groups(50)[0]).kernel_ == kc.Gaussian(
        2.0
    )


def test_a_grid_search_over_width_and_number_finds_the_groups():
    points = np.random.default_rng(0).normal(size=(600, 2)) + 9.0 * np.repeat(np.arange(3), 200)[:, None]
    order = np.random.default_rng(1).permutation(600)
    grid = {"sigma": [0.1, 1.0, 5.0], "n_clusters": [2, 3, 4]}
    search = GridSearchCV(kc.KernelKMeans(coreset_size=150, n_init=3, random_state=0), grid, cv=2)
    assert search.fit(points[order]).best_params_["n_clusters"] == 3
    assert search.best_params_["sigma"] > 0.1


def test_in_a_pipeline_and_a_grid_search():
    points, truth = two_groups()
    pipeline = make_pipeline(StandardScaler(), kc.KernelKMeans(n_clusters=2, coreset_size=100, random_state=0))
    assert adjusted_rand_score(truth, pipeline.fit_predict(points)) == 1.0
    search = GridSearchCV(
        kc.KernelKMeans(coreset_size=100, kernel=kc.Gaussian(sigma=3.0), random_state=0), {"n_clusters": [1, 2]}, cv=2
    )
    assert search.fit(points).best_params_ == {"n_clusters": 2}


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda data: pl.DataFrame(data)])
def test_frames_go_in(frame):
    points, _ = two_groups(200)
    table = frame({"a": points[:, 0], "b": points[:, 1]})
    model = kc.KernelKMeans(n_clusters=2, random_state=0).fit(table)
    if isinstance(table, pd.DataFrame):  # scikit-learn before 1.8 does not ask polars for names
        assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.predict(table), model.labels_)


def test_bad_settings():
    points, _ = two_groups(50)
    for wrong, message in [
        ({"n_clusters": 0}, "`n_clusters` must be at least 1; got 0"),
        ({"coreset_size": 3}, r"`coreset_size` must be at least n_clusters \(8\); got 3"),
        ({"kernel": "gausian"}, r"`kernel` must be one of 'gaussian'.*; got 'gausian'\. Did you mean 'gaussian'\?"),
        ({"kernel": 3}, "`kernel` must be a kernel object such as Gaussian"),
        ({"sigma": "mean"}, "`sigma` must be one of 'median', 'auto'; got 'mean'"),
        ({"n_init": 0}, "`n_init` must be at least 1; got 0"),
        ({"z": 0.5}, "`z` must be a finite number of at least 1"),
        ({"n_clusters": 51}, "n_samples=50 should be >= n_clusters=51"),
    ]:
        with pytest.raises(kc.SettingError, match=message):
            kc.KernelKMeans(**wrong).fit(points)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("estimator", [kc.KernelKMeans(2), kc.SpectralClustering(2)])
def test_columns_of_texts_are_named_with_the_remedy(estimator, frame):
    table = frame({"age": [20.0, 30.0, 40.0], "job": ["cook", "clerk", "cook"]})
    with pytest.raises(kc.DataError, match=r"these do not: job\. .* features=kc\.Features\(categorical=\['job'\]\)"):
        estimator.fit(table)


def test_what_a_notebook_shows():
    points, _ = two_groups(200)
    model = kc.KernelKMeans(n_clusters=2, random_state=0)
    assert "Not fitted yet" in model._repr_html_()
    shown = model.fit(points)._repr_html_()
    assert "200 points" in shown
    assert "50.0%" in shown


def test_without_scikit_learn_the_error_says_what_to_install():
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import kernelcoreset as kc\n"
        "try:\n    kc.KernelKMeans\n"
        "except ImportError as error:\n    print(error)\n"
        "try:\n    kc.NoSuchName\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "need scikit-learn: pip install 'kernelcoreset[scikit-learn]'" in out
    assert "has no attribute 'NoSuchName'" in out
