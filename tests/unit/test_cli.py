"""The jobs' command line: exit codes, messages, and what is left behind.

Spark is not the point here: two modules stand in for kernelcoreset.spark, everything else is real.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

import kernelcoreset
from kernelcoreset import Coreset, DataError, FormatError, KernelError, SettingError
from kernelcoreset.clustering.problem import Solution
from kernelcoreset.jobs import cli
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel

ROOT = Path(__file__).parents[2]
MAINS = {
    "build_coreset": cli.build_coreset_main,
    "cluster": cli.cluster_main,
    "assign": cli.assign_main,
    "run": cli.run_main,
    "update": cli.update_main,
    "stream": cli.stream_main,
}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A settings file with every path a job may need, in a working directory of its own."""
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
def pipeline(monkeypatch):
    """Stand-ins for kernelcoreset.spark: results known beforehand, real files, and a note of what was called."""
    known = Coreset([[0.0], [1.0], [9.0]], [100.0, 200.0, 100.0])
    solution = Solution(np.array([0, 0, 1], np.int32), np.array([[0.3, 0.7, 0.0], [0.0, 0.0, 1.0]]), 0.5, 2, True)
    fake = ModuleType("kernelcoreset.spark.jobs.batch")
    fake.calls = []

    def plan(spark, settings):
        fake.calls.append("plan")
        return {"rows": 400, "leaves": 1, "driver_bytes": 12_000, "kernel_evaluations": 10**6, "estimated_seconds": 1.5}

    def build(spark, settings, record):
        fake.calls.append("build")
        known.write_parquet(settings.coreset.path)
        record.add(rows=400, coreset_points=len(known))
        return known

    def cluster(coreset, settings, record):
        fake.calls.append("cluster")
        model = KernelKMeansModel(coreset, settings.kernel.build(), solution)
        model.save(settings.cluster.model_path, overwrite=True)
        return model

    def assign(spark, model, settings, record):
        fake.calls.append("assign")
        record.add(cluster_sizes=model.cluster_weights.astype(int), cost=model.solution.cost)

    fake.check = lambda spark, settings: None
    fake.plan, fake.build, fake.cluster, fake.assign = plan, build, cluster, assign
    session = ModuleType("kernelcoreset.spark.jobs.session")

    @contextmanager
    def open_session(settings, opening=None):
        with opening or nullcontext():
            pass
        yield "a session"

    session.open_session = open_session
    package = ModuleType("kernelcoreset.spark")
    jobs = ModuleType("kernelcoreset.spark.jobs")
    package.jobs, jobs.batch, jobs.session = jobs, fake, session
    for module in (package, jobs, fake, session):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake


def failing_with(pipeline, error):
    def build(spark, settings, record):
        raise error

    pipeline.build = build


# --- a good run ------------------------------------------------------------------------------------------------------


def test_run_does_all_three_and_says_so(config, pipeline, capsys):
    assert cli.run_main(["--config", config]) == 0
    assert pipeline.calls == ["build", "cluster", "assign"]
    record = json.loads(Path("out.run.json").read_text())
    assert (record["job"], record["status"], record["cluster_sizes"]) == ("run", "done", [300, 100])
    assert [stage["stage"] for stage in record["stages"]] == ["session", "build", "cluster", "assign"]
    out, err = capsys.readouterr()
    assert "clusters     0: 300 (75.0%), 1: 100 (25.0%)" in out
    assert "assign done in" in err


def test_three_jobs_do_what_one_does(config, pipeline):
    assert cli.run_main(["--config", config]) == 0
    together = json.loads(Path("out.run.json").read_text())
    for name in ("build_coreset", "cluster", "assign"):
        assert MAINS[name](["--config", config]) == 0
    alone = json.loads(Path("out.run.json").read_text())
    assert (alone["cost"], alone["cluster_sizes"]) == (together["cost"], together["cluster_sizes"])
    assert json.loads(Path("coreset.parquet.run.json").read_text())["job"] == "build-coreset"
    assert json.loads(Path("model.run.json").read_text())["job"] == "cluster"


def test_a_dry_run_prints_the_plan_and_writes_nothing(config, pipeline, capsys):
    before = os.listdir()
    assert cli.run_main(["--config", config, "--dry-run"]) == 0
    assert pipeline.calls == ["plan"]
    out = capsys.readouterr().out
    assert "kernel evaluations   1,000,000\n" in out
    assert "estimated seconds    1.5\n" in out
    assert os.listdir() == before


