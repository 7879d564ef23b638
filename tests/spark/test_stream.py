"""The streaming job from its command line to its files, on a real Spark."""

import functools
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.jobs.settings.rows import InputSettings
from kernelcoreset.spark.jobs.compaction import compacted, key_of
from kernelcoreset.spark.jobs.input import selected_rows
from kernelcoreset.spark.jobs.trace import traced
from kernelcoreset.spark.observed_leaves import ObservedLeaves
from tests.spark.job_runs import record_of, write_config
from tests.spark.job_runs import run as run_job
from tests.spark.nights import points_of


def put_file(number, n=100, bad=0):
    """One more file for the stream; ids say which file a row is from. Files are taken in the order of their times."""
    Path("in").mkdir(exist_ok=True)
    points = points_of(number, n)
    points[:bad, 0] = np.nan
    table = pa.table({"id": pa.array(1000 * number + np.arange(n)), "x": points[:, 0], "y": points[:, 1]})
    path = Path(f"in/{number:04}.parquet")
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.fixture
def config(spark):
    write_config(
        '[input]\npath = "HERE/in"\nfeatures = ["x", "y"]\nschema = "id long, x double, y double"\n'
        "options = {maxFilesPerTrigger = 1}\n"
        '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
        "[coreset]\nk = 3\ncoreset_size = 60\nleaf_size = 100\nseed = 3\n"
        '[cluster]\nn_init = 3\n[store]\npath = "HERE/store"\n[output]\npath = "HERE/out"\n'
        '[stream]\ncheckpoint = "HERE/checkpoint"\nrefit_batches = 4\nfan_in = 3\n'
    )


run = functools.partial(run_job, cli.stream_main)


def labels(path="out"):
    table = pq.read_table(path)
    assert len(set(table["id"].to_pylist())) == table.num_rows, "a row is there twice"
    return dict(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


def test_a_stream_in_two_sittings(config, capsys):
    for number in range(5):
        put_file(number)
    assert run() == 0
    record = record_of()
    assert (record["outcome"], record["batches"], record["rows"]) == ("5 micro-batches added", 5, 500)
    assert record["run"] == 2  # fitted on the first batch, and after four more
    assert record["store_commit"] == "hard link"
    assert set(labels()) == {1000 * number + i for number in range(5) for i in range(100)}
    store = kc.CoresetStore.open("store")
    assert store.keys() == [key_of(0, 3, 3), key_of(0, 4, 4), key_of(1, 0, 2)]
    assert sum(store.info(key)["rows"] for key in store.keys()) == 500  # noqa: SIM118

    assert len(record["description"]["clusters"]) == 3
    assert len(record["picture"]["labels"]) > 30

    assert run() == 0
    assert record_of()["outcome"] == "nothing to do"
    assert record_of()["picture"] == record["picture"]

    first = labels()
    for number in range(5, 9):
        put_file(number)
    assert run() == 0
    record, second = record_of(), labels()
    assert (record["batches"], record["rows"], record["last_batch"]) == (4, 900, 8)
    assert [entry["rows"] for entry in record["history"]] == [500, 900]
    assert "in the last 2 runs" in Path("out.report.html").read_text()
    assert {i: second[i] for i in first} == first
    store = kc.CoresetStore.open("store")
    assert store.keys() == [key_of(2, 0, 8)]
    assert store.info(key_of(2, 0, 8))["rows"] == 900
    assert store.result().weights.sum() == pytest.approx(900, rel=0.1)
    # Clusters keep their names from fit to fit.
    model = kc.KernelKMeansModel.load(record["model"])
    assert np.mean(model.predict(points_of(0, 100)) == [first[i] for i in range(100)]) > 0.95


@pytest.mark.parametrize("bad", [0, 7])
def test_one_pass_leaves_what_two_leave(config, monkeypatch, bad):
    """The fast way, one pass that labels rows and builds their leaf, against the plain one: a pass for each."""
    found = []
    for is_fast in (True, False):
        monkeypatch.setattr(ObservedLeaves, "can_hold", lambda _, is_fast=is_fast: is_fast)
        for place in ("store", "out", "checkpoint", "aside"):
            shutil.rmtree(place, ignore_errors=True)
        for number in range(4):
            put_file(number, bad=bad)
        aside = ["input.bad_rows=quarantine", "input.quarantine_path=HERE/aside"]
        assert run(*aside, "input.id_col=id", 'output.columns=["id"]') == 0
        store = kc.CoresetStore.open("store")
        leaves = {key: store.leaf(key).to_arrow().to_pydict() for key in store.keys()}  # noqa: SIM118
        record = record_of()
        rows = pq.read_table("aside").num_rows if bad else len(list(Path().glob("aside/**/*.parquet")))
        found.append((leaves, labels(), record["rows"], record["bad_rows"], rows))
    assert found[0] == found[1]
    assert found[0][2:] == (400, 4 * bad, 4 * bad)
    assert set(pq.read_table("out").column_names) == {"id", "prediction", "distance", "batch"}


def test_rows_are_read_once_per_micro_batch(config, spark):
    """But for the first micro-batch, which fits the model, and each with which another fit is due."""
    for number in range(4):
        put_file(number)
    read = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event): ...  # noqa: N802

        def onQueryIdle(self, event): ...  # noqa: N802

        def onQueryTerminated(self, event):  # noqa: N802
            read.append("end")

        def onQueryProgress(self, event):  # noqa: N802
            if event.progress.numInputRows:
                read.append(event.progress.numInputRows)

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        assert run() == 0
        while "end" not in read:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert read == [200, 100, 100, 100, "end"]


