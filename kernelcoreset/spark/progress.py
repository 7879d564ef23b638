"""Shows how far the Spark jobs of a step are: rows on classic Spark, tasks on Spark Connect, where the server tells."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from kernelcoreset.jobs.progress import Progress, shown
from kernelcoreset.spark.row_counts import Address, listen_at

_BYTES = 256


@contextmanager
def watched(spark: SparkSession, name: str, total: int | None = None) -> Iterator[None]:
    """Show how far the Spark jobs in this context are: rows on classic Spark, tasks on Spark Connect."""
    progress = Progress(name, total)
    if is_remote():
        with _watched_by_server(spark, progress):
            yield
        return
    try:
        listener = _Listener(spark.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1", progress)
    except OSError:  # no port to be had: the job runs without a progress line
        yield
        return
    listen_at(listener.address)
    try:
        with shown(progress):
            yield
    finally:
        listen_at(None)
        listener.close()


@contextmanager
def _watched_by_server(spark: SparkSession, progress: Progress) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        progress.tasks = sum(stage.num_completed_tasks for stage in known)
        progress.all_tasks = sum(stage.num_tasks for stage in known)

    spark.registerProgressHandler(handle)  # type: ignore[arg-type]
    try:
        with shown(progress):
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