def test_a_dry_run_of_cluster_needs_no_spark(config, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    Coreset([[0.0], [1.0], [9.0]], [1.0, 2.0, 1.0]).write_parquet("coreset.parquet")
    assert cli.cluster_main(["--config", config, "--dry-run"]) == 0
    assert "coreset points       3\n" in capsys.readouterr().out


def test_log_lines_carry_the_time_unless_a_person_is_watching(config, pipeline, capsys, monkeypatch):
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
        ("build_coreset", 'path = "coreset.parquet"\n', "`coreset.path` is required by the job build-coreset"),
        ("cluster", 'path = "coreset.parquet"\n', "`coreset.path` is required by the job cluster"),
        ("cluster", 'model_path = "model"\n', "`cluster.model_path` is required by the job cluster"),
        ("assign", 'model_path = "model"\n', "`cluster.model_path` is required by the job assign"),
        ("assign", 'path = "out"\n', "`output.path` or `output.table` is required by the job assign"),
        ("run", 'path = "out"\n', "`output.path` or `output.table` is required by the job run"),
        ("update", "", "`store.path` is required by the job update"),
        ("stream", "", "`store.path` is required by the job stream"),
    ],
)
def test_a_job_asks_for_what_it_needs(name, left_out, missing, config, pipeline, capsys):
    Path(config).write_text(Path(config).read_text().replace(left_out, ""))
    assert MAINS[name](["--config", config]) == 2
    assert missing in capsys.readouterr().err
    assert pipeline.calls == []


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
DISK_FULL = MODULE_MISSING.replace("ModuleNotFoundError: No module named 'pyarrow'", "OSError: No space left")


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
        (RuntimeError(DISK_FULL), 1, "Failed on an executor: OSError: No space left"),
        (RuntimeError("disk\nfull"), 1, "Failed: RuntimeError: disk"),
        (RuntimeError(), 1, "Failed: RuntimeError: RuntimeError"),
        (KeyboardInterrupt(), 1, "Interrupted."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_becomes_an_exit_code_a_clear_last_line_and_a_record(error, code, last_line, config, pipeline, capsys):
    failing_with(pipeline, error)
    assert cli.run_main(["--config", config]) == code
    err = capsys.readouterr().err
    assert last_line in err.splitlines()[-1]
    unforeseen = code == 1 and isinstance(error, Exception)
    assert ("Traceback (most recent call last)" in err) == unforeseen
    record = json.loads(Path("out.run.failed.json").read_text())
    assert record["status"] == "failed"
    assert record["error"].startswith(type(error).__name__)
    assert not Path("out.run.json").exists()


def test_a_dry_run_that_fails_leaves_no_record(config, pipeline, capsys):
    def plan(spark, settings):
        raise DataError("there are no rows")

    pipeline.plan = plan
    assert cli.run_main(["--config", config, "--dry-run"]) == 3
    assert capsys.readouterr().err.endswith("Bad data: there are no rows\n")
    assert os.listdir() == ["job.toml"]


def test_a_missing_coreset_or_model_is_bad_data(config, pipeline, capsys):
    assert cli.cluster_main(["--config", config]) == 3
    assert "coreset.parquet" in capsys.readouterr().err.splitlines()[-1]
    assert cli.assign_main(["--config", config]) == 3
    assert "There is no model folder at model" in capsys.readouterr().err.splitlines()[-1]


def test_a_record_that_cannot_be_written_is_said(config, pipeline, capsys):
    Path("in-the-way").write_text("")
    place = ["--set", "run.record=in-the-way/r.json"]
    assert cli.run_main(["--config", config, *place]) == 4
    assert "Done, but the run record could not be written to in-the-way/r.json" in capsys.readouterr().err
    failing_with(pipeline, DataError("first trouble"))
    assert cli.run_main(["--config", config, *place]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert "The run record could not be written to in-the-way/r.json" in lines[-2]
    assert lines[-1].endswith("Bad data: first trouble")


def test_a_failed_wheel_task_ends_its_process(config, pipeline, monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "19.0")
    assert cli.run_main(["--config", config]) == 0
    failing_with(pipeline, DataError("no"))
    with pytest.raises(SystemExit, match="3"):
        cli.run_main(["--config", config])


# --- as processes ----------------------------------------------------------------------------------------------------


def run_script(name, *arguments, before="pass"):
    code = f"import runpy, sys; {before}; sys.argv[0] = {name!r}; runpy.run_path({name!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("name", MAINS)
def test_a_job_file_is_thin_and_calls_the_entry_point(name):
    file = ROOT / "jobs" / f"{name}.py"
    assert len(file.read_text().splitlines()) < 60
    scope = {"__name__": f"jobs.{name}"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert scope["main"] is MAINS[name]


def test_the_entry_points_are_the_same_functions():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, main in MAINS.items():
        module, _, function = scripts[f"kernelcoreset-{name.replace('_', '-')}"].partition(":")
        assert getattr(sys.modules[module], function) is main


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


def test_arrow_errors_while_writing_a_failure_do_not_hide_it(config, pipeline, capsys, monkeypatch):
    def no_file_system(uri):
        raise pa.ArrowInvalid("no such store")

    monkeypatch.setattr("kernelcoreset.jobs.record._file_system", no_file_system)
    failing_with(pipeline, DataError("first trouble"))
    assert cli.run_main(["--config", config, "--set", "run.record=s3://b/r.json"]) == 3
    assert "no such store" in capsys.readouterr().err
