"""The jobs from their command line to their files, on a real Spark."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.jobs.demo import demo_points
from kernelcoreset.spark.jobs.input import read_input
from tests.spark.conftest import table_of
from tests.spark.job_runs import record_of, run, write_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(spark, points):
    """A job on a Parquet file, in the test's own working directory."""
    pq.write_table(table_of(points), "rows.parquet", row_group_size=200)
    write_config(
        '[input]\npath = "HERE/rows.parquet"\nfeatures = ["x", "y"]\n'
        '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
        '[coreset]\nk = 3\ncoreset_size = 60\nseed = 3\npath = "coreset.parquet"\n'
        '[cluster]\nn_init = 3\nmodel_path = "model"\n'
        '[output]\npath = "HERE/out"\n'
    )
    return "job.toml"


def rows_of(path="out"):
    return pq.read_table(path).sort_by("id")


def put(points, name="rows.parquet", **columns):
    table = table_of(points)
    for column, values in columns.items():
        table = table.append_column(column, values)
    pq.write_table(table, name)


def test_a_whole_run(config, points, capsys):
    assert run(cli.run_main, "output.margin_col=margin") == 0
    table, model = rows_of(), kc.KernelKMeansModel.load("model")
    assert table.column_names == ["id", "x", "y", "w", "name", "prediction", "distance", "margin"]
    np.testing.assert_array_equal(table["prediction"], model.predict(points))
    record = record_of()
    assert (record["job"], record["status"], record["seed"]) == ("run", "done", 3)
    assert (record["rows"], record["bad_rows"], record["leaves"]) == (600, 0, 1)
    assert sorted(record["cluster_sizes"]) == [200, 200, 200]
    page = Path("out.report.html").read_text()
    assert "600 rows in 3 clusters" in page
    assert page.count("<circle") == 2 * record["coreset_points"]
    assert "Borderline rows" in page
    assert record["cost"] == pytest.approx(model.cost(points))
    assert record["coreset_cost"] == pytest.approx(record["cost"], rel=0.3)
    assert record["coreset_weight"] == pytest.approx(600, rel=0.1)
    assert record["certificate"]["largest_error"] < 0.3
    assert record["certificate"]["center_sets"] == 100
    stages = [stage["stage"] for stage in record["stages"]]
    assert stages == ["session", "build/leaves", "build/merge", "build", "cluster", "assign/write", "assign"]
    assert record["versions"]["pyspark"].startswith("4.")
    assert record["settings"]["input"]["features"] == ["x", "y"]
    out, _ = capsys.readouterr()
    assert "rows         600" in out
    assert "measured     cost within" in out
    assert "proved       " in out


def test_three_jobs_do_what_one_does(config):
    assert run(cli.run_main) == 0
    together, cost = rows_of(), record_of()["cost"]
    for main in (cli.build_coreset_main, cli.cluster_main, cli.assign_main):
        assert run(main, "output.mode=overwrite") == 0
    assert rows_of().equals(together)
    assert record_of()["cost"] == cost
    assert record_of("coreset.parquet.run.json")["coreset_points"] <= 60
    # The output of the run before is no business of a job that does not write it.
    assert run(cli.build_coreset_main) == 0


def test_the_same_run_again_is_the_same(config):
    assert run(cli.run_main, "input.id_col=id", "input.weight_col=w") == 0
    once = rows_of(), pq.read_table("coreset.parquet")
    assert run(cli.run_main, "input.id_col=id", "input.weight_col=w", "output.mode=overwrite") == 0
    assert rows_of().equals(once[0])
    assert pq.read_table("coreset.parquet").equals(once[1])


def test_a_dry_run_prints_the_plan(config, capsys):
    before = sorted(os.listdir())
    assert cli.run_main(["--config", config, "--dry-run"]) == 0
    out, _ = capsys.readouterr()
    assert "Dry run: nothing is written." in out
    assert "rows                 600" in out
    assert "scan                 direct" in out
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("overrides", "code", "message"),
    [
        (["input.path=HERE/nowhere"], 3, "/nowhere' was not found or is empty."),
        (
            ['input.features=["x", "z"]'],
            2,
            "Bad settings: `input.features`: there is no column `z`. The columns are: id, x, y, w, name.",
        ),
        (['input.features=["x", "name"]'], 2, "Bad settings: Column name must be a number"),
        (["input.where=nope > 1"], 2, "Bad settings: Spark cannot read the input: "),
        (["input.where=x >"], 2, "Bad settings: Spark cannot read the input: "),
        (["input.format=elsewhere"], 2, "Bad settings: Spark has no format 'elsewhere'. Correct"),
        (["input.where=x > 1e9"], 3, "Bad data: There is no row to cluster: 0 rows read"),
        (["output.prediction_col=name"], 2, "Bad settings: Columns already exist: name."),
        (
            ['output.columns=["id", "nam"]'],
            2,
            "`output.columns`: there is no column `nam`; did you mean `name`?",
        ),
        (
            ['output.partition_by=["gone"]'],
            2,
            "`output.partition_by`: there is no column `gone`.",
        ),
    ],
)
def test_what_goes_wrong_is_said_in_the_last_line(config, capsys, overrides, code, message):
    assert run(cli.run_main, *overrides) == code
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not Path("out").exists()
    failed = list(Path().rglob("*.failed.json"))
    assert record_of(failed[0])["status"] == "failed"


