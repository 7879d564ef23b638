"""A sign of life for a person who waits: which step is going on, and for how long.

At a terminal and in a notebook it is one line on stderr after half a second, which is replaced every two seconds and
removed at the end.
Files and pipes get nothing.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 2.0
"""Seconds between two signs of life."""
_FIRST = 0.5  # seconds to the first one: the person has waited for imports and for reading already

_open: list[str] = []  # the steps that are going on in this process, the outermost first
_lock = threading.Lock()


@contextmanager
def step(text: str, show: Callable[[str], None] | None = None) -> Iterator[None]:
    """Show every two seconds that a step goes on, while the context is open. A step within one changes the text only.

    Parameters
    ----------
    text : str
        What is being done.
    show : function, optional
        Gets the line to show, at the end an empty one; by default it goes to stderr if a person reads that.

    Examples
    --------
    >>> with step("counting"):
    ...     sum(range(10))
    45
    """
    with _lock:
        is_outermost = not _open
        _open.append(text)
    shown = show or (_StderrLine().show if is_read() else None)
    try:
        if is_outermost and shown is not None:
            with _beating(shown):
                yield
        else:
            yield
    finally:
        with _lock:
            _open.remove(text)


def is_read() -> bool:
    """Whether a person reads what this process writes to stderr: at a terminal, or in a notebook."""
    if sys.stderr is None or multiprocessing.parent_process() is not None:
        return False
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")


@contextmanager
def _beating(show: Callable[[str], None]) -> Iterator[None]:
    ended, started = threading.Event(), time.monotonic()

    def beat() -> None:
        wait = min(_FIRST, EVERY)
        while not ended.wait(wait):
            wait = EVERY
            with _lock:
                text = _open[-1] if _open else ""
            show(f"kernelcoreset: {text}, {time.monotonic() - started:.0f} s ...")

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        show("")


class _StderrLine:
    """A line on stderr that is replaced. Spaces remove the one before: not every notebook knows how to clear a line."""

    def __init__(self) -> None:
        self._stream, self._length = sys.stderr, 0

    def show(self, line: str) -> None:
        if line or self._length:
            self._stream.write("\r" + line.ljust(self._length) + ("" if line else "\r"))
            self._stream.flush()
        self._length = len(line)
