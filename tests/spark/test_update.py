"""The update job from its command line to its files, night after night, on a real Spark."""

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from kernelcoreset import cli

PLACES = np.array([[0.0, 0.0], [9.0, 1.0], [3.0, 20.0]])


@pytest.fixture(autouse=True)
def logging_as_before():
    logger = logging.getLogger("kernelcoreset")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def points_of(seed, n=200):
    generator = np.random.default_rng(seed)
    return PLACES[generator.integers(3, size=n)] + generator.normal(size=(n, 2))


def put_day(day, seed, n=200, *, name="part-0.parquet", bad=0):
    """Write a day of n rows around three places; ids say which day and which version of it a row is from."""
    points = points_of(seed, n)
    points[:bad, 0] = np.nan
    folder = Path(f"days/date=2026-01-{day:02}")
    folder.mkdir(parents=True, exist_ok=True)
    ids = pa.array(1000 * seed + np.arange(n), pa.int64())
    pq.write_table(pa.table({"id": ids, "x": points[:, 0], "y": points[:, 1]}), folder / name)


@pytest.fixture
def days(spark):
    """Five days of input and the settings of a job that follows them."""
    for day in range(1, 6):
        put_day(day, day)
    Path("job.toml").write_text(
        '[input]\npath = "HERE/days"\nfeatures = ["x", "y"]\n'
        '[kernel]\nname = "Gaussian"\nsigma = 5.0\n'
        "[coreset]\nk = 3\ncoreset_size = 60\nleaf_size = 100\nseed = 3\n"
        "[cluster]\nn_init = 3\n[certificate]\ncenter_sets = 20\n"
        '[store]\npath = "HERE/store"\n[output]\npath = "HERE/out"\n'.replace("HERE", str(Path.cwd()))
    )


def run(*overrides):
    overrides = [text.replace("HERE", os.getcwd()) for text in overrides]
    return cli.update_main(["--config", "job.toml", *(part for text in overrides for part in ("--set", text))])


def record_of(path="out.run.json"):
    return json.loads(Path(path).read_text())


def counts_of(record):
    return tuple(record["keys"][name] for name in ("new", "changed", "vanished", "left_window"))


def labels():
    """Label by id of every row of the output."""
    table = pq.read_table("out")
    return dict(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


def snapshot(folder):
    return {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


def content_of(path="store"):
    """All that a store holds, whatever its history."""
    store = kc.CoresetStore.open(path)
    leaves = {key: store.leaf(key) for key in sorted(store.keys())}
    return {key: (store.info(key), leaf and leaf.to_arrow().to_pydict()) for key, leaf in leaves.items()}


def test_nights(days, capsys):
    assert run() == 0
    record = record_of()
    assert (counts_of(record), record["rows"], record["labelled_rows"]) == ((5, 0, 0, 0), 1000, 1000)
    assert (record["run"], record["moved"], record["outcome"]) == (1, None, "updated")
    assert record["certificate"]["largest_error"] < 0.5
    first = labels()
    assert len(first) == 1000
    model = kc.KernelKMeansModel.load(record["model"])
    assert record["coreset_weight"] == pytest.approx(1000, rel=0.1)
    points = np.concatenate([points_of(day) for day in range(1, 6)])
    ids = np.concatenate([1000 * day + np.arange(200) for day in range(1, 6)])
    assert [first[i] for i in ids.tolist()] == model.predict(points).tolist()

    # The same input again: nothing is done, and nothing written but the record.
    before = snapshot("store") | snapshot("out")
    assert run() == 0
    assert (record_of()["outcome"], counts_of(record_of())) == ("nothing to do", (0, 0, 0, 0))
    assert "nothing to do" in capsys.readouterr().out
    assert snapshot("store") | snapshot("out") == before

    # A new day, a restated one with fewer rows, and one that has vanished.
    put_day(6, 6)
    put_day(2, 12, n=150)
    shutil.rmtree("days/date=2026-01-04")
    assert run() == 0
    record = record_of()
    assert counts_of(record) == (1, 1, 1, 0)
    assert record["changes"]["changed"] == ["date=2026-01-02"]
    assert (record["rows"], record["labelled_rows"], record["run"]) == (350, 350, 2)
    second = labels()
    assert {i // 1000 for i in second} == {1, 3, 5, 6, 12}
    assert sum(i // 1000 == 12 for i in second) == 150
    # Rows of untouched days keep their labels, and clusters keep their names.
    assert all(second[i] == label for i, label in first.items() if i in second)
    assert 0 <= record["moved"] < 0.05
    model = kc.KernelKMeansModel.load(record["model"])
    assert np.mean(model.predict(points_of(1)) == [first[1000 + i] for i in range(200)]) > 0.95

    # The store equals one made at once from what is there now.
    assert run("store.path=HERE/fresh", "output.path=HERE/other") == 0
    assert content_of("fresh") == content_of("store")
