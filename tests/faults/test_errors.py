"""Faults that a user, a machine or a cluster brings into a job: exit codes and messages. Needs root, for its disks."""

import os
import shutil

import pytest

from tests.faults.error_cases import SHARED, Case, judge, run_shared

GOOD = "INFO session ...\nERROR Bad data: The input 'x' was not found."


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="mounts file systems")
def test_every_fault_ends_in_its_exit_code_and_one_clear_line(tmp_path):
    tally = run_shared(tmp_path)
    assert tally.cases == len(SHARED)
    assert (tally.unclear, tally.silent_wrong, tally.lost) == (0, 0, 0)
    assert tally.done_right == 1


@pytest.mark.parametrize(
    ("code", "said", "outcome"),
    [
        (3, GOOD, "clear error"),
        (2, GOOD, "unclear error"),
        (0, GOOD, "silent wrong"),
        (3, GOOD.replace("Bad data", "Failed"), "unclear error"),
        (3, f"java.lang.X: y\n\tat org.apache.X.y(X.scala:1)\n{GOOD}", "unclear error"),
        (3, f"Traceback (most recent call last):\n{GOOD}", "unclear error"),
        (3, "\n" * 3 + "x\n" * 30 + GOOD, "unclear error"),
    ],
)
def test_only_one_clear_line_counts(code, said, outcome):
    assert judge(Case("missing input", 3), code, said) == outcome
    assert judge(Case("fine", 0), 0, "wrong rows: 3 of 4") == "silent wrong"
