"""The parts of the experiments that go through Spark."""

import numpy as np

from benchmarks.paper.error import tree_coreset
from benchmarks.paper.rivals import partition_cost
from benchmarks.paper.spark import fit_and_label, spark_coresets
from kernelcoreset import Gaussian


def test_the_tree_without_spark_gives_what_spark_gives(spark, points):
    kernel = Gaussian(sigma=3.0)
    for seed, found in enumerate(spark_coresets(spark, points, 3, kernel, 40, range(2), leaves=3)):
        alone = tree_coreset(points, 3, kernel, 40, seed, leaves=3)
        np.testing.assert_array_equal(found.points, alone.points)
        np.testing.assert_array_equal(found.weights, alone.weights)


def test_the_coreset_and_random_features_label_every_row(spark, points):
    kernel = Gaussian(sigma=6.0)
    best = partition_cost(points, np.repeat(np.arange(3), 200), kernel)
    found = fit_and_label(spark, points, 3, kernel, 100, 64, parts=2)
    assert set(found) == {"ours, Spark", "MLlib on random features"}
    for seconds, labelled in found.values():
        assert seconds > 0
        assert sorted(map(tuple, labelled[:, :2])) == sorted(map(tuple, points))
    assert partition_cost(found["ours, Spark"][1][:, :2], found["ours, Spark"][1][:, 2], kernel) <= 1.01 * best


def test_a_sample_of_the_labelled_rows_is_the_same_for_both(spark, points):
    found = fit_and_label(spark, points, 3, Gaussian(sigma=6.0), 100, 16, parts=2, every=5)
    ours, theirs = (sorted(map(tuple, labelled[:, :2])) for _, labelled in found.values())
    assert ours == theirs
    # 120 of 600 expected; the hash is fixed, and so is the number.
    assert 60 < len(ours) < 180
