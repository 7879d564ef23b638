"""Streams that are stopped on request, as real processes: exit code 0 and a record that says so, nothing failed."""

import json
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from kernelcoreset import ConflictError, CoresetStore, DataError
from kernelcoreset.spark.jobs.stop import StopRequest
from tests.faults.standalone import ROOT, wait_until

SETTINGS = """
[input]
format = "rate"
options = {{rowsPerSecond = 200}}
select = ["value AS id", "CAST(value % 7 AS DOUBLE) AS x", "CAST(value % 11 AS DOUBLE) AS y"]
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
[cluster]
n_init = 2
[store]
path = "{folder}/store"
[stream]
checkpoint = "{folder}/checkpoint"
trigger = "500 milliseconds"
[output]
path = "{folder}/out"
"""
COMMANDS = {
    "python": [sys.executable, ROOT / "jobs" / "stream.py"],
    "spark-submit": [ROOT / "spark-submit.sh", "--master", "local[2]", ROOT / "jobs" / "stream.py"],
}


@pytest.mark.parametrize(
    ("command", "number", "whole_group"),
    [
        ("python", signal.SIGTERM, True),  # Java gets it too, and ends first
        ("python", signal.SIGINT, True),  # Ctrl-C
        ("spark-submit", signal.SIGTERM, True),
        ("spark-submit", signal.SIGTERM, False),
    ],
)
def test_a_stop_on_request_is_no_failure(command, number, whole_group, tmp_path):
    (tmp_path / "job.toml").write_text(SETTINGS.format(folder=tmp_path))
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment = {**kept, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    log = tmp_path / "log"
    with log.open("w") as output:
        job = subprocess.Popen(
            [*COMMANDS[command], "--config", "job.toml"],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        done = tmp_path / "checkpoint" / "commits" / "1"
        wait_until(lambda: job.poll() is not None or done.exists(), "two micro-batches")
        assert job.poll() is None, log.read_text()
        (os.killpg if whole_group else os.kill)(job.pid, number)
        assert job.wait(timeout=300) == 0, log.read_text()
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert f"Stopped by {number.name}" in log.read_text()
    record = json.loads((tmp_path / "out.run.json").read_text())
    assert (record["status"], record["error"]) == ("stopped", None)
    assert record["batches"] >= 2
    assert not list(tmp_path.glob("*.failed.json"))
    # What was reported is there: the labels of all but the last micro-batch, which may not be finished.
    assert CoresetStore.open(tmp_path / "store").state["batch"] == record["last_batch"]
    ids = pq.read_table(tmp_path / "out")["id"].to_pylist()
    assert sorted(ids) == list(range(len(ids)))
    assert ids
    # Nobody is left behind.
    wait_until(lambda: str(tmp_path) not in _processes(), "all processes to be gone")


def _processes():
    found = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in found.splitlines() if "stream.py" in line)


class Py4JNetworkError(Exception):
    """Stands for py4j's own, which a client of Spark Connect does not have."""


Py4JNetworkError.__module__ = "py4j.protocol"


def test_only_errors_of_the_connection_after_a_request_belong_to_the_stop():
    lost = [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111), KeyboardInterrupt()]
    real = [DataError("5 of 9 rows"), ConflictError("another writer"), OSError(28, "No space left"), ValueError()]
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        assert not any(stop.explains(error) for error in [*lost, *real])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # the second does not break off the stop
        assert stop.received == signal.SIGTERM
        assert all(stop.explains(error) for error in lost)
        assert not any(stop.explains(error) for error in real)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
