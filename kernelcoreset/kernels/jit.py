"""Compilation with numba, and where the machine code is cached."""

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
_ByPath: Any = getattr(caching, "ZipCacheLocator", object)  # older versions of numba do not have it


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `njit` that caches machine code on disk, or compiles in memory if it cannot write."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            with _kept_by_content(function.__code__.co_filename):
                dispatcher = numba.njit(cache=True, **options)(function)
            folder = dispatcher.stats.cache_path
            os.makedirs(folder, exist_ok=True)  # for a zipped package numba would fail only when it compiles
            if os.access(folder, os.W_OK):
                return dispatcher
        except (RuntimeError, OSError):  # a read-only package and no home folder: numba has no place to write
            pass
        return numba.njit(**options)(function)

    return decorate


class ZippedByContent(_ByPath):  # type: ignore[misc]
    """Caches the machine code of a zipped package by the archive's content, not by its path.

    A cluster puts a shipped archive into a new folder for every executor of every job. With a cache by path, each of
    them would compile everything again, which takes half a minute. An archive with one changed file has another cache,
    so code compiled from an old file is never used with a new one. The cache is in NUMBA_CACHE_DIR if that is set.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        base = _config.CACHE_DIR or os.path.dirname(super().get_cache_path())
        self._cache_path: str = os.path.join(base, folder_of(self._zip_path))


@functools.lru_cache(maxsize=1)
def folder_of(archive: str) -> str:
    """Return the name of the cache folder of a zipped package."""
    return f"kernelcoreset_{hashlib.sha256(Path(archive).read_bytes()).hexdigest()[:32]}"


@contextmanager
def _kept_by_content(source: str) -> Iterator[None]:
    """Let numba use `ZippedByContent` for the functions of a zipped package, only while they are being created."""
    if ".zip" not in source or _ByPath is object:
        yield
        return
    before = getattr(_config, "CACHE_LOCATOR_CLASSES", "")
    _config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ZippedByContent.__name__}"
    try:
        yield
    finally:
        _config.CACHE_LOCATOR_CLASSES = before
