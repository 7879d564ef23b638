"""Graphs on Spark: the same clusters as the numpy model, with integer and with string ids, and the job."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelcoreset import DataError, Graph, SettingError, fit_graph
from kernelcoreset.graphs.model import GraphModel
from kernelcoreset.jobs import cli
from kernelcoreset.spark import graph_blocks
from kernelcoreset.spark.graph import EdgeColumns, cluster_graph

K = 3


@pytest.fixture(scope="module")
def edges():
    """Three blocks of 60 nodes, with weights; ids are 7 i + 1000."""
    generator = np.random.default_rng(0)
    block = np.arange(180) % K
    p = np.where(block[:, None] == block, 0.25, 0.01)
    source, target = np.nonzero(np.triu(generator.random((180, 180)) < p, 1))
    return source, target, 0.5 + generator.random(len(source))


def table_of(edges, *, text=False):
    source, target, weights = edges
    names = [pa.array(7 * ends + 1000) for ends in (source, target)]
    if text:
        names = [name.cast(pa.string()) for name in names]
    return pa.table({"src": names[0], "dst": names[1], "weight": weights})


WEIGHTED = EdgeColumns(weight="weight")


@pytest.mark.parametrize("text", [False, True])
def test_labels_are_those_of_numpy_whatever_the_ids_and_their_order(spark, edges, text):
    frame = spark.createDataFrame(table_of(edges, text=text)).repartition(3)
    found = cluster_graph(frame, K, WEIGHTED, seed=1)
    labels = {int(row.node): row.prediction for row in found.labels.collect()}
    names = sorted(labels, key=str if text else int)
    place = {name: i for i, name in enumerate(names)}
    source, target = ([place[7 * i + 1000] for i in ends] for ends in edges[:2])
    expected = fit_graph(Graph.from_edges(source, target, edges[2]), K, seed=1)
    assert [labels[name] for name in names] == expected.labels.tolist()
    assert found.model.normalized_cut == pytest.approx(expected.normalized_cut)
    assert found.edges == len(edges[0])


def test_new_nodes_are_labelled_by_joins_as_numpy_labels_them(spark, edges):
    found = cluster_graph(spark.createDataFrame(table_of(edges)), K, WEIGHTED)
    names = np.array(sorted(row.node for row in found.labels.collect()))
    generator = np.random.default_rng(1)
    rows = generator.random((20, len(names))) * (generator.random((20, len(names))) < 0.05)
    rows[3] = 0.0
    new, known = np.nonzero(rows)
    more = pa.table({"src": new, "dst": names[known], "weight": rows[new, known]})
    stranger = pa.table({"src": [99], "dst": [-5], "weight": [1.0]})
    frame = spark.createDataFrame(pa.concat_tables([more, stranger]))
    labels = {row.node: row.prediction for row in found.predict(frame, WEIGHTED).collect()}
    expected = found.model.predict(rows)
    assert labels == {r: label for r, label in enumerate(expected.tolist()) if label >= 0}


BAD_EDGES = [
    ([[None, 1, 1.0]], r"src: 1 of 1"),
    ([[1, 2, -1.0]], r"weight: 1 of 1"),
    ([[1, 2, float("nan")], [2, None, None]], r"dst: 1, weight: 2 of 2"),
    ([], "no rows"),
]


@pytest.mark.parametrize(("rows", "message"), BAD_EDGES)
def test_bad_edges_are_counted_by_column(spark, rows, message):
    frame = spark.createDataFrame(rows, "src long, dst long, weight double")
    with pytest.raises(DataError, match=message):
        cluster_graph(frame, 1, WEIGHTED)


@pytest.mark.parametrize("ids", ["dense", "sparse", "text"])
def test_edges_beyond_the_driver_stay_on_the_executors(spark, edges, ids, monkeypatch):
    """The same clusters as with all edges on the driver, from 7 blocks, whatever the ids."""
    monkeypatch.setattr(graph_blocks, "ENTRIES_PER_BLOCK", 300)
    monkeypatch.setattr(graph_blocks, "_IDS_PER_PARTITION", 50)
    table = table_of(edges, text=ids == "text")
    if ids == "dense":
        table = pa.table({"src": edges[0] - 50, "dst": edges[1] - 50, "weight": edges[2]})
    table = pa.concat_tables([table, table.slice(0, 1)])  # an edge given twice
    frame = spark.createDataFrame(table).repartition(3)
    whole = cluster_graph(frame, K, WEIGHTED, seed=1)
    found = cluster_graph(frame, K, WEIGHTED, seed=1, most_edges=10)
    assert found.edges == whole.edges
    labels = labels_by_node(found)
    assert labels == labels_by_node(whole)
    assert found.model.normalized_cut == pytest.approx(whole.model.normalized_cut)
    assert sorted(found.model.labels) == sorted(labels.values())
    if ids == "dense":
        assert found.model.labels.tolist() == [labels[node] for node in sorted(labels)]


def labels_by_node(found):
    return {row.node: row.prediction for row in found.labels.collect()}


def test_nodes_that_no_edge_names_get_no_row(spark, monkeypatch):
    monkeypatch.setattr(graph_blocks, "ENTRIES_PER_BLOCK", 2)
    rows = [(0, 1, 1.0), (1, 2, 1.0), (0, 2, 1.0), (4, 5, 1.0), (5, 6, 1.0), (4, 6, 1.0), (8, 8, 0.0)]
    frame = spark.createDataFrame(rows, "src long, dst long, weight double")
    found = labels_by_node(cluster_graph(frame, 2, WEIGHTED, most_edges=1))
    assert found == {0: 0, 1: 0, 2: 0, 4: 1, 5: 1, 6: 1, 8: -1}


@pytest.mark.parametrize(
    ("schema", "columns", "message"),
    [
        (
            "a long, dst long",
            EdgeColumns(),
            r"`source`: there is no column `src`\. The columns are: a, dst",
        ),
        ("src long, dst string", EdgeColumns(), "bigint and string"),
        ("src double, dst double", EdgeColumns(), "double and double"),
        ("src long, dst long, w string", EdgeColumns(weight="w"), "Column w must be a number; it is string"),
    ],
)
def test_columns_of_a_wrong_kind_are_refused(spark, schema, columns, message):
    with pytest.raises(SettingError, match=message):
        cluster_graph(spark.createDataFrame([], schema), 2, columns)


ON_CONNECT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from kernelcoreset.spark.graph import EdgeColumns, cluster_graph
edges = spark.read.parquet("edges.parquet")
found = cluster_graph(edges, 3, EdgeColumns(weight="weight"))
old = found.labels.toArrow().sort_by("node")["prediction"].to_pylist()
new = found.predict(edges.limit(100), EdgeColumns(weight="weight")).count()
apart = cluster_graph(edges, 3, EdgeColumns(weight="weight"), most_edges=5)
assert apart.labels.toArrow().sort_by("node")["prediction"].to_pylist() == old
print(type(spark).__module__, old, new > 0, sep="|")
spark.stop()
"""


