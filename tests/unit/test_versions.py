"""The environments of `./tests/run.sh --versions`."""

import re

import pytest

from tests import versions
from tests.versions import PARTS, SHOWN, Environment, Outcome, environments, lowest_versions, page, read_rows

PYPROJECT = """
[project]
dependencies = ["numpy>=1.26", "pyarrow{}17"]
[project.optional-dependencies]
spark = ["pyspark[connect]>=4.0,<5"]
scikit-learn = ["scikit-learn>=1.6"]
"""


def test_lower_bounds_become_exact_versions():
    assert lowest_versions(PYPROJECT.format(">=")) == [
        "numpy==1.26",
        "pyarrow==17",
        "pyspark==4.0",
        "scikit-learn==1.6",
    ]


def test_a_requirement_without_a_lower_bound_is_an_error():
    with pytest.raises(ValueError, match="'pyarrow<17' has no lower bound"):
        lowest_versions(PYPROJECT.format("<"))


def test_there_is_one_environment_for_each_minor_version_of_spark():
    assert [own.name for own in environments()] == ["lowest", "pyspark-4.0", "pyspark-4.1", "pyspark-4.2", "newest"]


def test_one_failed_part_fails_the_environment():
    outcome = Outcome(Environment("lowest", []), {"pyspark": "4.0.0"}, dict.fromkeys(PARTS, "passed"))
    assert outcome.passed
    outcome.parts["demo job"] = "FAILED"
    assert not outcome.passed
    assert re.search(
        r"^\| lowest \| 20\d\d-\d\d-\d\d \| 4\.0\.0 \|.*\| passed \| passed \| FAILED \|$", page([outcome]), re.M
    )


def test_environments_that_were_not_tested_keep_their_rows():
    first, second = (
        Outcome(Environment(name, []), {"pyspark": "1"}, {"estimator": "passed"}) for name in ("newest", "lowest")
    )
    text = page([first])
    both = page([second], text)
    assert list(read_rows(both).items()) == [("lowest", second.row()), ("newest", first.row())]
    first.parts["estimator"] = "FAILED"
    assert read_rows(page([first], both)) == {"lowest": second.row(), "newest": first.row()}
    assert set(read_rows(versions.PAGE.read_text())) == {own.name for own in environments()}


def test_unit_tests_are_repeated_only_if_another_package_than_pyspark_differs(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(versions, "run", lambda command, folder, log: calls.append(command) or True)
    installed = dict.fromkeys(SHOWN, "1.0")

    def check(name, before):
        answer = type("Done", (), {"stdout": " ".join(installed.values())})
        monkeypatch.setattr(versions.subprocess, "run", lambda *args, **options: answer)
        calls.clear()
        return versions.check(Environment(name, []), tmp_path, tmp_path / "log", before)

    first = check("first", [])
    assert (len(calls), first.passed) == (5, True)  # make the environment, install, three parts
    first.parts["unit tests"] = "FAILED"
    installed["pyspark"] = "2.0"
    assert check("other Spark", [first]).parts["unit tests"] == "FAILED"
    assert len(calls) == 4
    installed["numpy"] = "2.0"
    assert check("other numpy", [first]).passed
    assert "other numpy: demo job passed" in capsys.readouterr().err
