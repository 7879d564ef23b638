"""Choosing the width of a kernel and the number of clusters."""

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

import kernelcoreset as kc
from kernelcoreset.clustering import problem
from kernelcoreset.clustering.choosing_k import describe_choice, weighted_rand_index


def groups(count, n=300, apart=9.0, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count * n, 2)) + apart * np.repeat(np.arange(count), n)[:, None]


def test_median_by_hand():
    assert kc.choose_sigma([[0.0], [1.0], [5.0]]) == 4.0  # distances 1, 4, 5


def test_weights_count_as_copies():
    points = np.random.default_rng(0).normal(size=(30, 2))
    weights = np.random.default_rng(1).integers(0, 4, size=30)
    copies = np.repeat(points, weights, axis=0)
    for rule in ("median", "auto"):
        assert kc.choose_sigma(points, rule, weights=weights) == pytest.approx(kc.choose_sigma(copies, rule), rel=1e-12)


def test_a_large_sample_is_near_the_whole():
    points = np.random.default_rng(0).normal(size=(20_000, 2))
    # The median of |x - y| for two standard normal points in the plane: sqrt(2) * sqrt(2 ln 2).
    assert kc.choose_sigma(points) == pytest.approx(np.sqrt(4 * np.log(2)), rel=0.05)
    assert kc.choose_sigma(points, seed=3) == kc.choose_sigma(points, seed=3)


def test_auto_is_sharp_where_the_clusters_need_it():
    moons, truth = make_moons(1_000, noise=0.05, random_state=0)
    sigma = kc.choose_sigma(moons, "auto", k=2, spectral=True)
    assert sigma < kc.choose_sigma(moons, "median") / 2
    assert adjusted_rand_score(truth, kc.SpectralClustering(2, sigma=sigma, random_state=0).fit_predict(moons)) > 0.99


def test_auto_is_smooth_where_the_width_does_not_matter():
    points = groups(3)
    assert kc.choose_sigma(points, "auto", k=3) == pytest.approx(kc.choose_sigma(points, "median"), rel=0.1)
    assert kc.choose_sigma(points, "auto", k=3, kernel=kc.Laplacian) > 0.0


def test_auto_of_a_few_points():
    assert kc.choose_sigma([[0.0], [3.0]], "auto") == 3.0
    assert kc.choose_sigma([[0.0], [1.0], [5.0]], "auto", k=9) > 0.0


def test_sigma_of_equal_points_and_unknown_rules():
    assert kc.choose_sigma(np.ones((5, 2))) == 1.0
    assert kc.choose_sigma(np.ones((1, 2)), "auto") == 1.0
    with pytest.raises(kc.SettingError, match=r"`sigma` must be one of 'median', 'auto'; got 'mean'"):
        kc.choose_sigma(np.eye(2), "mean")


@pytest.mark.parametrize("count", [2, 4])
def test_k_of_clear_groups(count):
    kernel = kc.Gaussian(sigma=5.0)
    coreset = kc.build_coreset(groups(count), 7, kernel, 200, seed=0)
    choice = kc.choose_k(coreset, range(1, 8), kernel, n_init=4)
    assert choice.recommended == count
    assert choice.reason.startswith(f"k = {count}: its clusters keep a walk over nearest neighbors for long")
    assert choice.stands_out
    assert choice.ks.tolist() == list(range(1, 8))
    assert (np.diff(choice.costs) <= 1e-9 * choice.costs[0]).all()
    assert ((choice.silhouettes >= 0) & (choice.silhouettes <= 1)).all()
    assert choice.stabilities[count - 1] == pytest.approx(1.0)


def test_costs_are_those_of_solve():
    kernel = kc.Gaussian(sigma=5.0)
    coreset = kc.build_coreset(groups(3), 3, kernel, 100, seed=0)
    choice = kc.choose_k(coreset, [3], kernel, n_init=3, seed=2)
    assert choice.costs[0] == kc.solve(coreset, 3, kernel, n_init=3, seed=2).cost
    assert choice.recommended == 3


