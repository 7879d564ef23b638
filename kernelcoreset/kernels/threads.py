"""Passes over rows in several threads: each has its own rows.

BLAS alone would use all processors for its products only, and one for all that is done with them. So it gets one thread
in each of them, by `blas.one_blas_thread`, which also says how many threads there may be.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

Result = TypeVar("Result")


def map_in_threads(function: Callable[[slice], Result], parts: list[slice], threads: int) -> list[Result]:
    """Return function(part) for every part, in their order; at most `threads` at once."""
    if threads <= 1 or len(parts) <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, parts))


def equal_parts(n: int, count: int) -> list[slice]:
    """Return up to `count` slices of about equal length that cover n rows."""
    count = max(1, min(count, n))
    ends = [n * i // count for i in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(ends)]
