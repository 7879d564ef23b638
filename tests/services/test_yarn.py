"""A YARN cluster of one node: ./spark-submit.sh in client and cluster mode, executors with a bare Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from kernelcoreset.jobs.record import read_record
from tests.faults.standalone import ROOT, wait_until
from tests.services.jars import YARN, jars

PLATFORM = "Hadoop YARN 3.5.0", "job run in client and cluster mode, executors with a bare Python"
JOB = """
[input]
demo_rows = 3000
[kernel]
name = "Gaussian"
sigma = 50.0
[coreset]
k = 3
coreset_size = 100
[cluster]
n_init = 2
[output]
path = "{folder}/out"
"""
SMALL = {
    "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",  # spares the upload
    "spark.executor.instances": 1,
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "700m",
    "spark.driver.memory": "700m",
    "spark.yarn.am.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.yarn.submit.waitAppCompletion": "true",
}


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    """The folder of a cluster's configuration."""
    folder = tmp_path_factory.mktemp("yarn")
    (folder / "conf").mkdir()
    source = Path(__file__).with_name("Mini.java")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
    command = [str(java), "-Xmx700m", "-cp", ":".join(jars(YARN)), str(source), str(folder / "conf")]
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(
            lambda: "The cluster is ready" in (folder / "log").read_text() or server.poll() is not None, "the cluster"
        )
        assert server.poll() is None, (folder / "log").read_text()[-3000:]
        yield folder / "conf"
    finally:
        server.terminate()
        server.wait(timeout=60)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_job_on_yarn(mode, yarn, tmp_path):
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    # The Python that this environment was made from has none of its packages.
    bare = os.path.realpath(sys.executable)
    options = [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
    command = [str(ROOT / "spark-submit.sh"), "--master", "yarn", "--deploy-mode", mode, "--ship-environment", *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    own = {"HADOOP_CONF_DIR": str(yarn), "PYSPARK_PYTHON": bare, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*command, str(ROOT / "jobs" / "run.py"), "--config", str(tmp_path / "job.toml")],
        cwd=tmp_path, env=kept | own, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert pq.read_table(tmp_path / "out").num_rows == 3000
    record = read_record(tmp_path / "out.run.json")
    assert (record["status"], record["rows"], sum(record["cluster_sizes"])) == ("done", 3000, 3000)
