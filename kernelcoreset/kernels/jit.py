"""Compiled functions, and where their machine code is kept."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

_config: Any = numba.config
_ByPath: Any = getattr(caching, "ZipCacheLocator", object)  # not in every numba we run with


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` that keeps its machine code on disk where it can, and compiles in memory where it cannot."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            with _kept_by_content(function.__code__.co_filename):
                dispatcher = numba.njit(cache=True, **options)(function)
            folder = dispatcher.stats.cache_path
            os.makedirs(folder, exist_ok=True)  # for a zipped package numba would only find out while compiling
            if os.access(folder, os.W_OK):
                return dispatcher
        except (RuntimeError, OSError):  # a read-only package, or no home folder: numba has no place to write
            pass
        return numba.njit(**options)(function)

    return decorate


class ZippedByContent(_ByPath):  # type: ignore[misc]
    """Where numba keeps the machine code of a zipped package: by what the archive holds, not by where it lies.

    A cluster puts a shipped archive into a new folder for every executor of every job. By its path, each of them would
    compile everything anew, half a minute of it; and an archive with one changed file is another archive, so that code
    compiled from the old file is never called from a new one. The folder is that of NUMBA_CACHE_DIR, where it is set.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        base = _config.CACHE_DIR or os.path.dirname(super().get_cache_path())
        self._cache_path: str = os.path.join(base, folder_of(self._zip_path))


@functools.lru_cache(maxsize=1)
def folder_of(archive: str) -> str:
    """Return the name of the folder for the machine code of a zipped package."""
    return f"kernelcoreset_{hashlib.sha256(Path(archive).read_bytes()).hexdigest()[:32]}"


@contextmanager
def _kept_by_content(source: str) -> Iterator[None]:
    """Let numba ask `ZippedByContent` for a place, for functions of a zipped package and only while they are made."""
    if ".zip" not in source or _ByPath is object:
        yield
        return
    before = getattr(_config, "CACHE_LOCATOR_CLASSES", "")
    _config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ZippedByContent.__name__}"
    try:
        yield
    finally:
        _config.CACHE_LOCATOR_CLASSES = before
