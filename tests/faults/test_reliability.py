"""The command that tries every class of fault: nothing that is missing, broken or too small passes as good."""

import sys
from types import ModuleType

import pytest

from tests.faults import kill_cases, reliability
from tests.faults.tally import HEADER, Tally


@pytest.fixture
def cases(monkeypatch):
    """Make the module of the class "odd" out of a function."""

    def make(run):
        module = ModuleType("tests.faults.odd_cases")
        module.run = run
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return make


def good(folder, cases):
    assert list(folder.iterdir()) == []
    tally = Tally("odd things")
    for case in range(cases or 1_000):
        tally.add("clear error" if case % 2 else "done right")
    return tally


def test_a_class_is_run_with_the_number_of_cases(cases):
    cases(good)
    assert reliability.try_class("odd", None).rows() == "| odd things | 1,000 | 500 | 500 | 0 | 0 | 0 |"
    outcome = reliability.try_class("odd", 3)
    assert outcome.rows() == "| odd things | 3 | 1 | 2 | 0 | 0 | 0 |"
    assert outcome.is_good()
    assert not outcome.is_good(least=4)


def test_a_class_may_have_several_rows(cases):
    cases(lambda folder, number: [good(folder, 2), Tally("others", 5, 4, 0, 0, 0)])
    outcome = reliability.try_class("odd", None)
    assert outcome.rows().splitlines()[1] == "| others | 5 | 4 | 0 | 1 | 0 | 0 |"
    assert not outcome.is_good()  # one ended in neither way


@pytest.mark.parametrize(
    ("tally", "is_good"),
    [
        (Tally("x", 3, 1, 2, 0, 0), True),
        (Tally("x", 0, 0, 0, 0, 0), False),
        (Tally("x", 3, 1, 1, 1, 0), False),
        (Tally("x", 3, 1, 2, 0, 1), False),
        (Tally("x", 3, 1, 1, 0, 0), False),
    ],
)
def test_zero_in_the_last_columns_is_good(tally, is_good):
    assert tally.is_good == is_good
    assert tally.row().count("|") == HEADER.splitlines()[0].count("|")


def test_what_is_missing_or_breaks_off_is_named(cases, capsys):
    missing = reliability.try_class("absent", None)
    assert (missing.problem, missing.is_good()) == ("MISSING, there is no absent_cases.py", False)
    cases(lambda folder, number: 1 / 0)
    broken = reliability.try_class("odd", None)
    assert "| odd: BROKE OFF with ZeroDivisionError | 0 |" in reliability.table([missing, broken])
    assert "Traceback" in capsys.readouterr().err
    cases(lambda folder, number: [])
    assert "returned no tally" in reliability.try_class("odd", None).problem


def test_a_partial_run_writes_no_new_page(cases, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reliability, "PAGE", tmp_path / "reliability.md")
    monkeypatch.setattr(reliability, "LEAST_CASES", {"odd": 900})
    monkeypatch.setattr(reliability, "names", lambda: ["odd"])
    cases(good)
    assert reliability.main(["--quick"]) == 0
    assert not reliability.PAGE.exists()
    assert reliability.main([]) == 0
    whole = reliability.PAGE.read_text()
    assert "| odd things | 1,000 | 500 | 500 | 0 | 0 | 0 |\n" in whole
    cases(lambda folder, number: good(folder, 950))
    for _ in range(2):
        assert reliability.main(["--only", "odd"]) == 0
    changed = reliability.PAGE.read_text()
    assert "| odd things | 950 | 475 | 475 | 0 | 0 | 0 |\n" in changed
    assert changed.count("Run again alone: odd, on 2") == 1
    assert len(changed.splitlines()) == len(whole.splitlines()) + 2
    cases(lambda folder, number: Tally("even things", 900, 900))
    with pytest.raises(ValueError, match="has no row 'even things'"):
        reliability.main(["--only", "odd"])
    cases(lambda folder, number: good(folder, 899))
    assert reliability.main([]) == 1
    assert "Not good, or too few cases: odd" in capsys.readouterr().err


def test_a_sum_of_tallies_keeps_the_first_name():
    assert Tally("a", 3, 1, 1, 1, 4).merge(Tally("b", 2, 1, 0, 0, 1)) == Tally("a", 5, 2, 1, 1, 5)
    with pytest.raises(ValueError, match="Unknown outcome 'fine'"):
        Tally("a").add("fine")


def test_lost_and_doubled_rows_of_killed_jobs_are_counted():
    expected = {"labels": {"id": [1, 2, 3]}, "rows": 3}
    assert kill_cases.lost_rows(expected, {"labels": {"id": [1, 2, 3]}}) == 0
    assert kill_cases.lost_rows(expected, {"labels": {"id": [1, 3, 3]}}) == 2  # one is missing, one is there twice
    assert kill_cases.differences(expected, {"labels": {"id": [1, 2, 3]}, "rows": 4}) == ["rows"]
    assert kill_cases.differences(expected, {"labels": {"id": [1]}, "rows": 3}) == ["labels: id [1, 2, 3] [1]"]
