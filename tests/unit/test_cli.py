"""The jobs' command line: exit codes, messages, and what is left behind.

A stub replaces the module that works with Spark; everything else is real. tests/spark/test_jobs.py runs the jobs whole.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import numpy as np
import pytest

import kernelcoreset
from kernelcoreset import (
    Coreset,
    Gaussian,
    build_coreset,
)
from kernelcoreset.jobs import cli
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spectral.model import load_model

ROOT = Path(__file__).parents[2]
MAINS = {name: getattr(cli, f"{name.replace('-', '_')}_main") for name in cli.JOBS}
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


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
    assert sorted(os.listdir()) == sorted(["job.toml", record, record.replace(".run.json", ".report.html")])


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
        "kernelcoreset": cli.main,
        **{f"kernelcoreset-{name}": main for name, main in MAINS.items()},
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
