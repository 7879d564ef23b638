"""Centers of Linear and Cosine as vectors, and iterations of Lloyd over all rows."""

import json

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.labelling.written_out import RowSums, centers_of, lloyd_over_chosen, lloyd_over_rows
from tests import naive_centers

KERNELS = [kc.Linear(), kc.Cosine()]


def topics(n=3_000, d=24, k=12, seed=0):
    generator = np.random.default_rng(seed)
    middles = generator.normal(size=(k, d))
    return middles[generator.integers(k, size=n)] + 0.7 * generator.normal(size=(n, d))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_iterations_over_rows_are_those_of_lloyd(kernel, offset, dtype):
    rows = (topics() + offset).astype(dtype)
    weights = np.random.default_rng(1).exponential(size=len(rows))
    is_cosine = isinstance(kernel, kc.Cosine)
    first = naive_centers.vectors(rows[:12], is_cosine)
    found = lloyd_over_rows(first, rows, weights, kernel, 3)
    expected = naive_centers.lloyd(first, naive_centers.vectors(rows, is_cosine), weights, 3)
    # float32 rounds an offset of 1e4 to 1e-3; a few rows near a boundary may then choose the other side.
    scale = np.abs(expected - expected.mean(axis=0)).max()
    np.testing.assert_allclose(found, expected, atol=1e-2 * scale if offset else 1e-5 * scale)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batches_give_the_same_iteration(kernel, offset, dtype):
    rows = (topics() + offset).astype(dtype)
    weights = np.random.default_rng(1).exponential(size=len(rows))
    first = naive_centers.vectors(rows[:12], isinstance(kernel, kc.Cosine))
    halves = RowSums(first, kernel), RowSums(first, kernel)
    for half, own in zip(halves, np.array_split(np.arange(len(rows)), 2), strict=True):
        for some in np.split(own, [0, 1, 700]):
            half.add(rows[some], weights[some])
    halves[0].sums += halves[1].sums
    halves[0].mass += halves[1].mass
    expected = lloyd_over_rows(first, rows, weights, kernel, 1)
    # float32 or not is decided by the first batch, here of one row.
    scale = np.abs(expected - expected.mean(axis=0)).max()
    np.testing.assert_allclose(halves[0].moved(), expected, atol=1e-2 * scale if offset else 1e-5 * scale)


def test_a_batch_beyond_float32_is_added_in_float64():
    rows = topics(n=200)
    far = np.vstack([rows, 2e39 * rows[:2]])
    found = RowSums(rows[:3], kc.Linear())
    found.add(rows, None)
    found.add(far[200:], None)
    np.testing.assert_allclose(found.moved(), lloyd_over_rows(rows[:3], far, np.ones(202), kc.Linear(), 1), rtol=1e-5)


def test_a_center_without_rows_stays_and_iterations_end_when_nothing_moves():
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0]])
    means = np.array([[0.0, 0.0], [9.0, 0.0], [99.0, 99.0]])
    found = lloyd_over_rows(means, rows, np.array([3.0, 1.0, 2.0]), kc.Linear(), 100)
    np.testing.assert_allclose(found, [[0.25, 0.0], [10.0, 0.0], [99.0, 99.0]])