def read_from(place):
    """Let the job read from somewhere else than its file."""
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(re.sub(r"\[input\]\n.*", f"[input]\n{place}", text))


@pytest.mark.parametrize(
    ("place", "codes"),
    [
        ('table = "nowhere"', (3,)),
        ('table = "no.such.table"', (2, 3)),
        ('query = "select 1D x, 2D y from nowhere"', (3,)),
        ('query = "no query"', (2,)),
    ],
)
def test_missing_tables_and_wrong_queries(config, capsys, place, codes):
    read_from(place)
    assert run(cli.run_main) in codes
    assert re.search(
        "The input '.*' was not found|Spark cannot read the input", capsys.readouterr().err.splitlines()[-1]
    )


def test_a_query_and_a_table(spark, config, frame):
    frame.createOrReplaceTempView("rows")
    read_from('query = "select * from rows where id < 500"')
    assert run(cli.run_main, 'output.columns=["id"]') == 0
    assert rows_of().column_names == ["id", "prediction", "distance"]
    assert rows_of().num_rows == 500
    read_from('table = "rows"')
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(re.sub(r"\[output\]\n.*", '[output]\ntable = "labelled"', text))
    try:
        assert run(cli.run_main) == 0
        assert spark.table("labelled").count() == 600
        assert record_of("labelled.run.json")["output"] == "labelled"
        assert run(cli.run_main) == 2
    finally:
        spark.sql("drop table if exists labelled")


def test_a_failed_run_leaves_the_old_output(config, points, capsys):
    assert run(cli.run_main) == 0
    before, record = rows_of(), record_of()
    holed = points.copy()
    holed[17, 1] = np.nan
    put(holed)
    assert run(cli.run_main, "output.mode=overwrite") == 3
    assert "1 of 600 rows cannot be used" in capsys.readouterr().err.splitlines()[-1]
    assert run(cli.assign_main, "output.mode=overwrite") == 3  # here the tasks find it, in the middle of writing
    assert "Bad data: 1 of " in capsys.readouterr().err.splitlines()[-1]
    assert rows_of().equals(before)
    assert record_of() == record
    assert run(cli.run_main, "output.mode=overwrite", "input.bad_rows=drop") == 0
    assert rows_of().num_rows == 599
    assert (record_of()["rows"], record_of()["bad_rows"]) == (600, 1)


@pytest.mark.parametrize("scan", ["direct", "spark"])
def test_a_damaged_file(config, capsys, scan):
    content = bytearray(Path("rows.parquet").read_bytes())
    content[4:3000] = b"\xff" * 2996
    Path("rows.parquet").write_bytes(content)
    assert run(cli.run_main, f"input.scan={scan}") == 3
    assert re.search("Bad data: .*rows.parquet", capsys.readouterr().err.splitlines()[-1])


def test_quarantine(config, points):
    holed = points.copy()
    holed[17, 1], holed[18, 0] = np.nan, np.inf
    put(holed)
    assert run(cli.run_main, "input.bad_rows=quarantine", "input.quarantine_path=HERE/aside") == 0
    aside = pq.read_table("aside").sort_by("id")
    assert aside["id"].to_pylist() == [17, 18]
    assert aside["reason"].to_pylist() == ["y: null, NaN or infinite", "x: null, NaN or infinite"]
    assert rows_of()["id"].to_pylist() == [row for row in range(600) if row not in (17, 18)]
    assert record_of()["bad_rows"] == 2


def test_quarantine_of_arrays(config, points, capsys):
    values = points.tolist()
    values[3], values[4], values[5] = None, [1.0], [1.0, None]
    put(points, v=pa.array(values, pa.list_(pa.float64())), reason=pa.array(["mine"] * 600))
    options = ("input.features=v", "input.bad_rows=quarantine", "input.quarantine_path=HERE/aside")
    assert run(cli.run_main, *options) == 2
    assert "Column reason already exists: quarantined rows need that name" in capsys.readouterr().err
    put(points, v=pa.array(values, pa.list_(pa.float64())))
    assert run(cli.run_main, *options) == 0
    assert pq.read_table("aside").sort_by("id")["id"].to_pylist() == [3, 4, 5]
    assert pq.read_table("aside")["reason"][0].as_py() == "v: null, NaN, infinite, or its length is not 2"
    assert rows_of().num_rows == 597


