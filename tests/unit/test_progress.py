"""Progress lines: what they say, and how they look at a terminal and in a log."""

import io
import logging
import re
import time

import pytest

from kernelcoreset.jobs import progress
from kernelcoreset.jobs.progress import CLEAR_LINE, Progress, shown
from kernelcoreset.jobs.runner import log_to_stderr


@pytest.mark.parametrize(
    ("known", "seconds", "line"),
    [
        ({}, 5.0, None),
        ({"rows": 500}, 2.0, "x: 500 rows, 250 rows/s"),
        ({"rows": 500, "total": 1000}, 1.0, "x: 500 of 1,000 rows (50%), 500 rows/s"),  # too early for an estimate
        ({"rows": 500, "total": 2000}, 10.0, "x: 500 of 2,000 rows (25%), 50 rows/s, 30 s left"),
        ({"rows": 10, "total": 1000}, 10.0, "x: 10 of 1,000 rows (1%), 1 rows/s, 16 min left"),
        ({"rows": 3000, "total": 2000}, 10.0, "x: 2,000 of 2,000 rows (100%), 300 rows/s"),  # a task that came again
        ({"tasks": 1, "all_tasks": 4}, 10.0, "x: 1 of 4 tasks (25%), 30 s left"),
        ({"rows": 9, "last_batch": 3}, 9.0, "x: 9 rows, 1 rows/s, micro-batch 3"),
    ],
)
def test_a_line_says_what_is_known(known, seconds, line):
    assert Progress("x", **known).line(seconds) == line


def shown_text(monkeypatch, is_terminal):
    """What stderr gets while 100 of 200 rows are read."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_TERMINAL_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.01)
    if is_terminal:
        monkeypatch.setenv("KERNELCORESET_TERMINAL", "1")
    else:
        monkeypatch.delenv("KERNELCORESET_TERMINAL", raising=False)
    log_to_stderr()
    with shown(Progress("leaves", total=200)) as state:
        state.rows = 100
        while "100 of 200" not in stream.getvalue():
            time.sleep(0.005)
        if is_terminal:
            logging.getLogger("kernelcoreset").info("a word in between")
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_removed_at_the_end(monkeypatch):
    text = shown_text(monkeypatch, is_terminal=True)
    assert text.startswith(f"{CLEAR_LINE}leaves: 100 of 200 rows")
    assert text.count("\n") == 1
    assert f"{CLEAR_LINE}a word in between\n" in text  # a log line takes the place of the progress line
    last = text.rpartition("\n")[2]
    assert last == "" or last.endswith(CLEAR_LINE)


def test_a_log_has_lines_with_timestamps(monkeypatch):
    text = shown_text(monkeypatch, is_terminal=False)
    assert "\r" not in text
    for line in text.splitlines():
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO leaves: 100 of 200 rows \(50%\), [\d,]+ rows/s", line
        )
