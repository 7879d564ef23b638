"""A standalone Spark cluster as real processes on this machine, and jobs submitted to it."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
_PATIENCE = 900  # seconds; a step takes a few, but the machine may be busy


def wait_until(found, what, job=None):
    """Return the first true value that `found()` gives; a job that ends meanwhile ends the waiting too."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        assert job is None or job.process.poll() is None, f"The job ended before {what}:\n{job.log()}"
        time.sleep(0.05)
    raise AssertionError(f"Waited {_PATIENCE} s for {what}." + ("" if job is None else f"\n{job.log()}"))


class Cluster:
    """A master and two workers of one core each; to be used in a `with` statement.

    Jobs are submitted with the package, unless it is `installed` in `python`.
    """

    def __init__(self, folder, python, *, installed=False):
        self.folder = folder
        self.python = python
        self._installed = installed
        self.port, self.page = free_ports(2)
        self.address = f"spark://{HOST}:{self.port}"
        self.machine_code = folder / "machine code"
        self._processes = []

    def __enter__(self):
        try:
            self._start("master", f"--host {HOST} --port {self.port} --webui-port {self.page}")
            wait_until(lambda: self._state() is not None, "the master")
            for name in ("one", "two"):
                own = f"--host {HOST} --cores 1 --memory 1g --webui-port 0 --work-dir {self.folder / name}"
                self._start("worker", f"{own} {self.address}", name)
            wait_until(lambda: len(self._state()["workers"]) == 2, "the two workers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes):  # jobs, then workers, which end their executors, then the master
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def submit(self, job, config, *options):
        """Start a job through spark-submit.sh, as a user would."""
        started = Job(self, job, config, options)
        self._processes.append(started.process)
        return started

    def environment(self, **own):
        """For the processes of the cluster: what executors compile is kept in a folder of their own, empty at first."""
        place = {} if self._installed else {"NUMBA_CACHE_DIR": str(self.machine_code)}
        return _environment(**place, **own)

    def executors(self, number=""):
        """The ids of the processes of all executors, or of the one with this number."""
        word = f"CoarseGrainedExecutorBackend .*--executor-id {number or r'[0-9]+'} "
        return _children([process.pid for process in self._processes], word)

    def python_workers(self):
        """The ids of the processes that executors run Python in."""
        return _children(_children(self.executors(), "pyspark.daemon"), "pyspark.daemon")

    def _start(self, kind, arguments, name=""):
        spark_home = Path(pyspark.__file__).parent
        main_class = f"org.apache.spark.deploy.{kind}.{kind.title()}"
        with open(self.folder / f"{kind}{name}.log", "w") as log:
            self._processes.append(
                subprocess.Popen(
                    [spark_home / "bin" / "spark-class", main_class, *arguments.split()],
                    env=self.environment(SPARK_HOME=str(spark_home)),
                    cwd=self.folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _state(self):
        return read_json(f"http://{HOST}:{self.page}/json/")


class Job:
    """A job on its way, its output in a file."""

    def __init__(self, cluster, job, config, options):
        self._page = free_ports(1)[0]
        self._output = config.with_suffix(".log")
        with open(self._output, "w") as output:
            self.process = subprocess.Popen(
                [
                    *(ROOT / "spark-submit.sh", "--master", cluster.address, *options),
                    *("--conf", f"spark.ui.port={self._page}"),
                    *(ROOT / "jobs" / job, "--config", config),
                ],
                env=_environment(PYSPARK_PYTHON=str(cluster.python)),
                cwd=cluster.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def log(self):
        """All that the job has said so far."""
        return self._output.read_text(errors="replace")

    def wait(self):
        """Return the exit code, once there is one."""
        try:
            return self.process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"The job did not end:\n{self.log()}") from None

    def kill_an_executor(self, stage):
        """End, by its pid and without warning, an executor at work in a stage that has some of its work behind it."""
        wait_until(lambda: f" {stage} ..." in self.log(), f"the stage {stage}", self)
        application = wait_until(lambda: self._ask(""), "the application's page", self)[0]["id"]
        at_work = wait_until(lambda: self._at_work(application), f"a task at work in {stage}", self)
        os.kill(_pid_of_executor(application, at_work), signal.SIGKILL)

    def _at_work(self, application):
        """The id of an executor at work, once the active Spark stage has finished tasks too."""
        stages = self._ask(f"/{application}/stages?status=active") or []
        if not any(stage["numCompleteTasks"] and stage["numActiveTasks"] for stage in stages):
            return None
        executors = self._ask(f"/{application}/executors") or []
        return next((executor["id"] for executor in executors if executor["activeTasks"]), None)

    def _ask(self, what):
        return read_json(f"http://{HOST}:{self._page}/api/v1/applications{what}")


def listed_processes():
    """All processes, a line each; without `ww` they would be cut off at the width of a terminal."""
    return subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout


def _children(parents, word):
    """The ids of the processes with one of these parents and a pattern in their command."""
    found = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()[1:]]
    return [int(pid) for pid, parent, command in rows if int(parent) in parents and re.search(word, command)]


def _pid_of_executor(application, executor):
    wanted = rf"^ *(\d+) .*CoarseGrainedExecutorBackend.* --executor-id {executor} .*--app-id {application}\b"
    (pid,) = re.findall(wanted, listed_processes(), re.MULTILINE)
    return int(pid)


def read_json(address):
    """What a page of Spark's says; None while it is not up, or not yet itself."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def _environment(**own):
    """The environment of these tests, without what others may have set for another Spark or another Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))}
    return {**kept, "SPARK_LOCAL_IP": HOST, **own}


def free_ports(count):
    """Ports that nobody listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
