"""Labels by written-out polynomials: those of direct evaluation, within the proved error."""

import numpy as np
import pytest

from kernelcoreset import Gaussian, KernelError, Linear, Polynomial
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.monomials import by_monomials
from kernelcoreset.labelling.rungs import new_nearest
from tests.cases import some_points


def centers_of(kernel, d, k=4, s=120):
    generator = np.random.default_rng(0)
    points = some_points(s, d)
    owner = np.concatenate([np.arange(k), generator.integers(k, size=s - k)])
    coefficients = np.where(owner == np.arange(k)[:, None], generator.uniform(0.5, 1.5, size=s), 0.0)
    return Centers(points, coefficients / coefficients.sum(axis=1, keepdims=True), kernel)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    "kernel",
    [
        Polynomial(degree=1),
        Polynomial(degree=2, c=0.5),
        Polynomial(degree=4),
        Polynomial(degree=4, c=1.0),
        2.5 * Polynomial(degree=5, c=0.1),
        0.5 * (3.0 * Polynomial(degree=3)),
    ],
    ids=repr,
)
def test_labels_and_distances_are_the_direct_ones(kernel, d):
    centers = centers_of(kernel, d)
    rows = np.concatenate([some_points(2000, d, seed=1), centers.points, np.zeros((1, d))])
    direct = centers.label(rows, margins=True, exact_distances=True)
    level = by_monomials(centers.many, LABELS_ONLY)
    out, sure = new_nearest(len(rows)), np.empty(len(rows), dtype=bool)
    error = level.run(rows, out, sure)
    assert sure[:-1].mean() > 0.99
    np.testing.assert_array_equal(out.labels[sure], direct.labels[sure])
    gap = np.abs(np.maximum(out.first[sure], 0.0) - direct.distances[sure] ** 2)
    assert (gap <= error * (1 + 1e-9) + 1e-14 * direct.distances[sure] ** 2).all()
    np.testing.assert_array_equal(centers.label(rows).labels, direct.labels)
    np.testing.assert_array_equal(centers.predict(rows), direct.labels)
    found = centers.label(rows, margins=True)
    np.testing.assert_allclose(found.margins, direct.margins, atol=1e-5 * (direct.margins + direct.distances).max())


def test_the_ladder_uses_them_without_landmarks():
    ladder = centers_of(Polynomial(degree=4), 2).ladder(ACCURACY)
    assert ladder.levels == ()
    assert ladder.method.levels[0].plan.factors.shape == (4, 5)


def test_two_equal_centers_are_evaluated_directly():
    points = some_points(50, 2)
    centers = Centers(points, np.full((2, 50), 1 / 50), Polynomial(degree=3))
    found = centers.label(some_points(300, 2, seed=1), margins=True)
    assert (found.labels == 0).all()
    assert found.certified == 0.0


def test_other_kernels_and_many_monomials_have_none():
    assert by_monomials(centers_of(Gaussian(sigma=1.0), 2).many, ACCURACY) is None
    assert by_monomials(centers_of(Polynomial(degree=2) + Linear(), 2).many, ACCURACY) is None
    assert by_monomials(centers_of(Polynomial(degree=4), 8).many, ACCURACY) is None


def test_overflow_is_still_an_error():
    with pytest.raises(KernelError, match="overflows"):
        centers_of(Polynomial(degree=4), 2).label([[1.0, 2.0], [1e60, 1e60]])
