"""Delta tables as input and output of all jobs, with the real jar: one commit per run, also over kills and retries."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.spark.jobs.delta import DeltaSource
from tests.services.delta_kills import DELTA_CONF
from tests.services.jars import DELTA, DELTA_GROUPS, jars
from tests.spark.conftest import CONF
from tests.spark.job_runs import record_of, write_config
from tests.spark.job_runs import run as run_job
from tests.spark.nights import PLACES, counts_of

PLATFORM = "Delta 4.4.0", "jobs run, update and stream, tables by path and by name"
SETTINGS = (
    '[input]\nfeatures = ["x", "y"]\nformat = "delta"\nSOURCE\n'
    '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
    "[coreset]\nk = 3\ncoreset_size = 40\nleaf_size = 60\nseed = 3\n"
    "[cluster]\nn_init = 2\n[certificate]\ncenter_sets = 5\n"
    '[store]\npath = "HERE/store"\n[output]\nformat = "delta"\nTARGET\n[run]\nrecord = "HERE/out.run.json"\n'
)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    builder = SparkSession.builder.master("local[2]").appName("delta tests")
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    for name, value in {**CONF, **DELTA_CONF, "spark.jars": ",".join(jars(DELTA, DELTA_GROUPS))}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture
def spark(session, tmp_path, monkeypatch):
    """The session in a folder and a schema of the test's own."""
    monkeypatch.chdir(tmp_path)
    session.sql("CREATE SCHEMA IF NOT EXISTS own")
    yield session
    session.sql("DROP SCHEMA own CASCADE")


def day_frame(spark, day, seed, n=60):
    generator = np.random.default_rng(seed)
    points = PLACES[generator.integers(3, size=n)] + generator.normal(size=(n, 2))
    table = {"id": 1000 * seed + np.arange(n), "x": points[:, 0], "y": points[:, 1], "day": [f"2026-01-{day:02}"] * n}
    return spark.createDataFrame(pa.table(table)).withColumn("day", F.col("day").cast("date"))


def add_days(spark, *days, by="day", path="days", **options):
    frame = day_frame(spark, *days[0])
    for day in days[1:]:
        frame = frame.union(day_frame(spark, *day))
    writer = frame.coalesce(1).write.format("delta").options(**options).mode("append")
    (writer.partitionBy(by) if by else writer).save(str(Path(path).absolute()))


def configure(source='path = "HERE/days"', target='path = "HERE/out"', more=""):
    write_config(SETTINGS.replace("SOURCE", source).replace("TARGET", target) + more)


def history(spark, name="delta.`HERE/out`"):
    """Operation and run id of every commit, the first one first."""
    rows = spark.sql(f"DESCRIBE HISTORY {name.replace('HERE', str(Path.cwd()))}").orderBy("version").collect()
    return [(row.operation, json.loads(row.userMetadata or "{}").get("run")) for row in rows]


def ids_of(frame):
    return sorted(row.id for row in frame.select("id").collect())


def out(spark, path="out"):
    return spark.read.format("delta").load(str(Path(path).absolute()))


# --- the job run -----------------------------------------------------------------------------------------------------


