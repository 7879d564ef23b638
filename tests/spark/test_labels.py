"""Labels for every row, and what is measured on the way."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F  # noqa: N812

import kernelcoreset as kc
from kernelcoreset import SettingError
from kernelcoreset.spark.columns import layout_of
from kernelcoreset.spark.labels import LabelSettings, label_rows
from kernelcoreset.spark.summary import Measurement
from tests.spark.conftest import table_of


@pytest.fixture(scope="module")
def model(points):
    kernel = kc.Gaussian(sigma=5.0)
    return kc.KernelKMeansModel.fit_coreset(kc.build_coreset(points, 3, kernel, 60, seed=0), 3, kernel, seed=0)


@pytest.fixture(params=["columns stay in Java", "all columns come back"])
def way(request, monkeypatch):
    """Both ways for rows that Spark reads: by a function of columns, and by one of whole rows."""
    if request.param == "all columns come back":
        monkeypatch.setattr("kernelcoreset.spark.labels.has_functions", lambda: False)
    elif not hasattr(F, "arrow_udf"):
        pytest.skip("pyspark 4.0 has no functions of Arrow columns")
    monkeypatch.setattr("kernelcoreset.spark.labels._MOST_BACK", 0)


both_ways = pytest.mark.usefixtures("way")


def settings_for(frame, model, features=("x", "y"), weight_col=None, **options):
    return LabelSettings.of(model, layout_of(frame, features, weight_col), **options)


def summary_of(frame, settings, model, **options):
    """The rows as a writer would get them, and the summary."""
    measurement = Measurement(model, settings.layout.weight_col is not None, **options)
    labelled = label_rows(frame, settings, measurement=measurement)
    return labelled.toArrow(), measurement.summary()


@both_ways
def test_labels_are_those_of_the_numpy_model(frame, points, model):
    table = label_rows(frame, settings_for(frame, model, margin_col="margin")).toArrow().sort_by("id")
    expected = model.label(points, margins=True)
    np.testing.assert_array_equal(table["prediction"], expected.labels)
    np.testing.assert_allclose(table["distance"], expected.distances, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(table["margin"], expected.margins, rtol=1e-9, atol=1e-9)
    assert table.column_names == ["id", "x", "y", "w", "name", "prediction", "distance", "margin"]


@both_ways
def test_only_the_columns_that_are_kept_come_back(frame, points, model):
    settings = settings_for(frame, model, columns=("id", "prediction"))
    labelled = label_rows(frame, settings)
    assert labelled.columns == ["id", "prediction", "distance"]
    np.testing.assert_array_equal(labelled.toArrow().sort_by("id")["prediction"], model.predict(points))
    summary = summary_of(frame, settings, model)[1]
    assert summary.rows == len(points)


def test_labels_stay_what_they_were_on_the_way(frame, points, model):
    """Columns that labelling adds are never null, and are found once however often they are used."""
    out = label_rows(frame, settings_for(frame, model, margin_col="m", outlier_col="o", drop_bad_rows=True))
    assert [field.nullable for field in out.schema.fields[-4:]] == [False] * 4
    chosen = out.where("prediction = 1 and distance > 0").select("id", "prediction", "o")
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("ArrowEvalPython"), plan.count("MapInArrow")) == ((1, 0) if hasattr(F, "arrow_udf") else (0, 1))
    expected = np.flatnonzero(model.predict(points) == 1)
    np.testing.assert_array_equal(chosen.toArrow().sort_by("id")["id"], expected)


def test_few_numbers_come_back_with_their_labels(frame, model):
    few = frame.select("x", "y")
    plan = label_rows(few, settings_for(few, model))._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("ArrowEvalPython"), plan.count("MapInArrow")) == (0, 1)


def test_few_tasks_tell_the_driver_something(frame, points, model, monkeypatch):
    monkeypatch.setattr("kernelcoreset.spark.labels.MOST_TASKS", 2)
    many, measurement = frame.repartition(5), Measurement(model, weighted=False)
    labelled = label_rows(many, settings_for(many, model), measurement=measurement)
    part = F.spark_partition_id().alias("part")
    assert labelled.select(part).distinct().count() == 2
    np.testing.assert_array_equal(labelled.toArrow().sort_by("id")["prediction"], model.predict(points))
    plain = label_rows(many, settings_for(many, model))
    assert plain.select(part).distinct().count() == 5


def test_a_certificate_of_short_floats(spark, points, model):
    shorts = spark.createDataFrame(pa.table({"v": pa.array(list(points), pa.list_(pa.float32()))}))
    longs = shorts.selectExpr("cast(v as array<double>) v")
    found, expected = (summary_of(f, settings_for(f, model, "v"), model)[1].certificate for f in (shorts, longs))
    assert found["proved"].pop("flow") == pytest.approx(expected["proved"].pop("flow"))
    assert found["proved"] == pytest.approx(expected["proved"])


@pytest.mark.parametrize("kind", ["array<float>", "decimal(20, 12)", "float"])
def test_features_of_other_types_get_the_same_labels(frame, points, model, kind):
    if kind.startswith("array"):
        other, features = frame.selectExpr("id", f"cast(array(x, y) as {kind}) v"), "v"
    else:
        other, features = frame.selectExpr("id", f"cast(x as {kind}) x", f"cast(y as {kind}) y"), ("x", "y")
    table = label_rows(other, settings_for(other, model, features)).toArrow().sort_by("id")
    np.testing.assert_array_equal(table["prediction"], model.predict(points))


@both_ways
def test_other_columns_come_through_as_they_are(spark, model):
    moment = datetime.datetime(2026, 3, 29, 1, 30, 0, 123456)
    schema = (
        "x double not null, y float, text string, bytes binary, flag boolean, moment timestamp, local timestamp_ntz, "
        "day date, money decimal(20, 5), point struct<a: int, b: struct<c: string>>, many array<struct<d: long>>, "
        "map map<string, array<double>>, span interval day to second, `a.b c` short, empty void"
    )
    full = (
        *(1.0, 2.0, "ä'\"", b"\x00\xff", True, moment, moment, moment.date(), Decimal("-1.50000")),
        *((1, ("z",)), [(2,), None], {"k": [1.0, None]}, datetime.timedelta(seconds=1.5), 3, None),
    )
    rows = [full, (4.0, 5.0, *[None] * 13)]
    mixed = spark.createDataFrame(rows, schema).drop("empty").coalesce(1)
    out = label_rows(mixed, settings_for(mixed, model))
    assert_df_equality(out.drop("prediction", "distance"), mixed)
    assert [(field.name, field.dataType.simpleString()) for field in out.schema.fields[-2:]] == [
        ("prediction", "int"),
        ("distance", "double"),
    ]


@both_ways
def test_vectors_come_back_as_vectors(spark, model):
    rows = [(1, Vectors.dense([1.0, 2.0]), None), (2, Vectors.sparse(2, [1], [3.0]), Vectors.sparse(9, [1], [1.0]))]
    mixed = spark.createDataFrame(rows, ["id", "v", "o.ther"])
    out = label_rows(mixed, settings_for(mixed, model, "v"))
    assert [field.dataType for field in out.schema.fields[:3]] == [field.dataType for field in mixed.schema.fields]
    assert [tuple(row)[:3] for row in out.orderBy("id").collect()] == rows
    np.testing.assert_array_equal(
        [row.prediction for row in out.orderBy("id").collect()], model.predict([[1.0, 2.0], [0.0, 3.0]])
    )


@both_ways
def test_metadata_of_columns_is_kept(frame, model):
    noted = frame.withMetadata("x", {"unit": "km"})
    assert label_rows(noted, settings_for(noted, model)).schema["x"].metadata == {"unit": "km"}


@pytest.mark.parametrize("taken", ["prediction", "Distance"])
def test_new_columns_must_have_new_names(frame, model, taken):
    other = frame.withColumnRenamed("name", taken)
    with pytest.raises(SettingError, match=rf"(?i)Columns already exist: {taken}. Choose other names for the new"):
        label_rows(other, settings_for(other, model))


def test_a_model_of_another_dimension(frame, model):
    message = r"The model has 2 features; got 3 \(x, y, w\)\. Use the columns it was fitted on, in that order"
    with pytest.raises(SettingError, match=message):
        label_rows(frame, settings_for(frame, model, ("x", "y", "w")))


@both_ways
@pytest.mark.parametrize("weight_col", [None, "w"])
def test_what_is_measured_is_what_numpy_measures(frame, points, model, weight_col):
    weights = np.asarray(table_of(points)["w"]) if weight_col else np.ones(600)
    spread = frame.repartition(9, "name")
    table, summary = summary_of(spread, settings_for(spread, model, weight_col=weight_col), model, fraction=1.0)
    labels = model.predict(points)
    assert "__kc_tally" not in table.column_names
    assert (summary.rows, summary.bad_rows, table.num_rows) == (600, 0, 600)
    assert summary.cost == pytest.approx(model.cost(points, weights), rel=1e-9)
    assert summary.coreset_cost == model.solution.cost
    assert summary.cluster_sizes == np.bincount(labels).tolist()
    assert summary.cluster_weights == pytest.approx(np.bincount(labels, weights).tolist())
    assert sum(summary.cluster_costs) == pytest.approx(summary.cost)
    probe = Measurement(model, weight_col is not None, fraction=1.0).probe
    truth = kc.center_set_costs(points, probe.center_sets, model.kernel, weights=weights)
    estimate = kc.center_set_costs(model.coreset.points, probe.center_sets, model.kernel, weights=model.coreset.weights)
    found = dict(summary.certificate)
    proved, meaning, errors = found.pop("proved"), found.pop("meaning"), found.pop("errors")
    off = np.abs(estimate / truth - 1)
    assert errors == {
        **{kind: pytest.approx(off[np.array(probe.kinds) == kind].max()) for kind in ("uniform", "spread", "crowded")},
        "fitted": pytest.approx(abs(summary.coreset_cost / summary.cost - 1)),
    }
    assert found == {
        "largest_error": max(errors.values()),
        "center_sets": 100,
        "fraction": 1.0,
        "sampled_rows": 600,
        "standard_error": 0.0,
    }
    # All rows came to the driver, so the proof is the one of numpy, but for the order of the rows.
    whole = model.coreset.certify(points, weights=weights, cost=summary.cost, n_center_sets=1)
    for name in ("confidence", "rows", "moved", "least", "most", "wrong", "error", "coreset_cost_at_least"):
        assert proved[name] == pytest.approx(whole.proved[name], rel=1e-6)
    assert proved["found_cost"] == summary.coreset_cost
    assert proved["error_from_found"] <= proved["error"]
    assert meaning["optimum_at_least"] == pytest.approx(whole.meaning["optimum_at_least"], rel=1e-6)
    assert (meaning["k"], meaning["cost"]) == (3, pytest.approx(summary.cost))
    assert (meaning["times_optimum"] is None) == (meaning["optimum_at_least"] == 0)
    assert off.max() <= proved["error"]


def test_a_share_of_the_rows_has_a_standard_error(frame, model):
    settings = settings_for(frame, model)
    whole = summary_of(frame, settings, model, fraction=1.0)[1].certificate
    part = summary_of(frame, settings, model, fraction=0.5)[1].certificate
    again = summary_of(frame, settings, model, fraction=0.5)[1].certificate
    assert part == again
    assert 230 < part["sampled_rows"] < 370  # 300 +- 12.2: outside with probability 1e-8
    assert 0 < part["standard_error"] < 0.2
    # 20 groups: Student's t with 19 degrees of freedom passes 5 with probability 8e-5; the seed is fixed.
    assert abs(part["largest_error"] - whole["largest_error"]) < 5 * part["standard_error"]
    assert summary_of(frame, settings, model, center_sets=0)[1].certificate is None
    few = summary_of(frame.limit(frame.count() // 3), settings, model)[1]
    assert (few.rows > 0, few.other_rows, few.certificate) == (True, True, None)


@both_ways
def test_empty_partitions_are_measured_too(frame, model):
    lonely = frame.where("id < 3").repartition(6, "name")
    table, summary = summary_of(lonely, settings_for(lonely, model), model)
    assert (table.num_rows, summary.rows, sum(summary.cluster_sizes)) == (3, 3, 3)
    nothing = frame.where("id < 0")
    table, summary = summary_of(nothing, settings_for(nothing, model), model)
    assert (table.num_rows, summary.rows, summary.cost, summary.certificate["largest_error"]) == (0, 0, 0.0, None)


@both_ways
def test_bad_rows_stop_the_labelling(spark, model):
    holed = spark.createDataFrame(pa.table({"x": [1.0, None, 3.0], "y": [1.0, 2.0, None]})).coalesce(1)
    with pytest.raises(
        Exception, match=r"DataError: 2 of 3 rows cannot be used .* in partition 0, so far; by column: x: 1, y"
    ):
        label_rows(holed, settings_for(holed, model)).collect()


@both_ways
@pytest.mark.parametrize("bad", [slice(300, 600), slice(0, 600), slice(100, 101), slice(0, 300)])
def test_bad_rows_left_out_are_all_counted(spark, points, model, bad):
    """Whole batches of 128 rows, and whole partitions, may be bad."""
    holed = points.copy()
    holed[bad, 0] = np.nan
    frame = spark.createDataFrame(table_of(holed)).repartitionByRange(2, "id")
    count = bad.stop - bad.start
    table, summary = summary_of(frame, settings_for(frame, model, drop_bad_rows=True), model)
    good = np.isfinite(holed).all(axis=1)
    assert (table.num_rows, summary.rows, summary.bad_rows) == (600 - count, 600, count)
    assert sorted(table["id"].to_pylist()) == np.flatnonzero(good).tolist()
    assert summary.cost == pytest.approx(model.cost(points[good]) if good.any() else 0.0)
    plain = label_rows(frame, settings_for(frame, model, drop_bad_rows=True))
    assert plain.count() == 600 - count


def test_errors_of_a_kernel_reach_the_user(spark, points):
    kernel = kc.Polynomial(degree=4)
    coreset = kc.build_coreset(points, 2, kernel, 20, seed=0)
    model = kc.KernelKMeansModel.fit_coreset(coreset, 2, kernel, seed=0)
    huge = spark.createDataFrame(pa.table({"x": [1e90], "y": [1e90]}))
    with pytest.raises(Exception, match="KernelError"):
        label_rows(huge, settings_for(huge, model)).collect()


def test_of_many_rows_texts_are_described_by_a_sample(frame, points, model, monkeypatch):
    """What Python does not need for labels comes for some rows only, the same ones each time; labels are of all."""
    if not hasattr(F, "arrow_udf"):
        pytest.skip("pyspark 4.0 has no functions of Arrow columns")
    settings = settings_for(frame, model)
    whole = summary_of(frame, settings, model)[1].description
    assert whole["sampled"] is None
    for module in ("describing.tally", "spark.sampled_columns"):
        monkeypatch.setattr(f"kernelcoreset.{module}.ALL_UP_TO", 20)
    table, summary = summary_of(frame, settings, model)
    np.testing.assert_array_equal(table.sort_by("id")["prediction"], model.predict(points))
    part = summary.description
    partitions = frame.rdd.getNumPartitions()
    assert 20 * partitions < part["sampled"] < 300
    assert set(part["clusters"][0]["typical"][0]) == set(frame.columns)
    assert [set(far["row"]) for far in part["far"]] == [{"x", "y"}] * 5
    assert [far["outlier_score"] for far in part["far"]] == [far["outlier_score"] for far in whole["far"]]
    assert [each["size"] for each in part["clusters"]] == [each["size"] for each in whole["clusters"]]
    assert summary_of(frame, settings, model)[1].description == part
