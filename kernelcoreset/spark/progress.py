"""Shows how far the Spark jobs of a step are: rows, as the tasks send them.

On Spark Connect the tasks may not reach the client. Then finished tasks are shown, as the server tells them.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from kernelcoreset.jobs.progress import Progress, shown
from kernelcoreset.spark.row_counts import Address, listen_at

_BYTES = 256


@contextmanager
def watched(spark: SparkSession, name: str, total: int | None = None) -> Iterator[None]:
    """Show how far the Spark jobs in this context are: rows if they arrive here, else tasks on Spark Connect."""
    progress = Progress(name, total)
    tasks = _tasks_counted(spark, progress) if is_remote() else nullcontext()
    with _rows_counted(spark, progress), tasks, shown(progress):
        yield


@contextmanager
def _rows_counted(spark: SparkSession, progress: Progress) -> Iterator[None]:
    try:
        listener = _Listener(_own_host(spark), progress)
    except (OSError, NotImplementedError):  # no port, or no address that tasks may reach: no rows in the progress line
        yield
        return
    listen_at(listener.address)
    try:
        yield
    finally:
        listen_at(None)
        listener.close()


def _own_host(spark: SparkSession) -> str:
    """The address at which tasks reach this process, if they do."""
    if not is_remote():
        return spark.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as toward_server:
        toward_server.connect((spark.client.host, 1))  # sends nothing; the system chooses the address
        return str(toward_server.getsockname()[0])


@contextmanager
def _tasks_counted(spark: SparkSession, progress: Progress) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        progress.tasks = sum(stage.num_completed_tasks for stage in known)
        progress.all_tasks = sum(stage.num_tasks for stage in known)

    spark.registerProgressHandler(handle)  # type: ignore[arg-type]
    try:
        yield
    finally:
        spark.removeProgressHandler(handle)  # type: ignore[arg-type]


class _Listener:
    """Adds up the counts of all tasks of a step. Of several attempts of a task, each counts what it has read."""

    def __init__(self, host: str, progress: Progress) -> None:
        self._progress, self._counts = progress, dict[str, int]()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, 0))
        except OSError:
            self._socket.close()
            raise
        self.address = Address(host, self._socket.getsockname()[1], secrets.token_hex(8))
        self._thread = threading.Thread(target=self._listen, name="row counts", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            packet = self._socket.recv(_BYTES).split()
            if packet[:1] == [b"end"] and packet[1:] == [self.address.word.encode()]:
                return
            if len(packet) == 3 and packet[0] == self.address.word.encode() and packet[2].isdigit():
                task = packet[1].decode(errors="replace")
                self._counts[task] = max(self._counts.get(task, 0), int(packet[2]))
                self._progress.rows = sum(self._counts.values())

    def close(self) -> None:
        with suppress(OSError):
            self._socket.sendto(f"end {self.address.word}".encode(), (self.address.host, self.address.port))
        self._thread.join(1.0)
        self._socket.close()
