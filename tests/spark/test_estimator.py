"""The pyspark.ml API."""

import errno
import gc
import json
import os
from pathlib import Path

import numpy as np
import pytest
from chispa import assert_df_equality
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import ClusteringEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder, TrainValidationSplit

import kernelcoreset as kc
from kernelcoreset import DataError, FormatError, Gaussian, SettingError
from kernelcoreset.spark import KernelKMeans, KernelKMeansModel
from tests.spark.conftest import table_of
from tests.user_kernels import rational

# Spark's searches leave their thread pools to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning")


def estimator(**options):
    given = {"k": 3, "kernel": Gaussian(sigma=5.0), "coresetSize": 60, "seed": 1, "nInit": 3} | options
    return KernelKMeans(**given if "featuresCol" in given else {"inputCols": ["x", "y"]} | given)


@pytest.fixture
def model(frame):
    return estimator().fit(frame)


def labels_of(frame):
    return np.asarray(frame.select("id", "prediction").toArrow().sort_by("id")["prediction"])


# --- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_are_set_copied_and_explained(spark):
    own = estimator(z=1.0)
    assert (own.getOrDefault("k"), own.getOrDefault("z"), own.getMaxIter()) == (3, 1.0, 300)
    other = own.copy({own.k: 5})
    assert (own.getOrDefault(own.k), other.getOrDefault(other.k)) == (3, 5)
    assert own.setParams(k=4, badRows="drop") is own
    assert (own.getOrDefault("k"), own.getOrDefault("badRows")) == (4, "drop")
    text = own.explainParams()
    assert "kernel: a kernel object (default: Gaussian(sigma=1.0), current: Gaussian(sigma=5.0))" in text
    assert "coresetSize: points of the coreset, at least k (default: 1000, current: 60)" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "`k` must be at least 1; got 0"),
        ({"k": 2.5}, "`k` must be a whole number; got 2.5"),
        ({"z": 0.5}, "`z` must be a finite number of at least 1; got 0.5"),
        ({"kernel": "gaussian"}, "kernel"),
        ({"badRows": "quarantine"}, "`badRows` must be one of 'fail', 'drop'; got 'quarantine'"),
    ],
)
def test_wrong_parameters_are_refused_at_once(spark, options, message):
    with pytest.raises((SettingError, TypeError), match=message):
        estimator(**options)


def test_settings_that_do_not_go_together(frame):
    with pytest.raises(SettingError, match=r"`coresetSize` must be at least k \(90\); got 60"):
        estimator(k=90).fit(frame)
    with pytest.raises(SettingError, match="`weightCol`: there is no column `nowhere`"):
        estimator(weightCol="nowhere").fit(frame)


# --- fit, transform, summary ------------------------------------------------------------------------------------------


def test_fit_on_spark_predict_in_numpy(frame, points, model):
    out = model.transform(frame)
    labels = labels_of(out)
    np.testing.assert_array_equal(labels, model.localModel.predict(points))
    assert sorted(np.bincount(labels)) == [200, 200, 200]
    assert_df_equality(out.drop("prediction", "distance"), frame)
    assert labels_of(estimator().fit(frame).transform(frame)).tolist() == labels.tolist()


def test_the_names_of_new_columns(frame):
    model = estimator(predictionCol="cluster", distanceCol="far", marginCol="sure").fit(frame)
    assert model.transform(frame).columns[-3:] == ["cluster", "far", "sure"]


def test_the_summary(frame, points, model):
    assert model.hasSummary
    summary = model.summary
    assert summary is model.summary
    assert summary.cost == pytest.approx(model.localModel.cost(points))
    assert sorted(summary.cluster_sizes) == [200, 200, 200]
    assert (summary.rows, summary.n_iter) == (600, model.localModel.solution.n_iter)
    assert summary.certificate["largest_error"] < 0.3
    assert model.evaluate(frame.where("id < 200")).rows == 200
    assert sum(model.clusterWeights()) == pytest.approx(600, rel=0.1)


def test_the_coreset_as_a_frame(frame, points):
    model = estimator(idCol="name", weightCol="w").fit(frame)
    coreset = model.coreset
    assert set(coreset.columns) >= {"point", "weight", "id"}
    joined = coreset.join(frame, coreset.id == frame.name).toArrow()
    assert joined.num_rows == len(model.localModel.coreset)
    np.testing.assert_array_equal(np.stack(joined["point"].to_numpy())[:, 0], joined["x"])
    total = np.asarray(table_of(points)["w"]).sum()
    assert sum(row.weight for row in coreset.collect()) == pytest.approx(total, rel=0.1)


def test_weights_are_not_needed_for_new_rows(frame):
    model = estimator(weightCol="w").fit(frame)
    assert model.transform(frame.drop("w")).count() == 600
    assert model.summary.cost != pytest.approx(estimator().fit(frame).summary.cost, rel=0.01)


def test_refit_does_not_touch_the_data(frame, model):
    two = model.refit(2)
    assert two.localModel.k == 2
    assert len(set(labels_of(two.transform(frame)))) == 2
    assert not two.hasSummary
    with pytest.raises(DataError, match="A model that was loaded or refitted has no summary: call `evaluate"):
        _ = two.summary