def test_tight_clusters_far_apart_are_not_confused():
    """float32 cannot tell rows apart that are 1e-5 apart at 1e3: then float64 is used."""
    generator = np.random.default_rng(0)
    group = generator.integers(4, size=400)
    rows = np.array([-1e3, -1e3 + 1e-4, 1e3, 1e3 + 1e-4])[group, None] + 1e-6 * generator.normal(size=(400, 1))
    first = np.array([rows[group == g][0] for g in range(4)])
    found = lloyd_over_rows(first, rows, np.ones(400), kc.Linear(), 2)
    np.testing.assert_allclose(found[:, 0], [rows[group == g].mean() for g in range(4)], rtol=0, atol=1e-9)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_very_small_and_very_large_rows_do_not_leave_the_range_of_float32(unit):
    rows, weights = topics(), np.ones(3_000)
    expected = naive_centers.lloyd(rows[:12], rows, weights, 2)
    found = lloyd_over_rows(unit * rows[:12], unit * rows, weights, kc.Linear(), 2)
    np.testing.assert_allclose(found / unit, expected, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_vectors_as_centers_have_the_distances_of_the_formula(kernel):
    rows = topics(n=200)
    is_cosine = isinstance(kernel, kc.Cosine)
    unit = naive_centers.vectors(rows, is_cosine)
    means = np.stack([unit[:50].mean(axis=0), unit[50:60].mean(axis=0), unit[60], 0.0 * unit[0]])
    expected = np.sqrt(((unit[:, None] - means) ** 2).sum(axis=2))
    centers = centers_of(means, kernel, 3.0)
    np.testing.assert_allclose(centers.distances(rows), expected, atol=1e-7)
    assert (centers.predict(rows) == expected.argmin(axis=1)).all()
    assert centers.label(rows).certified > 0.9  # by matrix products, not point by point


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_refining_lowers_the_cost_of_all_rows(kernel):
    rows = topics()
    coreset = kc.build_coreset(rows, 12, kernel, 60, seed=0)
    model = kc.KernelKMeansModel.fit_coreset(coreset, 12, kernel)
    refined = model.refine(rows, steps=1)
    again = refined.refine(rows, steps=2)
    # Balanced coresets are so good here that one step may be all there is to gain.
    assert again.cost(rows) <= refined.cost(rows) < model.cost(rows)
    assert again.solution is model.solution


def test_a_refined_model_is_saved_with_its_centers(tmp_path):
    rows = topics()
    kernel = kc.Cosine()
    model = kc.KernelKMeansModel.fit_coreset(kc.build_coreset(rows, 12, kernel, 60), 12, kernel).refine(rows)
    model.save(tmp_path / "model")
    loaded = kc.KernelKMeansModel.load(tmp_path / "model")
    assert loaded.means.tobytes() == model.means.tobytes()
    assert (loaded.predict(rows) == model.predict(rows)).all()
    assert loaded.cost(rows) == model.cost(rows)


@pytest.mark.parametrize("text", ["?", "AAAA", 7])
def test_wrong_centers_in_a_file_are_named(text):
    from kernelcoreset.files.documents import signed

    rows = topics()
    model = kc.KernelKMeansModel.fit_coreset(kc.build_coreset(rows, 3, kc.Linear(), 60), 3, kc.Linear()).refine(rows)
    files = model.to_files()
    about = json.loads(files["model.json"])
    del about["checksum"]
    about["means"] = text
    with pytest.raises(kc.FormatError, match="`means` must be"):
        kc.KernelKMeansModel.from_files({**files, "model.json": json.dumps(signed(about)).encode()})


def test_kernels_without_vectors_are_refused():
    rows = topics(n=200)
    kernel = kc.Gaussian(sigma=3.0)
    model = kc.KernelKMeansModel.fit_coreset(kc.build_coreset(rows, 3, kernel, 60), 3, kernel)
    with pytest.raises(kc.SettingError, match=r"`refine` needs centers that are vectors: .* got Gaussian"):
        model.refine(rows)
    with pytest.raises(kc.SettingError, match=r"`refine` needs .* z=1"):
        kc.KernelKMeansModel(model.coreset, kc.Linear(), model.solution, 1.0).refine(rows)


def test_the_estimator_refines_on_all_rows_and_takes_float32_as_it_is():
    rows = topics().astype(np.float32)
    options = {"n_clusters": 12, "kernel": "cosine", "coreset_size": 60, "random_state": 0}
    rough = kc.KernelKMeans(**options, refine_iter=0).fit(rows)
    fine = kc.KernelKMeans(**options).fit(rows)
    assert fine.inertia_ < rough.inertia_
    assert rough.model_.means is None
    wide = kc.KernelKMeans(**options).fit(rows.astype(np.float64))
    assert fine.inertia_ == pytest.approx(wide.inertia_, rel=1e-5)
    assert kc.KernelKMeans(**{**options, "coreset_size": len(rows)}).fit(rows).model_.means is None
    with pytest.raises(kc.SettingError, match="`refine_iter` must be at least 0; got -1"):
        kc.KernelKMeans(**options, refine_iter=-1).fit(rows)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_one_iteration_over_chosen_rows_is_that_over_these_rows(kernel):
    rows = topics(n=2_000, d=2_000)
    weights = np.random.default_rng(1).exponential(size=len(rows))
    chosen = np.flatnonzero(weights > 0.3)
    assert len(chosen) > 2_097_152 // 2_000  # more than one block
    first = naive_centers.vectors(rows[:12], isinstance(kernel, kc.Cosine))
    found = lloyd_over_chosen(first, rows, weights, chosen, kernel)
    vectors = naive_centers.vectors(rows[chosen], isinstance(kernel, kc.Cosine))
    expected = naive_centers.lloyd(first, vectors, weights[chosen], 1)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_the_size_of_a_coreset_grows_with_the_number_of_clusters():
    rows = topics(n=4_000)
    assert len(kc.KernelKMeans(n_clusters=3, kernel="linear", n_init=1, random_state=0).fit(rows).coreset_) <= 1_000
    many = kc.KernelKMeans(n_clusters=80, kernel="linear", n_init=1, random_state=0).fit(rows).coreset_
    assert 1_200 < len(many) <= 1_600
    with pytest.raises(kc.SettingError, match="`coreset_size` must be one of 'auto'; got 'large'"):
        kc.KernelKMeans(coreset_size="large").fit(rows)
