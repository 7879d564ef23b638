"""Work in the background of a block that waits."""

import threading

import numpy as np
import pytest

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.jobs.background import in_background


def test_functions_run_at_once_beside_the_block():
    order, meet, may_end = [], threading.Barrier(2), threading.Event()

    def work():
        meet.wait(10)  # both are at work
        assert may_end.wait(10)
        order.append("work")

    with in_background(work, work):
        order.append("block")
        may_end.set()
    assert order == ["block", "work", "work"]


def test_all_multiply_on_one_thread():
    found, meet = [], threading.Barrier(3)

    def work():
        with one_blas_thread() as threads:
            found.append(threads)
            meet.wait(10)

    with in_background(work, work):
        work()
    assert found == [1, 1, 1]


def test_there_may_be_no_function():
    with in_background():
        pass


def test_the_error_of_a_function_comes_after_the_block():
    done = []
    with pytest.raises(ValueError, match="in the background"), in_background(lambda: fail("in the background")):
        done.append(True)
    assert done == [True]


def test_the_error_of_the_block_comes_first():
    with pytest.raises(ValueError, match="of the block"), in_background(lambda: fail("in the background")):
        fail("of the block")


def test_blas_has_its_threads_back():
    with one_blas_thread() as before:
        pass
    with in_background(multiply, multiply, multiply):
        multiply()
    with one_blas_thread() as after:
        pass
    assert after == before


def multiply():
    with one_blas_thread():
        np.eye(50) @ np.eye(50)


def fail(text):
    raise ValueError(text)