def test_the_state_is_read_once_per_micro_batch(config, monkeypatch):
    state, reads = kc.CoresetStore.state, []
    monkeypatch.setattr(kc.CoresetStore, "state", property(lambda store: reads.append(store) or state.fget(store)))
    counts = []
    for numbers in ([0], [1], [2, 3, 4]):
        for number in numbers:
            put_file(number)
        reads.clear()
        assert run() == 0
        counts.append(len(reads))
    assert counts[2] - counts[1] == 2  # two more micro-batches


def test_bad_rows_and_batches_without_good_ones(config, capsys):
    put_file(0)
    put_file(1, bad=5)
    assert run() == 3
    assert "5 of 100 rows cannot be used" in capsys.readouterr().err.splitlines()[-1]
    store = kc.CoresetStore.open("store")
    assert (store.keys(), store.state["batch"]) == ([key_of(0, 0, 0)], 0)
    put_file(2, bad=100)
    put_file(3, n=0)
    aside = ["input.bad_rows=quarantine", "input.quarantine_path=HERE/aside"]
    assert run(*aside) == 0
    record = record_of()
    assert (record["last_batch"], record["rows"], record["bad_rows"]) == (3, 300, 105)
    assert len(labels()) == 195
    assert pq.read_table("aside").num_rows == 105
    store = kc.CoresetStore.open("store")
    assert store.keys() == [key_of(0, 0, 0), key_of(0, 1, 1)]


LINES = ['{"id": 1, "x": 1.0, "y": 2.0}', "not json at all", '{"id": 3, "x": "abc", "y": 1.0}', '{"other": 1}']


def test_a_row_that_cannot_be_parsed_is_found_again(config):
    """Rows of nulls are put aside with the file and the text; good rows have no additional columns."""
    Path("in").mkdir()
    Path("in/only bad.json").write_text("neither this\n")
    os.utime("in/only bad.json", (1_600_000_000,) * 2)  # before there is a model
    Path("in/mixed.json").write_text("\n".join(LINES) + "\n")
    aside = ["input.bad_rows=quarantine", "input.quarantine_path=HERE/aside", "coreset.k=1"]
    assert run("input.format=json", *aside) == 0
    assert list(labels()) == [1]
    assert set(pq.read_table("out").column_names) == {"id", "x", "y", "prediction", "distance", "batch"}
    found = pq.read_table("aside").to_pylist()
    assert all(row["reason"] for row in found)
    assert {row["source_text"] for row in found} == {"neither this", *LINES[1:3], None}
    names = {row["source_text"]: row["source_file"].rpartition("/")[2] for row in found}
    assert names.pop("neither this") == "only%20bad.json"
    assert set(names.values()) == {"mixed.json"}
    assert record_of()["bad_rows"] == 4


def test_rows_of_a_source_without_files_keep_all_that_the_source_said(config):
    """As from Kafka: the columns are made by expressions, and what they were made from is lost if they fail."""
    Path("in").mkdir()
    Path("in/values.txt").write_text("1 2\n3 4\nfive six\n")
    text = Path("job.toml").read_text().replace('schema = "id long, x double, y double"\n', "")
    Path("job.toml").write_text(text)
    select = "[\"TRY_CAST(split(value, ' ')[0] AS DOUBLE) AS x\", \"TRY_CAST(split(value, ' ')[1] AS DOUBLE) AS y\"]"
    options = ["input.format=text", f"input.select={select}", "input.schema=value string"]
    assert run(*options, "input.bad_rows=quarantine", "input.quarantine_path=HERE/aside", "coreset.k=2") == 0
    (row,) = pq.read_table("aside").to_pylist()
    assert (row["x"], row["source_value"], row["source_file"].endswith("values.txt")) == (None, "five six", True)
    assert pq.read_table("out").num_rows == 2