def test_a_width_chosen_from_the_data(config, points):
    assert run(cli.run_main, "kernel.sigma=median", "input.bad_rows=drop") == 0
    kernel = kc.KernelKMeansModel.load("model").kernel
    assert kernel.sigma == pytest.approx(kc.choose_sigma(points), rel=0.1)
    assert record_of()["kernel"] == repr(kernel)
    assert run(cli.run_main, "kernel.sigma=median", "input.scan=spark", "output.mode=overwrite") == 0
    assert kc.KernelKMeansModel.load("model").kernel.sigma == pytest.approx(kernel.sigma, rel=0.1)


def test_a_coreset_without_its_kernel(config, points, capsys):
    kc.Coreset(points, np.ones(600)).write_parquet("coreset.parquet")
    assert run(cli.cluster_main) == 3
    assert "The coreset does not say which kernel it was built with" in capsys.readouterr().err.splitlines()[-1]


def test_assign_without_a_model(config, capsys):
    assert run(cli.assign_main) == 3
    assert "There is no model folder at" in capsys.readouterr().err.splitlines()[-1]


def test_csv_with_options(config, frame):
    frame.write.csv(f"{os.getcwd()}/rows.csv", header=True)
    options = ["input.path=HERE/rows.csv", "input.format=csv", "input.options={header=true, inferSchema=true}"]
    assert run(cli.run_main, *options) == 0
    assert rows_of().num_rows == 600


def demo_settings(rows):
    tables = {"input": {"demo_rows": rows}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    return Settings.from_dict(tables)


def test_the_demo_is_the_same_in_any_partitions(spark):
    settings = demo_settings(70_000).input
    frame = read_input(spark, settings, seed=4)
    table = frame.toArrow()
    np.testing.assert_array_equal(np.stack(table.columns), demo_points(np.arange(70_000), 4))
    assert frame.rdd.getNumPartitions() == 2
    rows = np.array([69_999, 3, 65_536])
    np.testing.assert_array_equal(demo_points(rows, 4), demo_points(np.arange(70_000), 4)[:, rows])
    assert np.abs(np.stack(table.columns)).max() <= 180


def test_a_job_stops_the_session_it_started(tmp_path):
    """In a process of its own, as a job runs: exit code, last line, and no Java left behind."""
    (tmp_path / "job.toml").write_text(
        '[input]\ndemo_rows = 2000\n[kernel]\nname = "Gaussian"\nsigma = 50.0\n'
        '[coreset]\nk = 3\ncoreset_size = 50\n[output]\npath = "out"\n[spark.conf]\nspark.ui.enabled = false\n'
    )
    program = (
        "import sys; from kernelcoreset.jobs.cli import run_main; code = run_main(['--config', 'job.toml'])\n"
        "import os; print('log4j:', os.environ.get('LOG4J_CONFIGURATION_FILE'))\n"
        "from pyspark.sql import SparkSession; print('session:', SparkSession.getActiveSession()); sys.exit(code)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MASTER": "local[1]"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["log4j: None", "session: None"]
    assert pq.read_table(tmp_path / "out").num_rows == 2000


def test_tables_and_queries_that_read_what_the_job_writes(spark, config, frame, capsys):
    place = Path("mine").absolute()
    frame.write.option("path", str(place)).saveAsTable("mine")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in place.iterdir())
    try:
        for source in ('table = "mine"', f'query = "select * from parquet.`{place}` where id > 3"'):
            read_from(source)
            for key, path in (("output.path", place), ("output.path", "HERE"), ("coreset.path", place / "c.parquet")):
                assert run(cli.run_main, f"{key}={path}", "output.mode=overwrite") == 2
                line = capsys.readouterr().err.splitlines()[-1]
                assert re.search(rf"`{key}` must not be|is not an output of a job", line), line
        read_from('table = "mine"')
        text = Path("job.toml").read_text()
        Path("job.toml").write_text(re.sub(r"\[output\]\n.*", '[output]\ntable = "mine"', text))
        assert run(cli.run_main, "output.mode=overwrite") == 2
        assert "`output.table` must not be where the input is" in capsys.readouterr().err.splitlines()[-1]
        assert sorted((path.name, path.stat().st_mtime_ns) for path in place.iterdir()) == before
    finally:
        spark.sql("drop table if exists mine")
