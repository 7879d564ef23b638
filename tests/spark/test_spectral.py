"""Spectral clustering on Spark: the estimator, its files, and the job."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from sklearn.metrics import adjusted_rand_score

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.spark import KernelKMeansModel, SpectralClustering, SpectralClusteringModel
from kernelcoreset.spectral.degrees import Degrees
from tests.spark.job_runs import record_of, run, write_config

KERNEL = kc.Gaussian(sigma=0.4)


@pytest.fixture(scope="module")
def rings():
    """Two rings that no k-means tells apart, and which is which."""
    generator = np.random.default_rng(0)
    which = np.arange(1_200) % 2
    angle = generator.uniform(0, 2 * np.pi, size=1_200)
    radius = 1.0 + 2.0 * which + generator.normal(scale=0.05, size=1_200)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), which


@pytest.fixture
def frame(spark, rings):
    return spark.createDataFrame(table(rings)).coalesce(2)


def table(rings):
    points, which = rings
    ids = pa.array(range(len(points)), pa.int64())
    return pa.table({"id": ids, "x": points[:, 0], "y": points[:, 1], "w": 0.5 + ids.to_numpy() % 3, "ring": which})


def estimator(**changes):
    options = {"k": 2, "kernel": KERNEL, "coresetSize": 300, "degreeSample": 400, "nInit": 2, "inputCols": ["x", "y"]}
    return SpectralClustering(**{**options, **changes})


def labels_of(frame):
    return frame.toArrow().sort_by("id")["prediction"].to_numpy()


def test_fit_transform_evaluate_save_load(frame, rings):
    points, which = rings
    model = estimator().fit(frame)
    out = model.transform(frame).toArrow().sort_by("id")
    labels = out["prediction"].to_numpy()
    assert out.column_names == ["id", "x", "y", "w", "ring", "prediction", "distance"]
    assert adjusted_rand_score(which, labels) == 1.0
    # The same as the numpy model, and again after a second fit.
    np.testing.assert_array_equal(model.localModel.predict(points), labels)
    found = model.localModel.label(points)
    np.testing.assert_allclose(out["distance"].to_numpy(), found.distances, rtol=1e-9)
    np.testing.assert_array_equal(labels_of(estimator().fit(frame).transform(frame)), labels)
    assert model.localModel.degrees.total == 1_200
    assert model.summary.cluster_sizes == [600, 600]
    assert model.summary.certificate is None
    assert abs(model.normalizedCut) < 0.01
    assert len(model.clusterWeights()) == 2
    assert model.coreset.count() <= 300
    assert set(labels_of(model.refit(1).transform(frame))) == {0}

    model.save("saved")
    loaded = SpectralClusteringModel.load("saved")
    np.testing.assert_array_equal(labels_of(loaded.transform(frame)), labels)
    np.testing.assert_array_equal(kc.SpectralModel.load("saved").predict(points), labels)
    with pytest.raises(kc.FormatError, match=r"This is a spectral model: load it with SpectralModel\.load"):
        KernelKMeansModel.load("saved")
    with pytest.raises(kc.FormatError, match=r"load it with SpectralClusteringModel\.load"):
        SpectralClustering.load("saved")
    own = estimator(weightCol="w")
    own.save("estimator")
    assert SpectralClustering.load("estimator").extractParamMap() == own.extractParamMap()


def test_in_a_pipeline_with_vectors_and_weights(frame, rings):
    stages = [
        VectorAssembler(inputCols=["x", "y"], outputCol="features"),
        SpectralClustering(k=2, kernel=KERNEL, coresetSize=300, weightCol="w", nInit=2),
    ]
    fitted = Pipeline(stages=stages).fit(frame)
    labels = labels_of(fitted.transform(frame))
    assert adjusted_rand_score(rings[1], labels) == 1.0
    weights = frame.toArrow()["w"].to_numpy()
    degrees = fitted.stages[1].localModel.degrees
    assert degrees.total == pytest.approx(weights.sum())
    assert len(degrees.points) == 1_000
    place = str(Path("pipeline").absolute())  # Spark itself reads its metadata
    fitted.save(place)
    np.testing.assert_array_equal(labels_of(PipelineModel.load(place).transform(frame)), labels)


def test_what_is_refused(spark, frame):
    with pytest.raises(kc.KernelError, match="similarities of at least 0; Linear"):
        estimator(kernel=kc.Linear()).fit(frame)
    with pytest.raises(kc.SettingError, match=r"`coresetSize` must be at least k \(2\); got 1"):
        estimator(coresetSize=1).fit(frame)
    with pytest.raises(kc.SettingError, match="`degreeSample` must be at least 2; got 1"):
        estimator(degreeSample=1)
    with pytest.raises(kc.DataError, match="There is no row to cluster: all are bad or of weight 0"):
        estimator().fit(frame.limit(0))
    with pytest.raises(kc.SettingError, match=r"The model has 2 features; got 1 \(x\)"):
        estimator().fit(frame).setParams(inputCols=["x"]).transform(frame)


def test_a_row_that_is_similar_to_nothing(spark, frame):
    origin = spark.createDataFrame(pa.table({"id": [1], "x": [0.0], "y": [0.0], "w": [1.0], "ring": [0]}))
    with pytest.raises(Exception, match=r"similar to some point.*degree 0 at 1 of"):
        estimator(kernel=kc.Polynomial(degree=2), degreeSample=20).fit(frame.union(origin))


def test_bad_rows_are_neither_sampled_nor_labelled(spark, frame, rings):
    hole = spark.createDataFrame(pa.table({"id": [5_000], "x": [float("nan")], "y": [0.0], "w": [1.0], "ring": [0]}))
    holed = frame.union(hole)
    with pytest.raises(kc.DataError, match="1 of 1,201 rows cannot be used"):
        estimator().fit(holed)
    model = estimator(badRows="drop").fit(holed)
    assert model.localModel.degrees.total == 1_200
    assert adjusted_rand_score(rings[1], labels_of(model.transform(holed))) == 1.0


# --- the job ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def config(spark, rings):
    pq.write_table(table(rings), "rows.parquet", row_group_size=400)
    write_config(
        '[input]\npath = "HERE/rows.parquet"\nfeatures = ["x", "y"]\n'
        '[kernel]\nname = "Gaussian"\nsigma = 0.4\n'
        "[coreset]\nk = 2\ncoreset_size = 600\nseed = 3\n"
        '[cluster]\nn_init = 2\nmodel_path = "model"\n'
        "[spectral]\ndegree_sample = 300\n"
        '[output]\npath = "HERE/out"\nmode = "overwrite"\n'
    )


@pytest.mark.parametrize("scan", ["direct", "spark"])
def test_the_job(config, rings, scan):
    assert run(cli.spectral_main, f"input.scan={scan}") == 0
    out = pq.read_table("out").sort_by("id")
    assert adjusted_rand_score(rings[1], out["prediction"].to_numpy()) == 1.0
    record = record_of()
    assert (record["rows"], record["degree_sample"], record["cluster_sizes"]) == (1_200, 300, [600, 600])
    assert record["kernel"] == "Normalized(Gaussian(sigma=0.4))"
    assert abs(record["normalized_cut"]) < 0.01
    # Degrees come from rows of the input, drawn once and kept with the model.
    degrees = kc.SpectralModel.load("model").degrees
    assert isinstance(degrees, Degrees)
    assert {*map(tuple, degrees.points)} <= {*map(tuple, rings[0])}
    assert len({*map(tuple, degrees.points)}) == 300
    # The assign job labels with the same model.
    assert run(cli.assign_main, f"input.scan={scan}", "output.path=HERE/again") == 0
    np.testing.assert_array_equal(pq.read_table("again").sort_by("id")["prediction"], out["prediction"])


def test_bad_settings_of_the_job(config, capsys):
    assert run(cli.spectral_main, "coreset.z=1") == 2
    assert "`coreset.z` must be 2 for spectral clustering; got 1" in capsys.readouterr().err
    assert run(cli.spectral_main, "spectral.degree_sampl=5") == 2
    assert "Did you mean `spectral.degree_sample`?" in capsys.readouterr().err
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(text.replace('name = "Gaussian"\nsigma = 0.4', 'name = "Linear"'))
    assert run(cli.spectral_main) == 3
    assert "similarities of at least 0; Linear()" in capsys.readouterr().err


# --- by nearest neighbors ---------------------------------------------------------------------------------------------


def test_without_a_kernel_nearest_neighbors_decide(frame, rings):
    points, which = rings
    plain = SpectralClustering(k=2, coresetSize=300, nInit=2, inputCols=["x", "y"], marginCol="margin")
    model = plain.fit(frame)
    out = model.transform(frame).toArrow().sort_by("id")
    assert adjusted_rand_score(which, out["prediction"].to_numpy()) == 1.0
    found = model.localModel.label(points, margins=True)
    np.testing.assert_array_equal(out["prediction"].to_numpy(), found.labels)
    np.testing.assert_allclose(out["distance"].to_numpy(), found.distances, rtol=1e-12)
    np.testing.assert_allclose(out["margin"].to_numpy(), found.margins, rtol=1e-12)
    assert model.summary.cluster_sizes == [600, 600]
    assert model.summary.certificate is None
    assert sum(model.clusterWeights()) == pytest.approx(1_200)
    assert 0.0 <= model.normalizedCut < 0.01
    np.testing.assert_array_equal(labels_of(plain.fit(frame).transform(frame)), found.labels)

    model.save("saved")
    np.testing.assert_array_equal(labels_of(SpectralClusteringModel.load("saved").transform(frame)), found.labels)
    np.testing.assert_array_equal(kc.SpectralClustering.load("saved").predict(points), found.labels)
    with pytest.raises(kc.SettingError, match="'nearest_neighbors' uses no kernel; got one"):
        estimator(affinity="nearest_neighbors").fit(frame)
    with pytest.raises(kc.SettingError, match="`affinity` must be one of"):
        estimator(affinity="knn")


def test_explore_a_frame_in_one_pass(frame, rings):
    found = kc.explore(frame, inputCols=["x", "y"], ks=[2, 3])
    spectral = found.findings["SpectralClustering"]
    assert (spectral.trial.k, found.rows) == (2, 1_200)
    assert spectral.trial.persistence > 0.95
    scaled = kc.explore(frame, inputCols=["x", "y"], features={"scale": "robust"}, ks=[2, 3])
    assert scaled.findings["SpectralClustering"].trial.k == 2
    with pytest.raises(kc.SettingError, match="`inputCols`: there is no column `xx`; did you mean `x`"):
        kc.explore(frame, inputCols=["xx"])
    with pytest.raises(kc.SettingError, match=r"`sample_weight` is for arrays\. Name the column of a DataFrame"):
        kc.explore(frame, inputCols=["x"], sample_weight=[1.0])


@pytest.mark.parametrize("scan", ["direct", "spark"])
def test_the_job_without_a_kernel(config, rings, scan):
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(text.replace('[kernel]\nname = "Gaussian"\nsigma = 0.4\n', ""))
    assert run(cli.spectral_main, f"input.scan={scan}") == 0
    out = pq.read_table("out").sort_by("id")
    assert adjusted_rand_score(rings[1], out["prediction"].to_numpy()) == 1.0
    record = record_of()
    assert (record["affinity"], record["cluster_sizes"]) == ("nearest_neighbors", [600, 600])
    assert "certificate" not in record
    np.testing.assert_array_equal(kc.NeighborModel.load("model").predict(rings[0]), out["prediction"].to_numpy())
    assert run(cli.assign_main, f"input.scan={scan}", "output.path=HERE/again") == 0
    np.testing.assert_array_equal(pq.read_table("again").sort_by("id")["prediction"], out["prediction"])


def test_the_job_may_have_a_kernel_that_it_does_not_use(config, rings):
    assert run(cli.spectral_main, "spectral.affinity=nearest_neighbors") == 0
    assert record_of()["affinity"] == "nearest_neighbors"
