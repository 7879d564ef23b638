"""Creation of a file by one of several processes: the way to do it is chosen by the file system, and tried once."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from pyarrow import fs

from kernelcoreset.files.atomic import hidden_name, is_local, sync_folder, write_beside
from kernelcoreset.files.claim import create_by_claim
from kernelcoreset.files.conditional import TYPES, ConditionalPut
from kernelcoreset.files.exclusive import create_exclusively, is_unfinished

LINK, EXCLUSIVE, PUT, CLAIM = "hard link", "exclusive create", "conditional put", "claim"
"""Names of the ways, as a run record says them."""


class _Create(Protocol):
    def __call__(self, path: str, content: bytes) -> bool: ...


class Creation(NamedTuple):
    """A way to create a file only if its name is free."""

    guarantee: str
    """LINK, EXCLUSIVE, PUT or CLAIM."""
    create: _Create
    """A function of path and content. False, and nothing is written, if the name is taken."""


def creation_in(system: fs.FileSystem, folder: str) -> Creation:
    """Return the way to create files in a folder, which is tried with other names; a local folder is made."""
    if is_local(system):
        os.makedirs(folder, exist_ok=True)
        if _has_links(folder):
            return Creation(LINK, _create_by_link)
        return Creation(EXCLUSIVE, _create_exclusively)
    if system.type_name in TYPES:
        return Creation(PUT, ConditionalPut(system, folder).create)
    return Creation(CLAIM, partial(create_by_claim, system))


def link(source: str, target: str) -> None:
    """Give a file another name, or raise FileExistsError. The one place that makes hard links."""
    os.link(source, target)


def _has_links(folder: str) -> bool:
    source = write_beside(f"{folder}/probe", b"", durable=False)
    target = f"{hidden_name(Path(folder, 'probe'))}.tmp"
    try:
        link(source, target)
    except OSError:
        return False
    finally:
        for name in (source, target):
            with suppress(FileNotFoundError):
                os.unlink(name)
    return True


def _create_by_link(path: str, content: bytes) -> bool:
    source = write_beside(path, content, durable=True)
    try:
        link(source, path)
    except FileExistsError:
        if is_unfinished(path):  # of a process that found no links here
            return _create_exclusively(path, content)
        return False
    finally:
        os.unlink(source)
    sync_folder(fs.LocalFileSystem(), os.path.dirname(path))
    return True


def _create_exclusively(path: str, content: bytes) -> bool:
    if not create_exclusively(path, content):
        return False
    sync_folder(fs.LocalFileSystem(), os.path.dirname(path))
    return True