def test_bad_rows(frame):
    holed = frame.selectExpr("id", "nullif(id, 7) * 0 + x x", "y")
    with pytest.raises(DataError, match=r"1 of 600 rows cannot be used .* by column: x: 1"):
        estimator().fit(holed)
    model = estimator(badRows="drop").fit(holed)
    assert model.transform(holed).count() == 599
    assert (model.summary.rows, model.summary.bad_rows) == (600, 1)


def test_no_rows(frame):
    with pytest.raises(DataError, match="There is no row to cluster: 0 rows read"):
        estimator().fit(frame.where("id < 0"))


# --- in pipelines and searches ----------------------------------------------------------------------------------------


@pytest.fixture
def pipeline():
    return Pipeline(
        stages=[VectorAssembler(inputCols=["x", "y"], outputCol="features"), estimator(featuresCol="features")]
    )


def test_a_pipeline_saved_and_loaded(frame, pipeline, tmp_path):
    fitted = pipeline.fit(frame)
    expected = labels_of(fitted.transform(frame))
    # Spark writes one part of the folder, this package another: both must read the path in the same way.
    for place in (f"{tmp_path}/pipeline", f"file://{tmp_path}/a b%20c#d"):
        fitted.write().overwrite().save(place)
        loaded = PipelineModel.load(place)
        assert labels_of(loaded.transform(frame)).tolist() == expected.tolist()
    assert sorted(os.listdir(tmp_path / "a b%20c#d")) == ["metadata", "stages"]
    pipeline.write().overwrite().save(str(tmp_path / "unfitted"))
    again = Pipeline.load(str(tmp_path / "unfitted")).fit(frame)
    assert labels_of(again.transform(frame)).tolist() == expected.tolist()


def test_a_search_over_pipelines_saved_and_loaded(frame, pipeline, tmp_path):
    grid = ParamGridBuilder().addGrid(pipeline.getStages()[1].k, [2, 3]).build()
    search = CrossValidator(
        estimator=pipeline, estimatorParamMaps=grid, evaluator=ClusteringEvaluator(), numFolds=2, seed=0
    )
    found = search.fit(frame)
    gc.collect()
    found.save(str(tmp_path / "search"))
    loaded = CrossValidatorModel.load(str(tmp_path / "search"))
    gc.collect()
    assert labels_of(loaded.transform(frame)).tolist() == labels_of(found.transform(frame)).tolist()
    assert isinstance(loaded.bestModel.stages[1], KernelKMeansModel)
    files = (tmp_path / "search").rglob("metadata/part-00000")
    named = {name for file in files if (name := json.loads(file.read_text())["class"]).startswith("kernelcoreset")}
    assert named == {"kernelcoreset.spark.KernelKMeans", "kernelcoreset.spark.KernelKMeansModel"}


def test_a_search_over_k(frame):
    assembled = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(frame)
    own = estimator(featuresCol="features")
    grid = ParamGridBuilder().addGrid(own.k, [2, 3]).build()
    evaluator = ClusteringEvaluator(distanceMeasure="squaredEuclidean")
    search = TrainValidationSplit(estimator=own, estimatorParamMaps=grid, evaluator=evaluator, seed=0)
    best = search.fit(assembled)
    gc.collect()
    assert best.bestModel.localModel.k == 3
    assert labels_of(best.transform(assembled)).max() == 2


def test_a_search_over_kernels(frame):
    assembled = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(frame)
    own = estimator(featuresCol="features")
    grid = ParamGridBuilder().addGrid(own.kernel, [Gaussian(sigma=1.0), Gaussian(sigma=5.0)]).build()
    evaluator = ClusteringEvaluator()
    found = CrossValidator(estimator=own, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=0).fit(
        assembled
    )
    gc.collect()
    assert found.bestModel.localModel.kernel == grid[int(np.argmax(found.avgMetrics))][own.kernel]
    assert max(found.avgMetrics) > 0.8


# --- saved and loaded -------------------------------------------------------------------------------------------------


def test_an_estimator_saved_and_loaded(spark):
    own = estimator(weightCol="w", z=1.5)
    own.save("estimator")
    loaded = KernelKMeans.load("estimator")
    assert loaded.uid == own.uid
    assert {p.name: v for p, v in loaded.extractParamMap().items()} == {
        p.name: v for p, v in own.extractParamMap().items()
    }
    with pytest.raises(FileExistsError, match=r"estimator already exists. Use write\(\).overwrite"):
        own.save("estimator")
    own.write().overwrite().save("estimator")
    with pytest.raises(FileNotFoundError, match="There is nothing saved at nowhere"):
        KernelKMeans.load("nowhere")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_model_saved_and_loaded(frame, model, scheme):
    path = scheme + str(Path("model").absolute())
    model.save(path)
    with pytest.raises(FileExistsError, match="already exists"):
        model.save(path)
    model.write().overwrite().save(path)
    loaded = KernelKMeansModel.load(path)
    assert (loaded.uid, loaded.getInputCols()) == (model.uid, ["x", "y"])
    assert labels_of(loaded.transform(frame)).tolist() == labels_of(model.transform(frame)).tolist()


