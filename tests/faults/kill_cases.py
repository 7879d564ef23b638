"""SIGKILL of the driver, of Python workers and of executors, in run, update and stream: nothing lost, nothing twice.

A standalone cluster of real processes and a Spark Connect server on it stay up for nearly all cases; jobs are processes
of their own. Each case kills something at a point or a moment, lets the job end or starts it again, and compares all
that is there with what an undisturbed run leaves: coresets, model, labels, state.

- At points: the driver ends just before or after one of its writes, one write farther in every run.
- At moments: one row of every file takes half a second, and what is killed is at work in the stage that was waited for.
- With Java: driver and Spark end together, as on a machine that loses its power.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import kernelcoreset as kc
from tests.faults.followers import (
    OPTIONS,
    STREAM,
    Server,
    begin,
    connect_server,
    environment,
    passed,
    put_rows,
    settings_of,
    start,
    what_is_there,
)
from tests.faults.standalone import Cluster, read_json, wait_until
from tests.faults.tally import Tally

SLOWLY = "where = \"id % 1000 <> 75 OR reflect('java.lang.Thread', 'sleep', 500L) = 'null'\"\n"
FILES = 3
ROWS = 170
# Every file is a task, whatever the number of executors is just then: leaves must not depend on it.
ONE_FILE_PER_TASK = {"spark.sql.files.maxPartitionBytes": "1m", "spark.sql.files.openCostInBytes": "1m"}
UPDATE_POINTS = (
    *("leaf", "leaf 2", "commit", "commit done", "model", "model done", "coreset", "commit", "commit done"),
    *("removal", "labels", "labels done", "commit", "commit done"),
)
STREAM_POINTS = (
    *((0, "commit done"), (1, "leaf"), (1, "commit"), (2, "commit"), (2, "commit done")),
    *((2, "coreset"), (2, "commit done 2"), (3, "labels"), (4, "labels done")),
)
RETRIES = 3
STARTED = 0.2
"""Seconds after which the Python worker of a task has started; a slow row takes longer."""
MOMENTS = (1, 2, 3, 4, 5)
"""The stages, by the order in which they have tasks at work, in which something is killed."""
WITH_JAVA = """
import os, signal, sys, threading, time
from kernelcoreset.jobs import cli
from pyspark.sql import SparkSession

