"""SIGKILL at random moments of Delta nights and Delta streams: no row lost, none twice, one commit per run.

KERNELCORESET_KILLS sets the number of kills of each kind.
"""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa

from tests.faults.followers import environment, settings_of
from tests.services.delta_log import HandMadeTable, commits_of, ids_of
from tests.services.jars import DELTA, DELTA_GROUPS, jars
from tests.services.test_delta import DELTA_CONF
from tests.spark.nights import points_of

PLATFORM = "Delta 4.4.0", "jobs update and stream, killed with SIGKILL at random moments"
KILLS = int(os.environ.get("KERNELCORESET_KILLS", "3"))
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("day", pa.string())])
JOB = "import sys; from kernelcoreset.jobs import cli; sys.exit(cli.run_job(cli.JOBS[sys.argv[1]], sys.argv[2:]))"


def rows(seed, day, n=80):
    points = points_of(seed, n)
    return pa.table({"id": 1000 * seed + np.arange(n), "x": points[:, 0], "y": points[:, 1], "day": [day] * n})


class Runs:
    """Runs of one job, each a process group of its own with its Java."""

    def __init__(self, job, folder):
        self.job, self.folder, self.seconds = job, folder, None
        self.draw = random.Random(0)
        conf = {**DELTA_CONF, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        arguments = ["--master", "local[2]", "--jars", ",".join(jars(DELTA, DELTA_GROUPS)), *options, "pyspark-shell"]
        self.environment = environment(PYSPARK_SUBMIT_ARGS=" ".join(arguments))
        self.log = folder / "log"

    def start(self):
        command = [sys.executable, "-c", JOB, self.job, "--config", str(self.folder / "job.toml")]
        with open(self.log, "w") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def finish(self):
        """Run it to its end, which must be a good one; the first time measures how long the work takes."""
        process = self.start()
        begun = self._wait_for_session(process)
        assert process.wait(timeout=600) == 0, self.log.read_text()[-3000:]
        self.seconds = self.seconds or time.monotonic() - begun

    def kill_within(self):
        """Kill a run at a random moment of its work; return whether it was still at work."""
        process = self.start()
        self._wait_for_session(process)
        time.sleep(self.draw.uniform(0, self.seconds))
        was_running = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL) if was_running else None
        process.wait()
        return was_running

    def _wait_for_session(self, process):
        while "session done" not in self.log.read_text() and process.poll() is None:
            time.sleep(0.02)
        return time.monotonic()


def writes(path):
    return [info for info in commits_of(path) if info["operation"] == "WRITE"]


def test_nights(tmp_path):
    table = HandMadeTable(tmp_path / "in", SCHEMA, "day")
    (tmp_path / "job.toml").write_text(
        settings_of(tmp_path, 'format = "delta"') + 'format = "delta"\n[update]\nkey_col = "day"\n'
    )
    runs, killed, nights = Runs("update", tmp_path), 0, 1
    files = table.change([rows(seed, f"2026-01-{seed:02}") for seed in (1, 2, 3, 4)])
    runs.finish()
    while killed < KILLS:
        # A new day, a changed one and, every second night, one that vanishes.
        nights += 1
        gone = [files.pop(0), *([files.pop(0)] if nights % 2 else [])]
        changed = gone[-1].partition("=")[2].partition("/")[0]
        fresh = [rows(100 + nights, f"2026-02-{nights:02}"), rows(200 + nights, changed)]
        files += table.change(fresh, gone)
        killed += runs.kill_within()
        runs.finish()
        assert ids_of(tmp_path / "out") == ids_of(tmp_path / "in")
        assert len(writes(tmp_path / "out")) == nights
    assert len({info["userMetadata"] for info in writes(tmp_path / "out")}) == nights


def test_streams(tmp_path):
    table = HandMadeTable(tmp_path / "in", SCHEMA)
    source = 'format = "delta"\noptions = {maxFilesPerTrigger = 1}'
    (tmp_path / "job.toml").write_text(settings_of(tmp_path, source) + 'format = "delta"\n')
    runs, killed, files = Runs("stream", tmp_path), 0, 2
    table.change([rows(1, "a"), rows(2, "b")])
    runs.finish()
    while killed < KILLS:
        table.change([rows(10 + files, "a"), rows(11 + files, "b")])
        files += 2
        killed += runs.kill_within()
        runs.finish()
        assert ids_of(tmp_path / "out") == ids_of(tmp_path / "in")
        assert len(writes(tmp_path / "out")) == files  # one per micro-batch