def test_kafka_rows_keep_topic_partition_offset_and_value(spark):
    schema = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    source = spark.createDataFrame([(None, b"{broken", "events", 3, 41, None)], schema)
    select = ["from_json(CAST(value AS STRING), 'x DOUBLE').x AS x", "topic AS source_topic"]
    settings = InputSettings(format="kafka", select=select, features=["x"])
    frame, names = traced(source, settings, ["x", "source_topic"], lambda *_: pytest.fail("nothing to parse"))
    (row,) = [row.asDict() for row in selected_rows(frame, settings, *names).collect()]
    found = {name: row[name] for name in ("x", "source_topic_", "source_partition", "source_offset", "source_value")}
    assert list(found.values()) == [None, "events", 3, 41, b"{broken"]


def test_a_source_that_goes_on_until_stopped(config, spark):
    """Rows at a fixed rate, taken in every half second; stopped from elsewhere once there are enough."""

    def last_batch():
        try:
            return kc.CoresetStore.open("store").state.get("batch", 0)
        except FileNotFoundError:  # the job has not made the store yet
            return -1

    def stop_later():
        while last_batch() < 3:
            time.sleep(0.1)
        for query in spark.streams.active:
            query.stop()

    Path("job.toml").write_text(Path("job.toml").read_text().replace(f'path = "{Path.cwd()}/in"\n', ""))
    stopper = threading.Thread(target=stop_later)
    stopper.start()
    select = '["value AS id", "CAST(value % 7 AS DOUBLE) AS x", "CAST(value % 11 AS DOUBLE) AS y"]'
    rate = ["input.format=rate", "input.options={rowsPerSecond=200}", f"input.select={select}"]
    text = Path("job.toml").read_text().replace('schema = "id long, x double, y double"\n', "")
    Path("job.toml").write_text(text.replace("options = {maxFilesPerTrigger = 1}\n", ""))
    assert run(*rate, "stream.trigger=500 milliseconds", "stream.refit_minutes=0.01") == 0
    stopper.join()
    state = kc.CoresetStore.open("store").state
    found = labels()
    assert state["rows"] >= len(found) > 0  # the last batch may have been stopped before its labels
    assert set(range(min(len(found), 100))) <= set(found)
    assert state["run"] >= 2


REFUSED = [
    (["input.format=jdbc"], 2, "`input.format` must be one that streams, such as json or kafka; got 'jdbc'"),
    (["input.format=nosuch"], 2, "Spark has no format 'nosuch'"),
    (
        ["input.schema=id long, x double"],
        2,
        "`input.features`: there is no column `y`. The columns are: id, x.",
    ),
    (["input.schema=id long, x double, y double, batch long"], 2, "Columns already exist: batch"),
    (["output.prediction_col=x"], 2, "must not be named like the features"),
    (["kernel.sigma=6.0"], 2, "was made with kernel = "),
    (["stream.checkpoint=HERE/other"], 2, "belongs to the checkpoint"),
    (["store.path=HERE/other"], 3, "says that micro-batches were added, but the store at"),
]


def test_what_cannot_be_done_changes_nothing(config, capsys):
    put_file(0)
    assert run() == 0
    put_file(1)
    for overrides, code, message in REFUSED:
        assert run(*overrides) == code, overrides
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert kc.CoresetStore.open("store").state["batch"] == 0
        assert len(labels()) == 100
    shutil.rmtree("checkpoint")
    assert run() == 3
    assert "the stream would start again and its rows would count twice" in capsys.readouterr().err.splitlines()[-1]


def test_a_query_is_no_stream(config, capsys):
    Path("job.toml").write_text(Path("job.toml").read_text().replace(f'path = "{Path.cwd()}/in"\n', ""))
    assert run("input.query=SELECT 1.0 AS x, 2.0 AS y") == 2
    assert "The job stream needs a source that can be streamed" in capsys.readouterr().err.splitlines()[-1]
    assert run("input.demo_rows=5") == 2


def test_a_thousand_batches_have_few_keys(tmp_path):
    """Without Spark: keys stay few, no row is lost, and the error stays near that of a single coreset."""
    points = points_of(0, 20_000)
    kernel = kc.Gaussian(5.0)
    store = kc.CoresetStore.create(tmp_path / "store", 3, kernel, 60, leaf_size=240)
    most = 0
    for number, part in enumerate(np.array_split(points, 1000)):
        key = key_of(0, number, number)
        store.change(*compacted(store, key, kc.LeafUpdate(kc.Coreset(part, np.ones(20)), rows=20), 4))
        most = max(most, len(store.keys()))
    assert most <= 3 * 5  # fewer than four of each of five levels
    assert sum(store.info(key)["rows"] for key in store.keys()) == 20_000  # noqa: SIM118
    error = kc.empirical_error(points, store.result(), 3, kernel, n_center_sets=50)
    alone = kc.empirical_error(points, kc.build_coreset(points, 3, kernel, 60), 3, kernel, n_center_sets=50)
    assert error < 3 * alone
