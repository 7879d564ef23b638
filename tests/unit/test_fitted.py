"""Center sets that are means of clusters, from distances to landmarks: what the halving balances beside random sets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelcoreset import Gaussian, KernelKMeansModel, Linear, Polynomial, build_coreset
from kernelcoreset.coresets import fitted
from kernelcoreset.coresets.fitted import fitted_costs
from kernelcoreset.coresets.halving import IN_FEW_DIMENSIONS, halve
from kernelcoreset.coresets.recipe import Recipe
from tests import naive
from tests.cases import some_points


def costs_of(kernel, points, k, z=2.0, count=8, weights=None):
    places = (2 * np.arange(64) + 1) * len(points) // 128
    squared = kernel.squared_distances(points[places], points).astype(np.float32)
    weights = np.ones(len(points)) if weights is None else weights
    recipe = Recipe(k, kernel, k, z=z)
    return fitted_costs(squared, places, weights, recipe, count, np.random.default_rng(0))


@pytest.mark.parametrize("kernel", [Linear(), Gaussian(2.0), Polynomial(2, 1.0)], ids=repr)
def test_the_sets_cost_about_as_little_as_good_clusterings(kernel):
    points = some_points(1_000, 2)
    found = costs_of(kernel, points, 3).sum(axis=1, dtype=np.float64)
    best = KernelKMeansModel.fit_coreset(build_coreset(points, 3, kernel, 1_000), 3, kernel).solution.cost
    assert (found >= 0.98 * best).all()  # means of the span of 64 landmarks: nearly all that counts is in it
    assert np.median(found) < 1.5 * best


def test_for_one_cluster_the_costs_are_those_of_means():
    """In the plane two axes say all, so the distances to a mean are exact, wherever the sample put it."""
    points = some_points(600, 2)
    for own in costs_of(Linear(), points, 1).astype(np.float64):
        # |x - m|^2 - |x|^2 is linear in x: the mean follows from all distances.
        design = np.column_stack([np.ones(600), -2.0 * points])
        (rest, *mean), *_ = np.linalg.lstsq(design, own - (points**2).sum(axis=1), rcond=None)
        truth = naive.squared_distances(Linear().to_dict(), points, np.array([mean]))[:, 0]
        assert_allclose(own, truth, rtol=1e-3, atol=1e-3)
        assert rest == pytest.approx(np.square(mean).sum(), rel=1e-2, abs=1e-2)
        assert np.abs(np.array(mean) - points.mean(axis=0)).max() < 5.5 * points.std() / np.sqrt(256)


def test_the_power_of_the_distance():
    points = some_points(300, 2)
    assert_allclose(costs_of(Linear(), points, 2, z=3.0), costs_of(Linear(), points, 2) ** 1.5, rtol=1e-4)


def test_points_without_weight_make_no_cluster():
    points = np.concatenate([some_points(500, 2), np.full((500, 2), 1e3)])
    weights = np.repeat([1.0, 0.0], 500)
    found = costs_of(Linear(), points, 2, weights=weights)
    assert found[:, :500].mean() < 0.01 * found[:, 500:].mean()


def test_equal_points_cost_nothing():
    assert (costs_of(Linear(), np.ones((200, 2)), 3) == 0.0).all()


def test_many_landmarks_are_thinned():
    points = some_points(900, 2)
    places = np.arange(0, 900, 3)
    squared = Linear().squared_distances(points[places], points).astype(np.float32)
    found = fitted_costs(squared, places, np.ones(900), Recipe(2, Linear(), 2), 4, np.random.default_rng(0))
    assert found.shape == (4, 900)
    assert len(places) > fitted._MOST_LANDMARKS


def test_costs_of_fitted_centers_are_balanced():
    """The change of the cost of other fitted centers is smaller than without: by the mean square of 40 halvings."""
    points, kernel = some_points(512, 2, seed=1), Linear()
    recipe = Recipe(3, kernel, 128)
    centers = np.array([points[np.random.default_rng(s).integers(512, size=200)] for s in range(5)])
    sets = [KernelKMeansModel.fit_coreset(build_coreset(own, 3, kernel, 200), 3, kernel) for own in centers]
    costs = np.column_stack([own.label(points).distances ** 2 for own in sets])
    squares = []
    for count in (0, IN_FEW_DIMENSIONS.fitted):
        effort = IN_FEW_DIMENSIONS._replace(fitted=count)
        kept = [halve(recipe, points, np.ones(512), 2, np.random.default_rng(s), effort) for s in range(40)]
        squares.append(np.mean([np.square(4 * costs[own].sum(axis=0) / costs.sum(axis=0) - 1) for own in kept]))
    assert squares[1] < 0.7 * squares[0]
