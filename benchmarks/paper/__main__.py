"""The command line of the experiments: `python -m benchmarks.paper error --data DIR`."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.paper import alternatives, error, kmeans, page, plots, spectral, variations
from benchmarks.paper.cells import OutOfTime, Table
from benchmarks.paper.plan import Plan, quick
from kernelcoreset.checks import check_count
from kernelcoreset.jobs.runner import DONE, log_to_stderr, report

EXPERIMENTS: dict[str, tuple[str, Callable[[Plan], Table], Callable[[Table, Path], None]]] = {
    "error": ("Figure 1: size and error of coresets", error.run, plots.plot_error),
    "kmeans": ("Figure 2: kernel k-means++ with and without coresets", kmeans.run, plots.plot_kmeans),
    "spectral": ("Figure 3: spectral clustering", spectral.run, plots.plot_spectral),
    "alternatives": ("Alternatives: time against cost", alternatives.run, plots.plot_alternatives),
    "variations": ("Variations: k, z, dimension, points, skew", variations.run, plots.plot_variations),
}
_EPILOG = """\
examples:
  %(prog)s all --data ../shared/data --quick       minutes; tables and plots in docs/results/experiments/quick
  %(prog)s error --data ../shared/data             the full Figure 1; started again, it goes on where it stopped

Each experiment leaves NAME.csv, NAME.png and NAME.svg, and a row in README.md. Remove a CSV file to measure it afresh.

exit codes: 0 done, 2 bad settings, 3 bad data, 4 something is missing on this machine, 1 anything else
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run experiments from a command line, by default the process's own, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper",
        description="The paper's experiments and more: tables, plots and a results page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=[*EXPERIMENTS, "all"], help="which experiment")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets, raw or as Parquet")
    parser.add_argument("--out", type=Path, default=Path("docs/results/experiments"), help="(docs/results/experiments)")
    parser.add_argument("--quick", action="store_true", help="fewer rows and runs: minutes; in the folder OUT/quick")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="cells at once where time is free")
    parser.add_argument("--no-spark", action="store_true", help="leave out what goes through Spark")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no further cell after so long; a later run goes on"
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
    command = f"python -m benchmarks.paper {given.what} --data {given.data}{' --quick' if given.quick else ''}"
    log_to_stderr()
    try:
        check_count("processes", given.processes)
        run_experiments(list(EXPERIMENTS) if given.what == "all" else [given.what], plan, command)
    except (Exception, KeyboardInterrupt) as caught:
        return report(caught)
    return DONE


def run_experiments(names: Sequence[str], plan: Plan, command: str) -> None:
    """Run some experiments one after the other, each with its plot and its row on the page."""
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
