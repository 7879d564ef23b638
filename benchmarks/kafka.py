"""The streaming job from a real Kafka broker: rows per second with large micro-batches, and where the time goes.

Run from the project's root, with mvn for the broker: python benchmarks/kafka.py
The broker runs on the same machine, beside Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from benchmarks import tables
from benchmarks.streaming import SIGMA, SIZE, K, follow
from kernelcoreset.jobs.settings.settings import Settings
from tests.services.jars import KAFKA_SPARK, jars
from tests.services.kafka import kafka_broker, make_topic, send

TOPIC, PARTITIONS, WARM = "rows", 2, 2
CONF = {
    "spark.driver.memory": "2g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",  # as in conf/spark-defaults.conf
}
PARSED = "inline(array(from_json(CAST(value AS STRING), 'id LONG, longitude DOUBLE, latitude DOUBLE')))"


def settings_for(folder: Path, address: str, per_batch: int) -> Settings:
    return Settings.from_dict(
        {
            "input": {
                "format": "kafka",
                "features": ["longitude", "latitude"],
                "select": [PARSED],
                "options": {
                    "kafka.bootstrap.servers": address,
                    "subscribe": TOPIC,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": per_batch,
                },
            },
            "kernel": {"name": "Gaussian", "sigma": SIGMA},
            "coreset": {"k": K, "coreset_size": SIZE},
            "store": {"path": str(folder / "store")},
            "stream": {"checkpoint": str(folder / "checkpoint"), "refit_batches": 50},
            "output": {"path": str(folder / "out")},
        }
    )


def messages(rows: int) -> list[str]:
    generator = np.random.default_rng(0)
    places = np.array([[-74.0, 40.7], [139.7, 35.7], [-46.6, -23.5]])
    points = places[generator.integers(3, size=rows)] + generator.normal(scale=5.0, size=(rows, 2))
    return [f'{{"id": {i}, "longitude": {x:.6f}, "latitude": {y:.6f}}}' for i, (x, y) in enumerate(points.tolist())]


def read_only(address: str, rows: int) -> float:
    """Seconds of Spark to read and parse the first `rows` messages and write nothing, the best of three."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {**CONF, "spark.jars": ",".join(jars(KAFKA_SPARK, alone=True))}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ends = {TOPIC: {str(part): rows // PARTITIONS for part in range(PARTITIONS)}}
    options = {"kafka.bootstrap.servers": address, "subscribe": TOPIC, "endingOffsets": json.dumps(ends)}
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        frame = spark.read.format("kafka").options(**options).load().selectExpr(PARSED)
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - start)
    spark.stop()
    return min(seconds[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/kafka.md"))
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rows", type=int, default=250_000, help="rows of a micro-batch")
    options = parser.parse_args()
    total = options.batches * options.rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with kafka_broker(folder / "broker") as address:
            make_topic(address, TOPIC, PARTITIONS)
            send(address, TOPIC, messages(total))
            more = {**CONF, "spark.jars": ",".join(jars(KAFKA_SPARK, alone=True))}
            progress, _ = follow(settings_for(folder, address, options.rows), folder, more)
            ids = pq.read_table(folder / "out", columns=["id"])["id"].to_numpy()
            if not np.array_equal(np.sort(ids), np.arange(total)):
                sys.exit(f"{total:,} rows were sent, {len(set(ids)):,} different ones of {len(ids):,} are labelled.")
            reading = read_only(address, options.rows)
    report(options, progress, reading)


def report(options: argparse.Namespace, progress: list[dict], reading: float) -> None:
    warm = progress[WARM:]
    median = statistics.median(one["triggerExecution"] for one in warm) / 1000
    rows = []
    for one in progress:
        seconds = one["triggerExecution"] / 1000
        rows.append(
            [one["batch"], f"{seconds:.2f} s", f"{one['addBatch'] / 1000:.2f} s", f"{options.rows / seconds:,.0f}"]
        )
    whole = sum(one["triggerExecution"] for one in warm) / 1000
    sums = (
        f"**{len(warm) * options.rows / whole:,.0f} rows/s** over the micro-batches after the first {WARM}, in which "
        f"Java and the workers start; {median:.2f} s in the median. Spark alone takes {reading:.2f} s to read and "
        "parse the rows of a micro-batch, with Kafka's defaults, and to write nothing. Every row is labelled once."
    )
    about = (
        f"{options.batches} micro-batches of {options.rows:,} rows as JSON from a topic of {PARTITIONS} partitions, "
        f"Gaussian sigma={SIGMA:g}, k={K}, N={SIZE}, local[2], the broker on the same two cores. Each micro-batch is "
        "read once, taken into the store, labelled and written as Parquet; the first is read twice, since it fits the "
        "model. Time of a micro-batch as Spark reports it (triggerExecution), and the part of it in the job's own "
        "function (addBatch)."
    )
    header = ["micro-batch", "time", "addBatch", "rows/s"]
    tables.write_results(options.out, "A stream from Kafka", [about, tables.table(header, rows), sums])


if __name__ == "__main__":
    main()