job, moment, conf, options = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3]), sys.argv[4:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
java, tracker = spark.sparkContext._gateway.proc.pid, spark.sparkContext.statusTracker()

def strike():
    seen = set()
    while True:
        busy = [stage for stage in tracker.getActiveStageIds() if tracker.getStageInfo(stage).numActiveTasks]
        seen.update(busy)
        if busy and len(seen) >= moment:
            os.kill(java, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)

threading.Thread(target=strike, daemon=True).start()
sys.exit(cli.run_job(cli.JOBS[job], ["--config", "job.toml", *options]))
"""


@dataclass
class Bench:
    """The cluster, the server, and what undisturbed runs have left."""

    folder: Path
    cluster: Cluster
    server: Server
    tally: Tally
    expected: dict[str, dict[str, Any]] = field(default_factory=dict)
    count: int = 0

    def fresh(self, job: str) -> Path:
        """Return a new folder with the input and the settings of a job."""
        self.count += 1
        folder = self.folder / f"{job} {self.count}"
        folder.mkdir()
        source = SLOWLY + (STREAM if job == "stream" else "")
        (folder / "job.toml").write_text(settings_of(folder, source))
        for number in range(1, FILES + 1):
            path = day_of(folder, number) if job == "update" else folder / "in" / f"{number}.parquet"
            # Spark orders files by their sizes: of equal sizes the order would be that of the disk.
            put_rows(path, number, ROWS - 20 * number)
            os.utime(path, (1_700_000_000 + number,) * 2)
        return folder

    def start(self, job: str, folder: Path, point: str = "", batch: int = -1) -> int:
        """Run a job to its end and return its exit code."""
        return int(start(job, folder, point, remote=self.server.address, batch=batch))

    def undisturbed(self, job: str) -> dict[str, Any]:
        """Return what a job leaves that nobody disturbs."""
        if job not in self.expected:
            folder = self.fresh(job)
            self.must_end(job, folder)
            self.expected[job] = left_by(job, folder)
        return self.expected[job]

    def finish(self, job: str, folder: Path) -> int:
        """Run a job as a scheduler would: code 4, such as a Python that starts too slowly, is tried again."""
        for _ in range(RETRIES):
            code = self.start(job, folder)
            if code != 4:
                break
        return code

    def must_end(self, job: str, folder: Path) -> None:
        """Run a job that must end well."""
        code = self.finish(job, folder)
        if code != 0:
            raise RuntimeError(f"{job} ended with {code}:\n{(folder / 'last.log').read_text()[-3000:]}")

    def add(self, what: str, outcome: str, lost: int = 0, why: str = "") -> None:
        """Count a case, and show it."""
        self.tally.add(outcome, lost)
        print(
            f"{self.tally.cases} {what}: {outcome}{f', {lost} lost' if lost else ''} {why}", file=sys.stderr, flush=True
        )

    def judge(self, what: str, job: str, folder: Path, code: int) -> None:
        """Run a job again that ended with this code, and compare what is there with an undisturbed run."""
        expected = self.undisturbed(job)
        line = ((folder / "last.log").read_text().strip().splitlines() or [""])[-1]
        again = 0 if code == 0 else self.finish(job, folder)
        if again != 0:
            self.add(what, "unclear error", why=(folder / "last.log").read_text()[-1500:])
            return
        found = left_by(job, folder)
        lost = lost_rows(expected, found)
        if found != expected:
            self.add(what, "silent wrong", lost, why=f"differs in {differences(expected, found)}")
        elif code in (0, -signal.SIGKILL):
            self.add(what, "done right", lost)
        else:
            is_clear = code == 4 and "Environment: " in line
            self.add(
                what, "clear error" if is_clear else "unclear error", lost, why="" if is_clear else f"{code} {line}"
            )

    def ask(self, what: str) -> list[dict[str, Any]]:
        """Return what the server tells of its stages or executors."""
        applications = read_json(self.server.page)
        return read_json(f"{self.server.page}/{applications[0]['id']}{what}") or [] if applications else []

    def executor_at_work(self) -> list[int]:
        """Return the process of an executor that has tasks."""
        busy = [own["id"] for own in self.ask("/executors") if own["activeTasks"] and own["id"] != "driver"]
        return self.cluster.executors(busy[0]) if busy else []  # type: ignore[no-any-return]

    def workers_at_work(self) -> list[int]:
        """Return the Python workers, once those of the tasks that have just begun are among them."""
        time.sleep(STARTED)
        return self.cluster.python_workers()  # type: ignore[no-any-return]

    def failed_tasks(self) -> int:
        """Return how many tasks have failed so far."""
        return sum(stage["numFailedTasks"] + stage["numKilledTasks"] for stage in self.ask("/stages"))


def left_by(job: str, folder: Path) -> dict[str, Any]:
    """Return all that a job has left and that must not depend on kills."""
    if job != "run":
        return what_is_there(folder)
    model = kc.KernelKMeansModel.load(folder / "model")
    return {
        "coreset": kc.Coreset.read_parquet(folder / "coreset.parquet").to_arrow().to_pydict(),
        "model": (model.solution.labels.tolist(), model.solution.coefficients.tolist()),
        "labels": labels_of(folder),
    }


def labels_of(folder: Path) -> dict[str, Any]:
    """Return the labelled rows, by id."""
    return pq.read_table(folder / "out").sort_by("id").select(["id", "prediction", "distance"]).to_pydict()  # type: ignore[no-any-return]


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return the names of the parts that differ, and of what differs in them."""
    names = []
    for name, part in expected.items():
        other = found.get(name)
        if isinstance(part, dict) and isinstance(other, dict) and part != other:
            keys = [key for key in {**part, **other} if part.get(key) != other.get(key)]
            names.append(
                f"{name}: " + ", ".join(f"{key} {part.get(key)!s:.60} {other.get(key)!s:.60}" for key in keys[:4])
            )
        elif part != other:
            names.append(name)
    return names


def lost_rows(expected: dict[str, Any], found: dict[str, Any]) -> int:
    """Return how many rows are missing, or there more than once."""
    wanted, there = expected["labels"]["id"], found["labels"]["id"]
    return len(set(wanted) - set(there)) + len(there) - len(set(there))


@contextmanager
def bench_in(folder: Path) -> Iterator[Bench]:
    """Start the cluster and the server."""
    place = folder / "cluster"
    place.mkdir()
    with Cluster(place, Path(sys.executable), installed=True) as cluster:
        conf = {**ONE_FILE_PER_TASK, "spark.executor.memory": "700m"}
        with connect_server(place, cluster.address, **conf) as server:
            wait_until(lambda: len(cluster.executors()) == 2, "two executors")
            tally = Tally("SIGKILL of driver, Python workers and executors in run, update and stream")
            yield Bench(folder, cluster, server, tally)


# --- the driver, at every write --------------------------------------------------------------------------------------


def update_at_points(bench: Bench, most: int | None) -> None:
    """Kill the second of two nightly runs again and again, each time one step farther."""
    quiet, killed = bench.folder / "quiet", bench.folder / "killed"
    for folder in (quiet, killed):
        folder.mkdir()
        (folder / "job.toml").write_text(settings_of(folder))
        for day in range(1, 5):
            put_rows(day_of(folder, day), day, ROWS - 20 * day)
        bench.must_end("update", folder)
        put_rows(day_of(folder, 5), 5, 30)
        put_rows(day_of(folder, 2), 12, ROWS)
        shutil.rmtree(day_of(folder, 3).parent)
    bench.must_end("update", quiet)
    expected = what_is_there(quiet)
    points = UPDATE_POINTS[:most]
    codes = [bench.start("update", killed, point) for point in points]
    bench.must_end("update", killed)
    _judge_chain(bench, "update", list(points), codes, -signal.SIGKILL, expected, what_is_there(killed))


def day_of(folder: Path, day: int) -> Path:
    """Return the file of a day."""
    return folder / "in" / f"date=2026-01-{day:02}" / "rows.parquet"


def stream_at_points(bench: Bench, most: int | None) -> None:
    """Kill the process that handles micro-batches."""
    expected, killed = stream_without_sleep(bench), bench.folder / "killed stream"
    _six_files(killed)
    points = STREAM_POINTS[:most]
    codes = [bench.start("stream", killed, point, batch) for batch, point in points]
    bench.must_end("stream", killed)
    _judge_chain(bench, "stream", [f"{point} of batch {batch}" for batch, point in points], codes, 4, expected,
                 what_is_there(killed))  # fmt: skip


def stream_without_sleep(bench: Bench) -> dict[str, Any]:
    folder = bench.folder / "quiet stream"
    _six_files(folder)
    bench.must_end("stream", folder)
    return what_is_there(folder)


def _six_files(folder: Path) -> None:
    folder.mkdir()
    (folder / "job.toml").write_text(settings_of(folder, STREAM))
    for number in range(6):
        path = folder / "in" / f"{number}.parquet"
        put_rows(path, number)
        os.utime(path, (1_700_000_000 + number,) * 2)


def _judge_chain(
    bench: Bench,
    job: str,
    points: list[str],
    codes: list[int],
    code: int,
    expected: dict[str, Any],
    found: dict[str, Any],
) -> None:
    """Count the kills of one input: each must have happened, and what is there at the end must be right."""
    lost = lost_rows(expected, found)
    for point, own in zip(points, codes, strict=True):
        if own != code:
            bench.add(f"driver of {job}, {point}", "unclear error", why=f"exit code {own}")
        elif found != expected:
            bench.add(f"driver of {job}, {point}", "silent wrong", lost, f"differs in {differences(expected, found)}")
        else:
            bench.add(f"driver of {job}, {point}", "done right" if code < 0 else "clear error")
        lost = 0


def run_at_points(bench: Bench, most: int | None) -> None:
    """Kill a run that overwrites the output, model and coreset of another run: each is the old or the new one."""
    expected, folder = bench.undisturbed("run"), bench.fresh("run")
    (folder / "job.toml").write_text(settings_of(folder).replace("k = 3", "k = 2"))
    bench.must_end("run", folder)
    (folder / "points").unlink()
    bench.must_end("run", folder)
    points = passed(folder)
    old, kept = left_by("run", folder), bench.folder / "old run"
    shutil.copytree(folder, kept)
    (folder / "job.toml").write_text(settings_of(folder, SLOWLY))
    for point in points[:most]:
        for name in ("out", "model"):
            shutil.rmtree(folder / name)
            shutil.copytree(kept / name, folder / name)
        shutil.copy(kept / "coreset.parquet", folder)
        code = bench.start("run", folder, point)
        found, what = left_by("run", folder), f"driver of run, {point}"
        wrong = [name for name in expected if found[name] not in (old[name], expected[name])]
        if code != -signal.SIGKILL or wrong:
            bench.add(
                what, "silent wrong", lost_rows(expected, found), f"exit code {code}, neither old nor new: {wrong}"
            )
        else:
            bench.judge(what, "run", folder, code)


# --- at moments ------------------------------------------------------------------------------------------------------


def strike(bench: Bench, job: str, kind: str, moment: int) -> bool:
    """Kill what is at work in a stage, again if that met nobody at work; return whether the job has so many stages."""
    for _ in range(RETRIES):
        counted = bench.tally.cases
        if not _strike_once(bench, job, kind, moment):
            return False
        if bench.tally.cases > counted:
            break
    return True


def _strike_once(bench: Bench, job: str, kind: str, moment: int) -> bool:
    victims: dict[str, Callable[[], list[int]]] = {
        "Python workers": bench.workers_at_work,
        "an executor": bench.executor_at_work,
    }
    bench.undisturbed(job)
    folder = bench.fresh(job)
    wait_until(lambda: len(bench.cluster.executors()) == 2, "two executors")
    before = bench.failed_tasks()
    process = begin(job, folder, remote=bench.server.address)
    find = (lambda: [process.pid]) if kind == "the driver" else victims[kind]
    if not _kill_at(bench, process, find, moment):
        code = process.wait(timeout=600)
        print(f"{job} ended with {code} before stage {moment}; not counted", file=sys.stderr, flush=True)
        return False
    code = process.wait(timeout=600)
    what = f"{kind} of {job}, stage {moment}"
    if kind != "the driver" and bench.failed_tasks() == before:
        print(f"{what}: killed, but no task failed; not counted", file=sys.stderr, flush=True)
        return True
    bench.judge(what, job, folder, code)
    return True


def _kill_at(bench: Bench, process: subprocess.Popen[bytes], find: Callable[[], list[int]], moment: int) -> bool:
    """Kill processes once so many stages have had tasks at work; return whether that came before the end of the job."""
    old = {stage["stageId"] for stage in bench.ask("/stages")}
    seen: set[int] = set()
    while process.poll() is None:
        busy = {stage["stageId"] for stage in bench.ask("/stages?status=active") if stage["numActiveTasks"]} - old
        seen |= busy
        victims = find() if busy and len(seen) >= moment else []
        if victims:
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            return True
        time.sleep(0.02)
    return False


def strike_with_java(bench: Bench, job: str, moment: int) -> None:
    """Kill driver and Spark together, in local mode; the server runs the job again."""
    bench.undisturbed(job)
    folder = bench.fresh(job)
    command = [sys.executable, "-c", WITH_JAVA, job, str(moment), repr(ONE_FILE_PER_TASK), *OPTIONS.get(job, ())]
    with open(folder / "last.log", "w") as log:
        code = subprocess.run(command, cwd=folder, env=environment(), stdout=log, stderr=log, timeout=600).returncode
    if code != -signal.SIGKILL:
        print(f"{job} with Java: ended with {code} before stage {moment}; not counted", file=sys.stderr, flush=True)
        return
    bench.judge(f"driver and Java of {job}, stage {moment}", job, folder, code)


def run(folder: Path, cases: int | None = None) -> Tally:
    """Try all kills, or about that many of them."""
    few = None if cases is None else 1
    with bench_in(folder) as bench:
        update_at_points(bench, few)
        stream_at_points(bench, few)
        run_at_points(bench, few)
        for job in ("run", "update", "stream"):
            # A server goes on with the stream of a client that is gone: that driver ends with Java below.
            for kind in ("Python workers", "an executor", "the driver")[: 2 if job == "stream" else 3]:
                all(strike(bench, job, kind, moment) for moment in MOMENTS[:few])
            for moment in MOMENTS[: few or 2]:
                strike_with_java(bench, job, moment)
        return bench.tally


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kernelcoreset-kill-") as place:
        print(run(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else None).row())
