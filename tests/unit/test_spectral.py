"""Spectral clustering of points: its results, its error messages, and saving and loading."""

import json
import subprocess
import sys

import numpy as np
import pytest
from numba import njit
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelcoreset as kc
from kernelcoreset.kernels import Normalized
from kernelcoreset.spectral.degrees import Degrees
from kernelcoreset.spectral.model import load_model
from tests.cases import some_points


@parametrize_with_checks([kc.SpectralClustering(n_clusters=3), kc.SpectralClustering(n_clusters=3, sigma="median")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def spirals(n):
    generator = np.random.default_rng(0)
    arm = np.arange(n) % 2
    radius = np.sqrt(generator.uniform(0.02, 1.0, size=n))
    angle = 3 * np.pi * radius + np.pi * arm
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), arm


SHAPES = {
    "moons": (make_moons(4_000, noise=0.05, random_state=0), 0.1),
    "rings": (make_circles(4_000, factor=0.5, noise=0.05, random_state=0), 0.1),
    "spirals": (spirals(4_000), 0.05),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_no_kernel_k_means_follows(name):
    (points, truth), sigma = SHAPES[name]
    model = kc.SpectralClustering(2, kernel=kc.Gaussian(sigma=sigma), coreset_size=1_000, random_state=0)
    assert adjusted_rand_score(truth, model.fit_predict(points)) > 0.99
    new = points[::7] + 0.001
    assert adjusted_rand_score(truth[::7], model.predict(new)) > 0.99
    assert 0.0 <= model.normalized_cut_ + 1e-9 < 0.01
    assert len(model.coreset_) <= 1_000
    assert model.coreset_.points.shape[1] == 3
    assert model.n_iter_ >= 1


def test_the_cut_is_at_most_that_of_eigenvectors():
    from sklearn.cluster import SpectralClustering

    points = some_points(600, 2)
    kernel = kc.Gaussian(sigma=1.0)
    theirs = SpectralClustering(5, affinity="precomputed", random_state=0).fit_predict(kernel.block(points, points))
    own = kc.SpectralClustering(5, kernel=kernel, random_state=0).fit_predict(points)
    cuts = [kc.normalized_cut(labels, points, kernel=kernel).value for labels in (own, theirs)]
    assert cuts[0] <= cuts[1] + 1e-9


def test_same_seed_same_result_and_input_unchanged():
    points = some_points(3_000, 2)
    before = points.copy()
    fits = [kc.SpectralClustering(3, sigma="median", coreset_size=200, random_state=5).fit(points) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    np.testing.assert_array_equal(points, before)
    np.testing.assert_array_equal(fits[0].predict(points), fits[0].labels_)


@pytest.mark.parametrize("kernel", [kc.Gaussian(sigma=1.0), kc.Polynomial(degree=2, c=1.0)], ids=repr)
@pytest.mark.parametrize("n", [300, 900])
def test_labels_of_small_data_are_those_of_the_centers(kernel, n):
    points = some_points(n, 2).round(1)  # with ties
    model = kc.SpectralClustering(4, kernel=kernel, random_state=1).fit(points)
    np.testing.assert_array_equal(model.predict(points), model.labels_)


def test_a_fit_computes_every_degree_once(monkeypatch):
    computed = []
    plain = Degrees._of
    monkeypatch.setattr(Degrees, "_of", lambda self, columns: computed.append(columns.shape[1]) or plain(self, columns))
    kc.SpectralClustering(3, sigma="median", coreset_size=200, random_state=5).fit(some_points(3_000, 2))
    assert sum(computed) == 3_000


def test_the_degree_of_an_outlier_is_its_own_share():
    """No similarity to any other point in float64: its degree is K(x, x) over the total, and nothing overflows."""
    points = np.vstack([some_points(2_500, 2), [[1e6, 1e6]]])
    model = kc.fit_spectral(points, 2, kc.Gaussian(sigma=1.0), 300)
    assert model.degrees.of([[1e6, 1e6]])[0] == pytest.approx(1 / 2_501)
    assert np.isfinite(model.normalized_cut)
    assert len(model.predict(points)) == 2_501


@njit
def shifted(x, y):
    return 1.0 if x[0] != y[0] else 0.5


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (kc.Linear(), r"similarities of at least 0; Linear\(\) gives -.* Use a kernel that is never negative"),
        (kc.Polynomial(degree=3), "similarities of at least 0"),
        (kc.Cosine(), "similarities of at least 0"),
        (kc.UserKernel(shifted), "needs a positive semidefinite kernel; UserKernel.* negative eigenvalue"),
    ],
)
def test_a_kernel_that_is_not_a_similarity_is_refused(kernel, message):
    with pytest.raises(kc.KernelError, match=message):
        kc.SpectralClustering(2, kernel=kernel).fit(some_points(100, 2))


def test_a_kernel_that_may_be_negative_is_accepted_if_it_is_not_negative_on_the_data():
    points = np.abs(some_points(200, 2)) + 0.1
    assert set(kc.SpectralClustering(2, kernel=kc.Linear(), random_state=0).fit_predict(points)) == {0, 1}


def test_isolated_points_and_other_bad_input():
    points = some_points(100, 2)
    holed = np.vstack([points, [[0.0, 0.0]]])
    with pytest.raises(kc.DataError, match=r"similar to some.*degree 0 at 1 of 101 points, the first \[0.0, 0.0\]"):
        kc.fit_spectral(holed, 2, kc.Polynomial(degree=2), 50)
    with pytest.raises(kc.SettingError, match=r"`degree_sample` must be at least 2; got 1. Or None"):
        kc.fit_spectral(points, 2, kc.Gaussian(1.0), 50, degree_sample=1)
    with pytest.raises(kc.SettingError, match=r"`coreset_size` must be at least n_clusters \(8\); got 3"):
        kc.SpectralClustering(coreset_size=3).fit(points)
    with pytest.raises(kc.SettingError, match="n_samples=100 should be >= n_clusters=101"):
        kc.SpectralClustering(101).fit(points)
    model = kc.fit_spectral(points, 2, kc.Gaussian(1.0), 50)
    with pytest.raises(kc.DataError, match="`points` must have 2 columns like the degree sample; got 3"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(kc.KernelError, match="overflows for"):
        kc.fit_spectral(points * 1e90, 2, kc.Polynomial(degree=4), 50)
    with pytest.raises(kc.KernelError, match="cannot be part of another kernel"):
        (Normalized(kc.Linear()) + kc.Linear()).block([[1.0, 1.0]], [[1.0, 1.0]])


def test_bad_input_of_normalized_cut():
    points = some_points(10, 2)
    kernel = kc.Gaussian(1.0)
    with pytest.raises(kc.SettingError, match="Give either `points` with `kernel`, or `graph`"):
        kc.normalized_cut(np.zeros(10, int))
    for labels in (np.zeros(9, int), np.zeros(10), np.full(10, -1)):
        with pytest.raises(kc.DataError, match=r"`labels` must be whole numbers of at least 0 and of shape \(10,\)"):
            kc.normalized_cut(labels, points, kernel=kernel)
    with pytest.raises(kc.SettingError, match="`sample` must be at least 2"):
        kc.normalized_cut(np.zeros(10, int), points, kernel=kernel, sample=1)
    with pytest.raises(kc.DataError, match="Cluster 1 must have a volume above 0"):
        kc.normalized_cut([0, 1], [[1.0], [0.0]], kernel=kc.Linear())
    assert float(kc.normalized_cut(np.zeros(10, int), points, kernel=kernel)) == pytest.approx(0.0, abs=1e-12)


def test_normalized_cut_takes_a_graph():
    matrix = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    source, target = np.nonzero(np.triu(matrix))
    graph = kc.Graph.from_edges(source, target, matrix[source, target])
    assert kc.normalized_cut([0, 0, 1], graph=graph).value == pytest.approx(1 / 5 + 1)


# --- saved as a folder -----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    points = some_points(3_000, 2)
    model = kc.fit_spectral(points, 3, kc.Gaussian(sigma=1.0), 200, seed=2)
    model.save(tmp_path / "model")
    return points, model, tmp_path / "model"


def test_save_and_load(saved):
    points, model, folder = saved
    assert sorted(path.name for path in folder.iterdir()) == ["coreset.parquet", "degrees.parquet", "model.json"]
    loaded = kc.SpectralModel.load(folder)
    np.testing.assert_array_equal(loaded.predict(points), model.predict(points))
    np.testing.assert_array_equal(loaded.degrees.of(points), model.degrees.of(points))
    assert loaded.normalized_cut == model.normalized_cut
    assert loaded.kernel == kc.Gaussian(sigma=1.0)
    assert kc.SpectralModel.load(folder).refit(2).k == 2
    estimator = kc.SpectralClustering.load(folder)
    np.testing.assert_array_equal(estimator.predict(points), model.predict(points))
    with pytest.raises(FileExistsError, match="already exists"):
        estimator.save(folder)
    estimator.save(folder, overwrite=True)


def test_load_model_finds_out_the_kind(saved, tmp_path):
    folder = saved[-1]
    assert isinstance(load_model(folder), kc.SpectralModel)
    coreset = kc.build_coreset(some_points(90, 2), 2, kc.Gaussian(1.0), 40)
    kc.KernelKMeansModel.fit_coreset(coreset, 2, kc.Gaussian(1.0)).save(tmp_path / "plain")
    assert isinstance(load_model(tmp_path / "plain"), kc.KernelKMeansModel)
    (tmp_path / "plain" / "model.json").unlink()
    with pytest.raises(kc.FormatError, match=r"not a whole model: model.json missing"):
        load_model(tmp_path / "plain")


def test_damaged_or_foreign_folders(saved):
    _, model, folder = saved
    with pytest.raises(kc.FormatError, match=r"This is a spectral model: load it with SpectralModel.load"):
        kc.KernelKMeansModel.load(folder)
    content = (folder / "degrees.parquet").read_bytes()
    middle = len(content) // 3
    for damaged in (content[:-9], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]):
        (folder / "degrees.parquet").write_bytes(damaged)
        with pytest.raises(kc.FormatError, match=r"degrees.parquet of the model is damaged .* Save the model again"):
            kc.SpectralModel.load(folder)
    (folder / "degrees.parquet").unlink()
    with pytest.raises(kc.FormatError, match=r"not a whole model: degrees.parquet missing"):
        kc.SpectralModel.load(folder)
    plain = kc.KernelKMeansModel.fit_coreset(
        kc.build_coreset(some_points(90, 2), 2, kc.Gaussian(1.0), 40), 2, kc.Gaussian(1.0)
    )
    with pytest.raises(kc.FormatError, match="not a spectral model"):
        kc.SpectralModel.from_files({**plain.to_files(), "degrees.parquet": model.degrees.to_parquet()})


def test_pickled_degrees_give_the_same_values():
    import pickle

    degrees = Degrees.estimate(some_points(400, 2), kc.Gaussian(sigma=2.0), sample=100)
    new = some_points(50, 2, seed=4)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(degrees)).of(new), degrees.of(new))
    assert repr(degrees) == "Degrees(100 points in 2 dimensions, Gaussian(sigma=2.0))"


def test_without_scikit_learn_only_the_estimators_are_missing():
    script = (
        "import sys, json; sys.modules['sklearn'] = None\n"
        "import numpy as np, kernelcoreset as kc\n"
        "points = np.random.default_rng(0).normal(size=(60, 2))\n"
        "cut = kc.fit_spectral(points, 2, kc.Gaussian(1.0), 60).normalized_cut\n"
        "try:\n    kc.SpectralClustering\n"
        "except ImportError as error:\n    print(json.dumps([cut, str(error)]))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    cut, message = json.loads(out)
    assert 0 < cut < 1
    assert "estimators need scikit-learn: pip install 'kernelcoreset[scikit-learn]'" in message
