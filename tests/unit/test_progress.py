"""Progress lines: what they say, and how they look at a terminal and in a log."""

import contextlib
import io
import logging
import os
import re
import sys
import time

import numpy as np
import pytest

import kernelcoreset as kc
from benchmarks.new_user import at_terminal
from kernelcoreset import heartbeat
from kernelcoreset.estimators.base import told_step
from kernelcoreset.jobs import progress
from kernelcoreset.jobs.progress import CLEAR_LINE, Progress, alive, shown
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.runner import log_to_stderr
from kernelcoreset.jobs.settings.settings import Settings


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


# --- signs of life ---------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that a person reads."""

    def isatty(self):
        return True


def waited_for(stream, text):
    """Go on, as a long step does, until something is shown."""
    while text not in stream.getvalue():
        time.sleep(0.005)


def opened_terminal(monkeypatch):
    """A terminal in place of stderr. Not a fixture: pytest gives every phase of a test its own stderr."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.delenv("KERNELCORESET_TERMINAL", raising=False)
    return stream


def test_nobody_waits_longer_than_three_seconds_for_a_sign_of_life():
    assert heartbeat.EVERY <= 3.0
    assert progress._TERMINAL_SECONDS + progress._SILENCE <= 3.0


def test_a_step_is_shown_in_one_line_with_the_innermost_text(monkeypatch):
    terminal = opened_terminal(monkeypatch)
    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    with heartbeat.step("outer"):
        waited_for(terminal, "\rkernelcoreset: outer, ")
        with heartbeat.step("a longer inner one"):
            waited_for(terminal, "\rkernelcoreset: a longer inner one, ")
    text = terminal.getvalue()
    assert "\n" not in text
    assert text.endswith("  \r")  # removed


def test_a_short_step_shows_nothing(monkeypatch):
    terminal = opened_terminal(monkeypatch)
    with heartbeat.step("short"):
        pass
    assert terminal.getvalue() == ""


def test_files_and_pipes_get_no_sign_of_life(monkeypatch):
    stream, seen = io.StringIO(), []
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    monkeypatch.setattr(heartbeat, "_beating", lambda show: seen.append(show) or contextlib.nullcontext())
    with heartbeat.step("quiet"):
        pass
    assert (stream.getvalue(), seen) == ("", [])


SLOW_IMPORT = """
import sys, time
class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "kernelcoreset.store.store":
            time.sleep(1.0)
sys.meta_path.insert(0, SlowDisk())
import kernelcoreset
print("loaded")
"""


def test_a_slow_import_is_shown_at_a_terminal_and_removed(tmp_path):
    seen = at_terminal([sys.executable, "-c", SLOW_IMPORT], tmp_path, os.environ)
    assert seen.code == 0, seen.text
    assert "\rkernelcoreset: loading, " in seen.text
    assert seen.text.split("\r")[-2:] == ["loaded", "\n"]  # the line before it is removed


POINTS = np.random.default_rng(0).normal(size=(200, 2))


@pytest.mark.parametrize(
    "action",
    [
        lambda: kc.explore(POINTS, ks=[2]),
        lambda: kc.KernelKMeans(2, random_state=0).fit(POINTS),
        lambda: kc.SpectralClustering(2, random_state=0).fit(POINTS),
        lambda: kc.StreamingKernelKMeans(2, kernel=kc.Gaussian(1.0), random_state=0).partial_fit(POINTS),
    ],
    ids=["explore", "KernelKMeans", "SpectralClustering", "StreamingKernelKMeans"],
)
def test_every_public_step_that_may_last_has_a_heartbeat(action, monkeypatch):
    """So have prediction and description of the clusters."""
    begun = []

    @contextlib.contextmanager
    def noted(show):
        begun.append(heartbeat._open[0])
        yield

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(heartbeat, "_beating", noted)
    found = action()
    assert begun
    if hasattr(found, "predict"):
        found.predict(POINTS)
        found.model_.describe(POINTS)
        assert begun[-2:] == ["labelling rows", "describing the clusters"]


def test_verbose_prints_a_dot_per_beat_anywhere(monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    with told_step(kc.KernelKMeans(2, verbose=True), "counting"):
        waited_for(stream, "counting .....")
    assert re.fullmatch(r"counting \.\.\.\.+ \d+\.\d\d s\n", stream.getvalue())


def test_a_silent_stage_of_a_job_is_named_at_a_terminal(monkeypatch):
    terminal = opened_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_TERMINAL_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_SILENCE", 0.01)
    log_to_stderr()
    tables = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    record = RunRecord("run", Settings.from_dict(tables), "out.run.json")
    with alive(record):
        waited_for(terminal, f"{CLEAR_LINE}the job: ")
        with record.stage("cluster"):
            waited_for(terminal, f"{CLEAR_LINE}cluster: ")
            with heartbeat.step("describing"), record.stage("inner"):
                waited_for(terminal, f"{CLEAR_LINE}cluster/inner: ")
    assert "describing" not in terminal.getvalue()
    assert record.current is None
    assert terminal.getvalue().endswith(("\n", CLEAR_LINE))
