"""Whole jobs on a real S3 server: rows by Spark (s3a), all else by this package, both under the same names."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernelcoreset as kc
from kernelcoreset.files.atomic import read_file
from kernelcoreset.files.paths import open_path
from kernelcoreset.jobs.record import read_record
from tests.services.jars import S3A, S3A_GROUPS, jars
from tests.services.killed_runs import Runs
from tests.spark.nights import points_of

PLATFORM = "S3 and hadoop-aws 3.5.0", "jobs run, update and stream with all their files on S3"
ROOT = "s3a://bucket/jobs"
SETTINGS = """
[input]
path = "{root}/in"
features = ["x", "y"]
schema = "id long, x double, y double"
bad_rows = "quarantine"
quarantine_path = "{root}/{job}/aside"
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
path = "{root}/{job}/coreset.parquet"
[cluster]
n_init = 2
model_path = "{root}/{job}/model"
[certificate]
center_sets = 0
[store]
path = "{root}/{job}/store"
[stream]
checkpoint = "{root}/{job}/checkpoint"
[output]
path = "{root}/{job}/out"
[run]
record = "{root}/{job}/record.json"
"""


def put_rows(number, n=200):
    points = points_of(number, n)
    x = [None, *points[1:, 0].tolist()]  # the first row is bad
    table = pa.table({"id": pa.array(1000 * number + i for i in range(n)), "x": x, "y": points[:, 1]})
    system, place = open_path(f"{ROOT}/in/{number:04}.parquet")
    pq.write_table(table, place, filesystem=system)


def runs_of(job, folder, s3, **conf):
    folder.mkdir()
    (folder / "job.toml").write_text(SETTINGS.format(root=ROOT, job=job))
    conf = {
        "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        **conf,
    }
    return Runs(job, folder, jars(S3A, S3A_GROUPS), conf, has_file_system=True)


def table_at(path):
    system, place = open_path(f"{ROOT}/{path}")
    return pq.read_table(place, filesystem=system)


@pytest.fixture(scope="module", autouse=True)
def rows(s3):
    put_rows(1)


def test_run(s3, tmp_path):
    runs_of("run", tmp_path / "run", s3).finish()
    assert table_at("run/out").num_rows == 199
    (bad,) = table_at("run/aside").to_pylist()
    assert (bad["id"], bad["source_file"]) == (1000, f"{ROOT}/in/0001.parquet")
    record = read_record(f"{ROOT}/run/record.json")
    assert (record["status"], record["rows"], record["bad_rows"]) == ("done", 200, 1)
    coreset = kc.Coreset.read_parquet(f"{ROOT}/run/coreset.parquet")
    assert coreset.weights.sum() == pytest.approx(199, rel=0.2)
    assert kc.KernelKMeansModel.load(f"{ROOT}/run/model").k == 3


def test_a_stream_in_two_sittings_and_a_night(s3, tmp_path):
    stream = runs_of("stream", tmp_path / "stream", s3)
    stream.finish()
    update = runs_of("update", tmp_path / "update", s3)
    update.finish()
    put_rows(2)
    stream.finish()
    update.finish()
    for job in ("stream", "update"):
        found = table_at(f"{job}/out")
        assert sorted(found["id"].to_pylist()) == [*range(1001, 1200), *range(2001, 2200)]
        assert table_at(f"{job}/aside").num_rows == 2
        store = kc.CoresetStore.open(f"{ROOT}/{job}/store")
        assert store.guarantee == "conditional put"
        assert sum(store.info(key)["rows"] for key in store.keys()) == 398  # noqa: SIM118
    names = json.loads(read_file(*open_path(f"{ROOT}/update/record.json")))["keys"]
    assert (names["new"], names["changed"]) == (1, 0)


def test_a_path_without_a_scheme_has_one_meaning(s3, tmp_path):
    """On the disk of the job, or refused before any work if Spark would take it elsewhere."""
    runs = runs_of("run", tmp_path / "run", s3, **{"spark.hadoop.fs.defaultFS": "s3a://bucket"})
    process = runs.start("--set", "output.path=/labels")
    assert process.wait(timeout=600) == 2
    last = runs.log.read_text().splitlines()[-2:]
    assert any(
        "`output.path` has no scheme and would mean two places: /labels on this machine" in line for line in last
    )
    assert any("Write the one that you mean with its scheme, such as s3a://bucket/labels" in line for line in last)
    assert "leaves" not in runs.log.read_text()
