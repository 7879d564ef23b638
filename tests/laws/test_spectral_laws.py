"""Laws of normalized cuts, on points that Hypothesis generates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelcoreset as kc
from kernelcoreset.kernels import Normalized
from kernelcoreset.spectral.degrees import ACCURACY, Degrees
from tests import naive_spectral
from tests.cases import KERNELS, point_sets, some_points

SIMILARITIES = [kc.Gaussian(sigma=2.0), kc.Polynomial(degree=2, c=1.0), 0.5 * kc.Laplacian(sigma=3.0) + kc.Matern(2.0)]


@settings(deadline=None, max_examples=60)
@given(point_sets(min_rows=2), st.integers(1, 4), st.integers(0, 2), st.randoms(use_true_random=False))
def test_cut_is_the_cost_of_weighted_kernel_k_means(points, k, which, random):
    """Dhillon, Guan and Kulis: cost = sum A_ii / D_ii - (number of clusters) + normalized cut."""
    kernel = SIMILARITIES[which]
    labels = np.array([random.randrange(k) for _ in points])
    weights = np.array([random.choice([0.5, 1.0, 3.0]) for _ in points])
    gram = kernel.block(points, points)
    own = naive_spectral.degrees(gram, weights) * weights.sum()
    normalized = Normalized(kernel).block(*[np.column_stack([points, own])] * 2)
    cost = naive_spectral.k_means_cost(normalized, labels, weights * own)
    cut = naive_spectral.normalized_cut(gram, labels, weights)
    constant = (weights * np.diag(gram) / own).sum() - len(np.unique(labels))
    assert cost == pytest.approx(constant + cut, rel=1e-9, abs=1e-9)
    found = kc.normalized_cut(labels, points, kernel=kernel, weights=weights, sample=None)
    assert found.value == pytest.approx(cut, rel=1e-9, abs=1e-9)
    assert found.standard_error == 0.0


@settings(deadline=None, max_examples=40)
@given(point_sets(min_rows=2, max_columns=3), st.sampled_from(KERNELS))
def test_normalized_kernel_is_the_kernel_over_both_degrees(points, kernel):
    degrees = 0.5 + np.arange(len(points)) % 7
    lifted = np.column_stack([points, degrees])
    expected = kernel.block(points, points) / np.outer(degrees, degrees)
    normalized = Normalized(kernel)
    np.testing.assert_allclose(normalized.block(lifted, lifted), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(normalized.diagonal(lifted), kernel.diagonal(points) / degrees**2, rtol=1e-12)


@pytest.mark.parametrize("kernel", [*SIMILARITIES, kc.Gaussian(sigma=0.3), kc.Polynomial(degree=4)])
@pytest.mark.parametrize("sample", [300, None])
def test_degrees_are_the_mean_over_the_sample(kernel, sample):
    points = some_points(700, 2)
    new = some_points(500, 2, seed=1)
    degrees = Degrees.estimate(points, kernel, sample=sample, seed=3)
    assert len(degrees.points) == (sample or 700)
    mean = kernel.block(new, degrees.points).mean(axis=1)
    expected = np.maximum(mean, kernel.diagonal(new) / 700)
    error = np.abs(degrees.of(new) / expected - 1)
    assert error.max() <= (1e-12 if sample is None else 1.01 * ACCURACY)


def test_smooth_degrees_take_few_landmarks():
    points = some_points(3_000, 2)
    levels = Degrees.estimate(points, kc.Gaussian(sigma=4.0)).ladder.levels
    assert levels
    assert len(levels[0].points) <= 64
    # The feature space of a polynomial of degree 2 in the plane has three dimensions.
    assert [len(level.points) for level in Degrees.estimate(points, kc.Polynomial(degree=2)).ladder.levels] == [3]


def test_weight_n_is_n_copies():
    points = some_points(200, 2)
    counts = 1 + np.arange(200) % 3
    kernel = kc.Gaussian(sigma=1.5)
    once = kc.fit_spectral(points, 3, kernel, 2_000, weights=counts, degree_sample=None)
    copied = np.repeat(points, counts, axis=0)
    many = kc.fit_spectral(copied, 3, kernel, 2_000, degree_sample=None)
    assert once.normalized_cut == pytest.approx(many.normalized_cut, rel=1e-9)
    np.testing.assert_array_equal(once.predict(points), many.predict(points))


def test_the_cut_of_a_model_is_that_of_its_labels_if_the_coreset_is_all_points():
    points = some_points(300, 2)
    model = kc.fit_spectral(points, 4, kc.Gaussian(sigma=1.0), 300)
    cut = kc.normalized_cut(model.predict(points), points, kernel=model.kernel)
    assert model.normalized_cut == pytest.approx(cut.value, rel=1e-9)


def test_the_cut_of_a_coreset_is_near_that_of_all_points():
    points = some_points(8_000, 2)
    model = kc.fit_spectral(points, 4, kc.Gaussian(sigma=1.0), 500, seed=1)
    cut = kc.normalized_cut(model.predict(points), points, kernel=model.kernel, sample=None)
    assert model.normalized_cut == pytest.approx(cut.value, rel=0.05)


def test_standard_error_of_an_estimated_cut():
    """The mean of 100 scores (estimate - truth) / standard error is within 5.5 / sqrt(100), up to 4e-8; no bias."""
    points = some_points(3_000, 2)
    labels = np.arange(3_000) % 7 // 3  # clusters of different sizes
    kernel = kc.Gaussian(sigma=1.0)
    truth = kc.normalized_cut(labels, points, kernel=kernel, sample=None).value
    found = [kc.normalized_cut(labels, points, kernel=kernel, sample=150, seed=seed) for seed in range(100)]
    scores = np.array([(one.value - truth) / one.standard_error for one in found])
    assert abs(scores.mean()) < 0.55
    # The variance of 100 normal scores is within 1 +- 5.5 sqrt(2 / 99).
    assert 0.25 < scores.var(ddof=1) < 1.78
