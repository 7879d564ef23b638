"""Passes over rows in several threads: each has its own rows.

BLAS alone would use all processors for its products only, and one for all that is done with them. So it gets one thread
in each of them, by `blas.one_blas_thread`, which also says how many threads there may be.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

Result = TypeVar("Result")


def map_in_threads(function: Callable[[slice], Result], parts: list[slice], threads: int) -> list[Result]:
    """Return function(part) for every part, in their order; at most `threads` at once, one of them the caller's.

    The other threads wait for the next call, since to start one takes about as long as a pass over a small sample.
    """
    if threads <= 1 or len(parts) <= 1:
        return [function(part) for part in parts]
    waiting, results = deque(enumerate(parts)), dict[int, Result]()

    def work() -> None:
        while True:
            try:
                i, part = waiting.popleft()
            except IndexError:
                return
            results[i] = function(part)

    helpers = [_pool().submit(work) for _ in range(min(threads, len(parts)) - 1)]
    try:
        work()
    finally:
        waiting.clear()
        # One that has not begun has nothing left to do. It may wait for this very thread, if calls are nested.
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in errors:
        if error is not None:
            raise error
    return [results[i] for i in range(len(parts))]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="kernelcoreset")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child process has none of these threads


def equal_parts(n: int, count: int) -> list[slice]:
    """Return up to `count` slices of about equal length that cover n rows."""
    count = max(1, min(count, n))
    ends = [n * i // count for i in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(ends)]
