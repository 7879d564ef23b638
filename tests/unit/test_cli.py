"""The jobs' command line: exit codes, messages, and what is left behind.

A stub replaces the module that works with Spark; everything else is real. tests/spark/test_jobs.py runs the jobs whole.
"""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

import kernelcoreset
from kernelcoreset import (
    ConflictError,
    Coreset,
    DataError,
    FormatError,
    Gaussian,
    KernelError,
    SettingError,
    build_coreset,
)
from kernelcoreset.jobs import cli
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spectral.model import load_model

ROOT = Path(__file__).parents[2]
MAINS = {name: getattr(cli, f"{name.replace('-', '_')}_main") for name in cli.JOBS}
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A settings file with every path a job may need, in a new working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.toml"
    file.write_text(
        "[input]\ndemo_rows = 400\n"
        '[kernel]\nname = "Gaussian"\nsigma = 3.0\n'
        '[coreset]\nk = 2\ncoreset_size = 50\npath = "coreset.parquet"\n'
        '[cluster]\nmodel_path = "model"\n'
        '[output]\npath = "out"\n'
    )
    return str(file)


@pytest.fixture
def batch(monkeypatch):
    """A stub for kernelcoreset.spark.jobs.batch that writes no rows and notes which functions were called."""
    stub = ModuleType("kernelcoreset.spark.jobs.batch")
    stub.calls = []

    def plan(settings):
        stub.calls.append("plan")
        return {"rows": 400, "leaves": 1, "driver_bytes": 12_000, "kernel_evaluations": 10**6, "estimated_seconds": 1.5}

    def work(name):
        def run(settings, record):
            stub.calls.append(name)
            with record.stage("session"):
                pass
            with record.stage(name):
                record.add(rows=400, cluster_sizes=[300, 100])

        return run

    stub.plan = plan
    for name in ("build_coreset", "assign", "run", "spectral"):
        setattr(stub, name, work(name))
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    return stub


def failing_with(batch, error):
    def run(settings, record):
        raise error

    batch.run = run


# --- a good run ------------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_record_and_says_what_came_out(config, batch, capsys):
    assert cli.run_main(["--config", config]) == 0
    assert batch.calls == ["run"]
    record = json.loads(Path("out.run.json").read_text())
    assert (record["job"], record["status"], record["cluster_sizes"]) == ("run", "done", [300, 100])
    assert [stage["stage"] for stage in record["stages"]] == ["session", "run"]
    out, err = capsys.readouterr()
    assert "clusters     0: 300 (75.0%), 1: 100 (25.0%)" in out
    assert "run done in" in err


@pytest.mark.parametrize(
    ("job", "called", "record"),
    [
        ("build-coreset", "build_coreset", "coreset.parquet.run.json"),
        ("assign", "assign", "out.run.json"),
        ("run", "run", "out.run.json"),
        ("spectral", "spectral", "out.run.json"),
    ],
)
def test_a_job_does_its_own_work_and_has_its_own_record(job, called, record, config, batch):
    assert MAINS[job](["--config", config]) == 0
    assert batch.calls == [called]
    assert json.loads(Path(record).read_text())["job"] == job
    assert sorted(os.listdir()) == sorted(["job.toml", record])