def test_tables_by_name_are_created_overwritten_and_added_to(spark):
    add_days(spark, (1, 1), (2, 2), by=None)
    configure(target='table = "own.labels"', more='id = "first"\nhistory_table = "own.runs"\n')
    assert run_job(cli.run_main) == 0
    assert record_of()["rows"] == 120
    assert sum(record_of()["cluster_sizes"]) == 120
    assert run_job(cli.run_main, "run.id=second") == 2  # it exists
    assert run_job(cli.run_main, "run.id=second", "output.mode=overwrite") == 0
    assert sum(record_of()["cluster_sizes"]) == 120
    for _ in range(2):  # a scheduler that tries again adds nothing
        assert run_job(cli.run_main, "run.id=third", "output.mode=append") == 0
        assert spark.table("own.labels").count() == 240
    assert "has the rows of run third already" in record_of()["outcome"]
    runs = spark.table("own.runs").orderBy("started", "finished").collect()
    assert [run.status for run in runs] == ["done", "failed", "done", "done", "done"]
    assert (runs[0].id, runs[0].job, runs[0].rows, runs[1].error.split(":")[0]) == ("first", "run", 120, "SettingError")
    assert json.loads(runs[2].record)["cluster_sizes"] == json.loads(runs[0].record)["cluster_sizes"]
    made = [run for operation, run in history(spark, "own.labels") if operation == "WRITE"]
    assert made == ["first", "second", "third"]
    # Time travel shows what each run wrote; the input can be a version too.
    assert spark.read.option("versionAsOf", 1).table("own.labels").count() == 120
    configure('table = "own.labels"\noptions = {versionAsOf = 1}', 'path = "HERE/again"', "")
    assert run_job(cli.run_main, "output.prediction_col=p2", "output.distance_col=d2") == 0
    assert record_of()["rows"] == 120


def test_a_path_is_written_in_one_commit(spark):
    add_days(spark, (1, 1), (2, 2), by=None)
    configure(more='id = "first"\n')
    assert run_job(cli.run_main) == 0
    assert run_job(cli.run_main) == 2
    assert run_job(cli.run_main, "output.mode=overwrite", "run.id=second") == 0
    assert history(spark) == [("WRITE", "first"), ("WRITE", "second")]
    assert out(spark).count() == 120 == record_of()["rows"]
    stamp = spark.sql(f"DESCRIBE HISTORY delta.`{Path.cwd()}/days`").collect()[0].timestamp
    add_days(spark, (3, 3), by=None)
    assert run_job(cli.run_main, "run.id=3", "input.options.versionAsOf=0", "output.mode=overwrite") == 0
    assert record_of()["rows"] == 120
    of_then = f'input.options.timestampAsOf="{stamp}"'
    assert run_job(cli.run_main, "run.id=4", of_then, "output.mode=overwrite") == 0
    assert record_of()["rows"] == 120


def test_another_schema_is_answered_by_the_setting_to_use(spark, capfd):
    add_days(spark, (1, 1), by=None)
    configure(target='path = "HERE/out"\nmode = "overwrite"')
    assert run_job(cli.run_main) == 0
    assert run_job(cli.run_main, "output.margin_col=margin") == 2
    assert "output.options.mergeSchema=true" in capfd.readouterr().err
    assert run_job(cli.run_main, "output.margin_col=margin", "output.options.mergeSchema=true") == 0
    assert "margin" in out(spark).columns
    assert run_job(cli.run_main, "output.options.overwriteSchema=true") == 0
    assert "margin" not in out(spark).columns


