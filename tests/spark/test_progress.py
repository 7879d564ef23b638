"""Rows that tasks have read are known to the driver while they run, on classic Spark; tasks on Spark Connect."""

import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kernelcoreset.jobs.progress import Progress
from kernelcoreset.spark import progress as watching
from kernelcoreset.spark.progress import watched
from kernelcoreset.spark.row_counts import counted, listening
from kernelcoreset.spark.scan import read_columns
from kernelcoreset.spark.tasks import map_batches

SCHEMA = StructType([StructField("id", LongType())])


@pytest.fixture
def seen(monkeypatch):
    """The progress objects of the steps that are watched."""
    found = []

    class Kept(Progress):
        def __post_init__(self):
            found.append(self)

    monkeypatch.setattr(watching, "Progress", Kept)
    return found


def test_rows_of_all_tasks_are_counted(spark, seen):
    frame = spark.range(0, 5_000, numPartitions=3)
    with watched(spark, "leaves", 5_000):
        assert listening() is not None
        assert map_batches(frame, counted, SCHEMA).count() == 5_000
    assert listening() is None
    assert seen[0].rows == 5_000
    assert seen[0].line(5.0) == "leaves: 5,000 of 5,000 rows (100%), 1,000 rows/s"


def test_rows_of_files_that_tasks_open_are_counted(spark, seen, tmp_path):
    from kernelcoreset.spark.scan import RowGroups, task_frame, tasks_of

    pq.write_table(pa.table({"x": range(700)}), tmp_path / "a.parquet")

    def read(batches):
        for _, groups in tasks_of(batches):
            for arrays in read_columns(groups, ["x"], [None]):
                yield pa.RecordBatch.from_arrays([arrays[0].cast(pa.int64())], names=["id"])

    groups = [[RowGroups(str(tmp_path / "a.parquet"), 0, 0, 700)]]
    with watched(spark, "leaves"):
        assert map_batches(task_frame(spark, groups), read, SCHEMA).count() == 700
    assert seen[0].rows == 700


def test_packets_of_others_and_no_listener_do_no_harm(spark, seen):
    frame = spark.range(0, 90, numPartitions=2)
    with watched(spark, "leaves"):
        address = listening()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for packet in (b"", b"hello", b"word 1 5", b"\xff " * 40, f"{address.word} 1 many".encode(), b"end"):
                stranger.sendto(packet, (address.host, address.port))
        planned = map_batches(frame, counted, SCHEMA)
        assert planned.count() == 90
    assert seen[0].rows == 90
    assert planned.count() == 90  # nobody listens any more


def test_without_a_port_a_step_runs_as_before(spark, seen, monkeypatch):
    def fail(*_):
        raise OSError("no port")

    monkeypatch.setattr(watching, "_Listener", fail)
    with watched(spark, "leaves"):
        assert map_batches(spark.range(9), counted, SCHEMA).count() == 9
    assert seen[0].rows == 0
