"""Which keys and rows the update job reads: filters, folders, dates and ranges of keys."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from tests.spark.job_runs import record_of, write_config
from tests.spark.nights import content_of, counts_of, labels, points_of, put_day, run, snapshot, states_of

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
