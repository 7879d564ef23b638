"""The stream from a real Kafka broker: every message once over kills, bad ones found again, a clean end at SIGTERM."""

import json
import os
import signal
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from kernelcoreset import CoresetStore
from tests.services.jars import KAFKA_SPARK, jars
from tests.services.kafka import kafka_broker, make_topic, send
from tests.services.killed_runs import Runs
from tests.spark.nights import points_of

PLATFORM = "Kafka 3.9.1", "job stream: SIGKILL at random moments, bad messages, SIGTERM"
KILLS = 3
SETTINGS = """
[input]
format = "kafka"
features = ["x", "y"]
bad_rows = "quarantine"
quarantine_path = "{folder}/aside"
select = ["inline(array(from_json(CAST(value AS STRING), 'id LONG, x DOUBLE, y DOUBLE')))"]
[input.options]
"kafka.bootstrap.servers" = "{address}"
subscribe = "{topic}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {per_batch}
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
leaf_size = 100
[cluster]
n_init = 2
[store]
path = "{folder}/store"
[stream]
checkpoint = "{folder}/checkpoint"
refit_batches = 4
[output]
path = "{folder}/out"
columns = ["id", "x", "y"]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as address:
        yield address


def messages(first, n):
    return [
        json.dumps({"id": first + i, "x": x, "y": y}).encode() for i, (x, y) in enumerate(points_of(first, n).tolist())
    ]


def stream_of(folder, broker, topic, per_batch):
    make_topic(broker, topic, 2)
    settings = SETTINGS.format(folder=folder, address=broker, topic=topic, per_batch=per_batch)
    (folder / "job.toml").write_text(settings)
    return Runs("stream", folder, jars(KAFKA_SPARK, alone=True))


def ids_in(folder):
    return np.sort(pq.read_table(folder / "out")["id"].to_numpy())


def test_every_message_once_over_kills(broker, tmp_path):
    runs = stream_of(tmp_path, broker, "events", 2_000)
    bad = [b"{broken", b"", b'{"id": 7}', b'{"id": 8, "x": "far", "y": 1.0}', b"\xff\xfe"]
    send(broker, "events", messages(0, 10_000))
    runs.finish()
    sent, killed = 10_000, 0
    while killed < KILLS:
        send(broker, "events", [*messages(sent, 10_000), *(bad if sent == 10_000 else [])])
        sent += 10_000
        killed += runs.kill_within()
    runs.finish()
    assert np.array_equal(ids_in(tmp_path), np.arange(sent))  # each of them, none twice
    state = CoresetStore.open(tmp_path / "store").state
    assert (state["rows"], state["bad_rows"]) == (sent, len(bad))
    aside = pq.read_table(tmp_path / "aside").to_pylist()
    assert sorted(row["source_value"] for row in aside) == sorted(bad)
    for row in aside:  # topic, partition and offset lead to the message
        assert (row["source_topic"], row["reason"]) == ("events", "x: null, NaN or infinite")
        assert row["source_offset"] == 10_000 + bad.index(row["source_value"]) // 2
    assert {row["source_partition"] for row in aside} == {0, 1}


def test_sigterm_ends_a_stream_that_goes_on(broker, tmp_path):
    runs = stream_of(tmp_path, broker, "forever", 1_000)
    send(broker, "forever", messages(0, 5_000))
    process = runs.start("--set", "stream.trigger=100 milliseconds")
    try:
        while not list((tmp_path / "out").glob("batch=1/*.parquet")):
            assert process.poll() is None, runs.log.read_text()[-3000:]
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 0, runs.log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert json.loads((tmp_path / "out.run.json").read_text())["status"] == "stopped"
    assert "Traceback" not in runs.log.read_text()
    runs.finish()
    assert np.array_equal(ids_in(tmp_path), np.arange(5_000))
