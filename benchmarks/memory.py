"""Memory and processor time of this process and of the Java and the Python workers of its Spark session."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_PROCESSES = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


class Memory:
    """Samples the resident memory of this process (the driver) and of the Python workers that it has started.

    Parameters
    ----------
    every : float
        Seconds between two samples.

    Attributes
    ----------
    worker, driver, java : int
        The largest resident memory in bytes of any worker, of this process, and of its Java. Linux keeps the peak of
        each process, so none is missed between two samples unless the worker ends before it is seen.
    samples : list of tuple
        Seconds since the start, bytes of the largest worker, of this process, and of Java, at each sample.
    """

    def __init__(self, every: float = 0.2) -> None:
        self.every = every
        self.worker = self.driver = self.java = 0
        self.samples: list[tuple[float, int, int, int]] = []

    def __enter__(self) -> Memory:
        self._stop = threading.Event()
        self._begin = time.perf_counter()
        workers, java = _below()
        for process in (os.getpid(), *workers, *java):
            _forget_peak(process)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._stop.wait(self.every):
            self._sample()

    def _sample(self) -> None:
        workers, java = ([_memory(process) for process in some] for some in _below())
        now, peak = _memory(os.getpid())
        self.worker = max([self.worker, *(most for _, most in workers)])
        self.java = max([self.java, *(most for _, most in java)])
        self.driver = max(self.driver, peak)
        largest = [max((current for current, _ in some), default=0) for some in (workers, java)]
        self.samples.append((time.perf_counter() - self._begin, largest[0], now, largest[1]))


def processor_seconds() -> float:
    """Return the processor time of this process and of all below it so far, those that ended included.

    Other work on the machine changes it much less than the time on the clock.
    """
    parents, seconds = dict[int, int](), dict[int, float]()
    for folder in _PROCESSES.iterdir():
        if folder.name.isdecimal():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(folder.name)] = int(status[1])
            seconds[int(folder.name)] = sum(map(int, status[11:15])) / _TICKS  # user and system, its own and its dead's
    return sum(own for process, own in seconds.items() if process == os.getpid() or _is_below(process, parents))


def _below() -> tuple[list[int], list[int]]:
    """The Python workers and the Java processes below this process."""
    parents, commands = dict[int, int](), dict[int, str]()
    for folder in _PROCESSES.iterdir():
        if folder.name.isdecimal():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                commands[int(folder.name)] = (folder / "cmdline").read_text()
            except OSError:  # it has ended
                continue
            parents[int(folder.name)] = int(status[1])
    below = [process for process in parents if _is_below(process, parents)]
    java = [process for process in below if commands[process].partition("\0")[0].endswith("java")]
    return [process for process in below if "pyspark" in commands[process] and process not in java], java


def _is_below(process: int, parents: dict[int, int]) -> bool:
    above = parents.get(process)
    while above is not None and above != os.getpid():
        above = parents.get(above)
    return above is not None


def _memory(process: int) -> tuple[int, int]:
    """Current and largest resident memory of a process in bytes; 0 if it has ended."""
    try:
        lines = (_PROCESSES / str(process) / "status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = dict(line.split(":", 1) for line in lines)
    current, most = (1024 * int(found.get(name, "0 kB").split()[0]) for name in ("VmRSS", "VmHWM"))
    return current, most


def _forget_peak(process: int) -> None:
    try:
        (_PROCESSES / str(process) / "clear_refs").write_text("5")
    except OSError:  # it has ended, or the kernel keeps the peak since the start of the process, which is not less
        return
