"""The command line of the experiments: `python -m benchmarks.paper error --data DIR`."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.paper import alternatives, data, error, kmeans, page, plots, spectral, variations
from benchmarks.paper.cells import OutOfTime, Table
from benchmarks.paper.plan import Plan, quick
from kernelcoreset.checks import check_count
from kernelcoreset.errors import DataError
from kernelcoreset.jobs.runner import DONE, log_to_stderr, report

EXPERIMENTS: dict[str, tuple[str, Callable[[Plan], Table], Callable[[Table, Path], None]]] = {
    "error": ("Figure 1: size and error of coresets", error.run, plots.plot_error),
    "kmeans": ("Figure 2: kernel k-means++ with and without coresets", kmeans.run, plots.plot_kmeans),
    "spectral": ("Figure 3: spectral clustering", spectral.run, plots.plot_spectral),
    "alternatives": ("Alternatives: time against cost", alternatives.run, plots.plot_alternatives),
    "variations": ("Variations: k, z, dimension, points, skew", variations.run, plots.plot_variations),
}
PREPARE = "prepare"
_EPILOG = """\
examples:
  %(prog)s prepare --data DIR         check the publishers' files in DIR and write them as Parquet
  %(prog)s all --data DIR --quick     minutes; tables and plots in docs/results/experiments/quick
  %(prog)s error --data DIR           the full Figure 1; started again, it continues where it stopped

docs/data.md says where to get the data sets. Each experiment writes NAME.csv, NAME.png and NAME.svg, and a row in
README.md. Remove a CSV file to measure it again.

exit codes: 0 done, 2 bad settings, 3 bad data, 4 something is missing on this machine, 1 anything else
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper",
        description="The paper's experiments and more: tables, plots and a results page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=[PREPARE, *EXPERIMENTS, "all"], help="which experiment, or all of them")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets (docs/data.md)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/results/experiments"),
        help="folder for tables, plots and page (docs/results/experiments)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows and runs: minutes; writes to OUT/quick")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="cells measured at once, in experiments that do not measure time (number of cores)",
    )
    parser.add_argument("--no-spark", action="store_true", help="leave out the parts that need Spark")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no cell after this time; a later run continues"
    )
    given = parser.parse_args(argv)
    plan = Plan(
        given.data,
        given.out,
        processes=given.processes,
        with_spark=not given.no_spark,
        until=time.monotonic() + 60.0 * given.minutes,
    )
    plan = quick(plan) if given.quick else plan
    command = f"python -m benchmarks.paper {given.what} --data DIR{' --quick' if given.quick else ''}"
    log_to_stderr()
    try:
        check_count("processes", given.processes)
        if given.what == PREPARE:
            return prepare(given.data)
        run_experiments(list(EXPERIMENTS) if given.what == "all" else [given.what], plan, command)
    except (Exception, KeyboardInterrupt) as caught:
        return report(caught)
    return DONE


def prepare(folder: Path) -> int:
    """Write the Parquet files of the data sets in a folder, say which are missing, and return the exit code."""
    written, missing = data.prepare(folder)
    print("\n".join([*written, *(f"not there: {line}" for line in missing)]))
    if not written:
        raise DataError(f"{folder} has no file of a publisher. docs/data.md lists the files and where to get them.")
    return DONE


def run_experiments(names: Sequence[str], plan: Plan, command: str) -> None:
    """Run experiments one after another, each with its plot and its row on the page."""
    plots.check_installed()
    plan.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        title, run, plot = EXPERIMENTS[name]
        begin = time.monotonic()
        try:
            table = run(plan)
        except OutOfTime as stop:
            page.note_run(plan.out, name, title, command, time.monotonic() - begin)
            print(stop)
            return
        page.note_run(plan.out, name, title, command, time.monotonic() - begin)
        plot(table, plan.out / name)
        print(f"{title}: {plan.out / name}.csv, .png, .svg")
    print(f"Results page: {page.write_page(plan.out)}")


if __name__ == "__main__":
    sys.exit(main())
