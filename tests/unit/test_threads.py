"""Passes over rows in several threads give what one thread gives."""

import multiprocessing
import os
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import kernelcoreset as kc
from kernelcoreset.blas import one_blas_thread, own_threads
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.labelling.in_threads import label_in_threads
from kernelcoreset.labelling.written_out import centers_of, lloyd_over_rows


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_its_own_number_after():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread() as threads:
            assert threads == 2
            assert blas_threads() == {1}
            with one_blas_thread() as inner:
                assert inner == 1
        assert blas_threads() == {2}


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_the_order_of_the_parts(threads):
    parts = equal_parts(10, 4)
    assert [i for part in parts for i in range(10)[part]] == list(range(10))
    assert map_in_threads(lambda part: part.start, parts, threads) == [part.start for part in parts]
    assert len(equal_parts(2, 4)) == 2


def test_as_many_parts_as_threads_run_at_once():
    meeting = threading.Barrier(2, timeout=30.0)  # raises unless two threads come
    assert sorted(map_in_threads(lambda _: meeting.wait(), equal_parts(2, 2), 2)) == [0, 1]


def test_calls_within_threads_and_errors_in_them_end():
    """More calls at once than there are threads in all, each of which makes calls of its own."""
    parts = equal_parts(64, 64)

    def sum_of(part):
        return sum(map_in_threads(lambda own: own.start, parts, 8)) + part.start

    assert map_in_threads(sum_of, parts, 8) == [2016 + i for i in range(64)]

    def fail(part):
        raise ValueError(f"part {part.start}")

    with pytest.raises(ValueError, match="part"):
        map_in_threads(fail, parts, 8)
    assert map_in_threads(lambda part: part.start, parts, 8) == list(range(64))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes by fork here")
def test_a_forked_process_has_threads_of_its_own():
    assert map_in_threads(lambda part: part.start, equal_parts(2, 2), 2) == [0, 1]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_two_meet).get(timeout=60.0) == [0, 1]


def _two_meet():
    meeting = threading.Barrier(2, timeout=30.0)
    return sorted(map_in_threads(lambda _: meeting.wait(), equal_parts(2, 2), 2))


def test_blocks_within_own_threads_know_the_number_before():
    with threadpool_limits(2, user_api="blas"):
        with own_threads(), own_threads(), one_blas_thread() as threads:
            assert threads == 2
            assert blas_threads() == {1}
        assert blas_threads() == {2}


@pytest.mark.parametrize("kernel", [kc.Linear(), kc.Cosine()], ids=repr)
def test_the_number_of_threads_changes_no_digit(kernel):
    rows = np.random.default_rng(0).normal(size=(10_000, 20)).astype(np.float32)
    means, weights = rows[:30].astype(np.float64), np.random.default_rng(1).exponential(size=len(rows))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            moved = lloyd_over_rows(means, rows, weights, kernel, 3)
            labelled = label_in_threads(centers_of(moved, kernel, 1.0), rows)
            found.append((moved, labelled.labels))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
    direct = centers_of(found[0][0], kernel, 1.0).label(rows, exact_distances=True)
    assert (found[0][1] == direct.labels).all()
    np.testing.assert_allclose(labelled.distances**2, direct.distances**2, rtol=1e-3, atol=1e-3)
    assert labelled.certified > 0.9
