"""The update job from its command line to its files, night after night, on a real Spark."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.spark.jobs.update import newest
from tests.spark.job_runs import record_of
from tests.spark.job_runs import run as run_job
from tests.spark.nights import content_of, counts_of, labels, points_of, put_day, run, snapshot, states_of


def test_nights(days, capsys):
    assert run() == 0
    record = record_of()
    assert (counts_of(record), record["rows"], record["labelled_rows"]) == ((5, 0, 0, 0), 1000, 1000)
    assert (record["run"], record["moved"], record["outcome"]) == (1, None, "updated")
    assert record["store_commit"] == "hard link"
    assert record["certificate"]["largest_error"] < 0.5
    first = labels()
    assert len(first) == 1000
    model = kc.KernelKMeansModel.load(record["model"])
    assert record["coreset_weight"] == pytest.approx(1000, rel=0.1)
    points = np.concatenate([points_of(day) for day in range(1, 6)])
    ids = np.concatenate([1000 * day + np.arange(200) for day in range(1, 6)])
    assert [first[i] for i in ids.tolist()] == model.predict(points).tolist()

    assert len(record["picture"]["labels"]) == record["coreset_points"]
    assert [entry["rows"] for entry in record["history"]] == [1000]
    assert len(record["description"]["clusters"]) == 3

    # The same input again: nothing is done, and nothing written but the record and its report.
    before = snapshot("store") | snapshot("out")
    assert run() == 0
    for name in ("picture", "description", "history", "cluster_shares"):
        assert record_of()[name] == record[name]
    assert (record_of()["outcome"], counts_of(record_of())) == ("nothing to do", (0, 0, 0, 0))
    assert "nothing to do" in capsys.readouterr().out
    assert snapshot("store") | snapshot("out") == before

    # A new day, a restated one with fewer rows, and one that has vanished.
    put_day(6, 6)
    put_day(2, 12, n=150)
    shutil.rmtree("days/date=2026-01-04")
    assert run() == 0
    record = record_of()
    assert counts_of(record) == (1, 1, 1, 0)
    assert record["changes"]["changed"] == ["date=2026-01-02"]
    assert (record["rows"], record["labelled_rows"], record["run"]) == (350, 350, 2)
    assert [entry["rows"] for entry in record["history"]] == [1000, 350]
    assert [sum(entry["shares"]) for entry in record["history"]] == pytest.approx([1.0, 1.0])
    sizes = [cluster["size"] for cluster in record["description"]["clusters"]]  # of all days, by the coreset
    assert sizes == pytest.approx([share * record["coreset_weight"] for share in record["cluster_shares"]])
    assert sum(sizes) == pytest.approx(950, rel=0.1)
    page = Path("out.report.html").read_text()
    assert "in the last 2 runs" in page
    assert "date=2026-01-04" in page
    second = labels()
    assert {i // 1000 for i in second} == {1, 3, 5, 6, 12}
    assert sum(i // 1000 == 12 for i in second) == 150
    # Rows of untouched days keep their labels, and clusters keep their names.
    assert all(second[i] == label for i, label in first.items() if i in second)
    assert 0 <= record["moved"] < 0.05
    model = kc.KernelKMeansModel.load(record["model"])
    assert np.mean(model.predict(points_of(1)) == [first[1000 + i] for i in range(200)]) > 0.95

    # The store equals one made at once from what is there now.
    assert run("store.path=HERE/fresh", "output.path=HERE/other") == 0
    assert content_of("fresh") == content_of("store")


def test_days_without_rows_and_days_of_bad_rows(days, capsys):
    assert run("input.bad_rows=drop") == 0
    before = states_of()
    put_day(1, 21, n=50, bad=50)
    assert run() == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert "50 of 50 rows cannot be used (null, NaN, infinite, a whole number beyond 2^53 that float64 rounds, " in last
    assert "wrong length or a negative weight); by column: x: 50" in last
    assert states_of() == before
    put_day(2, 22, n=0)
    put_day(6, 26, n=0)
    assert run("input.bad_rows=drop") == 0
    record = record_of()
    assert (counts_of(record), record["rows"], record["bad_rows"]) == ((1, 2, 0, 0), 50, 50)
    # They are known, so that they are not looked at every night, and leave nothing of what they were.
    store = kc.CoresetStore.open("store")
    assert [store.info(f"date=2026-01-0{day}")["points"] for day in (1, 2, 6)] == [0, 0, 0]
    assert {i // 1000 for i in labels()} == {3, 4, 5}
    assert run("input.bad_rows=drop") == 0
    assert record_of()["outcome"] == "nothing to do"


def test_bad_rows_are_put_aside_by_day(days):
    put_day(2, 2, bad=3)
    quarantine = ["input.bad_rows=quarantine", "input.quarantine_path=HERE/aside"]
    assert run(*quarantine) == 0
    assert sorted(pq.read_table("aside")["id"].to_pylist()) == [2000, 2001, 2002]
    put_day(2, 32, bad=1)
    assert run(*quarantine) == 0
    assert pq.read_table("aside")["id"].to_pylist() == [32000]
    assert len(labels()) == 999


def test_times_are_compared_for_difference_not_for_order(days):
    assert run() == 0
    file = Path("days/date=2026-01-03/part-0.parquet")
    for seconds in (4_000_000_000, 1_000_000_000):  # beyond all clocks, then before the last run
        put_day(3, 40 + seconds // 4_000_000_000)
        os.utime(file, (seconds, seconds))
        assert run() == 0
        assert record_of()["changes"]["changed"] == ["date=2026-01-03"]
        assert run() == 0
        assert record_of()["outcome"] == "nothing to do"
    assert {i // 1000 for i in labels()} == {1, 2, 40, 4, 5}


def test_window_decay_and_keeping(days):
    assert run("update.window=3") == 0
    assert kc.CoresetStore.open("store").keys() == [f"date=2026-01-0{day}" for day in (3, 4, 5)]
    put_day(6, 6)
    assert run("update.window=3") == 0
    assert counts_of(record_of()) == (1, 0, 0, 1)
    assert kc.CoresetStore.open("store").keys() == [f"date=2026-01-0{day}" for day in (4, 5, 6)]
    assert {i // 1000 for i in labels()} == {3, 4, 5, 6}  # what left the window keeps its labels
    assert record_of()["coreset_weight"] == pytest.approx(600, rel=0.1)

    # Asked for decay, the same store is fitted again; nothing else is done.
    assert run("update.window=3", "update.half_life=1") == 0
    assert counts_of(record_of()) == (0, 0, 0, 0)
    assert record_of()["coreset_weight"] == pytest.approx(200 * (1 + 0.5 + 0.25), rel=0.1)

    shutil.rmtree("days/date=2026-01-05")
    assert run("update.window=3", "update.half_life=1", "update.vanished=keep") == 0
    # The third of the days that are there comes back into the window; the one that vanished stays.
    assert kc.CoresetStore.open("store").keys() == [f"date=2026-01-0{day}" for day in (3, 4, 5, 6)]
    assert {i // 1000 for i in labels()} == {3, 4, 5, 6}


def test_all_rows_or_none_are_labelled(days):
    assert run("update.label=none") == 0
    assert not Path("out").exists()
    assert run("update.label=none") == 0
    assert record_of()["outcome"] == "nothing to do"
    assert run("update.label=all") == 0
    assert record_of()["labelled_rows"] == 1000
    put_day(6, 6)
    assert run("update.label=all") == 0
    record, found = record_of(), labels()
    assert (record["rows"], record["labelled_rows"]) == (1200, 1200)
    model = kc.KernelKMeansModel.load(record["model"])
    assert [found[1000 + i] for i in range(200)] == model.predict(points_of(1)).tolist()
    assert record["certificate"] is not None


def test_plain_files_and_rows_read_through_spark(days):
    """Every file is a key; CSV cannot be read directly, so the leaves are made from rows that Spark brings."""
    Path("files").mkdir()

    def put(name, seed, n=80):
        points = points_of(seed, n)
        lines = [f"{1000 * seed + i},{x},{y}" for i, (x, y) in enumerate(points)]
        Path(f"files/{name}").write_text("\n".join(["id,x,y", *lines]) + "\n")

    put("a b.csv", 1)
    put("c.csv", 2)
    options = ["input.path=HERE/files", "input.format=csv", "input.options={header=true}"]
    options += ["input.schema=id long, x double, y double"]
    assert run(*options) == 0
    assert record_of()["changes"]["new"] == ["a%20b.csv", "c.csv"]
    put("c.csv", 3, n=40)
    put("d.csv", 4)
    Path("files/a b.csv").unlink()
    assert run(*options) == 0
    assert counts_of(record_of()) == (1, 1, 1, 0)
    assert {i // 1000 for i in labels()} == {3, 4}
    store = kc.CoresetStore.open("store")
    assert [store.info(key)["rows"] for key in store.keys()] == [40, 80]  # noqa: SIM118
    assert set(pq.read_table("out")["key"].to_pylist()) == {"c.csv", "d.csv"}


@pytest.mark.parametrize("version", [True, False], ids=["version column", "content"])
def test_a_table_by_column(days, spark, version):
    def put(seeds):
        parts = []
        for day, (seed, n) in seeds.items():
            points = points_of(seed, n)
            ids = 1000 * seed + np.arange(n)
            columns = {"id": ids, "x": points[:, 0], "y": points[:, 1], "version": [seed] * n}
            parts.append(pa.table(columns).append_column("day", pa.array([day] * n, pa.string())))
        spark.createDataFrame(pa.concat_tables(parts)).createOrReplaceTempView("events")

    options = ["input.table=events", "update.key_col=day"]
    options += ["update.version_col=version"] if version else []
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(text.replace(f'path = "{Path.cwd()}/days"\n', ""))
    put({"2026-01-01": (1, 100), "2026-01-02": (2, 100), "2026-01-03": (3, 100)})
    assert run(*options) == 0
    put({"2026-01-01": (1, 100), "2026-01-02": (4, 60), "2026-01-04": (5, 100)})
    assert run(*options) == 0
    assert counts_of(record_of()) == (1, 1, 1, 0)
    assert {i // 1000 for i in labels()} == {1, 4, 5}
    assert run(*options) == 0
    assert record_of()["outcome"] == "nothing to do"
    put({"2026-01-01": (1, 100), None: (2, 10)})
    assert run(*options) == 3


def test_labels_in_a_table(days, spark):
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(text.replace(f'path = "{Path.cwd()}/out"\n', "") + 'table = "labels_by_day"\n')
    assert run() == 0
    put_day(2, 12, n=50)
    shutil.rmtree("days/date=2026-01-04")
    assert run() == 0
    days_found = {i // 1000 for i in spark.table("labels_by_day").toArrow()["id"].to_pylist()}
    assert days_found == {1, 12, 3, 5}
    spark.sql("DROP TABLE labels_by_day")


REFUSED = [
    (["kernel.sigma=6.0"], 2, "was made with kernel = {'kernel': 'Gaussian', 'sigma': 5.0}; the settings say"),
    (["coreset.k=4"], 2, "was made with k = 3; the settings say 4. Change them back, or set another store.path"),
    (["coreset.seed=4"], 2, "was made with seed = 3; the settings say 4"),
    (['input.features=["x", "id"]'], 2, "was made with features = ['x', 'y']; the settings say ['x', 'id']"),
    (["input.path=HERE/nowhere"], 3, "was not found or is empty"),
    (
        ["update.key_col=day"],
        2,
        "`update.key_col`: there is no column `day`. The columns are: id, x, y, date",
    ),
    (
        ['output.partition_by=["id"]'],
        2,
        "`output.partition_by` must be ['date'] for this input, so that the labels",
    ),
    (["output.prediction_col=id"], 2, "Columns already exist: id"),
]


def test_what_cannot_be_done_changes_nothing(days, capsys):
    assert run() == 0
    put_day(7, 7)
    before, files = states_of(), snapshot("out")
    for overrides, code, message in REFUSED:
        assert run(*overrides) == code, overrides
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert (states_of(), snapshot("out")) == (before, files)


def test_a_store_serves_one_job(days, capsys):
    assert run() == 0
    stream = [
        "--set",
        f"stream.checkpoint={os.getcwd()}/checkpoint",
        "--set",
        "input.schema=id long, x double, y double",
    ]
    assert cli.stream_main(["--config", "job.toml", *stream]) == 2
    assert "belongs to the job update; stream needs its own" in capsys.readouterr().err.splitlines()[-1]


def test_an_output_that_is_not_ours_is_left_alone(days, capsys):
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    assert run() == 2
    message = "is not an output of a job: it holds mine.txt"
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert os.listdir("out") == ["mine.txt"]
    assert not Path("store").exists()


def test_a_lost_model_is_fitted_again(days):
    assert run() == 0
    shutil.rmtree(record_of()["model"])
    put_day(6, 6)
    assert run() == 0
    assert (record_of()["run"], record_of()["moved"]) == (2, None)
    assert len(labels()) == 1200


def test_a_dry_run_says_what_has_changed(days, capsys):
    assert cli.update_main(["--config", "job.toml", "--dry-run"]) == 0
    assert "new                  5\n" in capsys.readouterr().out
    assert not Path("store").exists()


def test_folders_with_odd_names(days):
    """Spark escapes some characters in the names of partition folders; 01 must not become 1."""
    shutil.rmtree("days")
    for name, seed in (("a%2Fb c", 1), ("10%3A00", 2), ("01", 3)):
        put_day(1, seed)
        Path("days/date=2026-01-01").rename(f"days/date={name}")
    assert run() == 0
    assert record_of()["changes"]["new"] == ["date=01", "date=10:00", "date=a%2Fb c"]
    assert {path.name for path in Path("out").glob("date=*")} == {"date=a%2Fb c", "date=10%3A00", "date=01"}
    for name in ("a%2Fb c", "10%3A00"):
        shutil.rmtree(f"days/date={name}")
    assert run() == 0
    assert {i // 1000 for i in labels()} == {3}


# --- labels that are still to be written -----------------------------------------------------------------------------


def stop_before_labels(monkeypatch, *overrides):
    """Run until the labels would be written: what a crash leaves."""
    with monkeypatch.context() as patch:
        patch.setattr("kernelcoreset.spark.jobs.pending.write_output", lambda *_: 1 / 0)
        assert run(*overrides) == 1


def test_a_key_that_leaves_the_window_still_gets_its_labels(days, monkeypatch):
    stop_before_labels(monkeypatch, "update.window=3")
    assert kc.CoresetStore.open("store").state["pending"] == [f"date=2026-01-0{day}" for day in (3, 4, 5)]
    put_day(6, 6)
    put_day(7, 7)
    assert run("update.window=3") == 0
    assert counts_of(record_of()) == (2, 0, 0, 2)
    assert {i // 1000 for i in labels()} == {3, 4, 5, 6, 7}
    assert len(labels()) == 1000
    assert record_of()["unlabelled"] == []
    assert run("update.window=3") == 0
    assert record_of()["outcome"] == "nothing to do"


def test_keys_that_can_no_longer_be_labelled_are_reported(days, monkeypatch, capsys):
    stop_before_labels(monkeypatch)
    shutil.rmtree("days/date=2026-01-02")
    assert run("update.vanished=keep") == 0
    assert record_of()["unlabelled"] == ["date=2026-01-02"]
    message = "1 keys get no labels, because the input no longer has their rows: date=2026-01-02"
    assert message in capsys.readouterr().err
    assert {i // 1000 for i in labels()} == {1, 3, 4, 5}


def test_quarantined_rows_say_where_they_are_from(days):
    quarantine = ["input.bad_rows=quarantine", "input.quarantine_path=HERE/aside"]
    put_day(2, 2, bad=3)
    assert run(*quarantine) == 0
    found = pq.read_table("aside").sort_by("id").to_pylist()
    assert [row["source_row"] for row in found] == [0, 1, 2]
    assert {row["source_file"].rpartition("/days/")[2] for row in found} == {"date=2026-01-02/part-0.parquet"}
    assert set(pq.read_table("out").column_names) == {"id", "x", "y", "date", "prediction", "distance"}
    # Lines of CSV files that cannot be parsed.
    Path("files").mkdir()
    Path("files/a.csv").write_text("id,x,y\n1,1.0,2.0\n2,3.0,4.0\n3,left,right\n")
    options = ["input.path=HERE/files", "input.format=csv", "input.options={header=true}"]
    options += ["input.schema=id long, x double, y double", "coreset.k=2", "cluster.k=2"]
    place = ["store.path=HERE/s2", "output.path=HERE/o2", "input.quarantine_path=HERE/a2"]
    assert run(*options, "input.bad_rows=quarantine", *place) == 0
    (row,) = pq.read_table("a2").to_pylist()
    assert (row["source_text"], row["key"]) == ("3,left,right", "a.csv")
    assert row["source_file"].endswith("files/a.csv")
    # All rows of a CSV file without a schema, by the batch job.
    batch = ["output.path=HERE/o3", "input.quarantine_path=HERE/a3", "input.bad_rows=quarantine"]
    options = ["input.path=HERE/files", "input.format=csv", "input.options={header=true}", "coreset.k=2", "cluster.k=2"]
    select = '["id", "TRY_CAST(x AS DOUBLE) AS x", "TRY_CAST(y AS DOUBLE) AS y"]'
    assert run_job(cli.run_main, *options, *batch, f"input.select={select}") == 0
    (row,) = pq.read_table("a3").to_pylist()
    assert (row["source_x"], row["source_y"], row["source_file"].endswith("a.csv")) == ("left", "right", True)


def test_a_day_of_bad_rows_only_is_put_aside_too(days):
    quarantine = ["input.bad_rows=quarantine", "input.quarantine_path=HERE/aside"]
    assert run(*quarantine) == 0
    put_day(2, 2, n=7, bad=7)
    assert run(*quarantine) == 0
    assert sorted(pq.read_table("aside")["id"].to_pylist()) == list(range(2000, 2007))
    assert {i // 1000 for i in labels()} == {1, 3, 4, 5}


def test_the_newest_keys_count_numbers_as_numbers():
    assert newest(["b-10", "b-9", "b-2"], 2) == ["b-9", "b-10"]
    assert newest(["2026-01-02", "2025-12-31"], None) == ["2025-12-31", "2026-01-02"]
