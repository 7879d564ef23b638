"""Centers that are vectors, moved by passes over all rows of a DataFrame."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.spark import KernelKMeans, means
from kernelcoreset.spark.columns import layout_of, with_dimension
from kernelcoreset.spark.means import move_centers
from kernelcoreset.spark.scan import Footers

K, D = 8, 16
KERNELS = [kc.Linear(), kc.Cosine()]


@pytest.fixture(scope="module")
def rows():
    """1,000 rows around 8 places, as float32."""
    generator = np.random.default_rng(0)
    return (generator.normal(size=(K, D))[np.arange(1_000) % K] + 0.7 * generator.normal(size=(1_000, D))).astype("f4")


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(1).exponential(size=1_000)


def table(rows, weights):
    return pa.table({"id": np.arange(len(rows)), "v": pa.array(list(rows), pa.list_(pa.float32())), "w": weights})


def fitted(rows, weights=None, kernel=KERNELS[0]):
    coreset = kc.build_coreset(rows, K, kernel, 40, weights=weights, seed=0)
    return kc.KernelKMeansModel.fit_coreset(coreset, K, kernel, n_init=2)


def layout(frame, weight_col=None):
    return with_dimension(frame, layout_of(frame, "v", weight_col))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("weight_col", [None, "w"])
@pytest.mark.parametrize("budget", [means.DRIVER_BUDGET, 5_000])  # the sums of one part take 1,088 bytes
def test_centers_are_those_of_numpy(spark, rows, weights, monkeypatch, kernel, weight_col, budget):
    """Whether the driver adds up all sums, or executors those of a group first."""
    monkeypatch.setattr(means, "DRIVER_BUDGET", budget)
    own = weights if weight_col else None
    frame, model = spark.createDataFrame(table(rows, weights)).repartition(5, "id"), fitted(rows, own, kernel)
    found = move_centers(frame, layout(frame, weight_col), model, 2)
    np.testing.assert_allclose(found.means, model.refine(rows, own, steps=2).means, rtol=1e-6, atol=1e-6)
    assert found.cost(rows, own) < model.cost(rows, own)
    again = move_centers(frame, layout(frame, weight_col), model, 2)
    np.testing.assert_array_equal(again.means, found.means)  # to the last bit, whichever task ends first


def test_tasks_that_open_files_find_the_same(spark, rows, weights, tmp_path):
    for part, some in enumerate(np.array_split(np.arange(1_000), 3)):
        pq.write_table(table(rows, weights).take(pa.array(some)), tmp_path / f"{part}.parquet")
    frame, model = spark.read.parquet(str(tmp_path)), fitted(rows)
    files = sorted(map(str, tmp_path.glob("*.parquet")))
    groups = [[group] for group in Footers().row_groups(files, ["v"])]
    found = move_centers(frame, layout(frame), model, 1, groups=groups)
    np.testing.assert_allclose(found.means, model.refine(rows, steps=1).means, rtol=1e-6, atol=1e-6)


def test_bad_rows_do_not_count(spark, rows, weights):
    holed = rows.copy()
    holed[::10, 3] = np.nan
    frame, good = spark.createDataFrame(table(holed, weights)), np.isfinite(holed).all(axis=1)
    model = fitted(rows[good])
    found = move_centers(frame, layout(frame), model, 1)
    np.testing.assert_allclose(found.means, model.refine(rows[good], steps=1).means, rtol=1e-6, atol=1e-6)


def test_which_models_are_moved_by_default(spark, rows, weights):
    wide = spark.createDataFrame(table(rows, weights))
    few = spark.createDataFrame(table(rows[:, :4], weights))
    flat = fitted(rows[:, :4])
    assert move_centers(wide, layout(wide), fitted(rows)).means is not None
    assert move_centers(few, layout(few), flat) is flat  # a coreset of few columns is good enough
    assert move_centers(few, layout(few), flat, 1).means is not None
    curved = fitted(rows, kernel=kc.Gaussian(sigma=3.0))
    assert move_centers(wide, layout(wide), curved, 3) is curved


def test_the_estimator_moves_its_centers(spark, rows, weights):
    frame = spark.createDataFrame(table(rows, weights))
    options = {"k": K, "kernel": kc.Linear(), "coresetSize": 40, "nInit": 2, "featuresCol": "v", "seed": 2}
    rough, fine, more = (
        KernelKMeans(**options, **given).fit(frame) for given in ({"refineIter": 0}, {}, {"refineIter": 3})
    )
    assert rough.localModel.means is None
    np.testing.assert_allclose(fine.localModel.means, rough.localModel.refine(rows, steps=1).means, atol=1e-6)
    costs = [each.localModel.cost(rows) for each in (rough, fine, more)]
    assert costs == sorted(costs, reverse=True)
    summary = fine.summary
    assert summary.cost == pytest.approx(costs[1])
    # The cost on the coreset is that of the same centers, so that both can be compared.
    coreset = fine.localModel.coreset
    assert summary.coreset_cost == pytest.approx(fine.localModel.cost(coreset.points, coreset.weights))
    assert summary.coreset_cost > fine.localModel.solution.cost
    with pytest.raises(kc.SettingError, match="`refineIter` must be at least 0; got -1"):
        KernelKMeans(**options, refineIter=-1)


@pytest.mark.parametrize("scan", ["spark", "direct"])
@pytest.mark.parametrize(("setting", "is_moved"), [("", True), ("refine_iter = 0", False)])
def test_a_job_moves_centers_before_it_saves_the_model(spark, rows, weights, tmp_path, scan, setting, is_moved):
    pq.write_table(table(rows, weights), tmp_path / "rows.parquet")
    config = tmp_path / "job.toml"
    config.write_text(
        f'[input]\npath = "{tmp_path}/rows.parquet"\nfeatures = ["v"]\nscan = "{scan}"\n[kernel]\nname = "Cosine"\n'
        f'[coreset]\nk = {K}\ncoreset_size = 40\n[cluster]\nn_init = 2\nmodel_path = "{tmp_path}/model"\n{setting}\n'
        f'[output]\npath = "{tmp_path}/out"\ncolumns = ["id"]\n'
    )
    assert cli.run_main(["--config", str(config)]) == 0
    model = kc.KernelKMeansModel.load(tmp_path / "model")
    assert (model.means is not None) is is_moved
    record = json.loads(Path(f"{tmp_path}/out.run.json").read_text())
    assert ("cluster/refine" in [stage["stage"] for stage in record["stages"]]) is is_moved
    assert record["cost"] == pytest.approx(model.cost(rows))
    labels = pq.read_table(tmp_path / "out").sort_by("id")["prediction"].to_numpy()
    np.testing.assert_array_equal(labels, model.predict(rows))