def test_cluster_works_on_a_coreset_without_spark(config, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    points = np.array([[0.0], [0.5], [9.0], [9.5]])
    kernel = Gaussian(sigma=3.0)
    coreset = build_coreset(points, k=2, kernel=kernel, size=3)
    coreset.write_parquet("coreset.parquet")
    assert cli.cluster_main(["--config", config]) == 0
    record = json.loads(Path("model.run.json").read_text())
    expected = KernelKMeansModel.fit_coreset(coreset, 2, kernel, n_init=10)
    assert record["job"] == "cluster"
    assert record["coreset_cost"] == expected.solution.cost
    np.testing.assert_array_equal(load_model("model").predict(points), expected.predict(points))


def test_the_stub_replaces_what_is_there():
    """Every function that the table of jobs names exists, and takes what the runner gives it."""
    pytest.importorskip("pyspark")
    for job in cli.JOBS.values():
        assert list(signature(resolve_name(job.work)).parameters) == ["settings", "record"]
        assert list(signature(resolve_name(job.plan)).parameters) == ["settings"]


def test_a_dry_run_prints_the_plan_and_writes_nothing(config, batch, capsys):
    before = os.listdir()
    assert cli.run_main(["--config", config, "--dry-run"]) == 0
    assert batch.calls == ["plan"]
    out = capsys.readouterr().out
    assert "kernel evaluations   1,000,000\n" in out
    assert "estimated seconds    1.5\n" in out
    assert os.listdir() == before


def test_a_dry_run_of_cluster_needs_no_spark(config, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    Coreset([[0.0], [1.0], [9.0]], [1.0, 2.0, 1.0]).write_parquet("coreset.parquet")
    assert cli.cluster_main(["--config", config, "--dry-run"]) == 0
    assert "coreset points       3\n" in capsys.readouterr().out


def test_log_lines_carry_the_time_unless_a_person_is_watching(config, batch, capsys, monkeypatch):
    monkeypatch.delenv("KERNELCORESET_TERMINAL", raising=False)
    cli.run_main(["--config", config])
    assert all(line[:4].isdigit() and line[19:26] == "Z INFO " for line in capsys.readouterr().err.splitlines())
    with monkeypatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: True)
        cli.run_main(["--config", config])
    assert capsys.readouterr().err.startswith("session ...\n")
    monkeypatch.setenv("KERNELCORESET_TERMINAL", "1")
    cli.run_main(["--config", config])
    assert capsys.readouterr().err.startswith("session ...\n")


# --- bad settings: exit code 2, before Spark is imported -------------------------------------------------------------


@pytest.mark.parametrize("name", MAINS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "coreset.kk=5"], "Bad settings: .*job.toml with --set: Unknown key `coreset.kk`. Did you mean"),
        (["--set", "coreset.k=0"], "`coreset.k` must be at least 1; got 0"),
        (["--config", "absent.toml"], "The settings file absent.toml does not exist"),
    ],
)
def test_bad_settings_are_refused_before_spark(name, arguments, message, config, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)  # importing it would raise
    monkeypatch.setitem(sys.modules, "kernelcoreset.spark", None)
    assert MAINS[name](["--config", config, *arguments]) == 2
    first_line = capsys.readouterr().err.splitlines()[0]
    assert re.search(message, first_line)
    assert os.listdir() == ["job.toml"]


@pytest.mark.parametrize(
    ("name", "left_out", "missing"),
    [
        ("build-coreset", 'path = "coreset.parquet"\n', "`coreset.path` is required by the job build-coreset"),
        ("run", "demo_rows = 400", "Give exactly one of `input.path`"),
        ("cluster", 'path = "coreset.parquet"\n', "`coreset.path` is required by the job cluster"),
        ("cluster", 'model_path = "model"\n', "`cluster.model_path` is required by the job cluster"),
        ("assign", 'model_path = "model"\n', "`cluster.model_path` is required by the job assign"),
        ("assign", 'path = "out"\n', "`output.path` or `output.table` is required by the job assign"),
        ("run", 'path = "out"\n', "`output.path` or `output.table` is required by the job run"),
        ("spectral", 'path = "out"\n', "`output.path` or `output.table` is required by the job spectral"),
        ("graph", 'path = "out"\n', "`output.path` or `output.table` is required by the job graph"),
        ("update", "", "`store.path` is required by the job update"),
        ("stream", "", "`store.path` is required by the job stream"),
    ],
)
def test_a_job_asks_for_what_it_needs(name, left_out, missing, config, batch, capsys):
    Path(config).write_text(Path(config).read_text().replace(left_out, ""))
    assert MAINS[name](["--config", config]) == 2
    assert missing in capsys.readouterr().err
    assert batch.calls == []
    assert os.listdir() == ["job.toml"]


