"""The update job from its command line to its files, night after night, on a real Spark."""

import functools
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
from tests.spark.job_runs import record_of, write_config
from tests.spark.job_runs import run as run_job

PLACES = np.array([[0.0, 0.0], [9.0, 1.0], [3.0, 20.0]])


def points_of(seed, n=200):
    generator = np.random.default_rng(seed)
    return PLACES[generator.integers(3, size=n)] + generator.normal(size=(n, 2))


def put_day(day, seed, n=200, *, name="part-0.parquet", bad=0):
    """Write a day of n rows around three places; ids say which day and which version of it a row is from."""
    points = points_of(seed, n)
    points[:bad, 0] = np.nan
    folder = Path(f"days/date=2026-01-{day:02}")
    folder.mkdir(parents=True, exist_ok=True)
    ids = pa.array(1000 * seed + np.arange(n), pa.int64())
    pq.write_table(pa.table({"id": ids, "x": points[:, 0], "y": points[:, 1]}), folder / name)


@pytest.fixture
def days(spark):
    """Five days of input and the settings of a job that follows them."""
    for day in range(1, 6):
        put_day(day, day)
    write_config(
        '[input]\npath = "HERE/days"\nfeatures = ["x", "y"]\n'
        '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
        "[coreset]\nk = 3\ncoreset_size = 60\nleaf_size = 100\nseed = 3\n"
        "[cluster]\nn_init = 3\n[certificate]\ncenter_sets = 20\n"
        '[store]\npath = "HERE/store"\n[output]\npath = "HERE/out"\n'
    )


run = functools.partial(run_job, cli.update_main)


def counts_of(record):
    return tuple(record["keys"][name] for name in ("new", "changed", "vanished", "left_window"))


