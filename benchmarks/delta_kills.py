"""SIGKILL at many random moments of Delta nights and Delta streams: rows lost, rows twice, commits.

Run from the project's root, with mvn for the jar: python benchmarks/delta_kills.py --measured FILE
The work itself is that of tests/services/test_delta_kills.py, which makes six kills. It is done in portions, each with
tables of its own and other moments. What a portion found is added to FILE at once; a later call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from tests.services.delta_kills import kill_nights, kill_streams

# As in the tests: Java is quick to start, and most of a run is work of the job.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

JOBS = {"nights (`update`)": kill_nights, "streams (`stream`)": kill_streams}
COUNTED = ("kills", "rounds", "rows", "lost", "twice", "commits", "expected_commits")


def read(measured: Path) -> dict[str, list[dict[str, int]]]:
    """Return what the portions so far have found, by job."""
    return json.loads(measured.read_text()) if measured.exists() else {name: [] for name in JOBS}


def total(portions: list[dict[str, int]], what: str) -> int:
    return sum(portion[what] for portion in portions)


def kill(options: argparse.Namespace) -> bool:
    """Do portions until there are enough kills; return False if the time is over before."""
    end = time.monotonic() + 60 * options.minutes
    for name, work in JOBS.items():
        while total(read(options.measured)[name], "kills") < options.kills:
            if time.monotonic() > end:
                return False
            found = read(options.measured)
            left = options.kills - total(found[name], "kills")
            with tempfile.TemporaryDirectory() as folder:
                tally = work(Path(folder), min(options.portion, left), options.in_a_row, seed=len(found[name]))
            found[name].append({what: getattr(tally, what) for what in COUNTED})
            options.measured.write_text(json.dumps(found))
            print(name, found[name][-1], flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/delta_kills.md"))
    parser.add_argument("--measured", type=Path, required=True, help="file for what was found")
    parser.add_argument("--kills", type=int, default=30, help="of nights, and of streams")
    parser.add_argument("--portion", type=int, default=10, help="kills of one pair of tables")
    parser.add_argument("--in-a-row", type=int, default=3, help="kills before a run may come to its end")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no portion begins after that")
    options = parser.parse_args()
    if kill(options):
        report(options)


def report(options: argparse.Namespace) -> None:
    rows = []
    for name, portions in read(options.measured).items():
        kills, rounds, compared, lost, twice, commits, expected = (total(portions, what) for what in COUNTED)
        rows.append([name, kills, rounds, f"{compared:,}", lost, twice, f"{commits} of {expected}"])
    about = (
        f"Jobs with a Delta table as input and output, local[2]. Up to {options.in_a_row} runs in a row are killed "
        "with SIGKILL, Java and Python at once, at a random moment after Spark has started, uniform over the time of a "
        "whole run (runs that were done before are not counted). Then one runs to its end, and the ids of all rows of "
        "input and output are compared, by replaying Delta's log without Spark. A night has a new key, a changed one "
        "and every second time a vanished one; a round of the stream has two micro-batches."
    )
    header = [
        "job",
        "kills",
        "rounds",
        "rows compared",
        "rows lost",
        "rows twice",
        "commits, one per night or micro-batch",
    ]
    tables.write_results(options.out, "Delta tables and SIGKILL", [about, tables.table(header, rows)])


if __name__ == "__main__":
    main()
