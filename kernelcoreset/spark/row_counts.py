"""Rows that tasks have read, while they read them: the side of the tasks.

Tasks send their counts to the driver as single UDP packets: a packet that is lost, or that a firewall drops, costs
nothing but a later number. Accumulators would need the Spark context, which Spark Connect does not have.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext

_EVERY = 0.2  # seconds between two packets of a task


class Address(NamedTuple):
    """Where tasks send their counts, and the word that tells them from packets of others."""

    host: str
    port: int
    word: str


_listening: Address | None = None  # on the driver, while a step is watched
_sender: _Sender | None = None  # on an executor, while a task runs


def listening() -> Address | None:
    """Return where a task that is planned now sends its counts; None if nobody listens."""
    return _listening


def listen_at(address: Address | None) -> None:
    """Let tasks that are planned from now on send their counts there."""
    global _listening
    _listening = address


@contextmanager
def counting(address: Address | None) -> Iterator[None]:
    """Send what `count_rows` counts in this context, on an executor."""
    global _sender
    _sender = None if address is None else _Sender(address)
    try:
        yield
    finally:
        if _sender is not None:
            _sender.close()
        _sender = None


def count_rows(rows: int) -> None:
    """Count rows that a task has read."""
    if _sender is not None:
        _sender.add(rows)


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the same batches, and count their rows."""
    for batch in batches:
        count_rows(batch.num_rows)
        yield batch


class _Sender:
    """Sends the rows of one task now and then."""

    def __init__(self, address: Address) -> None:
        context = TaskContext.get()
        self._task = -1 if context is None else context.taskAttemptId()
        self._address = address
        self._rows, self._next = 0, 0.0
        self._socket: socket.socket | None = None
        with suppress(OSError):  # a sandbox may forbid it: then nobody learns the count
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def add(self, rows: int) -> None:
        self._rows += rows
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._send()

    def close(self) -> None:
        self._send()
        if self._socket is not None:
            self._socket.close()

    def _send(self) -> None:
        if self._socket is None:
            return
        with suppress(OSError):  # a count that does not arrive is no reason to fail
            packet = f"{self._address.word} {self._task} {self._rows}".encode()
            self._socket.sendto(packet, (self._address.host, self._address.port))
