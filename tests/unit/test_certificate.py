"""Tallies of labelled rows, and the certificate computed from them."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelcoreset import Gaussian, Linear, build_coreset
from kernelcoreset.coresets.certificate import nearest_of, prove
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.row_sample import Rates, RowSample, rates_for
from kernelcoreset.coresets.transport import distance_blocks
from kernelcoreset.labelling import certificate
from kernelcoreset.labelling.certificate import Probe, Tally, premises_for
from tests import naive

KERNEL = Gaussian(sigma=2.0)


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    return generator.normal(size=(5_000, 2)), generator.integers(0, 4, 5_000).astype(float)


def probe_of(points, fraction, z=2.0):
    chosen = np.random.default_rng(1).integers(len(points), size=(7, 3))
    return Probe(points, chosen, KERNEL, z, fraction, seed=5)


def tally_of(points, weights, probe, partition=0, cuts=(1_000, 1_001, 3_000)):
    tally = Tally(3, partition, probe)
    for some, own in zip(np.split(points, cuts), np.split(weights, cuts), strict=True):
        tally.add(some.T, own, (some[:, 0] > 0).astype(int), np.abs(some[:, 1]))
    return tally


@pytest.mark.parametrize("waiting", [1, 500, 10**9])
def test_all_rows_sampled_give_the_costs_themselves(rows, monkeypatch, waiting):
    """The sums do not depend on when the sampled rows are measured."""
    monkeypatch.setattr(certificate, "_WAITING", waiting)
    points, weights = rows
    probe = probe_of(points, fraction=1.0, z=1.5)
    tally = tally_of(points, weights, probe)
    expected = naive.center_set_costs(KERNEL.to_dict(), points, weights, probe.center_sets, 1.5)
    assert_allclose(tally.set_costs.sum(axis=0), expected, rtol=1e-9)
    groups = [
        naive.center_set_costs(KERNEL.to_dict(), points[group::20], weights[group::20], probe.center_sets, 1.5)
        for group in range(20)
    ]
    assert_allclose(tally.set_costs, groups, rtol=1e-9)
    assert (tally.rows, tally.sampled) == (5_000, 5_000)
    right = points[:, 0] > 0
    assert_allclose(tally.sizes, [(~right).sum(), right.sum(), 0])
    assert_allclose(tally.weights, [weights[~right].sum(), weights[right].sum(), 0])
    assert_allclose(tally.costs, [(weights * np.abs(points[:, 1]))[side].sum() for side in (~right, right)] + [0])


def test_many_columns_are_measured_by_matrix_products():
    generator = np.random.default_rng(0)
    points, weights = generator.normal(size=(900, 20)), generator.integers(0, 4, 900).astype(float)
    probe = Probe(points[:40], generator.integers(40, size=(7, 3)), KERNEL, 2.0, 1.0, seed=5)
    tally = tally_of(points, weights, probe, cuts=(100, 700))
    groups = [
        naive.center_set_costs(KERNEL.to_dict(), points[group::20], weights[group::20], probe.center_sets, 2.0)
        for group in range(20)
    ]
    assert_allclose(tally.set_costs, groups, rtol=1e-9)


def test_tallies_add_up_and_a_repeated_one_counts_once(rows):
    points, weights = rows
    probe = probe_of(points, fraction=0.5)
    parts = [tally_of(points[low : low + 2_500], weights[low : low + 2_500], probe, low, (700,)) for low in (0, 2_500)]
    parts[0].bad_rows, parts[0].bad_columns = 2, {"x": 2}
    parts[1].bad_rows, parts[1].bad_columns = 3, {"x": 1, "y": 2}
    texts = [part.to_json() for part in parts]
    whole = Tally.total([texts[1], texts[0], texts[1]], 3, probe)
    assert (whole.rows, whole.bad_rows, whole.bad_columns) == (5_000, 5, {"x": 3, "y": 2})
    assert whole.sampled == parts[0].sampled + parts[1].sampled
    assert_allclose(whole.set_costs, parts[0].set_costs + parts[1].set_costs)
    assert_allclose(whole.costs, parts[0].costs + parts[1].costs)


def test_a_retried_task_gives_the_same_tally(rows):
    probe = probe_of(rows[0], fraction=0.1)
    assert tally_of(*rows, probe).to_json() == tally_of(*rows, probe).to_json()
    other = json.loads(tally_of(*rows, probe, partition=1).to_json())
    assert other["set_costs"] != json.loads(tally_of(*rows, probe).to_json())["set_costs"]


@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.float64])
def test_kept_rows_of_any_type_come_back_as_they_are(kind):
    points = np.arange(60).reshape(20, 3).astype(kind)
    rates = Rates(np.array([1.0]), 0.0)
    probe = Probe(np.zeros((1, 3)), np.zeros((1, 1), dtype=int), KERNEL, 2.0, fraction=1.0, seed=0, rates=rates)
    tally = Tally(1, 0, probe)
    tally.add(points.T, None, np.zeros(20, dtype=int), np.zeros(20))
    found, weights = Tally.total([tally.to_json()], 1, probe).kept
    np.testing.assert_array_equal(found, points)
    assert found.dtype == kind
    np.testing.assert_array_equal(weights, np.ones(20))
    assert tally.left_to_chance == 0


def test_the_error_lies_within_its_standard_error(rows):
    """The coreset is the data, so the certificate's error is that of the sample alone.

    The largest of 7 errors, each about normal, exceeds 5 standard errors with probability below 1e-5 for a known
    standard error; one estimated from 20 groups is Student's t with 19 degrees of freedom: 7 * 8e-5 < 6e-4.
    """
    points, weights = rows
    probe = probe_of(points, fraction=0.2)
    found = tally_of(points, weights, probe).certificate(probe, points, weights).measured
    assert 0 < found["largest_error"] < 5 * found["standard_error"]
    assert found["sampled_rows"] == tally_of(points, weights, probe).sampled
    whole = probe_of(points, fraction=1.0)
    exact = tally_of(points, weights, whole).certificate(whole, points, weights).measured
    assert exact["largest_error"] < 1e-12
    assert exact["standard_error"] == 0.0


def test_rows_without_weight_certify_nothing(rows):
    points = np.zeros((10, 2))
    probe = Probe(points, np.array([[0, 1]]), Linear(), 2.0, 1.0, 0)
    found = tally_of(points, np.ones(10), probe, cuts=(3,)).certificate(probe, points, np.ones(10)).measured
    assert (found["largest_error"], found["standard_error"], found["center_sets"]) == (None, None, 1)


def test_far_rows_are_kept_more_often(rows):
    """Rows and weights are kept as the rates say: counts within 5.5 standard deviations, for each of three kinds."""
    points, weights = rows
    rates = Rates(np.array([0.02, 0.05, 1.0]), 0.1)
    probe = Probe(points[:3], np.arange(3)[None], KERNEL, 2.0, fraction=0.1, seed=3, rates=rates)
    tally = tally_of(points, weights, probe)
    found, scaled = Tally.total([tally.to_json()], 3, probe).kept
    place = {tuple(row): i for i, row in enumerate(points)}
    kept = np.array([place[tuple(row)] for row in found])
    labels, powers = (points[:, 0] > 0).astype(int), np.abs(points[:, 1])
    expected = np.minimum(1.0, weights * (rates.by_weight[labels] + rates.by_cost * powers))
    assert_allclose(scaled, (weights / np.where(expected > 0, expected, 1.0))[kept])
    for part in (labels == 0, labels == 1, powers > 1.5):
        spread = np.sqrt((expected * (1 - expected))[part].sum())
        assert abs(part[kept].sum() - expected[part].sum()) < 5.5 * spread
    assert (weights[kept] > 0).all()
    assert tally.left_to_chance == ((expected > 0) & (expected < 1)).sum()


def test_what_is_proved_on_a_sample_of_the_rows(rows):
    """The sums of all rows, the sample with its weights: as `prove` gives it for them."""
    points = rows[0] + np.repeat([[0.0], [9.0]], 2_500, axis=0)
    coreset = build_coreset(points, 3, KERNEL, 400, seed=0)
    near = nearest_of(points, coreset.points[:3], Recipe(3, KERNEL, 400))
    sums = np.bincount(near.clusters, minlength=3).astype(float), np.bincount(near.clusters, near.powers, 3)
    rates = rates_for(*sums, 2.0, 2_000)
    probe = Probe(coreset.points[:3], np.arange(3)[None], KERNEL, 2.0, fraction=0.1, seed=3, rates=rates)
    tally = Tally(3, 0, probe)
    tally.add(points.T, None, near.clusters, near.powers)
    found = tally.certificate(probe, coreset.points, coreset.weights, 50.0)
    sample = RowSample(rates, *sums, 2.0)
    kept, weights = tally.kept
    premises = premises_for(probe, coreset.points, coreset.weights)
    proved, proof = prove(premises, distance_blocks(kept, coreset.points, KERNEL), weights, sample, 50.0)
    assert found.proved == proved
    assert (proved["confidence"], 1_000 < proved["rows"] < 3_000) == (0.99, True)
    assert found.meaning["optimum_at_least"] == proof.interval(proof.at_cost)[0] > 0
    assert found.meaning["cost"] == sums[1].sum()
    whole = coreset.certify(points, n_center_sets=1)
    assert proved["error"] > whole.proved["error"]  # less is known
    assert str(found).count("with 99% confidence") == 2
