"""A fitted model: labels, distances and costs, and saving and loading."""

import json

import numpy as np
import pytest

import kernelcoreset as kc
from tests.user_kernels import rational

KERNEL = kc.Gaussian(sigma=3.0)


def three_groups(n=900, seed=0):
    generator = np.random.default_rng(seed)
    group = generator.choice(3, size=n, p=[0.5, 0.3, 0.2])
    return generator.normal(size=(n, 2)) + 9.0 * group[:, None], group


@pytest.fixture(scope="module")
def fitted():
    points, _ = three_groups()
    ids = np.array([f"row-{i}" for i in range(len(points))])
    coreset = kc.build_coreset(points, 3, KERNEL, 120, ids=ids, seed=1)
    return points, kc.KernelKMeansModel.fit_coreset(coreset, 3, KERNEL, seed=1)


def naive_distances(points, model):
    def gram(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(2) / (2 * KERNEL.sigma**2))

    own = model.coreset.points
    coefficients = model.solution.coefficients
    squared = 1.0 - 2.0 * gram(points, own) @ coefficients.T
    squared += np.einsum("ki,ij,kj->k", coefficients, gram(own, own), coefficients)
    return np.sqrt(np.maximum(squared, 0.0))


def test_labels_distances_and_cost_are_the_formula(fitted):
    points, model = fitted
    expected = naive_distances(points, model)
    np.testing.assert_allclose(model.distances(points), expected, atol=1e-7)
    assert (model.predict(points) == expected.argmin(axis=1)).all()
    weights = np.linspace(0.0, 2.0, len(points))
    assert model.cost(points, weights) == pytest.approx((weights * expected.min(axis=1) ** 2).sum(), rel=1e-9)


def test_clusters_are_numbered_by_decreasing_weight(fitted):
    _, model = fitted
    assert (np.diff(model.cluster_weights) <= 0).all()
    assert model.cluster_sizes.sum() == len(model.coreset)
    shuffled = np.random.default_rng(3).permutation(len(model.coreset))
    other = kc.Coreset(model.coreset.points[shuffled], model.coreset.weights[shuffled])
    again = kc.KernelKMeansModel.fit_coreset(other, 3, KERNEL, seed=5)
    assert (again.solution.labels == model.solution.labels[shuffled]).all()


def test_a_warm_start_keeps_the_numbers(fitted):
    _, model = fitted
    turned = np.array([2, 0, 1], dtype=np.int32)[model.solution.labels]
    again = kc.KernelKMeansModel.fit_coreset(model.coreset, 3, KERNEL, n_init=1, start=turned)
    assert (again.solution.labels == turned).all()


def test_representatives_are_the_nearest_rows(fitted):
    _, model = fitted
    distances = naive_distances(model.coreset.points, model)
    for cluster, names in enumerate(model.representatives(3)):
        members = np.flatnonzero(model.solution.labels == cluster)
        expected = members[np.argsort(distances[members, cluster], kind="stable")[:3]]
        assert names.tolist() == model.coreset.ids[expected].tolist()


def test_representatives_without_ids_are_positions():
    coreset = kc.Coreset([[0.0], [1.0], [9.0]], [1.0, 1.0, 1.0])
    model = kc.KernelKMeansModel.fit_coreset(coreset, 2, kc.Linear())
    assert [found.tolist() for found in model.representatives()] == [[0], [2]]
    with pytest.raises(kc.SettingError, match=r"`count` must be at least 1; got 0"):
        model.representatives(0)


def test_refit_needs_no_data(fitted):
    points, model = fitted
    two = model.refit(2, seed=3)
    assert two.k == 2
    assert set(two.predict(points)) == {0, 1}
    assert two.solution.cost > model.solution.cost
    with pytest.raises(kc.SettingError, match="`k` must be at most 3, the k the coreset was built for; got 4"):
        model.refit(4)


def test_save_and_load_change_nothing(fitted, tmp_path):
    points, model = fitted
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["coreset.parquet", "model.json"]
    again = kc.KernelKMeansModel.load(tmp_path / "model")
    assert again.kernel == model.kernel
    assert (again.z, again.k, again.solution.converged) == (model.z, model.k, model.solution.converged)
    assert (again.coreset.ids == model.coreset.ids).all()
    np.testing.assert_array_equal(again.predict(points), model.predict(points))
    np.testing.assert_array_equal(again.distances(points), model.distances(points))
    assert again.to_files() == model.to_files()