def test_a_save_that_fails_leaves_the_old_model(model, monkeypatch):
    """What Spark ML's own writers do, deleting first, would leave nothing."""
    model.save("kept")
    before = {str(path): path.read_bytes() for path in Path("kept").rglob("*") if path.is_file()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kernelcoreset.files.atomic.write_synced", full)
        with pytest.raises(OSError, match="No space left"):
            model.write().overwrite().save("kept")
    assert {str(path): path.read_bytes() for path in Path("kept").rglob("*") if path.is_file()} == before
    assert KernelKMeansModel.load("kept").uid == model.uid


def test_the_same_folder_serves_numpy_and_spark(frame, points, model):
    model.save("by-spark")
    fitted = kc.KernelKMeansModel.load("by-spark")
    np.testing.assert_array_equal(fitted.predict(points), labels_of(model.transform(frame)))
    fitted.save("by-numpy")
    loaded = KernelKMeansModel.load("by-numpy").setParams(inputCols=["x", "y"])
    np.testing.assert_array_equal(labels_of(loaded.transform(frame)), fitted.predict(points))


def test_folders_that_are_no_models(spark, model):
    Path("photos").mkdir()
    Path("photos/one.jpg").touch()
    with pytest.raises(FileExistsError, match=r"photos exists and is not a saved model: it holds one\.jpg"):
        model.write().overwrite().save("photos")
    with pytest.raises(FormatError, match=r"photos is not a whole model: model.json and coreset.parquet missing"):
        KernelKMeansModel.load("photos")
    with pytest.raises(FileNotFoundError, match="There is no model folder at nowhere"):
        KernelKMeansModel.load("nowhere")
    model.save("model")
    with pytest.raises(FormatError, match=r"model holds a fitted model: load it with KernelKMeansModel.load"):
        KernelKMeans.load("model")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metadata/part-00000", b"{", "The metadata of .* is damaged: .* Save it again"),
        ("metadata/part-00000", b'{"uid": "u", "paramMap": {"new": 1}}', "has an unknown parameter, new. Upgrade"),
        (
            "metadata/part-00000",
            b'{"uid": "u", "paramMap": {"predictionCol": []}}',
            "The metadata of .* is damaged: .* Save it again",
        ),
        ("metadata/part-00000", b'{"uid": 7, "paramMap": {}}', "The metadata of .* is damaged: `uid` must be a text"),
        ("metadata/part-00000", b"[" * 100_000, "The metadata of .* is damaged: .* nested too deeply"),
        ("model.json", b"{}", "model.json of the model is damaged"),
        ("coreset.parquet", b"PAR1", "coreset.parquet of the model is damaged or truncated: its checksum is wrong"),
        ("coreset.parquet", None, "is not a whole model: coreset.parquet missing"),
    ],
)
def test_damaged_models(spark, model, file, content, message):
    model.save("model")
    place = Path("model") / file
    place.unlink() if content is None else place.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        KernelKMeansModel.load("model")


def test_what_is_saved_can_be_read_by_people(spark, model):
    model.save("model")
    metadata = json.loads(Path("model/metadata/part-00000").read_text())
    assert metadata["class"] == "kernelcoreset.spark.KernelKMeansModel"
    assert metadata["paramMap"]["inputCols"] == ["x", "y"]


def test_changed_parameters_are_noticed(spark, model):
    model.save("model")
    place = Path("model/metadata/part-00000")
    place.write_text(place.read_text().replace('["x", "y"]', '["y", "x"]'))
    with pytest.raises(FormatError, match=r"The metadata of model is damaged: its checksum is wrong. Save it again"):
        KernelKMeansModel.load("model")


def test_a_kernel_of_the_user_is_loaded_if_its_module_is_trusted(spark, monkeypatch):
    own = estimator(kernel=kc.UserKernel(rational))
    own.save("estimator")
    pipeline = str(Path("pipeline").absolute())  # Spark's own writer has another working directory
    Pipeline(stages=[own]).write().save(pipeline)
    for cls, path in ((KernelKMeans, "estimator"), (Pipeline, pipeline)):
        with pytest.raises(FormatError, match=r"'tests.user_kernels', which is not trusted"):
            cls.load(path)
    monkeypatch.setenv("KERNELCORESET_TRUSTED_MODULES", "tests.user_kernels")
    assert KernelKMeans.load("estimator").getOrDefault("kernel") == kc.UserKernel(rational)
    assert Pipeline.load(pipeline).getStages()[0].getOrDefault("kernel") == kc.UserKernel(rational)


def test_a_kernel_that_cannot_be_saved(spark):
    own = estimator(kernel=kc.UserKernel(lambda x, y: 1.0))
    with pytest.raises(kc.KernelError, match="import"):
        own.save("estimator")
    assert not Path("estimator").exists()
