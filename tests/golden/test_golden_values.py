"""Same seeds, same coresets, labels and costs as when the golden values were written: python -m tests.golden.values."""

import json
from pathlib import Path

import pytest

from tests.golden import values

EXPECTED = json.loads((Path(__file__).parent / "values.json").read_text())
# Processors round in different ways, and a difference in the last bit can decide which of two points is drawn, and with
# it all that follow. That is rare: a change of the draw itself changes nearly all coresets.
MOST_OTHERS = 3


@pytest.fixture(scope="module")
def found():
    return values.compute()


def renumbered(key, value):
    """The value without the numbers of the clusters: `solve` numbers them as the best start happened to."""
    if key == "label counts":
        return sorted(value)
    if key.endswith("labels"):
        order = list(dict.fromkeys(value))  # by first appearance
        return [order.index(label) for label in value]
    return value


# Chosen by another measure since: how long random walks stay in their cluster.
CHANGED = {"choices": {"sigma auto", "k"}}


def is_other(new, old):
    """Whether a coreset has other points than before."""
    return "coreset" in old and new["coreset"]["ids"] != old["coreset"]["ids"]


def compare_other(new, old):
    """Another draw of the same coreset: as many points for the same weight, about the same cost, no larger an error."""
    assert len(new["coreset"]["ids"]) == pytest.approx(len(old["coreset"]["ids"]), rel=0.15)
    assert sum(new["coreset"]["weights"]) == pytest.approx(sum(old["coreset"]["weights"]), rel=0.05)
    if "cost" in old:
        assert new["cost"] == pytest.approx(old["cost"], rel=0.15)
    if "error" in old:
        assert new["error"] <= 3.0 * old["error"]


def test_nearly_all_coresets_have_the_same_points(found):
    others = [name for name, old in EXPECTED.items() if is_other(found[name], old)]
    assert len(others) <= MOST_OTHERS, others


@pytest.mark.parametrize("name", EXPECTED)
def test_a_value_is_as_before(name, found):
    new, old = found[name], EXPECTED[name]
    if is_other(new, old):
        compare_other(new, old)
        return
    costs = [key for key in ("cost", "cut", "inertia", "size") if key in old]
    for key in costs:  # another start may find a cheaper solution, a better draw needs fewer points
        assert new[key] <= old[key] * (1 + 1e-9)
    is_same = all(new[key] == pytest.approx(old[key], rel=1e-9) for key in costs)
    for key in old.keys() - set(costs) - CHANGED.get(name, set()):
        if key == "coreset":
            assert new[key]["ids"] == old[key]["ids"]
            assert new[key]["weights"] == pytest.approx(old[key]["weights"], rel=1e-9)
        elif is_same or key == "error":
            values = new[key], old[key]
            if name.startswith("kernel "):  # what comes from `solve`; models number their clusters by weight
                values = tuple(renumbered(key, value) for value in values)
            assert values[0] == pytest.approx(values[1], rel=1e-7, abs=1e-9)


def test_all_values_are_compared(found):
    assert found.keys() == EXPECTED.keys()
