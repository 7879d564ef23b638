"""What [features], descriptions and explore cost at the size of the paper's Twitter data.

Run from the project's root: python benchmarks/description_scale.py --data DIR --scratch DIR
All in one Spark session on local[2]; ratios are between things measured in this one run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import kernelcoreset as kc
from benchmarks import datasets, tables, twitter_scale
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.explore import explore
from kernelcoreset.spark.jobs.batch import input_of, write_labels
from kernelcoreset.spark.jobs.coreset import build

CASES = {
    "as before": {"output": {"describe": False}},
    "described": {"output": {"describe": True}},
    "with [features]": {"output": {"describe": False}, "features": {"scale": "standard"}, "kernel": {"sigma": 1.0}},
    "described, with [features]": {
        "output": {"describe": True},
        "features": {"scale": "standard"},
        "kernel": {"sigma": 1.0},
    },
}


def settings_of(case: str, folder: Path, out: Path) -> Settings:
    plain = twitter_scale.settings_for(folder, out, "direct").to_dict()
    for section, changes in CASES[case].items():
        plain[section] = {**plain.get(section, {}), **changes}
    return Settings.from_dict(plain)


def whole_job(spark: object, settings: Settings) -> tuple[float, float]:
    """Return the seconds of a whole job, and those of labelling and writing in it."""
    begin = time.perf_counter()
    story = twitter_scale.record(settings)
    data = input_of(spark, settings)  # type: ignore[arg-type]
    model = twitter_scale.cluster_coreset(build(data, settings, story), settings, story)
    labelling = time.perf_counter()
    write_labels(data, model, settings, story)
    end = time.perf_counter()
    return end - begin, end - labelling


def choose_k_seconds(data: Path) -> float:
    """Return the seconds of `choose_k` on a coreset of 1,000 points; the first call, not measured, compiles."""
    points = datasets.twitter_like(data, 200_000, seed=0)
    coreset = kc.build_coreset(points, k=10, kernel=twitter_scale.KERNEL, size=1_000)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        kc.choose_k(coreset, range(2, 11), twitter_scale.KERNEL)
        seconds.append(time.perf_counter() - begin)
    return seconds[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for generated data, emptied after")
    parser.add_argument("--rows", type=int, default=twitter_scale.ROWS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/description_scale.md"))
    options = parser.parse_args()
    folder, small, out = options.scratch / "rows", options.scratch / "small", options.scratch / "out"
    twitter_scale.write_data(options.data, folder, options.rows)
    twitter_scale.write_data(options.data, small, 200_000)
    spark = twitter_scale.session()
    columns = ["longitude", "latitude"]
    for case in CASES:  # once on few rows: workers started, machine code on disk
        whole_job(spark, settings_of(case, small, out))
    explore(spark.read.parquet(str(small)), inputCols=columns)
    frame = spark.read.parquet(str(folder))
    exploring = twitter_scale.timed(lambda: explore(frame, inputCols=columns))
    by_spark = twitter_scale.settings_for(folder, out, "spark")
    building = twitter_scale.timed(
        lambda: build(input_of(spark, by_spark), by_spark, twitter_scale.record(by_spark)), 2
    )
    print(f"explore {exploring:.2f}, build {building:.2f}", file=sys.stderr, flush=True)
    seconds: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for _ in range(options.repeats):  # in turn, so that a busy moment does not hit one case alone
        for case in CASES:
            seconds[case].append(whole_job(spark, settings_of(case, folder, out)))
            print(case, *(f"{each:.2f}" for each in seconds[case][-1]), file=sys.stderr, flush=True)
    best = {case: min(whole for whole, _ in own) for case, own in seconds.items()}
    label = {case: min(labelling for _, labelling in own) for case, own in seconds.items()}
    spark.stop()
    choosing = choose_k_seconds(options.data)
    shutil.rmtree(options.scratch)
    rows = [
        [
            f"whole job, {case}",
            f"{best[case]:.1f}",
            "as before",
            f"{best[case] / best['as before']:.2f}x",
            "at most 1.1x",
        ]
        for case in list(CASES)[1:]
    ]
    rows.append(
        [
            "labels written, described",
            f"{label['described']:.1f}",
            f"as before ({label['as before']:.1f} s)",
            f"{label['described'] / label['as before']:.2f}x",
            "at most 1.1x",
        ]
    )
    rows.append(
        [
            "explore",
            f"{exploring:.1f}",
            f"a build by Spark ({building:.1f} s)",
            f"{exploring / building:.2f}x",
            "at most 1.5x",
        ]
    )
    rows.append(["choose_k, coreset of 1,000, k from 2 to 10", f"{choosing:.1f}", "", "", "seconds"])
    about = (
        f"{options.rows:,} x 2 float64 in {twitter_scale.FILES} Parquet files, local[2], k={twitter_scale.K}, coreset "
        f"{twitter_scale.SIZE}; best of {options.repeats}, in turn. "
        f"The whole job as before takes {best['as before']:.1f} s."
    )
    header = ["what", "seconds", "compared with", "ratio", "required"]
    tables.write_results(options.out, "What descriptions and features cost", [about, tables.table(header, rows)])


if __name__ == "__main__":
    main()