def test_update_needs_an_output_only_if_it_labels(config, capsys, monkeypatch):
    """And its needs are checked once, before any work."""
    Path(config).write_text(Path(config).read_text().replace('[output]\npath = "out"', '[store]\npath = "store"'))
    asked = []
    require = Settings.require
    monkeypatch.setattr(Settings, "require", lambda *arguments: asked.append(arguments[1]) or require(*arguments))
    stub = ModuleType("kernelcoreset.spark.jobs.update")
    stub.run = lambda settings, record: record.add(outcome="updated")
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    assert cli.update_main(["--config", config]) == 2
    message = '`output.path` or `output.table` or `update.label` = "none" is required by the job update'
    assert message in capsys.readouterr().err
    assert os.listdir() == ["job.toml"]
    assert cli.update_main(["--config", config, "--set", "update.label=none"]) == 0
    assert asked == ["update", "update"]


def test_no_config_unknown_options_and_abbreviations_are_usage_errors(config, capsys):
    for arguments in ([], ["--config", config, "--confg"], ["--config", config, "--dry"]):
        with pytest.raises(SystemExit, match="2"):
            cli.run_main(arguments)
        assert "usage: " in capsys.readouterr().err


# --- everything else that goes wrong ---------------------------------------------------------------------------------

FROM_EXECUTOR = (
    "An exception was thrown from the Python worker\nTraceback (most recent call last):\n"
    "kernelcoreset.errors.DataError: `latitude` has 3 bad rows.\n"
)
MODULE_MISSING = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File x.py, line 1\n"
    "ModuleNotFoundError: No module named 'pyarrow'\n"
)
DISK_FULL = MODULE_MISSING.replace("ModuleNotFoundError: No module named 'pyarrow'", "OSError: No space left on device")
ODD = MODULE_MISSING.replace("ModuleNotFoundError: No module named 'pyarrow'", "OSError: odd")
SAVE_FAILED = (
    "An error occurred while calling o134.save.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed "
    "while writing rows to file:/out. SQLSTATE: 58030\n\tat org.apache.spark.OutOfMemoryError(X.scala:1)\n"
    "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\t... 29 more\n"
)
NO_FORMAT = (
    "An error occurred while calling o1.save.\n: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] "
    "Failed to find the data source: foo. Make sure. SQLSTATE: 42K02\n\tat x(Y.scala:2)\n"
    "Caused by: java.lang.ClassNotFoundException: foo.DefaultSource\n"
)


