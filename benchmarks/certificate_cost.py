"""What the certificate costs on Spark: the pass that labels and writes all rows, with and without it.

Run from the project's root: python benchmarks/certificate_cost.py --data DIR --scratch DIR
All in one Spark session on local[2], the cases in turn.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables, twitter_scale
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.jobs.batch import input_of, write_labels
from kernelcoreset.spark.jobs.coreset import build

CASES = {"without": 0, "with": 100}  # center sets of the certificate


def settings_of(case: str, folder: Path, out: Path) -> Settings:
    plain = twitter_scale.settings_for(folder, out, "direct").to_dict()
    plain["certificate"] = {**plain.get("certificate", {}), "center_sets": CASES[case]}
    plain["output"] = {**plain["output"], "describe": False}
    return Settings.from_dict(plain)


def labelling_seconds(data: Any, model: Any, settings: Settings) -> float:
    """Return the seconds of labelling, writing and all that the certificate takes after it on the driver."""
    story = twitter_scale.record(settings)
    return twitter_scale.timed(lambda: write_labels(data, model, settings, story))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for generated data, emptied after")
    parser.add_argument("--rows", type=int, default=twitter_scale.ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results/certificate_cost.md"))
    options = parser.parse_args()
    folder, small, out = options.scratch / "rows", options.scratch / "small", options.scratch / "out"
    twitter_scale.write_data(options.data, folder, options.rows)
    twitter_scale.write_data(options.data, small, min(200_000, options.rows))
    spark = twitter_scale.session()
    settings = settings_of("with", folder, out)
    data, few = input_of(spark, settings), input_of(spark, settings_of("with", small, out))
    story = twitter_scale.record(settings)
    model = twitter_scale.cluster_coreset(build(data, settings, story), settings, story)
    for case in CASES:  # once on few rows: workers started, machine code on disk
        labelling_seconds(few, model, settings_of(case, small, out))
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    begin = time.perf_counter()
    for _ in range(options.repeats):  # in turn, so that a busy moment does not hit one case alone
        for case, own in seconds.items():
            own.append(labelling_seconds(data, model, settings_of(case, folder, out)))
            print(f"{case}: {own[-1]:.2f} s, {time.perf_counter() - begin:.0f} s in all", file=sys.stderr, flush=True)
    spark.stop()
    shutil.rmtree(options.scratch)
    without = min(seconds["without"])
    rows = [
        [
            f"labels written, {case} certificate",
            f"{min(own):.2f}",
            f"{np.median(own):.2f}",
            f"{min(own) / without:.2f}x",
        ]
        for case, own in seconds.items()
    ]
    about = (
        f"{options.rows:,} x 2 float64 in {twitter_scale.FILES} Parquet files, local[2], k={twitter_scale.K}, coreset "
        f"{twitter_scale.SIZE}; {options.repeats} repeats, in turn. Required: at most 1.10x."
    )
    header = ["what", "best, s", "median, s", "by the best without"]
    tables.write_results(options.out, "What the certificate costs on Spark", [about, tables.table(header, rows)])


if __name__ == "__main__":
    main()