# --- the job update --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["partitions", "feed", "hash"])
def test_nights_of_one_commit_each(spark, kind, monkeypatch):
    options = {"delta.enableChangeDataFeed": "true"} if kind == "feed" else {}
    by = "day" if kind == "partitions" else None
    add_days(spark, (1, 1), (2, 2), (3, 3), by=by, **options)
    target = 'table = "own.labels"' if kind == "feed" else 'path = "HERE/out"'
    configure(target=target, more='[update]\nkey_col = "day"\n')
    name = "own.labels" if kind == "feed" else "delta.`HERE/out`"
    labels = (lambda: spark.table("own.labels")) if kind == "feed" else (lambda: out(spark))
    source = f"delta.`{Path.cwd()}/days`"

    def night(counts, **more):
        assert run_job(cli.update_main) == 0
        record = record_of()
        assert counts_of(record) == counts
        assert ids_of(labels()) == ids_of(spark.read.format("delta").load(f"{Path.cwd()}/days"))
        return record

    writes = lambda: [run for operation, run in history(spark, name) if operation == "WRITE"]  # noqa: E731
    first = night((3, 0, 0, 0))
    assert writes() == [first["id"]]
    with monkeypatch.context() as patch:  # it takes seconds, and an unchanged table is known by its newest commit
        patch.setattr(DeltaSource, "detail", property(lambda _: pytest.fail("The table was described.")))
        assert night((0, 0, 0, 0))["outcome"] == "nothing to do"
    # A new day, a changed one and one that vanishes: one commit.
    add_days(spark, (4, 4), by=by)
    spark.sql(f"DELETE FROM {source} WHERE day = '2026-01-02'")
    spark.sql(f"UPDATE {source} SET x = x + 1 WHERE day = '2026-01-03' AND id % 2 = 0")
    second = night((1, 1, 1, 0))
    assert writes() == [first["id"], second["id"]]
    # Rewrites of files change no row.
    for command in (f"OPTIMIZE {source}", f"VACUUM {source}"):
        spark.sql(command)
        assert night((0, 0, 0, 0))["outcome"] == "nothing to do"
    # Only vanished days: one commit too.
    spark.sql(f"DELETE FROM {source} WHERE day = '2026-01-04'")
    third = night((0, 0, 1, 0))
    assert writes() == [first["id"], second["id"], third["id"]]
    assert kc.CoresetStore.open("store").keys() == ["2026-01-01", "2026-01-03"]


def test_a_limited_run_leaves_changes_for_the_next(spark):
    add_days(spark, (1, 1), (2, 2))
    configure(more='[update]\nkey_col = "day"\n')
    assert run_job(cli.update_main, "update.until=2026-01-01") == 0
    add_days(spark, (1, 11), (3, 3))
    assert run_job(cli.update_main, "update.keys=2026-01-03") == 0
    assert ids_of(out(spark)) == [*range(1000, 1060), *range(3000, 3060)]
    assert run_job(cli.update_main) == 0
    assert counts_of(record_of()) == (1, 1, 0, 0)
    assert out(spark).count() == 240
    assert run_job(cli.update_main) == 0
    assert record_of()["outcome"] == "nothing to do"


def test_a_table_that_is_made_again_is_read_again(spark):
    add_days(spark, (1, 1), (2, 2))
    configure(more='[update]\nkey_col = "day"\n')
    assert run_job(cli.update_main) == 0
    shutil.rmtree("days")
    add_days(spark, (1, 5), (2, 6))
    assert run_job(cli.update_main) == 0
    assert counts_of(record_of()) == (0, 2, 0, 0)
    assert ids_of(out(spark)) == [*range(5000, 5060), *range(6000, 6060)]


@pytest.mark.parametrize("main", [cli.run_main, cli.update_main])
def test_a_table_that_is_not_there(spark, capfd, main):
    configure(more='[update]\nkey_col = "day"\n')
    assert run_job(main) == 3
    assert "was not found or is empty" in capfd.readouterr().err.splitlines()[-1]


# --- the job stream --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ['path = "HERE/out"', 'table = "own.labels"'])
def test_a_stream_fills_one_partitioned_table(spark, target):
    add_days(spark, (1, 1), by=None)
    source = 'path = "HERE/days"\noptions = {maxFilesPerTrigger = 1}'
    configure(source, target, '[stream]\ncheckpoint = "HERE/checkpoint"\n')
    assert run_job(cli.stream_main) == 0
    add_days(spark, (2, 2), by=None)
    add_days(spark, (3, 3), by=None)
    assert run_job(cli.stream_main) == 0
    by_name = target.startswith("table")
    labels = spark.table("own.labels") if by_name else out(spark)
    assert ids_of(labels) == [*range(1000, 1060), *range(2000, 2060), *range(3000, 3060)]
    name = "own.labels" if by_name else "delta.`HERE/out`"
    assert len([1 for operation, _ in history(spark, name) if operation == "WRITE"]) == 3
    detail = spark.sql(f"DESCRIBE DETAIL {name.replace('HERE', str(Path.cwd()))}").collect()[0]
    assert detail.partitionColumns == ["batch"]
