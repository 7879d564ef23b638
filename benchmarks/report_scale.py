"""What the report costs a whole job at the size of the paper's Twitter data, and how large its page is.

Run from the project's root: python benchmarks/report_scale.py --data DIR --scratch DIR
Runs with and without the report take turns in one Spark session on local[2], on the same rows. The rows stay in the
scratch folder, so a second call starts at once.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from benchmarks.twitter_scale import ROWS, session, write_data
from kernelcoreset.jobs import cli

SETTINGS = """
[input]
path = "{rows}"
features = ["longitude", "latitude"]
[kernel]
name = "Gaussian"
sigma = 50.0
[coreset]
k = 5
coreset_size = 1000
[output]
path = "{out}/labels"
mode = "overwrite"
"""


def run(config: Path, *overrides: str) -> tuple[float, float]:
    """Run the job `run`; return its seconds, and those of the processor in the driver's Python: it makes the report."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    code = cli.run_main(["--config", str(config), *(part for text in overrides for part in ("--set", text))])
    if code:
        raise SystemExit(code)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for rows and output")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=5, help="runs with the report, and as many without")
    parser.add_argument("--out", type=Path, default=Path("docs/results/report_scale.md"))
    options = parser.parse_args()
    scratch = options.scratch.resolve()
    rows, config = scratch / f"rows-{options.rows}", scratch / "job.toml"
    write_data(options.data, rows, options.rows)
    config.write_text(SETTINGS.format(rows=rows, out=scratch))
    spark = session()
    run(config)  # workers started, machine code on disk, files in the cache of the system
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for turn in range(options.turns):
        for is_on in (True, False) if turn % 2 else (False, True):
            found[is_on].append(run(config, f"run.report={str(is_on).lower()}"))
    spark.stop()
    run_size = (scratch / "labels.run.json").stat().st_size
    page_size = (scratch / "labels.report.html").stat().st_size
    seconds = {is_on: statistics.median(each[0] for each in runs) for is_on, runs in found.items()}
    driver = {is_on: statistics.median(each[1] for each in runs) for is_on, runs in found.items()}
    rows_of = [
        ["with the report", f"{seconds[True]:.2f}", f"{driver[True]:.2f}"],
        ["without", f"{seconds[False]:.2f}", f"{driver[False]:.2f}"],
        ["ratio (required: at most 1.05)", f"{seconds[True] / seconds[False]:.3f}", ""],
        ["difference", f"{seconds[True] - seconds[False]:.2f}", f"{driver[True] - driver[False]:.2f}"],
    ]
    all_runs = [
        [turn + 1, f"{on[0]:.2f}", f"{off[0]:.2f}"]
        for turn, (on, off) in enumerate(zip(found[True], found[False], strict=True))
    ]
    tables.write_results(
        options.out,
        "What the report costs",
        [
            f"{options.rows:,} rows like the tweets, two cores, the job `run`: coreset, clusters, labels, description. "
            f"Medians of {options.turns} runs each, which took turns.",
            tables.table(["whole job", "seconds", "processor seconds of the driver's Python"], rows_of),
            f"The page has {page_size:,} bytes (required: less than 1,000,000), its record {run_size:,}.",
            "All runs:",
            tables.table(["turn", "seconds with the report", "without"], all_runs),
        ],
    )


if __name__ == "__main__":
    main()
