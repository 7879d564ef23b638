"""The run record: complete, without secrets, also for failed runs."""

import json
import logging
import os
import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

import kernelcoreset
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.jobs.summary import summary_of

TABLES = {"input": {"demo_rows": 100}, "kernel": {"name": "Linear"}, "coreset": {"k": 3, "seed": 5}}


def record_at(path, **sections):
    return RunRecord("run", Settings.from_dict({**TABLES, **sections}), str(path))


def test_a_record_has_settings_seed_versions_times_and_values(tmp_path):
    record = record_at(tmp_path / "new" / "out.run.json")
    with record.stage("build"), record.stage("merge"):
        record.add(rows=np.int64(100), sizes=np.arange(3), cost=np.float32(0.5), ratio=float("nan"), place=Path("x"))
    assert record.write() == record.path
    found = json.loads(Path(record.path).read_text())
    assert Settings.from_dict(found["settings"]) == record.settings
    assert (found["status"], found["error"], found["seed"]) == ("done", None, 5)
    assert [stage["stage"] for stage in found["stages"]] == ["build/merge", "build"]
    assert found["stages"][1]["seconds"] >= found["stages"][0]["seconds"] >= 0
    assert found["started"] <= found["finished"]
    assert found["started"].endswith("+00:00")
    assert found["versions"]["numpy"] == np.__version__
    assert found["versions"]["kernelcoreset"] == kernelcoreset.__version__
    assert {"python", "scipy", "numba", "pyarrow", "pyspark"} <= found["versions"].keys()
    values = {name: found[name] for name in ("rows", "sizes", "cost", "ratio", "place")}
    assert values == {"rows": 100, "sizes": [0, 1, 2], "cost": 0.5, "ratio": None, "place": "x"}
    assert os.listdir(tmp_path / "new") == ["out.run.json"]


def test_a_failed_run_leaves_the_record_of_the_good_one(tmp_path):
    good = record_at(tmp_path / "out.run.json")
    good.write()
    before = (tmp_path / "out.run.json").read_text()
    bad = record_at(tmp_path / "out.run.json")
    with pytest.raises(ZeroDivisionError), bad.stage("build"):
        raise ZeroDivisionError("by zero")
    place = bad.write(ZeroDivisionError("by zero"))
    assert place == str(tmp_path / "out.run.failed.json")
    assert (tmp_path / "out.run.json").read_text() == before
    found = json.loads(Path(place).read_text())
    assert (found["status"], found["error"]) == ("failed", "ZeroDivisionError: by zero")
    assert [stage["stage"] for stage in found["stages"]] == ["build"]
    record_at(tmp_path / "out.run.json").write()  # a good run removes the record of the failure
    assert os.listdir(tmp_path) == ["out.run.json"]


def test_a_record_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "out.json").mkdir()
    with pytest.raises(OSError, match=r"out\.json"):
        record_at(tmp_path / "out.json").write()
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_file_address_is_a_local_path(tmp_path):
    for number, start in enumerate(("file:", "file://")):
        record_at(f"{start}{tmp_path}/{number}.json").write()
        assert json.loads((tmp_path / f"{number}.json").read_text())["status"] == "done"


def test_another_scheme_goes_through_pyarrow(tmp_path, monkeypatch):
    """A folder takes the place of the bucket; everything after the address is real."""

    def open_path(path):
        assert path.startswith("s3a://bucket/")
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), path.rpartition("/")[2]

    monkeypatch.setattr("kernelcoreset.jobs.record.open_path", open_path)
    record_at("s3a://bucket/out.run.json").write(ZeroDivisionError("by zero"))
    assert os.listdir(tmp_path) == ["out.run.failed.json"]
    record_at("s3a://bucket/out.run.json").write()
    assert os.listdir(tmp_path) == ["out.run.json"]
    assert json.loads((tmp_path / "out.run.json").read_text())["status"] == "done"


def test_what_json_cannot_hold_is_refused_when_it_is_added():
    with pytest.raises(TypeError, match="A run record holds numbers, texts, lists and mappings; got object"):
        record_at("r.json").add(thing=object())


def test_stages_are_logged(caplog):
    caplog.set_level(logging.INFO, "kernelcoreset")
    record = record_at("r.json")
    with record.stage("build"):
        pass
    with pytest.raises(KeyError), record.stage("cluster"):
        raise KeyError
    assert [re.sub(r"[\d.]+ s$", "N s", message) for message in caplog.messages] == [
        "build ...",
        "build done in N s",
        "cluster ...",
        "cluster failed after N s",
    ]


def test_the_summary_says_what_a_person_wants_to_know():
    record = record_at("out.run.json")
    with record.stage("build"), record.stage("inner"):
        record.add(rows=21_040_936, bad_rows=7, coreset_points=1000, coreset_weight=21e6, leaves=161)
    record.add(cost=200.0, coreset_cost=201.0, cluster_sizes=[750, 250], output="out (parquet)", kernel="Linear()")
    record.add(
        certificate={"largest_error": 0.012, "center_sets": 100, "fraction": 0.05, "standard_error": 0.001},
    )
    sentences = ["Cluster 0: 750 rows.", "Cluster 1: 250 rows.", "Silhouette 0.50."]
    quality = {"explained": 0.5, "silhouette": None, "stability": 0.95, "separation": -0.01}
    record.add(description={"clusters": [{}, {}], "sentences": sentences, "quality": quality})
    summary = summary_of(record)
    assert "Silhouette" not in summary
    for part in (
        "described    Cluster 0: 750 rows.",
        "             Cluster 1: 250 rows.",
        "quality      50% of the variance is between the clusters, halves of the data agree to 0.95, separation -0.01",
        "rows         21,040,936 (7 bad rows left out)",
        "kernel       Linear()",
        "coreset      1,000 points, total weight 21,000,000, from 161 leaves",
        "cost         200 on all rows; the coreset says 201 (0.50% off)",
        "clusters     0: 750 (75.0%), 1: 250 (25.0%)",
        "measured     cost within 1.20% of the truth over 100 center sets, on 5.0% of the rows, standard error 0.10%",
        "output       out (parquet)",
        "so           You can decide on the coreset: of two clusterings whose costs differ by more than 2.4% there, "
        "the better one is also better on all rows.",
        "record       out.run.json",
        "report       out.report.html",
        "seconds      build 0.0",
    ):
        assert part in summary.splitlines()


def test_a_summary_of_little_is_short():
    record = record_at("r.json")
    assert summary_of(record) == "record       r.json\nreport       r.report.html"
    quiet = record_at("r.json", run={"report": False})
    assert summary_of(quiet) == "record       r.json"
    record.add(coreset_cost=2.0, cluster_sizes=list(range(1, 24)), certificate={"largest_error": None})
    assert "cost         2 on the coreset" in summary_of(record)
    assert ", and 3 more" in summary_of(record)
    assert "measured" not in summary_of(record)
    record = record_at("r.json")
    record.add(cost=0.0, coreset_cost=0.0)
    assert "0 on all rows; the coreset says 0\n" in summary_of(record)
