"""Linear algebra of small matrices on one thread.

Products of a few hundred rows end before a second thread has started. Threads that wait for such work keep a core busy,
and there are two sets of them, since NumPy and SciPy each bring a BLAS of their own. With one thread `choose_k` of
1,000 points took 3.2 s and as much of the processor, on two cores; with two threads 5.5 s and 10.6 s of the processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

_outer: ContextVar[int | None] = ContextVar("threads of the block of own_threads", default=None)


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Use one thread for BLAS and LAPACK in the block, or in the function that this decorates.

    Yields how many threads they had before: so many threads of the block's own may multiply at once. That is the number
    of processors, unless the user or the environment (OMP_NUM_THREADS, which Spark sets for its Python workers) allows
    fewer.

    It is one setting of the whole process: other threads that multiply matrices at the same time wait longer, and get
    the same results.

    Examples
    --------
    >>> from threadpoolctl import ThreadpoolController
    >>> with one_blas_thread():
    ...     {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}
    {1}
    """
    outer = _outer.get()
    if outer is not None:
        yield outer
        return
    libraries = _libraries()
    allowed = [int(library["num_threads"]) for library in libraries.info()]
    with libraries.limit(limits=1):
        yield max(1, min(allowed, default=1))


@contextmanager
def own_threads() -> Iterator[None]:
    """Use one thread for BLAS in a computation of many blocks of `one_blas_thread`, which yield the number before it.

    A thread of BLAS waits for its next product at full speed for a while, and takes the processor from threads that
    have other work. So there should be none between passes over rows.

    Examples
    --------
    >>> with one_blas_thread() as threads:
    ...     pass
    >>> with own_threads(), one_blas_thread() as inside:
    ...     inside == threads
    True
    """
    with one_blas_thread() as threads:
        token = _outer.set(threads)
        try:
            yield
        finally:
            _outer.reset(token)


@cache
def _libraries() -> Any:
    """The libraries of this process, found once: both must be loaded by then, and SciPy's is loaded when needed."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController  # here, because executors need neither

    return ThreadpoolController().select(user_api="blas")