@pytest.mark.parametrize("z", [1.0, 2.0])
def test_silhouettes_are_those_of_the_centers(z):
    kernel = kc.Gaussian(sigma=5.0)
    coreset = kc.build_coreset(groups(3), 3, kernel, 100, seed=0)
    choice = kc.choose_k(coreset, [3], kernel, z=z, n_init=2)
    solution = kc.solve(coreset, 3, kernel, z=z, n_init=2)
    distances = np.sort(kc.Centers(coreset.points, solution.coefficients, kernel).distances(coreset.points), axis=1)
    expected = np.average(1 - distances[:, 0] / distances[:, 1], weights=coreset.weights)
    assert choice.silhouettes[0] == pytest.approx(expected, rel=1e-9)


def test_distances_are_computed_once_for_all_k(monkeypatch):
    kernel, calls = kc.Gaussian(sigma=5.0), []
    coreset = kc.build_coreset(groups(3), 4, kernel, 100, seed=0)
    evaluated = problem.all_distances
    monkeypatch.setattr(problem, "all_distances", lambda own, columns: calls.append(own) or evaluated(own, columns))
    kc.choose_k(coreset, range(1, 5), kernel, n_init=2)
    assert calls == [kernel]


def test_choosing_k_refuses():
    kernel = kc.Gaussian(sigma=5.0)
    coreset = kc.build_coreset(groups(3), 4, kernel, 100, seed=0)
    with pytest.raises(kc.SettingError, match="`ks` must be at most 4, the k the coreset was built for; got 5"):
        kc.choose_k(coreset, range(1, 6), kernel)
    with pytest.raises(kc.SettingError, match="`ks` must name at least one number of clusters"):
        kc.choose_k(coreset, [], kernel)
    with pytest.raises(kc.SettingError, match="`n_init` must be at least 1; got 0"):
        kc.choose_k(coreset, [2], kernel, n_init=0)


def test_rand_index_is_that_of_the_copies():
    generator = np.random.default_rng(0)
    labels, others = generator.integers(0, 3, size=(2, 40))
    weights = generator.integers(50, 90, size=40)
    expected = adjusted_rand_score(np.repeat(labels, weights), np.repeat(others, weights))
    # Pairs of a point with itself are counted here and not there: a difference of order 1 / copies.
    assert weighted_rand_index(labels, others, weights.astype(float)) == pytest.approx(expected, abs=2e-3)
    assert weighted_rand_index(labels, (labels + 1) % 3, weights.astype(float)) == pytest.approx(1.0)
    assert weighted_rand_index(np.zeros(4, int), np.zeros(4, int), np.ones(4)) == 1.0


def test_nothing_stands_out_in_one_cloud():
    kernel = kc.Gaussian(sigma=2.0)
    coreset = kc.build_coreset(np.random.default_rng(0).normal(size=(2_000, 2)), 5, kernel, 300, seed=0)
    choice = kc.choose_k(coreset, range(2, 6), kernel, n_init=2)
    assert not choice.stands_out
    assert choice.reason.startswith("Nothing stands out: the clusters of k = ")


def test_ties_edges_and_doubts_are_named():
    ks, low = np.array([2, 3, 4]), np.full(3, 0.5)

    def words(persistences, chosen, stability=1.0, ks=ks):
        return describe_choice(ks, chosen, np.array(persistences), low, np.full(3, stability))

    tie = words([0.9, 0.88, 0.7], 1)
    assert "k = 3: its clusters keep a walk" in tie
    assert "A tie with k = 2 (0.90): halves of the data decide for k = 3." in tie
    assert "the largest number tried: try larger ones" in words([0.5, 0.6, 0.9], 2)
    assert "2 is the smallest number there is" in words([0.9, 0.6, 0.5], 0)
    assert "k = 4 is the smallest number tried" in words([0.9, 0.6, 0.5], 0, ks=ks + 2)
    assert "Halves of the data disagree about these clusters (agreement 0.60)." in words([0.5, 0.9, 0.6], 1, 0.6)
    assert "Nothing stands out" in words([0.52, 0.51, 0.5], 0)
    one = np.array([1])
    assert "the only number of clusters that can be judged" in describe_choice(one, 0, one * 0.0, one * 0.0, one * 1.0)


def test_plot_shows_the_recommendation():
    import matplotlib

    matplotlib.use("Agg")
    shares = np.array([0.0, 0.8])
    choice = kc.ChoiceOfK(
        np.array([1, 2]), np.array([4.0, 1.0]), shares, np.ones(2), shares, shares, 2, True, "because"
    )
    axes = choice.plot()
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "recommended: k = 2"
    assert axes.get_xlabel() == "number of clusters k"
    matplotlib.pyplot.close("all")
