"""What Python workers of Spark hold between tasks."""

import os

import numpy as np

from kernelcoreset.spark.worker_memory import return_unused_memory


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_freed_memory_below_a_block_in_use_goes_back_to_the_system():
    blocks = [np.ones(8_000) for _ in range(2_000)]  # 128 MB in blocks that the C library keeps in its heap
    last = np.ones(8_000)
    full = resident()
    del blocks
    return_unused_memory()
    assert full - resident() > 100e6
    assert last.sum() == 8_000