def test_saving_overwrites_only_on_request_and_only_models(fitted, tmp_path):
    _, model = fitted
    folder = tmp_path / "model"
    model.save(folder)
    with pytest.raises(FileExistsError, match=r"already exists. Pass overwrite=True"):
        model.save(folder)
    model.refit(2).save(folder, overwrite=True)
    assert kc.KernelKMeansModel.load(folder).k == 2
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"is not a model: it holds thesis\.txt\. Remove it yourself"):
        model.save(precious, overwrite=True)
    assert (precious / "thesis.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "precious"]


def test_a_failed_save_leaves_the_old_model(tmp_path):
    coreset = kc.Coreset([[0.0], [1.0], [9.0]], np.ones(3))
    folder = tmp_path / "model"
    kc.KernelKMeansModel.fit_coreset(coreset, 2, kc.Linear()).save(folder)
    nameless = kc.UserKernel(lambda x, y: x[0] * y[0])
    with pytest.raises(kc.KernelError, match="saved by its import path"):
        kc.KernelKMeansModel.fit_coreset(coreset, 2, nameless).save(folder, overwrite=True)
    assert kc.KernelKMeansModel.load(folder).kernel == kc.Linear()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_user_kernel_is_saved_by_its_import_path(tmp_path):
    coreset = kc.Coreset([[0.0], [1.0], [9.0]], np.ones(3))
    kernel = kc.UserKernel(rational)
    kc.KernelKMeansModel.fit_coreset(coreset, 2, kernel).save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["kernel"]["function"] == "tests.user_kernels:rational"
    assert kc.KernelKMeansModel.load(tmp_path / "model", trusted_modules=["tests.user_kernels"]).kernel == kernel


@pytest.fixture
def saved(fitted, tmp_path):
    fitted[1].save(tmp_path / "model")
    return tmp_path / "model"


def test_loading_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model folder at"):
        kc.KernelKMeansModel.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(kc.FormatError, match=r"not a whole model: model.json and coreset.parquet missing"):
        kc.KernelKMeansModel.load(tmp_path / "empty")


def test_loading_a_newer_format(saved):
    about = json.loads((saved / "model.json").read_text())
    (saved / "model.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(kc.FormatError, match=r"format 99; this version reads up to 1. Upgrade"):
        kc.KernelKMeansModel.load(saved)


@pytest.mark.parametrize("key", ["k", "z", "kernel", "cost", "n_iter", "converged", "sha256", "checksum"])
def test_loading_a_changed_value(saved, key):
    about = json.loads((saved / "model.json").read_text())
    for changed in ({**about, key: 7}, {name: value for name, value in about.items() if name != key}):
        (saved / "model.json").write_text(json.dumps(changed))
        with pytest.raises(kc.FormatError, match=r"model.json of the model is damaged: its checksum is wrong"):
            kc.KernelKMeansModel.load(saved)


def test_loading_damaged_files_says_so(saved):
    """Fuzzed: any cut or changed byte of either file gives a FormatError, never another error or a wrong model."""
    generator = np.random.default_rng(0)
    whole = {name: (saved / name).read_bytes() for name in ("model.json", "coreset.parquet")}
    for name, content in whole.items():
        for trial in range(60):
            damaged = bytearray(content)
            if trial % 2:
                damaged = damaged[: int(generator.integers(len(damaged) - 1))]
            else:
                damaged[int(generator.integers(len(damaged)))] ^= 0x55
            with pytest.raises(kc.FormatError):
                kc.KernelKMeansModel.from_files({**whole, name: bytes(damaged)})


def test_predicting_bad_points(fitted):
    _, model = fitted
    with pytest.raises(kc.DataError, match=r"`points` must have 2 columns like the centers; got 3"):
        model.predict(np.zeros((4, 3)))
    with pytest.raises(kc.DataError, match=r"`points` must be finite; got 1 bad rows of 2, the first at row 1"):
        model.predict([[0.0, 0.0], [0.0, np.nan]])
