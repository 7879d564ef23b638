"""The environments of `./tests/run.sh --versions`."""

import re

import pytest

from tests import versions
from tests.versions import (
    END,
    OF_SPARK,
    PARTS,
    SHOWN,
    START,
    Environment,
    Outcome,
    environments,
    lowest_versions,
    page,
    read_rows,
    readme,
)

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
        r"^\| lowest \| 20\d\d-\d\d-\d\d \| 4\.0\.0 \|.*\| passed \| passed \| FAILED \| passed \| passed \|$",
        page([outcome]),
        re.M,
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
    rows = read_rows(versions.PAGE.read_text())
    assert set(rows) == {own.name for own in environments()}
    assert readme(versions.README.read_text(), rows.values()) == versions.README.read_text()


def test_a_part_that_is_new_was_not_run():
    outcome = Outcome(Environment("lowest", []), {"pyspark": "1"}, dict.fromkeys(PARTS, "passed"))
    before = "\n".join(line.rpartition(" | ")[0] + " |" for line in page([outcome]).splitlines() if line[:1] == "|")
    assert read_rows(before)["lowest"] == [*outcome.row()[:-1], "not run"]


def test_the_readme_shows_what_is_of_spark():
    outcome = Outcome(Environment("newest", []), {"pyspark": "4.9.0"}, dict.fromkeys(PARTS, "passed"))
    text = readme(f"a\n{START}old\n{END}b\n", [outcome.row()])
    assert text.startswith(f"a\n{START}| {' | '.join(OF_SPARK)} |\n| ---")
    assert text.endswith(f"| passed | passed | passed | passed |\n{END}b\n")
    assert "| 4.9.0 |" in text
    assert "old" not in text


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
    assert (len(calls), first.passed) == (7, True)  # make the environment, install, five parts
    first.parts["unit tests"] = "FAILED"
    installed["pyspark"] = "2.0"
    assert check("other Spark", [first]).parts["unit tests"] == "FAILED"
    assert len(calls) == 6
    installed["numpy"] = "2.0"
    assert check("other numpy", [first]).passed
    assert "other numpy: Connect passed" in capsys.readouterr().err
