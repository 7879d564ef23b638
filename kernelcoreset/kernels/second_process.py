"""The first call on a machine is compiled by two processes: while this one compiles a build, another does the rest.

Both keep their machine code in the same folder. A process claims a function while it compiles it; the other one waits
for the code. A claim is a lock of the operating system, which ends with its process, and nobody waits longer than
`MOST_SECONDS`. If the second process cannot start or fails, the first one compiles all by itself.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there every process compiles by itself
    fcntl = None  # type: ignore[assignment]

ALONE = "KERNELCORESET_COMPILE_ALONE"
"""The environment variable that switches the second process off."""
MOST_SECONDS = 30.0
"""How long a process waits for a function that another one compiles: that one may have been stopped."""

_BETWEEN_LOOKS = 0.01
_LOCK = ".lock"


class Claims:
    """The functions that this process is compiling for a folder."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def take(self, file: Path, meanwhile: Callable[[], None]) -> bool:
        """Claim the function whose code will be in `file`; wait while another process has it, calling `meanwhile`.

        Return whether there may be code by now, because another process was busy with it.
        """
        if fcntl is None or file in self._held:  # held: it was interrupted before it could keep its code
            return False
        try:
            handle = os.open(file.with_suffix(_LOCK), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:  # the folder is gone or the disk is full: then nobody can keep code
            return False
        begin = time.monotonic()
        waited = False
        while not _lock(handle):
            waited = True
            if time.monotonic() - begin > MOST_SECONDS:
                os.close(handle)
                return True
            meanwhile()
            time.sleep(_BETWEEN_LOOKS)
        self._held[file] = handle
        return waited or file.exists()

    def release(self, file: Path) -> None:
        """End a claim, if there is one."""
        handle = self._held.pop(file, None)
        if handle is not None:
            file.with_suffix(_LOCK).unlink(missing_ok=True)
            fcntl.flock(handle, fcntl.LOCK_UN)  # also for processes that were forked meanwhile
            os.close(handle)


def _lock(handle: int) -> bool:
    """Lock a file if nobody else has; True also where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class SecondProcess:
    """A process that compiles what this one will need next."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._asked = False
        self._process: subprocess.Popen[bytes] | None = None

    def stay_alone(self) -> None:
        """Never start it from this process, because others decide how many processes run here."""
        self._asked = True

    def start(self) -> bool:
        """Start it, at most once and only where that is welcome; return whether it was started."""
        if self._asked or not _is_welcome():
            return False
        self._asked = True
        folders = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, "--rest"],
                env={**os.environ, "PYTHONPATH": folders, ALONE: "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # this process says what is happening, and compiles whatever is missing
            )
        except OSError:
            return False
        threading.Thread(target=self._process.wait, daemon=True).start()  # so that it is no zombie after its end
        atexit.register(_end, self._process, os.getpid())
        return True

    def wait(self) -> int | None:
        """Wait for its end and return its exit code; None if it was not started."""
        return None if self._process is None else self._process.wait()


def _is_welcome() -> bool:
    """Whether there is a core for it, and this process is one that may start others."""
    if fcntl is None or os.environ.get(ALONE) or getattr(sys, "frozen", False):
        return False
    if not Path(sys.executable or "").name.startswith("python"):  # inside of another program
        return False
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and multiprocessing.parent_process() is None


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End it with the process that started it; not with one that was forked from that."""
    if os.getpid() == owner and process.poll() is None:
        process.terminate()
        process.wait()
