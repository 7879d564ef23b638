"""A stop on request: SIGTERM or Ctrl-C ends a job that runs until it is stopped, and is not a failure."""

from __future__ import annotations

import re
import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_JAVA_ENDS = re.compile(
    r"SparkContext was shut ?down|SparkContext has been shutdown|stopped SparkContext|Shutdown in progress|"
    r"ShutdownHookManager|RejectedExecutionException|InterruptedException|Connection refused"
)


class StopRequest:
    """Notices SIGTERM and SIGINT while it is entered; the first of them raises KeyboardInterrupt in the main thread.

    A scheduler signals the whole process group, so Java often ends at the same moment. What then fails because Java is
    gone belongs to the stop; nothing else does.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals to no other
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
            self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def listen(self) -> None:
        """Take the signals again: a Spark session sets its own handler of SIGINT when it is opened."""
        for number in self._before:
            signal.signal(number, self._on_signal)

    def explains(self, error: BaseException) -> bool:
        """Return whether an error is part of a stop that was requested."""
        if self.received is None:
            return False
        if isinstance(error, KeyboardInterrupt | ConnectionError):
            return True
        # By name: a client of Spark Connect has no py4j.
        library, name = type(error).__module__.partition(".")[0], type(error).__name__
        if library in ("py4j", "grpc") and name != "Py4JJavaError":
            return True  # the connection to Java is gone
        return library in ("py4j", "pyspark") and bool(_JAVA_ENDS.search(str(error)))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:  # once: what follows is the stop, which a second signal must not break off
            self.received = signal.Signals(number)
            raise KeyboardInterrupt
