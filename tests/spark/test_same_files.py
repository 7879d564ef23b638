"""A path without a scheme means the same file to Python and to Spark, or it is refused before any work."""

from pathlib import Path

import pytest
from pyspark.ml import Pipeline

import kernelcoreset as kc
from kernelcoreset.jobs import cli
from kernelcoreset.spark import KernelKMeans
from kernelcoreset.spark.same_files import refuse_two_meanings, sees_these_disks
from tests.spark.job_runs import run, write_config

HDFS = "hdfs://127.0.0.1:9"  # nobody is there, and nobody is asked


@pytest.fixture
def on_hdfs(session):
    conf = session.sparkContext._jsc.hadoopConfiguration()
    before = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", HDFS)
    yield
    conf.set("fs.defaultFS", before)


def test_what_is_refused(spark, on_hdfs):
    with pytest.raises(
        kc.SettingError, match=rf"^It has no scheme .*: /rows on this machine, and {HDFS}/rows for Spark"
    ):
        refuse_two_meanings(spark, "It", "/rows")
    for path in ("file:///rows", f"{HDFS}/rows", "/Volumes/a/b/c/rows", "s3a://bucket/rows"):
        refuse_two_meanings(spark, "It", path)


def test_the_working_directory_of_java(spark, tmp_path):
    """Java keeps the one it was started in; this process has another now."""
    refuse_two_meanings(spark, "It", str(tmp_path / "rows"))
    with pytest.raises(kc.SettingError, match=r"such as file:.* or file://.*/rows$"):
        refuse_two_meanings(spark, "It", "rows")
    assert sees_these_disks(spark)


@pytest.mark.parametrize("key", ["output.path", "input.quarantine_path"])
def test_a_job_is_refused_before_any_work(spark, on_hdfs, capsys, key):
    """It does not find out after all rows were read; nothing is left behind."""
    write_config(
        '[input]\ndemo_rows = 90\nbad_rows = "quarantine"\nquarantine_path = "file://HERE/aside"\n'
        '[kernel]\nname = "Linear"\n[coreset]\nk = 2\n[output]\npath = "file://HERE/out"\n'
    )
    assert run(cli.run_main, f"{key}=HERE/labels") == 2
    last = capsys.readouterr().err.splitlines()
    assert any(f"`{key}` has no scheme and would mean two places" in line for line in last)
    assert not any("leaves" in line for line in last)
    assert not Path("labels").exists()
    assert not Path("out").exists()


def test_a_pipeline_is_not_torn(spark, on_hdfs, tmp_path):
    stage = KernelKMeans(k=2, kernel=kc.Linear())
    with pytest.raises(kc.SettingError, match=r"^The path of a pipeline has no scheme and would mean two places"):
        stage.write().save(str(tmp_path / "pipeline" / "stages" / "0_KernelKMeans"))
    stage.write().save(str(tmp_path / "alone"))  # all of it is written by this process
    assert KernelKMeans.load(str(tmp_path / "alone")).getOrDefault("k") == 2
    place = f"file://{tmp_path}/whole"
    Pipeline(stages=[stage]).write().save(place)
    assert Pipeline.load(place).getStages()[0].getOrDefault("k") == 2
