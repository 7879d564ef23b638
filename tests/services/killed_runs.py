"""Runs of one job as processes of their own, which end by SIGKILL at random moments of their work."""

import os
import random
import signal
import subprocess
import sys
import time

from tests.faults.followers import environment

JOB = "import sys; from kernelcoreset.jobs import cli; sys.exit(cli.run_job(cli.JOBS[sys.argv[1]], sys.argv[2:]))"


class Runs:
    """Runs of one job, each a process group of its own with its Java.

    Parameters
    ----------
    job : str
    folder : Path
        Has the settings, as job.toml.
    jars : list of str
        For Spark.
    conf : mapping
        Of Spark.
    seed : int
        Of the moments.
    has_file_system : bool
        Whether the jars have a file system of Hadoop, which is found on the class path alone.
    """

    def __init__(self, job, folder, jars, conf=None, seed=0, *, has_file_system=False):
        self.job, self.folder, self.seconds = job, folder, None
        self.draw = random.Random(seed)
        conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **(conf or {})}
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        places = ["--jars", ",".join(jars), *(["--driver-class-path", ":".join(jars)] if has_file_system else [])]
        arguments = ["--master", "local[2]", *places, *options, "pyspark-shell"]
        self.environment = environment(PYSPARK_SUBMIT_ARGS=" ".join(arguments))
        self.log = folder / "log"

    def start(self, *options):
        """Start a run and return its process."""
        command = [sys.executable, "-c", JOB, self.job, "--config", str(self.folder / "job.toml"), *options]
        with open(self.log, "w") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def finish(self, *options):
        """Run it to its end, which must be a good one; the first time measures how long the work takes."""
        process = self.start(*options)
        begun = self.wait_for_session(process)
        try:
            assert process.wait(timeout=600) == 0, self.log.read_text()[-3000:]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        self.seconds = self.seconds or time.monotonic() - begun

    def kill_within(self):
        """Kill a run at a random moment of its work; return whether it was still at work."""
        process = self.start()
        begun = self.wait_for_session(process)
        try:
            process.wait(timeout=self.draw.uniform(0, self.seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        self.seconds = time.monotonic() - begun  # less than the first run took
        return False

    def wait_for_session(self, process):
        """Wait until Spark has started, and return the time."""
        while "session done" not in self.log.read_text() and process.poll() is None:
            time.sleep(0.02)
        return time.monotonic()
