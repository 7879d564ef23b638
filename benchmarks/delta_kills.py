"""SIGKILL at many random moments of Delta nights and Delta streams: rows lost, rows twice, commits.

Run from the project's root, with mvn for the jar: python benchmarks/delta_kills.py
The work itself is that of tests/services/test_delta_kills.py, which makes six kills.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from tests.services.delta_kills import kill_nights, kill_streams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/delta_kills.md"))
    parser.add_argument("--kills", type=int, default=30, help="of nights, and of streams")
    parser.add_argument("--in-a-row", type=int, default=3, help="kills before a run may come to its end")
    options = parser.parse_args()
    rows = []
    for name, work in (("nights (`update`)", kill_nights), ("streams (`stream`)", kill_streams)):
        with tempfile.TemporaryDirectory() as folder:
            found = work(Path(folder), options.kills, options.in_a_row)
        commits = f"{found.commits} of {found.expected_commits}"
        rows.append([name, found.kills, found.rounds, f"{found.rows:,}", found.lost, found.twice, commits])
        print(rows[-1], flush=True)
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
