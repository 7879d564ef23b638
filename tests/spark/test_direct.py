"""The direct scan: tasks read Parquet row groups themselves."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset import Coreset, DataError, SettingError
from kernelcoreset.jobs.cluster import cluster_coreset
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark import scan
from kernelcoreset.spark.columns import Layout, layout_of, with_dimension
from kernelcoreset.spark.jobs import batch, coreset
from kernelcoreset.spark.jobs.input import Input
from tests.spark.conftest import table_of


@pytest.fixture
def files(points, tmp_path):
    """Three files of unequal size, in row groups of 50."""
    folder = tmp_path / "points"
    folder.mkdir()
    table = table_of(points)
    table = table.append_column("v", pa.array(points.tolist(), pa.list_(pa.float32())))
    for number, (start, rows) in enumerate([(0, 330), (330, 70), (400, 200)]):
        pq.write_table(table.slice(start, rows), folder / f"part-{number} a.parquet", row_group_size=50)
    return folder


def settings_for(path, kernel=None, coreset=None, output=None, **options):
    return Settings.from_dict(
        {
            "output": output or {},
            "input": {"path": str(path), "features": ["x", "y"]} | options,
            "kernel": kernel or {"name": "Gaussian", "sigma": 5.0},
            "coreset": {"k": 3, "coreset_size": 60} | (coreset or {}),
        }
    )


def build(spark, settings):
    record = RunRecord("build", settings, "record.json")
    return coreset.build(input_of(spark, settings), settings, record), record.to_dict()


def input_of(spark, settings):
    return Input(spark, settings.input)


def same(one: Coreset, other: Coreset):
    return one.points.tobytes() == other.points.tobytes() and one.weights.tobytes() == other.weights.tobytes()


def test_small_row_groups_are_read_together(files, monkeypatch):
    monkeypatch.setattr(scan, "LEAF_ROWS", 100)
    paths = sorted(map(str, files.iterdir()))
    found = scan.Footers().row_groups(paths, ["x"])
    assert [(Path(part.file).name[5], part.first, part.last, part.rows) for part in found] == [
        ("0", 0, 1, 100),
        ("0", 2, 3, 100),
        ("0", 4, 5, 100),
        ("0", 6, 6, 30),
        ("1", 0, 1, 70),
        ("2", 0, 1, 100),
        ("2", 2, 3, 100),
    ]
    assert scan.Footers().row_groups(paths, ["x", "elsewhere"]) is None


@pytest.mark.parametrize(
    ("rows", "parts"), [(224, [(0, 4), (5, 11)]), (225, [(0, 4), (5, 9), (10, 11)]), (24, [(0, 1)])]
)
def test_a_small_rest_of_a_file_joins_the_part_before(tmp_path, monkeypatch, rows, parts):
    monkeypatch.setattr(scan, "LEAF_ROWS", 100)
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"x": np.zeros(rows)}), path, row_group_size=20)
    found = scan.Footers().row_groups([path], ["x"])
    assert [(part.first, part.last) for part in found] == parts
    assert sum(part.rows for part in found) == rows


def test_every_leaf_has_a_task_of_its_own(spark):
    groups = [[scan.RowGroups(f"{number}", 0, 0, number)] for number in range(9)]
    tasks = scan.task_frame(spark, groups, name=pa.array(list("abcdefghi"))).withColumn("task", F.spark_partition_id())
    rows = sorted(tasks.collect(), key=lambda row: row["leaf"])
    assert [(row["leaf"], row["name"], row["row_groups"][0]["rows"]) for row in rows] == [
        (number, letter, number) for number, letter in enumerate("abcdefghi")
    ]
    assert sorted(row["task"] for row in rows) == list(range(9))


@pytest.mark.parametrize(
    "lists", [[[1.0, 2.0], None, [], [3.0], [4.0]], [[1.0, 2.0], [], [3.0], [4.0, 5.0]], [None, []], [[1.0]] * 2_000]
)
@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32())])
def test_files_tell_the_length_of_lists_as_spark_does(spark, tmp_path, lists, kind):
    for number, half in enumerate((lists[: len(lists) // 2], lists[len(lists) // 2 :])):
        pq.write_table(pa.table({"v": pa.array(half, kind)}), tmp_path / f"{number}.parquet")
    frame = spark.read.parquet(str(tmp_path)).coalesce(1)
    layout = layout_of(frame, "v")
    row_groups = scan.Footers().row_groups(sorted(map(str, tmp_path.iterdir())), ["v"])
    assert scan.with_dimension_of_files(row_groups, layout) == with_dimension(frame, layout)


def test_small_files_share_a_leaf_and_a_large_one_is_alone(monkeypatch):
    monkeypatch.setattr(scan, "SHARED_ROWS", 100)
    rows = [40, 60, 1, 250, 30, 70, 20]
    found = scan.shared([scan.RowGroups(f"{number}", 0, 0, count) for number, count in enumerate(rows)])
    assert [[part.rows for part in group] for group in found] == [[40, 60], [1], [250], [30, 70], [20]]


def test_wide_files_share_a_leaf_by_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "LEAF_BYTES", 16_000)
    monkeypatch.setattr(scan, "SHARED_BYTES", 20_000)
    values = np.random.default_rng(0).normal(size=2_000).astype(np.float32)
    lists = pa.ListArray.from_arrays(np.arange(0, 2_001, 100, dtype=np.int32), pa.array(values))
    for number in range(3):
        table = pa.table({"a.b": lists, "n": np.arange(20)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=10, use_dictionary=False)
    files = sorted(map(str, tmp_path.iterdir()))
    wide, narrow = (scan.Footers().row_groups(files, [name]) for name in ("a.b", "n"))
    assert [(part.first, part.last, part.rows) for part in narrow] == 3 * [(0, 1, 20)]
    assert all(4_000 < part.size < 10_000 for part in wide)
    assert [[part.rows for part in group] for group in scan.shared(wide)] == [[20, 20], [20]]
    assert [[part.rows for part in group] for group in scan.shared(narrow)] == [[20, 20, 20]]


def test_the_rows_of_small_files_come_in_one_batch_unless_their_types_differ(tmp_path):
    parts = []
    for number, kind in enumerate([pa.int32(), pa.int32(), pa.float64()]):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"x": pa.array([number, 7], kind)}), path)
        parts.append(scan.RowGroups(str(path), 0, 0, 2))
    as_they_are = [array.to_pylist() for (array,) in scan.read_columns(parts, ["x"], [None])]
    assert as_they_are == [[0, 7, 1, 7], [2.0, 7.0]]
    ((cast,),) = scan.read_columns(parts, ["x"], [pa.float64()])
    assert cast.to_pylist() == [0.0, 7.0, 1.0, 7.0, 2.0, 7.0]


def test_many_small_files_make_few_tasks(spark, points, tmp_path):
    """The coreset is that of one file with the same rows, and the output has few files."""
    many, one = tmp_path / "many", tmp_path / "one"
    for folder, size in ((many, 6), (one, 600)):
        folder.mkdir()
        for start in range(0, 600, size):
            pq.write_table(table_of(points).slice(start, size), folder / f"part-{start:03}.parquet")
    settings = settings_for(many, output={"path": str(tmp_path / "out")})
    coreset, record = build(spark, settings)
    assert (record["rows"], record["leaves"]) == (600, 1)
    assert batch.plan(settings)["leaves"] == 1
    assert same(coreset, build(spark, settings_for(one))[0])
    model = cluster_coreset(coreset, settings, RunRecord("cluster", settings, "r.json"))
    labelled, _ = assign(spark, model, settings)
    assert labelled.count() == 600
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1


@pytest.mark.parametrize("sigma", [5.0, "median"])
def test_the_same_result_at_any_layout(spark, files, monkeypatch, sigma):
    monkeypatch.setattr(scan, "LEAF_ROWS", 100)
    monkeypatch.setattr(scan, "SHARED_ROWS", 100)
    settings = settings_for(files, kernel={"name": "Gaussian", "sigma": sigma})
    one, record = build(spark, settings)
    assert (record["rows"], record["leaves"]) == (600, 6)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4000")
    assert input_of(spark, settings).frame.rdd.getNumPartitions() > 3
    other, again = build(spark, settings)
    assert same(one, other)
    assert record["kernel"] == again["kernel"]


def test_any_order_and_number_of_tasks_gives_the_same_leaves(spark, files, monkeypatch):
    monkeypatch.setattr(scan, "LEAF_ROWS", 100)
    monkeypatch.setattr(scan, "SHARED_ROWS", 100)
    one, _ = build(spark, settings_for(files))
    monkeypatch.setattr(scan, "MOST_TASKS", 2)
    assert same(one, build(spark, settings_for(files))[0])


def test_auto_takes_the_direct_way_here(spark, files):
    assert len(input_of(spark, settings_for(files)).row_groups) == 3
    assert batch.plan(settings_for(files))["scan"] == "direct"
    assert batch.plan(settings_for(files, scan="spark"))["scan"] == "spark"


def test_the_direct_way_keeps_what_spark_keeps(spark, files):
    """A coreset as large as the data is the data, whichever way it was read."""
    options = {"weight_col": "w", "id_col": "name", "coreset": {"coreset_size": 600}}
    read = {}
    for way in ("direct", "spark"):
        for features in (["x", "y"], "v"):
            coreset, _ = build(spark, settings_for(files, features=features, scan=way, **options))
            order = np.argsort(coreset.ids)
            read[way, str(features)] = coreset.points[order], coreset.weights[order], coreset.ids[order]
    for features in ("['x', 'y']", "v"):
        for one, other in zip(read["direct", features], read["spark", features], strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(read["direct", "v"][0], read["direct", "['x', 'y']"][0], rtol=1e-6)


def test_bad_rows_are_found_on_the_direct_way(spark, tmp_path):
    pq.write_table(
        pa.table({"x": [1, None, 2**60 + 1, 4, 2**60], "y": [1.0, 2.0, 3.0, float("nan"), 3.0]}), tmp_path / "a.parquet"
    )
    settings = settings_for(tmp_path / "a.parquet", scan="direct")
    with pytest.raises(DataError, match=r"3 of 5 rows cannot be used .* by column: x: 2, y: 1"):
        build(spark, settings)
    coreset, record = build(spark, settings_for(tmp_path / "a.parquet", scan="direct", bad_rows="drop"))
    assert (record["bad_rows"], coreset.points.tolist()) == (3, [[1.0, 1.0], [2.0**60, 3.0]])


def test_names_with_dots_on_the_direct_way(spark, tmp_path):
    pq.write_table(pa.table({"a.x": [1.0, 2.0], "a b": [1.0, 3.0]}), tmp_path / "a.parquet")
    coreset, _ = build(spark, settings_for(tmp_path / "a.parquet", scan="direct", features=["a.x", "a b"]))
    assert coreset.points.tolist() == [[1.0, 1.0], [2.0, 3.0]]


def test_columns_in_folder_names_are_read_by_spark(spark, frame, tmp_path):
    parts = str(tmp_path / "parts")
    frame.selectExpr("x", "y", "cast(id % 2 as int) half").write.partitionBy("half").parquet(parts)
    settings = settings_for(parts, features=["x", "y", "half"])
    assert input_of(spark, settings).row_groups is None
    assert build(spark, settings)[0].points.shape[1] == 3
    message = r'`input.scan` = "direct" needs plain local Parquet files that hold all columns; .*parts does not'
    with pytest.raises(DataError, match=message):
        build(spark, settings_for(parts, features=["x", "y", "half"], scan="direct"))


def test_a_filter_is_left_to_spark(spark, files):
    settings = settings_for(files, where="id < 100")
    assert input_of(spark, settings).row_groups is None
    assert build(spark, settings)[1]["rows"] == 100
    with pytest.raises(SettingError, match="reads whole Parquet files"):
        settings_for(files, where="id < 100", scan="direct")


def test_other_formats_are_left_to_spark(spark, frame, tmp_path):
    frame.select("x", "y").write.json(str(tmp_path / "rows"))
    settings = settings_for(tmp_path / "rows", format="json")
    assert input_of(spark, settings).row_groups is None
    assert build(spark, settings)[1]["rows"] == 600


def test_a_file_that_is_no_parquet_file(spark, files):
    (files / "part-1 a.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"part-1 a.parquet is not a readable Parquet file .* Write it again"):
        build(spark, settings_for(files))
    with pytest.raises(DataError, match=r"A file of the input .*parquet' cannot be read: .*part-1"):
        build(spark, settings_for(files / "part-1 a.parquet"))


def test_a_file_damaged_in_the_middle(spark, files):
    path = files / "part-0 a.parquet"
    content = bytearray(path.read_bytes())
    content[4:4000] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"DataError: .*part-0 a.parquet is not a readable Parquet file"):
        build(spark, settings_for(files))


def test_files_without_rows(spark, points, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    pq.write_table(table_of(points[:0]), empty / "a.parquet")
    with pytest.raises(DataError, match="There is no row to cluster: 0 rows read"):
        build(spark, settings_for(empty))
    pq.write_table(table_of(points), empty / "b.parquet")
    assert build(spark, settings_for(empty))[1]["rows"] == 600


def test_the_record_is_plain(spark, files):
    json.dumps(build(spark, settings_for(files))[1], allow_nan=False)


def assign(spark, model, settings):
    record = RunRecord("assign", settings, "record.json")
    batch.write_labels(input_of(spark, settings), model, settings, record)
    return spark.read.parquet(settings.output.path), record.to_dict()


@pytest.mark.parametrize("bad_rows", ["fail", "drop"])
def test_labels_of_the_direct_way_are_those_of_spark(spark, points, files, tmp_path, monkeypatch, bad_rows):
    """All columns come along, in their order, and the same is measured."""
    monkeypatch.setattr(scan, "LEAF_ROWS", 100)
    monkeypatch.setattr(scan, "SHARED_ROWS", 100)
    if bad_rows == "drop":
        holed = table_of(points).slice(0, 3).set_column(1, "x", pa.array([1.0, None, float("nan")]))
        holed = holed.append_column("v", pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32())))
        pq.write_table(holed.select(pq.read_schema(files / "part-0 a.parquet").names), files / "bad.parquet")
    model, found = None, {}
    for way in ("direct", "spark"):
        settings = settings_for(files, scan=way, bad_rows=bad_rows, output={"path": str(tmp_path / way)})
        model = model or cluster_coreset(build(spark, settings)[0], settings, RunRecord("cluster", settings, "r.json"))
        data = input_of(spark, settings)
        assert (data.groups_to_copy(data.frame) is None) == (way == "spark")
        found[way] = assign(spark, model, settings)
    assert_df_equality(found["direct"][0], found["spark"][0], ignore_row_order=True)
    for name in ("rows", "bad_rows", "cluster_sizes"):
        assert found["direct"][1][name] == found["spark"][1][name]
    assert found["direct"][1]["bad_rows"] == (2 if bad_rows == "drop" else 0)
    assert found["direct"][1]["cost"] == pytest.approx(found["spark"][1]["cost"], rel=1e-12)


def test_columns_with_a_calendar_are_left_to_spark(spark, points, tmp_path):
    """And are not read at all where the output does not ask for them."""
    table = table_of(points).append_column("seen", pa.array([0] * len(points), pa.timestamp("us", "UTC")))
    pq.write_table(table, tmp_path / "rows.parquet")
    settings = settings_for(tmp_path / "rows.parquet", output={"path": str(tmp_path / "out"), "columns": ["id"]})
    data = input_of(spark, settings)
    assert data.row_groups is not None
    assert data.groups_to_copy(data.frame) is None
    few = data.with_columns(["id"])
    assert few.columns == ["id", "x", "y"]
    assert data.groups_to_copy(few) is not None
    model = cluster_coreset(build(spark, settings)[0], settings, RunRecord("cluster", settings, "r.json"))
    assert assign(spark, model, settings)[0].columns == ["id", "prediction", "distance"]


def test_a_column_that_differs_from_file_to_file_is_not_bent(spark, points, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    table = table_of(points).select(["x", "y"])
    pq.write_table(table.append_column("n", pa.array([1] * len(points), pa.int32())), folder / "a.parquet")
    pq.write_table(table.append_column("n", pa.array([2**40] * len(points), pa.int64())), folder / "b.parquet")
    settings = settings_for(folder, scan="direct", output={"path": str(tmp_path / "out")})
    model = cluster_coreset(build(spark, settings)[0], settings, RunRecord("cluster", settings, "r.json"))
    with pytest.raises(PythonException, match=r"b\.parquet is not a readable Parquet file .*1099511627776"):
        assign(spark, model, settings)


def test_only_a_part_of_a_file_of_lists_is_in_memory(tmp_path, monkeypatch):
    """Batches of an eighth of the file: 0.43 of it at most, 1.87 if all row groups were read first."""
    numbers = np.random.default_rng(0).normal(size=(4_096, 512)).astype(np.float32)
    lists = pa.ListArray.from_arrays(np.arange(0, numbers.size + 1, 512, dtype=np.int32), pa.array(numbers.ravel()))
    pq.write_table(pa.table({"x": lists}), tmp_path / "wide.parquet", row_group_size=256)
    del lists
    for name in ("_BATCH_BYTES", "_LIST_BYTES"):
        monkeypatch.setattr(scan, name, 1 << 20)
    groups = scan.Footers().row_groups([str(tmp_path / "wide.parquet")], ["x"])
    before, rows, most = pa.total_allocated_bytes(), 0, 0
    for arrays in scan.read_points(groups, Layout(("x",), True, dimension=512)):
        rows += len(arrays[0])
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == len(numbers)
    assert most < 0.7 * numbers.nbytes
