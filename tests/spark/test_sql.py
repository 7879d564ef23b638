"""Models as functions of SQL."""

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812

import kernelcoreset as kc
from kernelcoreset.spark import KernelKMeans, SpectralClustering, register


@pytest.fixture(params=["arrow", "pandas"])
def way(request, monkeypatch):
    """How batches come to the function: by Arrow, or, as in pyspark 4.0, by pandas."""
    if request.param == "pandas":
        monkeypatch.delattr(F, "arrow_udf", raising=False)
    elif not hasattr(F, "arrow_udf"):
        pytest.skip("pyspark 4.0 has no functions of Arrow arrays")
    return request.param


@pytest.fixture(scope="module")
def fitted(points):
    coreset = kc.build_coreset(points, 3, kc.Gaussian(sigma=5.0), 60, seed=1)
    return kc.KernelKMeansModel.fit_coreset(coreset, 3, kc.Gaussian(sigma=5.0), n_init=2)


def column(spark, query):
    return spark.sql(query).toArrow().column(0).to_pylist()


def test_labels_are_those_of_the_model(spark, frame, points, fitted, way):
    frame.createOrReplaceTempView("places")
    register(spark, "segment", fitted)
    expected = fitted.predict(points).tolist()
    calls = ["x, y", "CAST(x AS DOUBLE), y", "array(x, y)", "CAST(array(x, y) AS ARRAY<DOUBLE>)"]
    for call in calls:
        assert column(spark, f"SELECT segment({call}) FROM places ORDER BY id") == expected
    sizes = spark.sql("SELECT segment(x, y) AS s, count(*) AS n FROM places GROUP BY 1 ORDER BY 1").collect()
    assert [row.n for row in sizes] == np.bincount(expected).tolist()
    assert frame.selectExpr("segment(x, y) AS s").schema.simpleString() == "struct<s:int>"


@pytest.mark.parametrize("make", [
    lambda frame: SpectralClustering(k=3, coresetSize=60, nInit=2, inputCols=["x", "y"]).fit(frame),
    lambda frame: SpectralClustering(
        k=3, kernel=kc.Gaussian(sigma=3.0), coresetSize=60, nInit=2, inputCols=["x", "y"]).fit(frame),
    lambda frame: KernelKMeans(k=3, kernel=kc.Linear(), coresetSize=60, nInit=2, inputCols=["x", "y"]).fit(frame),
], ids=["neighbors", "spectral", "kernel k-means"])  # fmt: skip
def test_models_of_spark_ml(spark, frame, make):
    model = make(frame)
    register(spark, "by_model", model)
    found = model.transform(frame).selectExpr("prediction", "by_model(x, y) AS s").toArrow()
    assert found["s"].to_pylist() == found["prediction"].to_pylist()


def test_rows_that_cannot_be_labelled_are_null(spark, fitted, way):
    register(spark, "segment", fitted)
    bad = ["1, NULL", "NULL, NULL", "NULL", "double('nan'), 1", "double('-inf'), 1", "9007199254740993L, 1",
           "array(1.0)", "array(1.0, NULL)", "array(1, 2, 3)", "CAST(NULL AS ARRAY<DOUBLE>)"]  # fmt: skip
    for call in bad:
        assert column(spark, f"SELECT segment({call})") == [None], call
    mixed = "SELECT segment(a, 1.0) FROM VALUES (1, 0.0), (2, NULL), (3, double('nan')), (4, 0.0) AS t(i, a) ORDER BY i"
    label = int(fitted.predict([[0.0, 1.0]])[0])
    assert column(spark, mixed) == [label, None, None, label]
    assert column(spark, "SELECT segment(id, id) FROM range(0)") == []


def test_longs_beside_nulls_are_not_rounded(spark, fitted):
    if not hasattr(F, "arrow_udf"):
        pytest.skip("pandas of pyspark 4.0 rounds them first")
    register(spark, "segment", fitted)
    query = "SELECT segment(a, 1) FROM VALUES (1, 9007199254740993L), (2, NULL) AS t(i, a) ORDER BY i"
    assert column(spark, query) == [None, None]


@pytest.mark.parametrize(("call", "message"), [
    ("1", "segment takes 2 numbers, or one array of 2; got 1 values"),
    ("1, 2, 3", "segment takes 2 numbers, or one array of 2; got 3 values"),
    ("'a', 'b'", "segment takes numbers, or an array of numbers; got .*string. Cast it"),
    ("array('a')", "segment takes numbers, or an array of numbers; got .*string. Cast it"),
    ("true, false", "segment takes numbers, or an array of numbers; got bool. Cast it"),
])  # fmt: skip
def test_wrong_arguments_are_said(spark, fitted, call, message):
    register(spark, "segment", fitted)
    with pytest.raises(PythonException, match=message):
        column(spark, f"SELECT segment({call})")


def test_what_cannot_be_registered(spark, fitted):
    for name in ("2nd", "a b", "", "a.b", None):
        with pytest.raises(kc.SettingError, match="`name` must be letters, digits and underscores, as in SQL"):
            register(spark, name, fitted)
    with pytest.raises(kc.SettingError, match="Spark has a function FLOOR, which would no longer work"):
        register(spark, "FLOOR", fitted)
    for model in (kc.KernelKMeans(2), "model", None):
        with pytest.raises(kc.SettingError, match="`model` must be a fitted model that labels points; got"):
            register(spark, "segment", model)