@pytest.mark.parametrize(
    ("error", "code", "last_line"),
    [
        (DataError("`latitude` has 3 bad rows."), 3, "Bad data: `latitude` has 3 bad rows."),
        (RuntimeError(FROM_EXECUTOR), 3, "Bad data: `latitude` has 3 bad rows."),
        (KernelError("not a kernel"), 3, "Bad data: not a kernel"),
        (FormatError("damaged"), 3, "Bad data: damaged"),
        (FileNotFoundError("There is no model folder at x."), 3, "Bad data: There is no model folder at x."),
        (SettingError("`output.columns` names no column"), 2, "Bad settings: `output.columns` names no column"),
        (kernelcoreset.KernelCoresetError("odd"), 1, "Failed: odd"),
        (ModuleNotFoundError("No module named 'pandas'", name="pandas"), 4, "Environment: pandas cannot be imported"),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), 4, "Install Java 17 or 21"),
        (
            RuntimeError(MODULE_MISSING),
            4,
            "Environment: the Python of the executors has no module 'pyarrow'. Set PYSPARK_",
        ),
        (RuntimeError(DISK_FULL), 4, "Environment: a disk is full: OSError: No space left on device. Free space there"),
        (RuntimeError(ODD), 1, "Failed on an executor: OSError: odd"),
        (ConflictError("Another process changed the store."), 5, "Conflict: Another process changed the store."),
        (RuntimeError("disk\nfull"), 1, "Failed: RuntimeError: disk"),
        (RuntimeError(), 1, "Failed: RuntimeError: RuntimeError"),
        (KeyboardInterrupt(), 5, "Interrupted. Run it again."),
        (KeyboardInterrupt("SIGTERM"), 5, "Interrupted by SIGTERM. Run it again."),
        (MemoryError(), 4, "Environment: memory ran out: MemoryError"),
        (
            OSError(errno.EACCES, "Permission denied", "out"),
            4,
            "Environment: no access: Permission denied: 'out'. Give",
        ),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"),
            2,
            "Not a directory: 'a/b'. Choose another path.",
        ),
        (RuntimeError(SAVE_FAILED), 4, "Environment: a disk is full: No space left on device. Free space"),
        (RuntimeError(NO_FORMAT), 2, "Bad settings: Spark has no format 'foo'. Correct the name"),
        (
            RuntimeError(NO_FORMAT.replace("foo", "delta")),
            4,
            "Environment: Spark has no package for the format 'delta'",
        ),
        (
            RuntimeError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL =="),
            3,
            "Bad data: Division by zero.",
        ),
        (RuntimeError("[NEW_ONE] New in Spark.\nAnd more. SQLSTATE: 42999"), 2, "Bad settings: New in Spark."),
        (
            RuntimeError("[ODD_ONE] Internal. SQLSTATE: XX000"),
            1,
            "Failed: RuntimeError: [ODD_ONE] Internal. SQLSTATE: XX000",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_becomes_an_exit_code_a_clear_last_line_and_a_record(error, code, last_line, config, batch, capsys):
    failing_with(batch, error)
    assert cli.run_main(["--config", config]) == code
    err = capsys.readouterr().err
    assert last_line in err.splitlines()[-1]
    unforeseen = code == 1 and isinstance(error, Exception)
    assert ("Traceback (most recent call last)" in err) == unforeseen
    record = json.loads(Path("out.run.failed.json").read_text())
    assert record["status"] == "failed"
    assert record["error"].startswith(type(error).__name__)
    assert not Path("out.run.json").exists()


def test_verbose_shows_the_whole_of_a_known_error(config, batch, capsys):
    failing_with(batch, RuntimeError(SAVE_FAILED))
    assert cli.run_main(["--config", config, "--verbose"]) == 4
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "An error occurred while calling o134.save" in err
    assert "a disk is full" in err.splitlines()[-1]
    assert "o134.save" in json.loads(Path("out.run.failed.json").read_text())["error"]


def test_a_character_of_code_0_is_refused_and_not_met_by_the_record(config, batch, capsys):
    for key in ("output.path", "input.path", "run.record", "spark.app_name", "output.partition_by"):
        value = '["a\\u0000b"]' if key == "output.partition_by" else '"a\\u0000b"'
        assert cli.run_main(["--config", config, "--set", f"{key}={value}"]) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert f"`{key}` must not contain the character of code 0; got 'a\\x00b'." in last
    assert batch.calls == []


def test_any_failure_of_the_record_leaves_the_first_error(config, batch, capsys, monkeypatch):
    def odd(*_):
        raise ValueError("embedded null byte")

    monkeypatch.setattr("kernelcoreset.jobs.record.write_file", odd)
    assert cli.run_main(["--config", config]) == 4
    assert "Done, but the run record could not be written" in capsys.readouterr().err
    failing_with(batch, DataError("first trouble"))
    assert cli.run_main(["--config", config]) == 3
    assert capsys.readouterr().err.splitlines()[-1].endswith("Bad data: first trouble")


@pytest.mark.parametrize("second", [None, RuntimeError("Answer from Java side is empty")])
def test_sigterm_is_an_interrupt_with_a_record(second, config, batch, capsys):
    """Also if the signal has ended Spark, and its error comes first out of the job."""
    before = signal.getsignal(signal.SIGTERM)

    def run(settings, record):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            if second is not None:
                raise second

    batch.run = run
    assert cli.run_main(["--config", config]) == 5
    assert "Interrupted by SIGTERM. Run it again." in capsys.readouterr().err.splitlines()[-1]
    assert json.loads(Path("out.run.failed.json").read_text())["error"] == "KeyboardInterrupt: SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_check_ends_before_spark(config, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert cli.run_main(["--config", config, "--check"]) == 0
    assert cli.run_main(["--config", config, "--check", "--set", "coreset.k=0"]) == 2
    assert cli.run_main(["--config", config, "--check", "--set", "output.mode=overwrite-partitions"]) == 2
    assert os.listdir() == ["job.toml"]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (
            "run",
            ["output.prediction_col=Distance"],
            "must have different names, also without case; got ['Distance', 'd",
        ),
        ("run", ["output.margin_col=PREDICTION"], "must have different names, also without case"),
        ("run", ["output.margin_col=Latitude"], "must not be named like the features or the weight; got ['Latitude']"),
        ("graph", ["output.prediction_col=node"], "must not be 'node', the column of the nodes; got 'node'"),
        ("graph", ["output.prediction_col=Node"], "must not be 'node', the column of the nodes; got 'Node'"),
    ],
)
def test_two_columns_of_one_name_are_refused(name, overrides, message, config, capsys):
    sets = [part for text in overrides for part in ("--set", text)]
    assert MAINS[name](["--config", config, *sets]) == 2
    assert message in capsys.readouterr().err


