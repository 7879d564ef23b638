"""Odd numbers: results are judged by exact distances, and odd values are refused or mean what a plain value means."""

import numpy as np
import pytest

import kernelcoreset as kc
from tests import naive, naive_exact
from tests.cases import some_points
from tests.faults import number_cases, odd_values
from tests.faults.number_cases import KERNELS, Law, try_law

SOME_LAWS = [
    *(Law(kernel, offset) for kernel in KERNELS for offset in (1e7, 1e12)),
    *(
        Law(kernel, scale=scale)
        for kernel in ("Linear", "Gaussian", "Polynomial 3", "Cosine")
        for scale in (1e-150, 1e150)
    ),
    *(Law(kernel, 1e3, weights="mixed") for kernel in ("Laplacian", "Matern 3/2", "product")),
    Law("Gaussian", 1e3, weights="tiny"),
    Law("Cosine", 1e7, z=1.0),
    *(
        Law(kernel, 1e9, d=24)
        for kernel in ("Linear", "Gaussian", "wide Gaussian", "Cosine", "Polynomial 2", "Laplacian")
    ),
    *(Law(kernel, 1e7, d=24) for kernel in ("Polynomial 2", "Polynomial 4", "Polynomial 7")),
    Law("Polynomial 3", 1e12, d=24),
]


@pytest.mark.parametrize("law", SOME_LAWS, ids=lambda law: law.name)
def test_labels_and_costs_are_those_of_exact_distances(law):
    outcome, reason = try_law(law)
    assert not reason, reason
    assert outcome == ("clear error" if number_cases.may_refuse(law) else "done right")


@pytest.mark.filterwarnings("ignore")
def test_odd_values_are_refused_or_mean_what_plain_ones_mean():
    cases = list(odd_values.cases())
    bad = [f"{name}: {reason}" for name, odd, plain in cases if (reason := odd_values.try_case(odd, plain)[1])]
    assert len(cases) > 300
    assert not bad


def test_the_judge_knows_wrong_labels_and_costs(monkeypatch):
    """A label or a cost that is off must not pass as right."""
    law = Law("Gaussian")
    assert try_law(law) == ("done right", "")
    with monkeypatch.context() as patch:
        patch.setattr(kc.Centers, "predict", lambda self, points: np.zeros(len(points), dtype=np.int32))
        assert try_law(law)[0] == "silent wrong"
    with monkeypatch.context() as patch:
        patch.setattr(kc.KernelKMeansModel, "cost", lambda self, points, weights: self.solution.cost * 1.001)
        assert try_law(law)[0] == "silent wrong"
    with monkeypatch.context() as patch:
        patch.setattr(kc.KernelKMeansModel, "fit_coreset", refuse)
        assert try_law(law)[0] == "unclear error"  # float64 can carry these numbers


def refuse(*_, **__):
    raise kc.DataError("No.")


@pytest.mark.parametrize("name", [name for name in KERNELS if not name.startswith("wide")])
def test_the_exact_kernels_are_the_naive_ones(name):
    plain = KERNELS[name](1.0).to_dict()
    points = some_points(6, 2, seed=1)
    table = naive_exact.squared_distances(plain, points, points[:3]).astype(float)
    np.testing.assert_allclose(table, naive.squared_distances(plain, points, points[:3]), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(naive_exact.distances_among(plain, points)[:, :3].astype(float), table)
