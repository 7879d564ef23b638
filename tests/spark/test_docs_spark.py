"""The Spark blocks of the README and of docs/, and the output of the demo job."""

import pytest

from kernelcoreset.jobs import cli
from tests.pages import PAGES, ROOT, blocks_of, python_blocks, reads_alike, run_page

WITH_SPARK = [page for page in PAGES if any(block.needs_spark for block, _ in python_blocks(page))]


@pytest.mark.parametrize("page", WITH_SPARK)
def test_spark_blocks(page, spark, tmp_path):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    run_page(page, {"spark": spark, "path": str(tmp_path / "saved")}, with_spark=True)


def test_the_pages_have_spark_blocks():
    assert {"README.md", "docs/guide.md"} <= set(WITH_SPARK)


def test_the_demo_prints_what_the_readme_says(spark, tmp_path, capsys):
    """The session of the tests has two cores, as the machine of the README; more would make more leaves."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "131072")  # as in conf/spark-defaults.conf
    expected = next(block.text for block in blocks_of("README.md") if block.text.startswith("rows "))
    assert cli.run_main(["--config", str(ROOT / "conf/demo.toml"), "--set", f"output.path={tmp_path}/labels"]) == 0
    printed = capsys.readouterr().out
    found = printed[printed.index("rows   ") :].splitlines(keepends=True)[: expected.count("\n")]
    assert reads_alike("".join(found), expected), printed
