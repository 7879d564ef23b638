"""Creation of a file on a file system that can only write, list and rename, such as HDFS through pyarrow: by claims.

A writer writes a claim, a file with a name of its own, and then lists all claims for the same name. If there is
another, it withdraws and tries again. Of two writers the one that lists last sees both claims, so they never write at
once. That takes a file system that lists a file as soon as it is written.
"""

from __future__ import annotations

import os
import random
import socket
import time
import uuid

from pyarrow import fs

from kernelcoreset.errors import ConflictError
from kernelcoreset.files.atomic import remove_file, write_file

GRACE = 30.0
"""Seconds after which a claim that stays is reported. It is not removed: its writer may only be slow."""
_CLAIM = ".claim"


def create_by_claim(system: fs.FileSystem, path: str, content: bytes) -> bool:
    """Write a new file; return False, and write nothing, if the name is taken. If two processes try, one succeeds."""
    folder, _, name = path.rpartition("/")
    start, own = f".{name}.", f".{name}.{uuid.uuid4().hex}{_CLAIM}"
    since: dict[str, float] = {}
    while True:
        write_file(system, f"{folder}/{own}", f"{socket.gethostname()} {os.getpid()}\n".encode())
        try:
            found = {info.base_name for info in system.get_file_info(fs.FileSelector(folder))}
            others = {other for other in found - {own} if other.startswith(start) and other.endswith(_CLAIM)}
            if name in found:
                return False
            if not others:
                # Written aside: on HDFS a file has its name before it is whole.
                aside = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
                write_file(system, aside, content)
                system.move(aside, path)
                return True
        finally:
            remove_file(system, f"{folder}/{own}")
        now = time.monotonic()
        since = {other: since.get(other, now) for other in others}
        for other, start_of_wait in since.items():
            if now - start_of_wait > GRACE:
                raise ConflictError(
                    f"Another process claims {path} for {GRACE:.0f} s. If it is dead, remove its claim "
                    f"{folder}/{other}; then run this again."
                )
        time.sleep(random.uniform(0.01, 0.1))
