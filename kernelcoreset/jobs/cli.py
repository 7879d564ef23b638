"""The jobs: what each needs and does, and the functions that start them.

`jobs/*.py` and the console entry points (`kernelcoreset-run`, ...) call the same functions at the end. pyspark is
imported only once the settings are known to be good, through `kernelcoreset.spark`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.runner import Job, run_job
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spectral.model import load_model


def _build_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs import batch as pipeline
    from kernelcoreset.spark.jobs.session import open_session

    with open_session(settings, record.stage("session")) as spark, record.stage("build"):
        pipeline.build(spark, settings, record)


def _cluster_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs import batch as pipeline

    coreset = Coreset.read_parquet(str(settings.coreset.path))
    with record.stage("cluster"):
        pipeline.cluster(coreset, settings, record)


def _assign_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs import batch as pipeline
    from kernelcoreset.spark.jobs.session import open_session

    model = load_model(str(settings.cluster.model_path))
    with open_session(settings, record.stage("session")) as spark, record.stage("assign"):
        pipeline.assign(spark, model, settings, record)


def _run_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs import batch as pipeline
    from kernelcoreset.spark.jobs.session import open_session

    with open_session(settings, record.stage("session")) as spark:
        pipeline.check(spark, settings)
        with record.stage("build"):
            coreset = pipeline.build(spark, settings, record)
        with record.stage("cluster"):
            model = pipeline.cluster(coreset, settings, record)
        with record.stage("assign"):
            pipeline.assign(spark, model, settings, record)


def _update_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs.session import open_session
    from kernelcoreset.spark.jobs.update import update

    if settings.update.label != "none":
        settings.require("update", _OUTPUT)
    with open_session(settings, record.stage("session")) as spark:
        update(spark, settings, record)


def _stream_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs.session import open_session
    from kernelcoreset.spark.jobs.stream import stream

    with open_session(settings, record.stage("session")) as spark:
        stream(spark, settings, record)


def _spectral_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs import batch as pipeline
    from kernelcoreset.spark.jobs.session import open_session

    with open_session(settings, record.stage("session")) as spark:
        pipeline.check(spark, settings)
        with record.stage("degrees"):
            degrees = pipeline.degrees(spark, settings, record)
        with record.stage("build"):
            coreset = pipeline.build(spark, settings, record, degrees)
        with record.stage("cluster"):
            model = pipeline.cut(coreset, settings, record, degrees)
        with record.stage("assign"):
            pipeline.assign(spark, model, settings, record)


def _graph_work(settings: Settings, record: RunRecord) -> None:
    from kernelcoreset.spark.jobs import graph as graph_job
    from kernelcoreset.spark.jobs.session import open_session

    with open_session(settings, record.stage("session")) as spark:
        graph_job.run(spark, settings, record)


def _graph_plan(settings: Settings) -> Mapping[str, Any]:
    from kernelcoreset.spark.jobs import graph as graph_job
    from kernelcoreset.spark.jobs.session import open_session

    with open_session(settings) as spark:
        plan: Mapping[str, Any] = graph_job.plan(spark, settings)
    return plan


def _spark_plan(settings: Settings) -> Mapping[str, Any]:
    from kernelcoreset.spark.jobs import batch as pipeline
    from kernelcoreset.spark.jobs.session import open_session

    with open_session(settings) as spark:
        plan: Mapping[str, Any] = pipeline.plan(spark, settings)
    return plan


def _update_plan(settings: Settings) -> Mapping[str, Any]:
    from kernelcoreset.spark.jobs.session import open_session
    from kernelcoreset.spark.jobs.update import plan

    with open_session(settings) as spark:
        return plan(spark, settings)


def _stream_plan(settings: Settings) -> Mapping[str, Any]:
    from kernelcoreset.spark.jobs.session import open_session
    from kernelcoreset.spark.jobs.stream import plan

    with open_session(settings) as spark:
        return plan(spark, settings)


def _cluster_plan(settings: Settings) -> Mapping[str, Any]:
    coreset = Coreset.read_parquet(str(settings.coreset.path))
    return {"coreset_points": len(coreset), "k": settings.cluster.k, "restarts": settings.cluster.n_init}


_OUTPUT = "output.path|output.table"
BUILD_CORESET = Job(
    "build-coreset",
    "Read all rows once and keep a small weighted set of them, the coreset, that stands for all of them.",
    _build_work,
    _spark_plan,
    needs=("coreset.path",),
    beside="coreset.path",
)
CLUSTER = Job(
    "cluster",
    "Find the clusters on a coreset that build-coreset wrote, and save the model. Takes seconds; reads no rows.",
    _cluster_work,
    _cluster_plan,
    needs=("coreset.path", "cluster.model_path"),
    beside="cluster.model_path",
)
ASSIGN = Job(
    "assign",
    "Label every row with the model that cluster saved, and write the rows with their cluster and distance.",
    _assign_work,
    _spark_plan,
    needs=("cluster.model_path", _OUTPUT),
)
RUN = Job(
    "run",
    "Cluster all rows of a table: build the coreset, find the clusters on it, label every row and write the result.",
    _run_work,
    _spark_plan,
    needs=(_OUTPUT,),
)
SPECTRAL = Job(
    "spectral",
    "Spectral clustering of all rows: degrees from a sample, a coreset of the normalized kernel, its best cut, and a "
    "label for every row. With cluster.model_path the model is kept, and assign labels new rows with it.",
    _spectral_work,
    _spark_plan,
    needs=(_OUTPUT,),
)

GRAPH = Job(
    "graph",
    "Cluster the nodes of a graph by normalized cut: rows are edges (section [graph]), the output is a row a node with "
    "its cluster. With cluster.model_path the model is kept.",
    _graph_work,
    _graph_plan,
    needs=(_OUTPUT,),
)


UPDATE = Job(
    "update",
    "Follow a table that grows: rebuild the coresets of new and changed partitions only, refit, label what is new.",
    _update_work,
    _update_plan,
    needs=("store.path",),
)


STREAM = Job(
    "stream",
    "Follow a stream: every micro-batch goes into the store once, is labelled, and refits the model in turn.",
    _stream_work,
    _stream_plan,
    needs=("store.path", "stream.checkpoint", _OUTPUT),
)


def build_coreset_main(argv: Sequence[str] | None = None) -> int:
    """Run the job that builds a coreset from all rows."""
    return run_job(BUILD_CORESET, argv)


def cluster_main(argv: Sequence[str] | None = None) -> int:
    """Run the job that finds the clusters on a coreset."""
    return run_job(CLUSTER, argv)


def assign_main(argv: Sequence[str] | None = None) -> int:
    """Run the job that labels every row."""
    return run_job(ASSIGN, argv)


def graph_main(argv: Sequence[str] | None = None) -> int:
    """Run the job that clusters the nodes of a graph."""
    return run_job(GRAPH, argv)


def run_main(argv: Sequence[str] | None = None) -> int:
    """Run all three jobs in one."""
    return run_job(RUN, argv)


def update_main(argv: Sequence[str] | None = None) -> int:
    """Run the job that follows what has changed in the input."""
    return run_job(UPDATE, argv)


def stream_main(argv: Sequence[str] | None = None) -> int:
    """Run the job that follows a stream."""
    return run_job(STREAM, argv)


def spectral_main(argv: Sequence[str] | None = None) -> int:
    """Run spectral clustering of all rows."""
    return run_job(SPECTRAL, argv)
