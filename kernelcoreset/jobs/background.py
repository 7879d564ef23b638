"""Work of the driver while something else is at work for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kernelcoreset.blas import one_blas_thread


@contextmanager
def in_background(*works: Callable[[], object]) -> Iterator[None]:
    """Run functions one after the other in a thread of their own, while the block waits for something else.

    Ends when both have. An error of the block comes first, then one of a function. Matrices are multiplied on one
    thread meanwhile: the other processors may be at work for what the block waits for. The block itself must not use
    `one_blas_thread`, which sets and restores a number of the whole process.

    Examples
    --------
    >>> found = []
    >>> with in_background(lambda: found.append(1), lambda: found.append(2)):
    ...     pass
    >>> found
    [1, 2]
    """

    def run() -> None:
        with one_blas_thread():
            for work in works:
                work()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        yield
        done.result()
