"""Progress of a job: one line at a terminal, which is replaced, or a log line every ten seconds elsewhere.

At a terminal the line names the stage while nothing else is known, so that a person always sees that the job is alive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from kernelcoreset.heartbeat import step
from kernelcoreset.jobs.record import RunRecord, is_watched, log

_TERMINAL_SECONDS = 0.5
_SILENCE = 1.0  # seconds at a terminal after which a stage that says nothing is named
_LOG_SECONDS = 10.0
_FIRST_ESTIMATE = 2.0  # seconds after which the time left is worth saying
CLEAR_LINE = "\r\033[K"
"""Removes the progress line at a terminal, so that another line can take its place."""


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes log lines, each in place of a progress line that is shown."""

    is_line_shown = False
    last = 0.0
    """When something was written, by `time.perf_counter()`."""

    def show(self, line: str) -> None:
        """Show a progress line, in place of the one before; an empty one removes it."""
        self.acquire()
        try:
            self.stream.write(CLEAR_LINE + line)
            self.flush()
            self.is_line_shown = bool(line)
            self.last = time.perf_counter()
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log line."""
        if self.is_line_shown:
            self.show("")
        super().emit(record)
        self.last = time.perf_counter()


@dataclass
class Progress:
    """How far a step is. Tasks and rows are counted by other threads while it runs.

    Parameters
    ----------
    name : str
        Of the step.
    total : int, optional
        Rows in all, if they are known.
    """

    name: str
    total: int | None = None
    rows: int = 0
    tasks: int = 0
    all_tasks: int = 0
    last_batch: int = -1

    def line(self, seconds: float) -> str | None:
        """Return rows or tasks, rate and time left after some seconds; None if nothing is known yet.

        Examples
        --------
        >>> Progress("leaves", total=4_000_000, rows=1_000_000).line(5.0)
        'leaves: 1,000,000 of 4,000,000 rows (25%), 200,000 rows/s, 15 s left'
        >>> Progress("write", tasks=3, all_tasks=12).line(6.0)
        'write: 3 of 12 tasks (25%), 18 s left'
        """
        if self.rows:
            rate = f"{self.rows / max(seconds, 1e-3):,.0f} rows/s"
            if self.total is None:
                batch = f", micro-batch {self.last_batch:,}" if self.last_batch >= 0 else ""
                return f"{self.name}: {self.rows:,} rows, {rate}{batch}"
            share = min(self.rows / max(self.total, 1), 1.0)
            counted = f"{self.name}: {min(self.rows, self.total):,} of {self.total:,} rows ({share:.0%}), {rate}"
            return counted + _left(share, seconds)
        if self.all_tasks:
            share = self.tasks / self.all_tasks
            return f"{self.name}: {self.tasks:,} of {self.all_tasks:,} tasks ({share:.0%})" + _left(share, seconds)
        return None


def _left(share: float, seconds: float) -> str:
    if not 0.0 < share < 1.0 or seconds < _FIRST_ESTIMATE:
        return ""
    left = seconds / share - seconds
    return f", {left:.0f} s left" if left < 120 else f", {left / 60:.0f} min left"


@contextmanager
def shown(progress: Progress) -> Iterator[Progress]:
    """Show a progress while the context is open."""
    ended, started = threading.Event(), time.monotonic()
    terminal = _terminal()

    def show() -> None:
        while not ended.wait(_LOG_SECONDS if terminal is None else _TERMINAL_SECONDS):
            line = progress.line(time.monotonic() - started)
            if line is None:
                continue
            if terminal is None:
                log.info("%s", line)
            else:
                terminal.show(line)

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()
        if terminal is not None and terminal.is_line_shown:
            terminal.show("")


@contextmanager
def alive(record: RunRecord) -> Iterator[None]:
    """At a terminal, show which stage is going on whenever nothing was written for a second."""
    terminal = _terminal()
    if terminal is None:
        yield
        return
    ended, started = threading.Event(), time.perf_counter()

    def show() -> None:
        while not ended.wait(_TERMINAL_SECONDS):
            now = time.perf_counter()
            if now - terminal.last >= _SILENCE:
                name, since = record.current or ("the job", started)
                terminal.show(f"{name}: {now - since:.0f} s")

    thread = threading.Thread(target=show, name="alive", daemon=True)
    thread.start()
    try:
        with step(record.job, lambda _: None):  # steps within a job are told by this line
            yield
    finally:
        ended.set()
        thread.join()
        if terminal.is_line_shown:
            terminal.show("")


def _terminal() -> LineHandler | None:
    """What writes to the terminal that a person reads; None if there is none."""
    if not is_watched():
        return None
    return next((each for each in log.handlers if isinstance(each, LineHandler)), None)
