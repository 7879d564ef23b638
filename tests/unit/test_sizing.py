"""The size for a wanted error: by the theory's number of draws, and by measurement."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kernelcoreset import Gaussian, Linear, build_coreset, draw_center_sets, empirical_error
from kernelcoreset.coresets.points import points_of
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.sampling import theory_sample
from kernelcoreset.coresets.sizing import sensitivity_draws, theory_draws
from tests.cases import LARGEST_SCORE, some_points, standard_scores

KERNEL = Gaussian(sigma=2.0)


@pytest.mark.parametrize("eps", [0.5, 0.1])
@pytest.mark.parametrize("z", [1.0, 2.0])
def test_theory_draws_by_the_formula(eps, z):
    expected = (1 / eps) ** 4 * 4**z * z * 25 * math.log(5) ** 2 * math.log(1000)
    assert theory_draws(eps, 5, z, 1000) == pytest.approx(expected)


def test_theory_draws_of_one_cluster_or_point_are_not_zero():
    assert theory_draws(0.5, 1, 1.0, 1) == 64.0


def test_the_theory_keeps_a_small_input_and_says_why():
    points, weights = some_points(200, 2), np.ones(200)
    weights[3] = 0.0
    coreset = build_coreset(points, 5, KERNEL, eps=0.1, theory=True, weights=weights, ids=np.arange(200), z=3.0)
    assert_array_equal(coreset.ids, np.delete(np.arange(200), 3))
    assert_array_equal(coreset.weights, np.ones(199))
    assert coreset.settings["theory_draws"] > 1e7
    assert coreset.settings["theory_bound"].startswith("the paper's: ")
    assert coreset.settings["theory_rounds"] == 1
    assert "worst-case bound asks for" in coreset.settings["theory_note"]
    assert "there are 199 points" in coreset.settings["theory_note"]
    assert coreset.settings["eps"] == 0.1
    assert coreset.settings["seed"] == 0


def test_the_bound_for_k_means_by_the_formula():
    assert sensitivity_draws(0.1, 4) == pytest.approx(4 * 100 * 2 * np.log(40) ** 2)
    assert sensitivity_draws(0.9, 4) == pytest.approx(4 / 0.81 / 0.81 * np.log(4 / 0.9) ** 2)
    assert sensitivity_draws(0.9, 1) == pytest.approx(1 / 0.81)


def test_k_means_by_the_best_bound():
    """One round, independent draws, and the coreset says by which theorem."""
    points = some_points(5_000, 2)
    coreset = build_coreset(points, 2, KERNEL, eps=0.3, theory=True, ids=np.arange(5_000), seed=1)
    assert coreset.settings["theory_draws"] == int(np.ceil(sensitivity_draws(0.3, 2)))
    assert len(coreset) <= coreset.settings["theory_draws"] < 5_000
    assert coreset.settings["theory_bound"].startswith(
        "sensitivity sampling for k-means: k/eps^2 min(sqrt(k), 1/eps^2)"
    )
    assert coreset.settings["theory_rounds"] == 1
    assert_array_equal(coreset.points, points[coreset.ids])
    assert empirical_error(points, coreset, 2, KERNEL) < 0.3


def test_the_draw_of_the_theorem_is_unbiased():
    points = some_points(300, 2)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 4.0], size=300)
    recipe = Recipe(k=3, kernel=KERNEL, size=40)
    totals, firsts = [], []
    for seed in range(400):
        chosen, drawn = theory_sample(points_of(recipe.kernel, points), weights, recipe.varied(seed=seed))
        totals.append(drawn.sum())
        firsts.append(drawn @ points[chosen, 0])
    scores = standard_scores(np.column_stack([totals, firsts]), [weights.sum(), weights @ points[:, 0]])
    assert np.abs(scores).max() < LARGEST_SCORE


def test_equal_points_by_the_theorem():
    coreset = build_coreset(np.ones((500, 2)), 2, KERNEL, eps=0.5, theory=True)
    assert coreset.weights.sum() == pytest.approx(500)


def test_the_theory_iterates_where_its_bound_is_small():
    # k = 1, z = 1 and a coarse eps ask for fewer draws than there are points.
    points = some_points(3000, 2)
    coreset = build_coreset(points, 1, KERNEL, eps=0.9, theory=True, z=1.0, ids=np.arange(3000))
    assert coreset.settings["theory_rounds"] >= 2
    assert len(coreset) <= coreset.settings["theory_draws"] < 3000
    assert_array_equal(coreset.points, points[coreset.ids])


@pytest.mark.parametrize("eps", [0.3, 0.1])
def test_the_measured_error_is_met(draw, eps):
    points = some_points(2000, 2)
    coreset = build_coreset(points, 3, KERNEL, eps=eps, ids=np.arange(2000), draw=draw, seed=1)
    assert 3 <= len(coreset) <= coreset.settings["size"] < 2000
    assert coreset.settings["measured_error"] <= eps == coreset.settings["eps"]
    assert coreset.settings["measured_against"] == 2000
    assert_array_equal(coreset.points, points[coreset.ids])
    # The reference was all 2000 points, so measuring here with the same center sets gives the same error.
    worst = max(
        empirical_error(
            points,
            coreset,
            3,
            KERNEL,
            center_sets=draw_center_sets(points, 3, KERNEL, kind=kind, n_center_sets=100, seed=1),
        )
        for kind in ("uniform", "spread", "crowded")
    )
    assert worst == pytest.approx(coreset.settings["measured_error"], rel=1e-9)


def test_a_smaller_error_takes_more_points():
    points = some_points(2000, 2)
    sizes = [len(build_coreset(points, 3, KERNEL, eps=eps)) for eps in (0.5, 0.1, 0.02)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2]


def test_an_error_of_nearly_zero_takes_the_points_themselves():
    points, weights = some_points(300, 2), np.arange(300.0)
    coreset = build_coreset(points, 3, KERNEL, eps=1e-12, weights=weights)
    assert_array_equal(coreset.points, points[1:])
    assert_array_equal(coreset.weights, weights[1:])
    assert coreset.settings["measured_error"] == 0.0


@pytest.mark.parametrize("n", [1, 4])
def test_fewer_points_than_k(n):
    points = some_points(n, 2)
    assert_array_equal(build_coreset(points, 5, KERNEL, eps=0.1).points, points)


def test_all_points_equal():
    coreset = build_coreset(np.ones((500, 2)), 3, KERNEL, eps=0.1)
    assert coreset.weights.sum() == pytest.approx(500)
    assert coreset.settings["measured_error"] == 0.0


def test_a_uniform_draw_of_one_heavy_point():
    # 16,384 draws by weight alone find the heavy point only, so there is nothing to draw a smaller coreset from.
    points, weights = some_points(20_000, 2), np.full(20_000, 1e-300)
    weights[7] = 1.0
    coreset = build_coreset(points, 3, KERNEL, eps=0.1, weights=weights, draw="uniform")
    assert_array_equal(coreset.points, points[7:8])
    assert coreset.settings["size"] == 3


def test_the_same_seed_gives_the_same_bytes():
    points = some_points(1000, 2)
    first, second = (build_coreset(points, 3, Linear(), eps=0.2, seed=4) for _ in range(2))
    assert first.points.tobytes() == second.points.tobytes()
    assert first.weights.tobytes() == second.weights.tobytes()
