"""What [features], descriptions and explore cost at the size of the paper's Twitter data.

Run from the project's root: python benchmarks/description_scale.py --data DIR --scratch DIR
All in one Spark session on local[2]; ratios are between things measured in this one run. Started again after an
interruption, it goes on with what is missing. About five minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import kernelcoreset as kc
from benchmarks import datasets, tables, twitter_scale
from benchmarks.memory import processor_seconds
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.explore import explore
from kernelcoreset.spark.jobs.batch import input_of, write_labels
from kernelcoreset.spark.jobs.coreset import build

_SCALED = {"features": {"scale": "standard"}, "kernel": {"sigma": 1.0}}
CASES = {
    "as before": {"output": {"describe": False}},
    "described": {"output": {"describe": True}},
    "with [features]": {"output": {"describe": False}, **_SCALED},
    "described, with [features]": {"output": {"describe": True}, **_SCALED},
}
EXPLORE, BUILD, CHOOSE = "explore", "a build, read through Spark", "choose_k, coreset of 1,000, k from 2 to 10"
_SMALL = 200_000
_COLUMNS = ["longitude", "latitude"]


def settings_of(case: str, folder: Path, out: Path) -> Settings:
    plain = twitter_scale.settings_for(folder, out, "direct").to_dict()
    for section, changes in CASES[case].items():
        plain[section] = {**plain.get(section, {}), **changes}
    return Settings.from_dict(plain)


def whole_job(spark: object, settings: Settings) -> None:
    story = twitter_scale.record(settings)
    data = input_of(spark, settings)  # type: ignore[arg-type]
    model = twitter_scale.cluster_coreset(build(data, settings, story), settings, story)
    write_labels(data, model, settings, story)


def build_by_spark(spark: object, folder: Path, out: Path) -> None:
    settings = twitter_scale.settings_for(folder, out, "spark")
    build(input_of(spark, settings), settings, twitter_scale.record(settings))  # type: ignore[arg-type]


def works(spark: object, folder: Path, out: Path) -> dict[str, Callable[[], object]]:
    """Return all that is measured, by name."""
    frame = spark.read.parquet(str(folder))  # type: ignore[attr-defined]
    return {
        **{case: lambda case=case: whole_job(spark, settings_of(case, folder, out)) for case in CASES},
        EXPLORE: lambda: explore(frame, inputCols=_COLUMNS),
        BUILD: lambda: build_by_spark(spark, folder, out),
    }


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds on the clock, and those of all processors."""
    begin, used = time.perf_counter(), processor_seconds()
    work()
    return time.perf_counter() - begin, processor_seconds() - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for generated data, emptied after")
    parser.add_argument("--rows", type=int, default=twitter_scale.ROWS)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/results/description_scale.md"))
    options = parser.parse_args()
    folder, small, out = options.scratch / f"rows-{options.rows}", options.scratch / "small", options.scratch / "out"
    kept = options.scratch / f"measured-{options.rows}.json"
    twitter_scale.write_data(options.data, folder, options.rows)
    twitter_scale.write_data(options.data, small, _SMALL)
    found: dict[str, list[tuple[float, float]]] = json.loads(kept.read_text()) if kept.exists() else {}

    def note(name: str, work: Callable[[], object]) -> None:
        found.setdefault(name, []).append(measured(work))
        kept.write_text(json.dumps(found))
        print(name, *(f"{each:.2f}" for each in found[name][-1]), file=sys.stderr, flush=True)

    spark = twitter_scale.session()
    for work in works(spark, small, out).values():  # once on few rows: workers started, machine code on disk
        work()
    for turn in range(options.repeats):  # in turn, so that a busy moment does not hit one case alone
        for name, work in works(spark, folder, out).items():
            if len(found.get(name, ())) <= turn:
                note(name, work)
    spark.stop()
    points = datasets.twitter_like(options.data, _SMALL, seed=0)
    coreset = kc.build_coreset(points, k=10, kernel=twitter_scale.KERNEL, size=1_000)
    for ks in (range(2, 4), range(2, 11)):  # the first call, not counted, compiles
        found.pop(CHOOSE, None)
        note(CHOOSE, lambda ks=ks: kc.choose_k(coreset, ks, twitter_scale.KERNEL))
    write_table(options.out, options.rows, found)
    shutil.rmtree(options.scratch)


def write_table(path: Path, rows: int, found: dict[str, list[tuple[float, float]]]) -> None:
    best = {name: [min(each) for each in zip(*own, strict=True)] for name, own in found.items()}

    def row(name: str, beside: str, required: str) -> list[str]:
        ratios = [f"{own / other:.2f}x" for own, other in zip(best[name], best[beside], strict=True)]
        return [name, *(f"{each:.1f}" for each in best[name]), beside, *ratios, required]

    whole, *others = CASES
    lines = [row(case, whole, "at most 1.1x") for case in others]
    lines.append(row(EXPLORE, BUILD, "at most 1.5x"))
    lines.append([CHOOSE, *(f"{each:.1f}" for each in best[CHOOSE]), "", "", "", "seconds"])
    about = (
        f"{rows:,} x 2 float64 in {twitter_scale.FILES} Parquet files, local[2], k={twitter_scale.K}, coreset "
        f"{twitter_scale.SIZE}; best of {len(found[whole])}, in turn. The first rows are whole jobs: build, cluster, "
        f"label and write. The one {whole}, without description and [features], takes {best[whole][0]:.1f} s, "
        f"{best[whole][1]:.1f} s of processors; {BUILD}, {best[BUILD][0]:.1f} s and {best[BUILD][1]:.1f} s."
    )
    header = ["what", "seconds", "of processors", "compared with", "ratio", "of processors", "required"]
    tables.write_results(path, "What descriptions, features and explore cost", [about, tables.table(header, lines)])


if __name__ == "__main__":
    main()
