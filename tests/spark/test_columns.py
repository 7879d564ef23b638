"""Which columns hold the points, and which rows are bad."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import StructField, StructType

from kernelcoreset import SettingError
from kernelcoreset.spark.columns import BatchReader, layout_of, selection, why_bad, with_dimension
from kernelcoreset.spark.scan import RowGroups, read_points

FEW = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -1.5, 1e308, -1e308, 3.0])


def read(frame, layout):
    """Points, weights and good rows of a frame, as a task would see them."""
    layout = with_dimension(frame, layout)
    reader = BatchReader(layout)
    parts = []
    for batch in frame.select(*selection(frame, layout)).toArrow().to_batches():
        columns, weights, good = reader.read(batch.columns)
        n = batch.num_rows
        parts.append(
            (columns.T, np.ones(n) if weights is None else weights, np.ones(n, bool) if good is None else good)
        )
    return *(np.concatenate(part) for part in zip(*parts, strict=True)), reader.bad


def numbers_table(rows):
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(values, pa.float64()) for name, values in zip("xyw", columns, strict=True)})


def vectors_of(spark, values):
    rows = [(None if value is None else Vectors.dense(value),) for value in values]
    return spark.createDataFrame(rows, StructType([StructField("v", VectorUDT())]))


def test_numbers_of_every_type_are_the_same_points(spark):
    frame = spark.createDataFrame(
        [(1.5, 2.25, 3, 2**60, Decimal("4.50"), 7)], "a double, b float, c int, d long, e decimal(10, 2), f byte"
    )
    points, _, good, _ = read(frame, layout_of(frame, frame.columns))
    np.testing.assert_array_equal(points, [[1.5, 2.25, 3.0, 2.0**60, 4.5, 7.0]])
    assert good.all()


@pytest.mark.parametrize("kind", ["double", "float", "int", "decimal(9, 1)"])
def test_an_array_of_any_numbers(spark, kind):
    frame = spark.sql(f"select cast(array(1, 2, 3) as array<{kind}>) v union all select array(4, 5, 6)")
    points, _, good, _ = read(frame, layout_of(frame, "v"))
    assert sorted(points.tolist()) == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert good.all()


def test_vectors_dense_and_sparse_and_none(spark):
    rows = [(Vectors.dense([1.0, 0.0, 2.0]),), (Vectors.sparse(3, [2], [5.0]),), (None,)]
    frame = spark.createDataFrame(rows, StructType([StructField("v", VectorUDT())])).coalesce(1)
    points, _, good, bad = read(frame, layout_of(frame, ["v"]))
    np.testing.assert_array_equal(points[good], [[1.0, 0.0, 2.0], [0.0, 0.0, 5.0]])
    assert (good.tolist(), bad.rows, bad.counts) == ([True, True, False], 1, {"v": 1})


def test_the_length_of_an_array_is_that_of_most_rows(spark):
    frame = spark.sql(
        "select explode(array(array(9D), array(1D, 2D), null, array(), array(3D, 4D), array(5D, null))) v"
    )
    points, _, good, bad = read(frame, layout_of(frame, "v"))
    assert good.tolist() == [False, True, False, False, True, False]
    np.testing.assert_array_equal(points[good], [[1.0, 2.0], [3.0, 4.0]])
    assert bad.rows == 4


def test_bad_values_in_an_array_of_one_number(spark):
    frame = spark.sql("select explode(array(array(1D), array(double('nan')), array(2D))) v").coalesce(1)
    points, _, good, _ = read(frame, layout_of(frame, "v"))
    assert good.tolist() == [True, False, True]
    np.testing.assert_array_equal(points.ravel(), [1.0, 0.0, 2.0])


@pytest.mark.parametrize("name", ["a.b", "a`b", "a b", "häß", "select", "a.b.c`"])
def test_any_column_name(spark, name):
    frame = spark.createDataFrame(pa.table({name: [1.0, 2.0], f"{name}2": [3.0, 4.0], "z": ["p", "q"]}))
    layout = layout_of(frame, [name], weight_col=f"{name}2", id_col="z")
    points, weights, _, _ = read(frame, layout)
    assert (sorted(points.ravel()), sorted(weights)) == ([1.0, 2.0], [3.0, 4.0])
    assert frame.where(why_bad(frame, layout).isNotNull()).count() == 0


def test_missing_columns_are_named_with_those_that_are_there(frame):
    message = r"`features`: there is no column `nam`; did you mean `name`\? `weight_col`: there is no column `z`\. The"
    with pytest.raises(SettingError, match=message):
        layout_of(frame, ["nam", "y"], weight_col="z")


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (
            ["x", "name"],
            {},
            "Column name must be a number, or be the only feature as an array or vector of numbers; it is",
        ),
        ("words", {}, "Column words's elements must be numbers; it is string"),
        (["x", "v"], {}, "Column v must be a number, or be the only feature"),
        ("x", {"weight_col": "name"}, "Column name must be a number; it is string. Cast it first"),
        ("x", {"id_col": "w"}, "Column w must hold integers or strings to be the id; it is double. Cast it"),
        ([], {}, "`features` must name at least one column; got none"),
    ],
)
def test_columns_of_the_wrong_type(frame, features, options, message):
    wide = frame.selectExpr("*", "array(name) words", "array(x, y) v")
    with pytest.raises(SettingError, match=message):
        layout_of(wide, features, **options)


def test_a_column_that_is_there_twice(frame):
    with pytest.raises(SettingError, match=r"Several columns have the name x. Rename or drop all but one"):
        layout_of(frame.select("x", "y", "x"), ["x", "y"])


@FEW
@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_sql_and_tasks_agree_on_bad_rows_of_columns(spark, rows):
    frame = spark.createDataFrame(numbers_table(rows)).coalesce(1)
    layout = layout_of(frame, ["x", "y"], weight_col="w")
    points, weights, good, bad = read(frame, layout)
    reasons = [row[0] for row in frame.select(why_bad(frame, layout)).collect()]
    assert [reason is None for reason in reasons] == good.tolist()
    assert bad.rows == sum(reason is not None for reason in reasons)
    assert all(
        reason.startswith("w: ") for reason, (x, y, w) in zip(reasons, rows, strict=True) if fine(x, y) and w == -1.5
    )
    np.testing.assert_array_equal(
        points[good], [row[:2] for row, kept in zip(rows, good, strict=True) if kept] or points[:0]
    )
    assert (points[~good] == 0).all()
    assert (weights[~good] == 0).all()


def fine(*values):
    return all(value is not None and math.isfinite(value) for value in values)


@FEW
@given(rows=st.lists(st.none() | st.lists(NUMBERS, max_size=3), min_size=1, max_size=30))
def test_sql_and_tasks_agree_on_bad_rows_of_arrays(spark, rows):
    frame = spark.createDataFrame(pa.table({"v": pa.array(rows, pa.list_(pa.float64()))})).coalesce(1)
    layout = with_dimension(frame, layout_of(frame, "v"))
    _, _, good, bad = read(frame, layout)
    is_bad = [row[0] is not None for row in frame.select(why_bad(frame, layout)).collect()]
    assert is_bad == (~good).tolist()
    assert bad.rows == sum(is_bad)
    for row, kept in zip(rows, good, strict=True):
        assert kept == (row is not None and len(row) == layout.dimension and fine(*row))


LONGS = [3, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**62 + 1, 2**63 - 1, -(2**63), None]
EXACT = [True, True, False, False, True, False, False, True, False]


@pytest.mark.parametrize("is_array", [False, True])
def test_longs_that_float64_rounds_are_bad_rows(spark, tmp_path, is_array):
    """For tasks that get the rows from Spark, for tasks that open the file, and for SQL."""
    kind = pa.list_(pa.int64()) if is_array else pa.int64()
    table = pa.table({"v": pa.array([[value] for value in LONGS] if is_array else LONGS, kind)})
    pq.write_table(table, tmp_path / "longs.parquet")
    frame = spark.read.parquet(str(tmp_path / "longs.parquet")).coalesce(1)
    layout = with_dimension(frame, layout_of(frame, "v" if is_array else ["v"]))
    points, _, good, bad = read(frame, layout)
    assert good.tolist() == EXACT
    assert bad.counts == {"v": EXACT.count(False)}
    np.testing.assert_array_equal(
        points[good, 0], [float(value) for value in LONGS if value in (3, 2**53, 2**62, -(2**63))]
    )
    reasons = [row[0] for row in frame.select(why_bad(frame, layout)).collect()]
    assert [reason is None for reason in reasons] == EXACT
    assert reasons[2] == "v: a whole number beyond 2^53 that float64 rounds"
    (arrays,) = read_points([RowGroups(str(tmp_path / "longs.parquet"), 0, 0, len(LONGS))], layout)
    assert BatchReader(layout).read(arrays)[2].tolist() == EXACT


def test_sql_and_tasks_agree_on_bad_vectors(spark):
    frame = vectors_of(spark, [[1.0, 2.0], None, [1.0], [math.nan, 1.0], [3.0, 4.0], [math.inf, 0.0]]).coalesce(1)
    layout = with_dimension(frame, layout_of(frame, "v"))
    _, _, good, _ = read(frame, layout)
    assert [row[0] is None for row in frame.select(why_bad(frame, layout)).collect()] == good.tolist()
    assert good.tolist() == [True, False, False, False, True, False]
