"""Work of the driver while something else is at work for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kernelcoreset.blas import one_blas_thread


@contextmanager
def in_background(*works: Callable[[], object]) -> Iterator[None]:
    """Run functions, each in a thread of its own, while the block waits for something else.

    Ends when all have. An error of the block comes first, then that of the first function that has one. Matrices are
    multiplied on one thread meanwhile: the other processors may be at work for what the block waits for.

    Examples
    --------
    >>> found = []
    >>> with in_background(lambda: found.append(1), lambda: found.append(2)):
    ...     pass
    >>> sorted(found)
    [1, 2]
    """
    # One setting around all threads: each of them would set it, and restore it when another still needs it.
    with one_blas_thread(), ThreadPoolExecutor(max(1, len(works))) as pool:
        done = [pool.submit(work) for work in works]
        yield
        for each in done:
            each.result()
