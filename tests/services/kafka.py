"""A real Kafka broker for tests and benchmarks, and its rows."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.services.jars import KAFKA_BROKER, jars

_STARTS_WITHIN = 180.0
_CLUSTER = "kernelcoresettests0000"  # an id is 22 letters
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{inner}
listeners=PLAINTEXT://127.0.0.1:{outer},CONTROLLER://127.0.0.1:{inner}
advertised.listeners=PLAINTEXT://127.0.0.1:{outer}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    """Start a broker with its files in a folder; yield its address."""
    outer, inner = _free_ports(2)
    folder.mkdir(parents=True)
    properties = folder / "broker.properties"
    properties.write_text(_PROPERTIES.format(outer=outer, inner=inner, folder=folder))
    java = ["java", "-Xmx512m", "-cp", ":".join(jars(KAFKA_BROKER))]
    format_files = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
    with open(folder / "broker.log", "wb") as log:
        subprocess.run(format_files, stdout=log, stderr=log, check=True)
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        try:
            _wait_for(outer, process, folder / "broker.log")
            yield f"127.0.0.1:{outer}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def make_topic(address: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def send(address: str, topic: str, values: Sequence[str | bytes]) -> None:
    """Send messages, to the partitions of a topic in turns; all have arrived on return."""
    from confluent_kafka import Producer

    refused: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000})
    partitions = len(producer.list_topics(topic, timeout=60).topics[topic].partitions)
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
        if not number % 10_000:
            producer.poll(0)
    left = producer.flush(120)
    if left or refused:
        raise RuntimeError(f"{left} messages did not arrive, {len(refused)} were refused: {refused[:1]}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"The broker did not start: {log.read_text()[-2000:]}")