def test_a_dry_run_that_fails_leaves_no_record(config, batch, capsys):
    def plan(settings):
        raise DataError("there are no rows")

    batch.plan = plan
    assert cli.run_main(["--config", config, "--dry-run"]) == 3
    assert capsys.readouterr().err.endswith("Bad data: there are no rows\n")
    assert os.listdir() == ["job.toml"]


def test_a_missing_coreset_is_bad_data(config, capsys):
    assert cli.cluster_main(["--config", config]) == 3
    assert "coreset.parquet" in capsys.readouterr().err.splitlines()[-1]


def test_a_record_that_cannot_be_written_is_said(config, batch, capsys):
    Path("in-the-way").write_text("")
    place = ["--set", "run.record=in-the-way/r.json"]
    assert cli.run_main(["--config", config, *place]) == 4
    assert "Done, but the run record could not be written to in-the-way/r.json" in capsys.readouterr().err
    failing_with(batch, DataError("first trouble"))
    assert cli.run_main(["--config", config, *place]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert "The run record could not be written to in-the-way/r.json" in lines[-2]
    assert lines[-1].endswith("Bad data: first trouble")


def test_a_failed_wheel_task_ends_its_process(config, batch, monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "19.0")
    assert cli.run_main(["--config", config]) == 0
    failing_with(batch, DataError("no"))
    with pytest.raises(SystemExit, match="3"):
        cli.run_main(["--config", config])


# --- as processes ----------------------------------------------------------------------------------------------------


def run_script(name, *arguments, before="pass"):
    code = f"import runpy, sys; {before}; sys.argv[0] = {name!r}; runpy.run_path({name!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("name", MAINS)
def test_a_job_file_is_thin_and_calls_the_entry_point(name):
    file = ROOT / "jobs" / f"{name.replace('-', '_')}.py"
    assert len(file.read_text().splitlines()) < 60
    scope = {"__name__": f"jobs.{name}"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert scope["main"] is MAINS[name]


def test_every_job_has_its_entry_point():
    assert {name: resolve_name(target) for name, target in SCRIPTS.items()} == {
        f"kernelcoreset-{name}": main for name, main in MAINS.items()
    }


def test_help_is_for_newcomers():
    done = run_script("jobs/run.py", "--help")
    assert done.returncode == 0
    for part in ("Cluster all rows of a table", "run.py --config conf/demo.toml", "--dry-run", "exit codes: 0 done"):
        assert part in done.stdout


def test_a_process_without_pyspark_says_what_to_install(tmp_path):
    arguments = ("--config", "conf/demo.toml", "--set", f"run.record={tmp_path}/r.json")
    done = run_script("jobs/run.py", *arguments, before="sys.modules['pyspark'] = None")
    assert done.returncode == 4
    assert "pip install 'kernelcoreset[spark]'" in done.stderr.splitlines()[-1]


def test_the_version_is_the_package_s():
    done = run_script("jobs/run.py", "--version")
    assert done.stdout == f"kernelcoreset {kernelcoreset.__version__}\n"


def test_arrow_errors_while_writing_a_failure_do_not_hide_it(config, batch, capsys, monkeypatch):
    def no_file_system(uri):
        raise pa.ArrowInvalid("no such store")

    monkeypatch.setattr("kernelcoreset.jobs.record.open_path", no_file_system)
    failing_with(batch, DataError("first trouble"))
    assert cli.run_main(["--config", config, "--set", "run.record=s3://b/r.json"]) == 3
    assert "no such store" in capsys.readouterr().err
