"""Faults that a user, a machine or a cluster brings into a job: exit codes and messages. Needs root, for its disks."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.faults.error_cases import SHARED, Case, judge, run_shared

GOOD = "INFO session ...\nERROR Bad data: The input 'x' was not found."


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="mounts file systems")
def test_every_fault_ends_in_its_exit_code_and_one_clear_line(tmp_path):
    tally = run_shared(tmp_path)
    assert tally.cases == len(SHARED)
    assert (tally.unclear, tally.silent_wrong, tally.lost) == (0, 0, 0)
    assert tally.done_right == 1


JAVA_ENDS = """
import os, signal, sys
from kernelcoreset.jobs.runner import log_to_stderr, report
from kernelcoreset.spark.jobs.session import session_of

log_to_stderr()
try:
    with session_of("ends", {"spark.master": "local[1]", "spark.ui.enabled": "false"}) as spark:
        spark.range(9).count()
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.range(9).count()
except Exception as error:
    sys.exit(report(error))
"""


def test_a_java_that_ends_is_one_clear_line(tmp_path):
    """Neither py4j nor the server of accumulators shows a traceback, and the stop does not hide the first error."""
    done = subprocess.run(
        [sys.executable, "-c", JAVA_ENDS], cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "Environment: Spark stopped in the middle of the job" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("code", "said", "outcome"),
    [
        (3, GOOD, "clear error"),
        (2, GOOD, "unclear error"),
        (0, GOOD, "silent wrong"),
        (3, GOOD.replace("Bad data", "Failed"), "unclear error"),
        (3, f"java.lang.X: y\n\tat org.apache.X.y(X.scala:1)\n{GOOD}", "unclear error"),
        (3, f"Traceback (most recent call last):\n{GOOD}", "unclear error"),
        (3, "\n" * 3 + "x\n" * 40 + GOOD, "unclear error"),
    ],
)
def test_only_one_clear_line_counts(code, said, outcome):
    assert judge(Case("missing input", 3), code, said) == outcome
    assert judge(Case("fine", 0), 0, "wrong rows: 3 of 4") == "silent wrong"
    assert judge(Case("no memory", 3, says="memory"), 3, GOOD) == "unclear error"