def test_spark_connect_gives_the_same(edges, tmp_path):
    """A session of its own kind, in a process of its own."""
    pq.write_table(table_of(edges), tmp_path / "edges.parquet")
    root = str(Path(__file__).parents[2])
    # SPARK_TESTING lets the Connect server take any free port: the usual one may be taken.
    environment = os.environ | {"PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ON_CONNECT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    expected = fit_graph(Graph.from_edges(*edges), K).labels.tolist()
    assert done.stdout.splitlines()[-1] == f"pyspark.sql.connect.session|{expected}|True"


JOB = """
[input]
path = "{folder}/edges.parquet"
weight_col = "weight"
[graph]
[coreset]
k = 3
[cluster]
model_path = "{folder}/model"
[output]
path = "{folder}/labels"
"""


@pytest.fixture
def job(spark, tmp_path, edges):
    pq.write_table(table_of(edges), tmp_path / "edges.parquet")
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    return lambda *options: cli.graph_main(["--config", str(tmp_path / "job.toml"), *options])


def test_the_job_writes_a_row_for_every_node_and_keeps_the_model(spark, job, tmp_path, edges):
    assert job() == 0
    found = spark.read.parquet(str(tmp_path / "labels")).toArrow().sort_by("node")
    expected = cluster_graph(spark.createDataFrame(table_of(edges)), 3, WEIGHTED)
    assert found["prediction"].to_pylist() == expected.model.labels.tolist()
    assert GraphModel.load(tmp_path / "model").labels.tolist() == expected.model.labels.tolist()
    record = json.loads((tmp_path / "labels.run.json").read_text())
    assert record["rows"] == len(edges[0])
    assert record["nodes"] == sum(record["cluster_sizes"]) == 180
    assert record["exact_normalized_cut"] == pytest.approx(expected.model.normalized_cut)
    assert job() == 2  # the output is there


def test_the_job_tells_its_plan_and_refuses_what_it_cannot_do(job, capsys, tmp_path):
    assert job("--dry-run") == 0
    assert "driver bytes" in capsys.readouterr().out
    assert job("--set", "input.bad_rows=drop") == 2
    assert '`input.bad_rows` must be "fail" for a graph' in capsys.readouterr().err
    assert job("--set", "graph.source=a") == 2
    assert "Did you mean `graph.source_col`?" in capsys.readouterr().err
    assert not (tmp_path / "labels").exists()


def test_the_job_leaves_more_edges_than_asked_for_on_the_executors(spark, job, tmp_path, edges, capsys):
    assert job("--set", "graph.most_edges=5", "--dry-run") == 0
    assert "stay on the executors" in capsys.readouterr().out
    assert job("--set", "graph.most_edges=5") == 0
    found = spark.read.parquet(str(tmp_path / "labels")).toArrow().sort_by("node")
    expected = cluster_graph(spark.createDataFrame(table_of(edges)), 3, WEIGHTED)
    assert found["prediction"].to_pylist() == expected.model.labels.tolist()
