"""Memory that a Python worker of Spark has freed: back to the system, since the worker waits for its next task."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def return_unused_memory() -> None:
    """Return to the system what the allocators of C and of Arrow keep for later.

    The C library keeps what lies below the highest block in use. Workers of several jobs would grow from job to job.
    """
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The function of glibc; None with another C library."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
