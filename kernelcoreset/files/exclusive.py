"""Creation of a file in a local folder without hard links, such as a volume of Databricks: by `O_EXCL`.

The name is there before the content is whole. So a writer first writes the whole content under another name, the
intent, and removes that when the file is finished. A file that is the beginning of an intent is unfinished: readers
take it as not there. If it does not grow for `GRACE` seconds and no living process holds its lock, another writer
removes it.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from kernelcoreset.errors import ConflictError
from kernelcoreset.files.atomic import hidden_name, remove_file, write_synced

_LOCAL = fs.LocalFileSystem()

GRACE = 30.0
"""Seconds after which an unfinished file that does not change is taken as that of a dead process."""
_INTENT = ".intent"
_NAME = re.compile(r"\.(.+)\.[0-9a-f]{32}\.intent")
_PAUSE = 0.01


def create_exclusively(path: str, content: bytes) -> bool:
    """Write a new file; return False, and write nothing, if the name is taken by a finished file.

    If two processes try at once, one succeeds, as far as the file system honours `O_EXCL`. The file is read again: the
    process whose content is not there gets False too.
    """
    intent = f"{_beginning(path)}{uuid.uuid4().hex}{_INTENT}"
    write_synced(intent, content)
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            if _becomes_free(path):
                continue
            remove_file(_LOCAL, intent)
            return False
        # If this fails, the intent stays: it marks the file as unfinished for others.
        _fill(descriptor, content)
        if _content(path) == content:
            for one in _intents(path):  # all others have lost
                remove_file(_LOCAL, one)
            return True
        remove_file(_LOCAL, intent)
        return False


def is_unfinished(path: str) -> bool:
    """Whether a file is only the beginning of its content: its writer is still writing, or died."""
    found = _content(path)
    return found is not None and any(
        len(found) < len(whole) and whole.startswith(found)
        for whole in map(_content, _intents(path))
        if whole is not None
    )


def intended(name: str) -> str | None:
    """Return the name of the file that an intent is for; None if a file name is not that of an intent.

    Examples
    --------
    >>> intended(".a.json.0123456789abcdef0123456789abcdef.intent"), intended("a.json")
    ('a.json', None)
    """
    match = _NAME.fullmatch(name)
    return match[1] if match else None


def _beginning(path: str) -> str:
    """The beginning of the paths of all intents for a file."""
    return f"{Path(path).with_name('.' + Path(path).name)}."


def _intents(path: str) -> Iterator[str]:
    start = _beginning(path)
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        whole = os.path.join(folder, name)
        if whole.startswith(start) and name.endswith(_INTENT):
            yield whole


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


def _fill(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as file:
        _lock(descriptor)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _lock(descriptor: int) -> bool:
    """Take the lock of a file; return False if another process has it.

    True on a file system without locks: there a writer is considered dead by the time of its last write alone.
    """
    import fcntl  # not on Windows, where links work

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _becomes_free(path: str) -> bool:
    """Wait for the end of an unfinished file; return whether the name is free then, False if it is taken for good."""
    state, since = None, time.monotonic()
    while is_unfinished(path):
        now = time.monotonic()
        with suppress(FileNotFoundError):
            found = os.stat(path)
            if state != (found.st_ino, found.st_size, found.st_mtime_ns):
                state, since = (found.st_ino, found.st_size, found.st_mtime_ns), now
        if now - since > GRACE:
            _remove_unfinished(path)
        if now - since > 2 * GRACE:
            raise ConflictError(
                f"Another process has not finished {path} for {2 * GRACE:.0f} s, but it is alive. See what it waits "
                "for, and run this again."
            )
        time.sleep(_PAUSE)
    return not os.path.exists(path)


def _remove_unfinished(path: str) -> None:
    """Remove an unfinished file, unless its writer is alive. Of several processes that try, one succeeds."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        if not _lock(descriptor) or not is_unfinished(path):
            return
        aside = f"{hidden_name(Path(path))}.tmp"
        with suppress(FileNotFoundError):
            os.rename(path, aside)
            if _content(aside) in [_content(intent) for intent in _intents(path)]:
                # Only without locks: the writer continued at this very moment, after many seconds without a write.
                raise ConflictError(
                    f"The writer of {path} was considered dead after {GRACE:.0f} s without a write, but then finished. "
                    f"Its content is in {aside}: give it its name back if no other file has it, or repeat the change."
                )
            os.unlink(aside)
    finally:
        os.close(descriptor)
