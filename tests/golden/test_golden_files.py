"""Files that an earlier version wrote: this one reads them, and labels with them as that one did."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import kernelcoreset as kc
from tests.golden import values

FOLDER = Path(__file__).parent / "v0.1.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
DATA = values.points(400, 2)


def test_a_coreset():
    coreset = kc.Coreset.read_parquet(FOLDER / "coreset.parquet")
    assert coreset.weights.tolist() == EXPECTED["coreset weights"]
    np.testing.assert_array_equal(coreset.points, DATA[coreset.ids])
    assert coreset.settings["kernel"] == {"kernel": "Gaussian", "sigma": 1.5}


@pytest.mark.parametrize(("name", "cls"), [("kernel_kmeans", kc.KernelKMeansModel), ("spectral", kc.SpectralModel)])
def test_a_model_of_points(name, cls):
    assert cls.load(FOLDER / name).predict(DATA).tolist() == EXPECTED[name]


def test_a_model_of_a_graph():
    model = kc.GraphModel.load(FOLDER / "graph")
    assert model.labels.tolist() == EXPECTED["graph"]
    edges = np.zeros((1, 120))
    edges[0, :10] = 1.0
    assert model.predict(edges).tolist() == [model.labels[0]]


def test_a_store_with_history(tmp_path):
    shutil.copytree(FOLDER / "store", tmp_path / "store")
    store = kc.CoresetStore.open(tmp_path / "store")
    assert (store.keys(), store.version) == (EXPECTED["store"]["keys"], EXPECTED["store"]["version"])
    assert store.state == {"night": 7}
    # This version draws another result from the same leaves, of the same weight within the error of 20 points.
    assert store.result().weights.sum() == pytest.approx(sum(EXPECTED["store"]["weights"]), rel=0.2)
    store.add("2024-01-06", DATA[:80])
    assert "2024-01-06" in kc.CoresetStore.open(tmp_path / "store")
