"""Passes over rows in several threads: each has its own rows, and BLAS one thread in each of them.

BLAS alone would use all processors for its products only, and one for all that is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

Result = TypeVar("Result")


@contextmanager
def blas_in_one_thread() -> Iterator[int]:
    """Let BLAS use one thread, and yield how many it was allowed: so many threads may multiply at once.

    That is the number of processors, unless the user or the environment (OMP_NUM_THREADS, which Spark sets for its
    Python workers) allows fewer. Without threadpoolctl, which comes with scikit-learn, it is 1, and BLAS stays as it
    is.
    """
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        yield 1
        return
    controller = ThreadpoolController().select(user_api="blas")
    allowed = [int(library["num_threads"]) for library in controller.info()]
    with controller.limit(limits=1):
        yield max(1, min(allowed, default=1))


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
