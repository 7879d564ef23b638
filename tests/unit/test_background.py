"""Work in the background of a block that waits."""

import threading

import pytest

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.jobs.background import in_background


def test_functions_run_in_turn_beside_the_block():
    order, may_end = [], threading.Event()

    def first():
        assert may_end.wait(10)
        order.append("first")

    with in_background(first, lambda: order.append("second")):
        order.append("block")
        may_end.set()
    assert order == ["block", "first", "second"]


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
    with in_background(lambda: None):
        pass
    with one_blas_thread() as after:
        pass
    assert after == before


def fail(text):
    raise ValueError(text)
