"""Small stores for the tests of several files."""

import numpy as np

import kernelcoreset as kc
from tests.cases import some_points

KERNEL = kc.Gaussian(sigma=1.0)
DAYS = [f"2024-01-{day:02}" for day in range(1, 13)]


def new_store(path, **options):
    return kc.CoresetStore.create(path, k=3, kernel=KERNEL, **{"size": 20, "leaf_size": 40} | options)


def day(key, n=100, d=2):
    return some_points(n, d, seed=DAYS.index(key))


def filled(path, keys=DAYS, **options):
    store = new_store(path, **options)
    for key in keys:
        store.add(key, day(key))
    return store


def same(a, b):
    np.testing.assert_array_equal(a.points, b.points)
    np.testing.assert_array_equal(a.weights, b.weights)
    assert a.settings == b.settings
