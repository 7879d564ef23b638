"""Jobs on a standalone cluster of real processes: the package shipped, executors lost, input that cannot be used."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelcoreset.kernels.machine_code import ARCHIVE_PREFIX
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from tests.environments import lend_packages, make_environment
from tests.faults.standalone import Cluster, listed_processes, wait_until

FILES, ROWS = 8, 37_500  # every file is a task of its own
SETTINGS = """
[input]
path = "{points}"
features = ["x", "y"]
id_col = "id"
{where}
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 200
seed = 7
path = "{folder}/coreset.parquet"
[cluster]
model_path = "{model}"
[output]
path = "{folder}/labels"
mode = "overwrite"
[certificate]
center_sets = 10
[spark.conf]
"spark.sql.files.maxPartitionBytes" = "1m"
"""
# One row of every file takes some seconds to read: time to strike while tasks are at work, without a core being busy.
SLOWLY = f"where = \"id % {ROWS} <> 20000 OR reflect('java.lang.Thread', 'sleep', 2500L) = 'null'\""


def points_of(generator, rows):
    """Three clouds of different size."""
    clouds = np.array([[-10.0, 0.0], [4.0, 6.0], [8.0, -9.0]])
    return clouds[generator.choice(3, size=rows, p=[0.5, 0.3, 0.2])] + generator.normal(scale=2.0, size=(rows, 2))


def write_points(path, first, points):
    ids = np.arange(first, first + len(points))
    pq.write_table(pa.table({"id": ids, "x": points[:, 0], "y": points[:, 1]}), path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    python = make_environment(folder / "environment")
    lend_packages(folder / "environment")
    with Cluster(folder, python) as running:
        yield running
    wait_until(lambda: str(folder) not in listed_processes(), "all processes of the cluster to be gone")


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    folder = tmp_path_factory.mktemp("points")
    generator = np.random.default_rng(1)
    for number in range(FILES):
        write_points(folder / f"{number}.parquet", number * ROWS, points_of(generator, ROWS))
    return folder


def prepare(folder, points, model=None, where=""):
    """Return what a job is told, and where it leaves its results."""
    place = SimpleNamespace(
        config=folder / "job.toml",
        labels=folder / "labels",
        coreset=folder / "coreset.parquet",
        record=folder / "labels.run.json",
        model=model or folder / "model",
    )
    place.config.write_text(SETTINGS.format(points=points, folder=folder, model=place.model, where=where))
    return place


@pytest.fixture(scope="module")
def undisturbed(cluster, points, tmp_path_factory):
    place = prepare(tmp_path_factory.mktemp("undisturbed"), points, where=SLOWLY)
    job = cluster.submit("run.py", place.config)
    assert job.wait() == 0, job.log()
    assert "Lost executor" not in job.log()
    return place


def labels_by_id(place):
    return pq.read_table(place.labels).sort_by("id")


def test_executors_work_with_the_package_that_was_shipped(cluster, undisturbed):
    alone = subprocess.run([cluster.python, "-c", "import kernelcoreset"], cwd=cluster.folder, capture_output=True)
    assert b"No module named 'kernelcoreset'" in alone.stderr
    assert len(list(cluster.folder.glob("*/app-*/*/kernelcoreset.zip"))) >= 2


def test_executors_use_the_machine_code_of_the_driver(cluster, undisturbed):
    archives = [path.name for path in cluster.folder.rglob(f"{ARCHIVE_PREFIX}*.zip")]
    assert archives  # in the work folders of the executors
    assert list(cluster.machine_code.rglob("*.code")) == []  # where they would keep what they compile


@pytest.mark.parametrize(("kernel", "d", "k"), [("Cosine", 16, 3), ("Gaussian", 16, 3), ("Gaussian", 2, 30)])
def test_executors_compile_nothing_for_many_columns_or_many_clusters(cluster, kernel, d, k, tmp_path):
    rows = np.random.default_rng(2).normal(size=(3_000, d)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(rows.ravel(), d).cast(pa.list_(pa.float32()))
    place = prepare(tmp_path, tmp_path / "points")
    place.config.write_text(
        place.config.read_text()
        .replace('["x", "y"]', '["x"]')
        .replace('"Gaussian"\nsigma = 5.0', f'"{kernel}"' + ("\nsigma = 3.0" if kernel == "Gaussian" else ""))
        .replace("k = 3", f"k = {k}")
    )
    (tmp_path / "points").mkdir()
    pq.write_table(pa.table({"id": np.arange(len(rows)), "x": lists}), tmp_path / "points" / "rows.parquet")
    job = cluster.submit("run.py", place.config)
    assert job.wait() == 0, job.log()
    assert list(cluster.machine_code.rglob("*.code")) == []


def test_every_row_has_the_label_that_the_model_gives_it_in_numpy(undisturbed, points):
    rows = pq.read_table(points).sort_by("id")
    found = labels_by_id(undisturbed)
    assert found.select(["id", "x", "y"]).equals(rows)
    model = KernelKMeansModel.load(undisturbed.model)
    expected = model.predict(np.column_stack([rows["x"], rows["y"]]))
    np.testing.assert_array_equal(found["prediction"], expected)
    record = json.loads(undisturbed.record.read_text())
    assert (record["rows"], record["bad_rows"], record["leaves"]) == (FILES * ROWS, 0, FILES)
    assert record["cluster_sizes"] == np.bincount(expected).tolist()


def test_executors_lost_in_both_passes_change_nothing(cluster, undisturbed, points, tmp_path):
    place = prepare(tmp_path, points, where=SLOWLY)
    job = cluster.submit("run.py", place.config)
    job.kill_an_executor("build/leaves")
    job.kill_an_executor("assign/write")
    assert job.wait() == 0, job.log()
    for stage in ("build/leaves", "assign/write"):
        lines = re.search(f"{stage} \\.\\.\\.(.*){stage} done", job.log(), re.DOTALL)
        assert re.search("Lost task .* ExecutorLostFailure", lines[1]), f"{stage} lost no task:\n{job.log()}"
    assert place.coreset.read_bytes() == undisturbed.coreset.read_bytes()
    assert labels_by_id(place).equals(labels_by_id(undisturbed))
    for measured in ("rows", "cost", "coreset_cost", "cluster_sizes", "cluster_costs", "certificate"):
        assert json.loads(place.record.read_text())[measured] == json.loads(undisturbed.record.read_text())[measured]


@pytest.mark.parametrize("name", ["run.py", "assign.py"])
def test_a_failing_job_leaves_the_old_output_and_says_why(name, cluster, undisturbed, points, tmp_path):
    """The run fails before it labels; the labelling alone fails when other tasks have written their rows already."""
    bad = np.zeros((1_000, 2))
    bad[3, 0], bad[5, 1], bad[8, 1] = np.nan, np.inf, np.nan
    mixed = shutil.copytree(points, tmp_path / "points")
    write_points(mixed / "bad.parquet", FILES * ROWS, bad)
    place = prepare(tmp_path, mixed, model=undisturbed.model)
    shutil.copytree(undisturbed.labels, place.labels)
    before = contents(place.labels)

    job = cluster.submit(name, place.config)
    assert job.wait() == 3, job.log()
    last_line = job.log().rstrip().splitlines()[-1]
    assert "Bad data: 3 of" in last_line
    assert "by column: x: 1, y: 2" in last_line
    assert contents(place.labels) == before
    assert sorted(path.name for path in tmp_path.glob("*labels*")) == ["labels", "labels.run.failed.json"]
    failure = json.loads((tmp_path / "labels.run.failed.json").read_text())
    assert failure["status"] == "failed"
    assert "3 of" in failure["error"]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