def labels():
    """Label by id of every row of the output."""
    table = pq.read_table("out")
    return dict(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


def snapshot(folder):
    return {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


def content_of(path="store"):
    """All that a store holds, whatever its history."""
    store = kc.CoresetStore.open(path)
    leaves = {key: store.leaf(key) for key in sorted(store.keys())}
    return {key: (store.info(key), leaf and leaf.to_arrow().to_pydict()) for key, leaf in leaves.items()}


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

    # The same input again: nothing is done, and nothing written but the record.
    before = snapshot("store") | snapshot("out")
    assert run() == 0
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


def states_of():
    store = kc.CoresetStore.open("store")
    return store.version, store.keys(), store.state


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


# --- what decides the rows of a key ----------------------------------------------------------------------------------


def test_a_filter_is_part_of_a_key(days, capsys):
    """Days that a filter left empty must not stay empty when the filter goes; nor days that it left in part."""
    assert run("input.where=date = '2026-01-02' OR (date = '2026-01-01' AND id < 1050)") == 0
    assert (len(labels()), record_of()["rows"]) == (250, 250)
    assert run() == 0
    assert counts_of(record_of()) == (0, 5, 0, 0)
    assert "5 keys are read again" in capsys.readouterr().err
    assert len(labels()) == 1000
    assert run("store.path=HERE/fresh", "output.path=HERE/other") == 0
    assert content_of("fresh") == content_of("store")
    # The same filter again: nothing is read again, but what it takes away is said.
    for outcome in ("updated", "nothing to do"):
        assert run("input.where=id >= 2000") == 0
        assert record_of()["outcome"] == outcome
    assert {i // 1000 for i in labels()} == {2, 3, 4, 5}
    assert "1 keys had rows and now have none; their labels are removed: date=2026-01-01" in capsys.readouterr().err


def test_selected_columns_and_options_are_part_of_a_key(days):
    assert run() == 0
    select = 'input.select=["id", "x + 100 AS x", "y", "date"]'
    assert run(select) == 0
    assert counts_of(record_of()) == (0, 5, 0, 0)
    assert run(select, 'input.options={"fs.s3a.session.token"="new every night", pathGlobFilter="*.parquet"}') == 0
    assert record_of()["outcome"] == "nothing to do"
    assert run(select, "input.options={mergeSchema=true}") == 0
    assert counts_of(record_of()) == (0, 5, 0, 0)


def test_a_table_with_versions_and_another_filter(days, spark):
    """Two filters may give as many rows of the same version."""
    points = points_of(1, 200)
    table = pa.table({"id": np.arange(200), "x": points[:, 0], "y": points[:, 1], "v": [1] * 200, "day": ["a"] * 200})
    spark.createDataFrame(table).createOrReplaceTempView("events")
    Path("job.toml").write_text(Path("job.toml").read_text().replace(f'path = "{Path.cwd()}/days"\n', ""))
    options = ["input.table=events", "update.key_col=day", "update.version_col=v"]
    assert run(*options, "input.where=id < 100") == 0
    assert run(*options, "input.where=id >= 100") == 0
    assert counts_of(record_of()) == (0, 1, 0, 0)
    assert set(labels()) == set(range(100, 200))


def test_an_input_without_rows_removes_nothing(days, spark, capsys):
    assert run() == 0
    before, files = states_of(), snapshot("out")
    assert run("input.where=id < 0") == 3
    assert "No row would be left" in capsys.readouterr().err.splitlines()[-1]
    assert (states_of(), snapshot("out")) == (before, files)
    Path("job.toml").write_text(Path("job.toml").read_text().replace(f'path = "{Path.cwd()}/days"\n', ""))
    spark.createDataFrame([], "id long, x double, y double, date string").createOrReplaceTempView("empty")
    assert run("input.table=empty", "update.key_col=date") == 3
    assert "The input 'empty' has no rows" in capsys.readouterr().err.splitlines()[-1]
    assert (states_of(), snapshot("out")) == (before, files)


ONE_PARTITION = [
    "date=2026-01-05",
    "date=2026-01-05/",
    "date=2026-01-05/*.parquet",
    "date=2026-01-0*",
    "date={01,02}/*",
]


@pytest.mark.parametrize("end", ONE_PARTITION)
def test_the_path_of_one_partition_is_refused_before_spark_starts(end, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_config(
        '[input]\npath = "/data"\nfeatures = ["x", "y"]\n[kernel]\nname = "Linear"\n[coreset]\nk = 3\n'
        '[store]\npath = "HERE/store"\n[output]\npath = "HERE/out"\n'
    )
    monkeypatch.setattr("kernelcoreset.spark.jobs.update.open_session", lambda *_: pytest.fail("Spark was started"))
    assert run(f"input.path=/data/events/{end}") == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "`input.path` must be the folder of all partitions; got the partition date=" in message
    assert "Set input.path=/data/events, and update.keys=" in message


def test_paths_that_are_no_partition(days):
    assert run("input.path=HERE/days") == 0
    assert run("input.path=HERE/days/") == 0
    assert record_of()["outcome"] == "nothing to do"
    Path("tenant=7").mkdir()
    shutil.copytree("days", "tenant=7/days")
    assert run("input.path=HERE/tenant=7/days", "store.path=HERE/s2", "output.path=HERE/o2") == 0


def test_a_store_follows_one_folder(days, capsys):
    """A folder per day without names, given day by day: every day would replace the one before."""
    for day in (1, 2):
        Path(f"plain/2026-01-0{day}").mkdir(parents=True)
        shutil.copy(f"days/date=2026-01-0{day}/part-0.parquet", f"plain/2026-01-0{day}/part-0.parquet")
    put_day(2, 2, n=100)
    shutil.copy("days/date=2026-01-02/part-0.parquet", "plain/2026-01-02/part-0.parquet")
    assert run("input.path=HERE/plain/2026-01-01") == 0
    before = states_of()
    assert run("input.path=HERE/plain/2026-01-02") == 2
    assert "follows the files in" in capsys.readouterr().err.splitlines()[-1]
    assert states_of() == before
    # The same files elsewhere are the same input, moved.
    Path("plain").rename("moved")
    assert run("input.path=HERE/moved/2026-01-01") == 0


@pytest.mark.parametrize("where", ["date >= current_date() - 7", "x > 0 AND NOW () > date", "rand() < 0.5"])
def test_a_filter_of_the_moment_is_refused(days, capsys, where):
    assert run(f"input.where={where}") == 2
    assert "must give the same rows in every run" in capsys.readouterr().err.splitlines()[-1]


def test_a_quarantine_without_labels_is_refused(days, capsys):
    assert run("update.label=none", "input.bad_rows=quarantine", "input.quarantine_path=HERE/aside") == 2
    assert "needs labels" in capsys.readouterr().err.splitlines()[-1]


# --- as of a date, and backfill --------------------------------------------------------------------------------------


def leaves_of(path):
    return {key: leaf for key, (_, leaf) in content_of(path).items()}


def test_a_scheduler_gives_the_date_in_any_order(days):
    """Each run is as of its date. Runs out of order end with the same store, and so does one run at the end."""
    stores = {"in-order": (2, 3, 5), "reverse": (5, 3, 2), "mixed": (3, 5, 2, 5), "once": (5,)}
    for name, nights in stores.items():
        for night in nights:
            # Without quotes TOML reads a date.
            changed = [f"update.until=2026-01-0{night}", "update.window=3"]
            assert run(*changed, f"store.path=HERE/{name}", f"output.path=HERE/{name}-out") == 0
        assert kc.CoresetStore.open(name).keys() == [f"date=2026-01-0{day}" for day in (3, 4, 5)]
        assert content_of(name) == content_of("in-order")


def test_later_keys_are_left_alone(days):
    assert run("update.until=2026-01-04") == 0
    assert (counts_of(record_of()), record_of()["rows"]) == ((4, 0, 0, 0), 800)
    before, files = content_of(), snapshot("out")
    put_day(4, 14, n=50)
    shutil.rmtree("days/date=2026-01-03")
    assert run("update.until=2026-01-02") == 0
    assert record_of()["outcome"] == "nothing to do"
    assert (content_of(), snapshot("out")) == (before, files)
    assert run("update.until=2026-01-03") == 0  # that one has vanished, and is not later
    assert counts_of(record_of()) == (0, 0, 1, 0)
    assert run() == 0
    assert counts_of(record_of()) == (1, 1, 0, 0)


def test_backfill_in_any_order(days):
    ranges = ["2026-01-01..2026-01-02", '["2026-01-03", "2026-01-05"]', "2026-01-04"]
    for name, order in {"forward": (0, 1, 2), "backward": (2, 1, 0), "middle": (1, 2, 0)}.items():
        for number in order:
            place = [f"store.path=HERE/{name}", f"output.path=HERE/{name}-out"]
            assert run(f"update.keys={ranges[number]}", "update.window=2", *place) == 0
        assert len(pq.read_table(f"{name}-out")) == 1000
    assert run("store.path=HERE/once", "output.path=HERE/once-out") == 0
    for name in ("forward", "backward", "middle"):
        assert content_of(name) == content_of("once")


def test_keys_outside_a_backfill_are_untouched(days):
    assert run() == 0
    put_day(1, 11, n=50)
    put_day(4, 14, n=50)
    put_day(6, 16)
    shutil.rmtree("days/date=2026-01-03")
    shutil.rmtree("days/date=2026-01-02")
    before, files = content_of(), snapshot("out")
    assert run("update.keys=2026-01-01..2026-01-02") == 0
    assert counts_of(record_of()) == (0, 1, 1, 0)
    after = content_of()
    for day in (3, 4, 5):
        key = f"date=2026-01-0{day}"
        assert after[key] == before[key]
        folder = f"out/{key}/"
        kept = {path: time for path, time in snapshot("out").items() if path.startswith(folder)}
        assert kept == {path: time for path, time in files.items() if path.startswith(folder)}
        assert kept
    assert sorted(after) == [f"date=2026-01-0{day}" for day in (1, 3, 4, 5)]
    assert {i // 1000 for i in labels()} == {11, 3, 4, 5}


def test_a_date_without_keys_is_an_error(days, capsys):
    for changed in ("update.keys=2026-02-01", "update.until=2025-12-31", "update.keys=no-such"):
        assert run(changed) == 3
        message = capsys.readouterr().err.splitlines()[-1]
        assert "No key of the input is within update.keys" in message
        assert "Its keys go from 'date=2026-01-01' to 'date=2026-01-05'." in message
    assert not Path("store").exists()


def test_a_sigma_is_chosen_from_the_keys_of_the_run(days):
    assert run("kernel.sigma=median", "update.until=2026-01-02") == 0
    before = kc.CoresetStore.open("store").kernel
    for day in (3, 4, 5):
        shutil.rmtree(f"days/date=2026-01-0{day}")
    assert run("kernel.sigma=median", "store.path=HERE/fresh", "output.path=HERE/other", "input.scan=spark") == 0
    assert kc.CoresetStore.open("fresh").kernel.sigma == pytest.approx(before.sigma, rel=0.1)


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
