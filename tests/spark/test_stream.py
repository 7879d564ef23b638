"""The streaming job from its command line to its files, on a real Spark."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from kernelcoreset import cli
from kernelcoreset.spark.streaming import key_of
from tests.spark.test_update import points_of


@pytest.fixture(autouse=True)
def logging_as_before():
    logger = logging.getLogger("kernelcoreset")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def put_file(number, n=100, bad=0):
    """One more file for the stream; ids say which file a row is from. Files are taken in the order of their times."""
    Path("in").mkdir(exist_ok=True)
    points = points_of(number, n)
    points[:bad, 0] = np.nan
    table = pa.table({"id": pa.array(1000 * number + np.arange(n)), "x": points[:, 0], "y": points[:, 1]})
    path = Path(f"in/{number:04}.parquet")
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.fixture
def config(spark):
    Path("job.toml").write_text(
        '[input]\npath = "HERE/in"\nfeatures = ["x", "y"]\nschema = "id long, x double, y double"\n'
        "options = {maxFilesPerTrigger = 1}\n"
        '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
        "[coreset]\nk = 3\ncoreset_size = 60\nleaf_size = 100\nseed = 3\n"
        '[cluster]\nn_init = 3\n[store]\npath = "HERE/store"\n[output]\npath = "HERE/out"\n'
        '[stream]\ncheckpoint = "HERE/checkpoint"\nrefit_batches = 4\nfan_in = 3\n'.replace("HERE", str(Path.cwd()))
    )


def run(*overrides):
    overrides = [text.replace("HERE", os.getcwd()) for text in overrides]
    return cli.stream_main(["--config", "job.toml", *(part for text in overrides for part in ("--set", text))])


def record_of(path="out.run.json"):
    return json.loads(Path(path).read_text())


def labels(path="out"):
    table = pq.read_table(path)
    assert len(set(table["id"].to_pylist())) == table.num_rows, "a row is there twice"
    return dict(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


def test_a_stream_in_two_sittings(config, capsys):
    for number in range(5):
        put_file(number)
    assert run() == 0
    record = record_of()
    assert (record["outcome"], record["batches"], record["rows"]) == ("5 micro-batches taken in", 5, 500)
    assert record["run"] == 2  # fitted on the first batch, and after four more
    assert set(labels()) == {1000 * number + i for number in range(5) for i in range(100)}
    store = kc.CoresetStore.open("store")
    assert store.keys() == [key_of(0, 3, 3), key_of(0, 4, 4), key_of(1, 0, 2)]
    assert sum(store.info(key)["rows"] for key in store.keys()) == 500  # noqa: SIM118

    assert run() == 0
    assert record_of()["outcome"] == "nothing to do"

    first = labels()
    for number in range(5, 9):
        put_file(number)
    assert run() == 0
    record, second = record_of(), labels()
    assert (record["batches"], record["rows"], record["last_batch"]) == (4, 900, 8)
    assert {i: second[i] for i in first} == first
    store = kc.CoresetStore.open("store")
    assert store.keys() == [key_of(2, 0, 8)]
    assert store.info(key_of(2, 0, 8))["rows"] == 900
    assert store.result().weights.sum() == pytest.approx(900, rel=0.1)
    # Clusters keep their names from fit to fit.
    model = kc.KernelKMeansModel.load(record["model"])
    assert np.mean(model.predict(points_of(0, 100)) == [first[i] for i in range(100)]) > 0.95
