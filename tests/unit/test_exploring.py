"""`explore`: what it finds in data with and without clusters, and the words for it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_moons

import kernelcoreset as kc
from kernelcoreset.features.preparation import Preparation


@pytest.fixture(scope="module")
def moons():
    points, _ = make_moons(3_000, noise=0.05, random_state=0)
    return kc.explore(points, ks=range(2, 5))


def test_moons_are_found_by_spectral_clustering_alone(moons):
    spectral = moons.findings["SpectralClustering"]
    assert (spectral.trial.k, spectral.trial.sigma, spectral.stable_widths) == (2, None, None)
    assert spectral.stability == pytest.approx(1.0)
    low, high = moons.findings["SpectralClustering with a kernel"].stable_widths
    assert 0.02 < low < high < 0.5
    assert moons.agreements["SpectralClustering", "plain k-means"] < 0.6
    text = str(moons)
    assert "500 distinct points stand for 3,000 rows" in text
    assert "Take k = 2: SpectralClustering(n_clusters=2) and SpectralClustering with a kernel find the same" in text
    assert f"k = 2: stable over {low:.3g} to {high:.3g}; halves of the data agree." in text
    assert "Plain k-means finds other clusters than spectral clustering" in text


def test_the_table_and_the_trials(moons):
    assert [row["method"] for row in moons.table] == list(moons.findings)
    assert {trial.k for trial in moons.trials} == {2, 3, 4}
    assert len([t for t in moons.trials if t.method == "KernelKMeans" and t.k == 3]) == 7
    assert all(-0.1 < trial.persistence <= 1.0 + 1e-9 for trial in moons.trials)


def test_the_plot_has_a_line_per_method(moons):
    import matplotlib

    matplotlib.use("Agg")
    axes = moons.plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == [*moons.findings, "data without clusters"]
    matplotlib.pyplot.close("all")


def test_round_groups_need_no_kernel():
    points = np.random.default_rng(0).normal(size=(400, 2)) + 9.0 * (np.arange(400) % 2)[:, None]
    found = kc.explore(points, ks=[2, 3])
    assert "Kernel k-means agrees with plain k-means here: you may not need a kernel." in found.sentences
    assert found.sentences[0].startswith("All 400 rows")
    assert found.dominant is None


def test_nothing_stands_out_in_one_cloud():
    found = kc.explore(np.random.default_rng(0).normal(size=(2_000, 3)), ks=[2, 3, 4])
    assert found.sentences[1].startswith("Nothing stands out")


def test_a_column_that_carries_the_distances_is_named():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 1e4], columns=["age", "income"])
    found = kc.explore(table, ks=[2])
    assert found.dominant[0] == "income"
    assert "Column income carries 100.0 % of the squared distances" in found.sentences[1]


def test_a_table_is_explored_with_its_features():
    generator = np.random.default_rng(0)
    old = np.arange(200) % 2
    table = pd.DataFrame({"age": 20.0 + 40 * old + generator.normal(size=200), "income": 1e5 * generator.random(200)})
    table["job"] = np.where(old, "retired", "student")
    with pytest.raises(kc.DataError, match=r"these do not: job\..*features=kc\.Features"):
        kc.explore(table, ks=[2])
    found = kc.explore(table, features={"categorical": ["job"]}, ks=[2, 3])
    assert found.dominant is None
    assert found.findings["SpectralClustering"].trial.k == 2
    prepared = Preparation.fit(table, kc.Features(categorical=["job"])).transform(table)
    assert kc.explore(prepared, ks=[2, 3]).table == found.table
    with pytest.raises(kc.SettingError, match="there is no column `jobs`; did you mean `job`"):
        kc.explore(table, features={"categorical": ["jobs"]})


def test_weights_decide_what_is_looked_at():
    points = np.random.default_rng(0).normal(size=(300, 2))
    weights = (points[:, 0] > 0).astype(float)
    assert kc.explore(points, ks=[2], sample_weight=weights).sampled == int(weights.sum())


def test_what_is_refused():
    points = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(kc.SettingError, match=r"`ks` must be at least 2; got 1. One cluster cannot be judged"):
        kc.explore(points, ks=[1, 2])
    with pytest.raises(kc.SettingError, match="`ks` must name at least one number"):
        kc.explore(points, ks=[])
    with pytest.raises(kc.DataError, match="must have more distinct rows than clusters; got 1"):
        kc.explore(np.ones((5, 2)))
    with pytest.raises(kc.SettingError, match="`inputCols` is for a Spark DataFrame; got an array"):
        kc.explore(points, inputCols=["a"])
