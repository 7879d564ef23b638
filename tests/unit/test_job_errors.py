"""What becomes of an error in a job: its exit code, its last line, and its record.

As in test_cli.py, a stub replaces the module that works with Spark.
"""

import errno
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayProperty

import kernelcoreset
from kernelcoreset import ConflictError, DataError, FormatError, KernelError, SettingError
from kernelcoreset.jobs import cli
from kernelcoreset.jobs.explain import explain

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


class LostJavaError(Exception):
    """As py4j's: its text comes from Java, which may have ended."""

    def __str__(self):
        raise ConnectionRefusedError(111, "Connection refused")


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
        (LostJavaError(), 4, "Environment: Spark stopped in the middle of the job: Answer from Java side is empty"),
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
            RuntimeError("[DELTA_METADATA_MISMATCH] A metadata mismatch was detected when writing."),
            2,
            "Bad settings: the Delta table has other columns than the new rows. Let it take new columns (--set output",
        ),
        (
            RuntimeError("[DELTA_CONCURRENT_TRANSACTION] Two queries with the same id."),
            5,
            "Conflict: another job changed the same Delta table: [DELTA_CONCURRENT_TRANSACTION] Two queries",
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
    batch.fail_with(error)
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
    batch.fail_with(RuntimeError(SAVE_FAILED))
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
    batch.fail_with(DataError("first trouble"))
    assert cli.run_main(["--config", config]) == 3
    assert capsys.readouterr().err.splitlines()[-1].endswith("Bad data: first trouble")


def test_a_call_of_java_that_is_gone_is_no_server_that_cannot_be_reached():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = ClientServerConnection(JavaParameters(port=port), PythonParameters(), GatewayProperty(False, None), None)
    with pytest.raises(ConnectionRefusedError) as caught:
        gone.connect_to_java_server()
    code, line = explain(caught.value)
    assert code == 4
    assert line.startswith("Environment: Spark stopped in the middle of the job: Answer from Java side is empty")
    assert "cannot be reached" in explain(ConnectionRefusedError(111, "Connection refused"))[1]


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
    batch.fail_with(DataError("first trouble"))
    assert cli.run_main(["--config", config, *place]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert "The run record could not be written to in-the-way/r.json" in lines[-2]
    assert lines[-1].endswith("Bad data: first trouble")


def test_mlflow_must_be_installed_if_it_is_asked_for(config, batch, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert cli.run_main(["--config", config]) == 0
    assert cli.run_main(["--config", config, "--set", "mlflow.experiment=nights"]) == 4
    assert "Install it with pip install 'kernelcoreset[mlflow]'." in capsys.readouterr().err.splitlines()[-1]
    assert batch.calls == ["run"]


def test_a_failed_wheel_task_ends_its_process(config, batch, monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "19.0")
    assert cli.run_main(["--config", config]) == 0
    batch.fail_with(DataError("no"))
    with pytest.raises(SystemExit, match="3"):
        cli.run_main(["--config", config])


def test_arrow_errors_while_writing_a_failure_do_not_hide_it(config, batch, capsys, monkeypatch):
    def no_file_system(uri):
        raise pa.ArrowInvalid("no such store")

    monkeypatch.setattr("kernelcoreset.jobs.record.open_path", no_file_system)
    batch.fail_with(DataError("first trouble"))
    assert cli.run_main(["--config", config, "--set", "run.record=s3://b/r.json"]) == 3
    assert "no such store" in capsys.readouterr().err
