"""Laws of labelling: labels by landmarks are those of the formula, and distances stay within their bounds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelcoreset.kernels.evaluator import as_columns
from kernelcoreset.kernels.loops.passes import Cloud, Nearest
from kernelcoreset.labelling.centers import ACCURACY, LABELS_ONLY, Centers
from kernelcoreset.labelling.landmarks import compress, kernel_noise, pick_landmarks
from tests import naive_centers
from tests.cases import KERNELS, some_points


def hard_centers(kernel, seed, k, s, nearly_equal):
    """Centers that overlap, with zeros among the coefficients and duplicates among the points, maybe nearly equal."""
    generator = np.random.default_rng(seed)
    points = some_points(s, 2, seed=seed)
    points[s // 2 : s // 2 + 5] = points[:5]
    owner = generator.integers(k, size=s)
    coefficients = np.where(owner == np.arange(k)[:, None], generator.random((k, s)), 0.0)
    coefficients[:, 0] = 1.0
    if nearly_equal:
        coefficients[1:] = coefficients[0] * (1.0 + 1e-9 * generator.normal(size=(k - 1, s)))
    coefficients[:, generator.random(s) < 0.1] = 0.0
    coefficients[:, 1] += 1e-3
    return Centers(points, coefficients / coefficients.sum(axis=1, keepdims=True), kernel)


def hard_points(centers, seed):
    """New points, the coreset's own, the origin, and points as near to a boundary as bisection brings them."""
    new = some_points(1500, 2, seed=seed + 1)
    left, right = new[:200].copy(), new[200:400].copy()
    start = centers.label(left, exact_distances=True).labels
    for _ in range(45):
        middle = (left + right) / 2
        same = (centers.label(middle, exact_distances=True).labels == start)[:, None]
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return np.concatenate([new, centers.points, np.zeros((1, 2)), left, right])


hard = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "k": st.integers(1, 6),
        "s": st.integers(10, 160),
        "nearly_equal": st.booleans(),
    }
)


@given(case=hard, kernel=st.sampled_from(KERNELS))
def test_certified_labels_are_the_direct_ones(case, kernel):
    centers = hard_centers(kernel, **case)
    points = hard_points(centers, case["seed"])
    direct = centers.label(points, exact_distances=True)
    for found in (centers.label(points).labels, centers.predict(points)):
        np.testing.assert_array_equal(found, direct.labels)


@given(case=hard, kernel=st.sampled_from(KERNELS))
def test_every_set_of_landmarks_is_right_where_it_is_sure(case, kernel):
    """Every candidate, chosen or not, at both accuracies, against the direct evaluation."""
    centers = hard_centers(kernel, **case)
    points = hard_points(centers, case["seed"])
    direct = centers.label(points, margins=True, exact_distances=True)
    moved = points if centers.origin is None else points - centers.origin
    cloud = Cloud(as_columns(moved), kernel.diagonal(moved))
    n = len(points)
    for span in pick_landmarks(kernel, centers.sparse):
        landmarks = compress(kernel, centers.sparse, span)
        for accuracy in (ACCURACY, LABELS_ONLY):
            out = Nearest(np.empty(n, dtype=np.int32), np.empty(n), np.empty(n))
            sure = np.empty(n, dtype=bool)
            error = centers.ladder(accuracy).method.by_landmarks(landmarks, cloud, out, sure)
            assert (out.labels[sure] == direct.labels[sure]).all()
            squared = np.maximum(out.first, 0.0)[sure]
            gap = np.abs(squared - direct.distances[sure] ** 2)
            assert (gap <= error * (1 + 1e-9) + 1e-15 * squared).all()


@given(case=hard, kernel=st.sampled_from(KERNELS))
def test_distances_and_margins_stay_within_their_bounds(case, kernel):
    centers = hard_centers(kernel, **case)
    points = hard_points(centers, case["seed"])
    found = centers.label(points, margins=True)
    direct = centers.label(points, margins=True, exact_distances=True)
    rounding = 1e-14 * kernel.diagonal(points)
    gap = np.abs(found.distances**2 - direct.distances**2)
    assert (gap <= ACCURACY * 1.001 * (direct.distances**2 + centers.typical) + rounding).all()
    assert (gap <= found.distance_error * (1 + 1e-9) + rounding).all()
    assert 0.0 <= found.certified <= 1.0
    assert (found.margins >= 0.0).all()
    if len(centers) == 1:
        assert np.isinf(found.margins).all()
        return
    seconds = [np.square(result.distances + result.margins) for result in (found, direct)]
    assert (np.abs(seconds[0] - seconds[1]) <= found.distance_error + rounding + 1e-12 * seconds[1]).all()


@given(case=hard, kernel=st.sampled_from(KERNELS))
def test_labels_are_minima_of_the_naive_scores(case, kernel):
    centers = hard_centers(kernel, **case)
    points = hard_points(centers, case["seed"])
    gram = kernel.block(centers.points, centers.points)
    scores = naive_centers.scores(kernel.block(points, centers.points), gram, centers.coefficients)
    # Rounding of two ways to add up s kernel values, as worked out in `landmarks`.
    reach = (np.abs(centers.coefficients) @ np.sqrt(kernel.diagonal(centers.points))).max()
    each = kernel_noise(kernel, 2) + 2 * len(gram) * 2.0**-53
    noise = 8 * each * reach * (reach + np.sqrt(kernel.diagonal(points)))
    found = centers.label(points)
    assert naive_centers.same_labels_but_for_ties(found.labels, scores, noise)
