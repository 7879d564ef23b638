"""A night of `update` on a Delta table of 21 million rows that has not changed, and one on which a day has changed.

Run from the project's root, with mvn for the jar:
python benchmarks/unchanged_table.py --scratch DIR --prepare      makes the table and the first night
python benchmarks/unchanged_table.py --scratch DIR                measures the next nights and writes the table
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from benchmarks import tables
from tests.services.delta_kills import DELTA_CONF
from tests.services.jars import DELTA, DELTA_GROUPS, jars

ROWS, DAYS = 21_040_936, 30
SETTINGS = """
[input]
path = "{folder}/points"
format = "delta"
features = ["longitude", "latitude"]
[kernel]
name = "Gaussian"
sigma = 50.0
[coreset]
k = 5
coreset_size = 1000
[store]
path = "{folder}/store"
[update]
key_col = "day"
[output]
path = "{folder}/labels"
format = "delta"
[run]
record = "{folder}/night.json"
"""


def session_options() -> str:
    conf = {**DELTA_CONF, "spark.ui.enabled": "false", "spark.driver.memory": "3g", "spark.log.level": "ERROR"}
    conf["spark.sql.execution.arrow.maxRecordsPerBatch"] = "131072"
    conf["spark.sql.shuffle.partitions"] = "4"
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    places = ["--jars", ",".join(jars(DELTA, DELTA_GROUPS))]
    return " ".join(["--master", "local[2]", *places, *options, "pyspark-shell"])


def make_table(folder: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    os.environ["PYSPARK_SUBMIT_ARGS"] = session_options()
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(0, ROWS, 1, DAYS).select(
        "id",
        (F.randn(1) * 30 + 90 * (F.col("id") % 3)).alias("longitude"),
        (F.randn(2) * 20).alias("latitude"),
        F.concat(F.lit("2026-01-"), F.lpad((F.spark_partition_id() + 1).cast("string"), 2, "0")).alias("day"),
    )
    rows.write.format("delta").partitionBy("day").save(f"{folder}/points")
    spark.stop()


def night(folder: Path) -> dict:
    """Run the job as a process, as a scheduler would; return its record."""
    (folder / "job.toml").write_text(SETTINGS.format(folder=folder))
    job = "import sys; from kernelcoreset.jobs import cli; sys.exit(cli.update_main(sys.argv[1:]))"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": session_options()}
    command = [sys.executable, "-c", job, "--config", str(folder / "job.toml")]
    subprocess.run(command, env=environment, check=True, cwd=Path(__file__).parent.parent)
    return json.loads((folder / "night.json").read_text())


def change_a_day(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_SUBMIT_ARGS"] = session_options()
    spark = SparkSession.builder.getOrCreate()
    spark.sql(f"DELETE FROM delta.`{folder}/points` WHERE day = '2026-01-07' AND id % 100 = 0")
    spark.stop()


def row_of(name: str, record: dict) -> list[str]:
    stages = {stage["stage"]: stage["seconds"] for stage in record["stages"]}
    work = sum(seconds for stage, seconds in stages.items() if "/" not in stage and stage != "session")
    shown = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items() if stage != "session")
    return [name, str(record["outcome"]), f"{stages['session']:.1f} s", f"{work:.1f} s", shown]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/unchanged_table.md"))
    parser.add_argument("--scratch", type=Path, required=True, help="folder for the table, 1 GB")
    parser.add_argument("--prepare", action="store_true")
    options = parser.parse_args()
    folder = options.scratch.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        make_table(folder)
        night(folder)
        return
    rows = [row_of(f"nothing has changed, run {number}", night(folder)) for number in (1, 2)]
    change_a_day(folder)
    rows.append(row_of("a day has changed", night(folder)))
    about = (
        f"`update` with labels on a Delta table of {ROWS:,} rows, partitioned into {DAYS} days, local[2], each night a "
        "process of its own. Spark work is all that the job does once Spark has started: what changed is found in "
        "Delta's log."
    )
    header = ["night", "outcome", "start of Spark", "Spark work", "stages in seconds"]
    tables.write_results(options.out, "A night on a table that has not changed", [about, tables.table(header, rows)])


if __name__ == "__main__":
    main()
