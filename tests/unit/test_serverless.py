"""What serverless compute refuses, and the package therefore does not use.

The rest of its limits is tested where the parts run: tests/services/test_databricks.py has the jobs of the bundle and
notebooks with nothing but the client.
"""

import ast
from pathlib import Path

import kernelcoreset

PACKAGE = Path(kernelcoreset.__file__).parent
OF_RDDS = {"rdd", "sparkContext", "SparkContext", "broadcast", "parallelize", "addPyFile", "accumulator"}
OF_CACHES = {"cache", "persist", "checkpoint", "localCheckpoint", "cacheTable", "StorageLevel"}
# Files that use one of them, and why that is no harm.
KNOWN = {
    ("spark/hadoop.py", "sparkContext"),  # on classic Spark alone; Connect has another way
    ("spark/graph_blocks.py", "persist"),  # graphs that do not fit into the driver: docs/platforms/databricks.md
    ("spark/graph_blocks.py", "StorageLevel"),
}


def used_names(path):
    """Attributes and imported names of a module of Spark code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
            yield from (name.name for name in node.names)


def spark_files():
    return {path.relative_to(PACKAGE).as_posix(): path for path in (PACKAGE / "spark").rglob("*.py")}


def test_no_rdd_and_no_cache():
    # A setting of a stream is called checkpoint too.
    found = {
        (name, used)
        for name, path in spark_files().items()
        for used in used_names(path)
        if used in OF_RDDS | OF_CACHES and not (used == "checkpoint" and name.startswith("spark/jobs/"))
    }
    assert found == KNOWN


def settings_set(path):
    """The calls `….conf.set(…)` and `….config(…)` of a module, as source."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = ast.unparse(node.func)
            if target.endswith(("conf.set", ".config")):
                yield ast.unparse(node)


def test_no_conf_is_set_on_a_session_that_is_there():
    found = {name: sorted(settings_set(path)) for name, path in spark_files().items()}
    assert {name: calls for name, calls in found.items() if calls} == {
        # Of the settings file, where the bundle has none, and for a session that the job starts itself.
        "spark/jobs/session.py": [
            "builder.config('spark.sql.pyspark.jvmStacktrace.enabled', 'true')",
            "builder.config(name, value)",
        ],
        # For tables of plain files with overwrite-partitions; the tables of the bundle are Delta.
        "spark/jobs/output.py": [
            "spark.conf.set(_PARTITION_MODE, 'dynamic')",
            "spark.conf.set(_PARTITION_MODE, before)",
        ],
        # Larger batches for narrow rows. A platform may refuse: the pass then only takes longer.
        "spark/large_batches.py": ["spark.conf.set(name, value)", "spark.conf.set(name, value)"],
    }
