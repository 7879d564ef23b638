"""No job destroys what it did not write: paths that meet in every combination, and whole jobs on them."""

import os

import pytest

from kernelcoreset.files import places
from kernelcoreset.files.outputs import mark_output, why_no_output
from kernelcoreset.files.places import Place
from tests.faults import path_cases


def test_paths_that_meet_are_refused(tmp_path):
    tally = path_cases.check_settings(tmp_path, None)
    assert tally.is_good, tally
    assert tally.cases > 1_000
    assert tally.done_right > 100


def test_whole_jobs_leave_the_input_and_what_is_a_user_s(tmp_path):
    pytest.importorskip("pyspark")
    tally = path_cases.run_jobs(tmp_path, None)
    assert tally.is_good, tally
    assert (tally.done_right, tally.clear_errors) == (len(path_cases.DONE), len(path_cases.REFUSED))


def test_a_file_system_that_ignores_case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Place("out").relation(Place("OUT")) is None
    monkeypatch.setattr(places, "_ignores_case", lambda folder: True)
    assert Place("out").relation(Place("OUT")) == "the same as"
    assert Place("OUT/x").relation(Place("out")) == "inside"


def test_the_same_file_under_two_names(tmp_path):
    (tmp_path / "a").write_text("")
    os.link(tmp_path / "a", tmp_path / "b")
    assert Place(tmp_path / "a").relation(Place(tmp_path / "b")) == "the same as"


@pytest.mark.parametrize(
    ("names", "is_output"),
    [
        ([], True),
        (["_SUCCESS", "part-0.parquet", ".part-0.parquet.crc", "._SUCCESS.crc"], True),
        (["day=1/part-0.parquet", "day=2/hour=3/part-0.csv", "_SUCCESS"], True),
        (["batch=1/part-0.parquet", "batch=1/_SUCCESS"], True),
        (["_temporary/0/x", "part-0.parquet"], True),
        (["_delta_log/0.json", "part-0.parquet"], True),
        (["part-0.parquet"], False),
        (["day=1/part-0.parquet"], False),
        (["_SUCCESS", "part-0.parquet", "notes.txt"], False),
        (["_SUCCESS", "day=1/notes.txt"], False),
        (["_SUCCESS", "model/part-0"], False),
        (["_SUCCESS", "_mine/part-0"], False),
        (["_SUCCESS", "a=b"], False),
        (["_SUCCESS", ".git/config"], False),
    ],
)
def test_what_is_an_output(tmp_path, names, is_output):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert (why_no_output(tmp_path) is None) == is_output
    assert why_no_output(tmp_path / "absent") is None


def test_a_marked_folder_is_an_output(tmp_path):
    (tmp_path / "day=1").mkdir()
    assert "no _SUCCESS" in why_no_output(tmp_path)
    mark_output(tmp_path)
    mark_output(tmp_path)
    assert why_no_output(tmp_path) is None
