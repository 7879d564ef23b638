"""The table of jobs, and the entry points that start them.

The console entry points (`kernelcoreset-run`, ...) and the scripts in `jobs/` call the same functions. A job names the
functions that do its work as "module:function". They are imported after the settings have been checked, so that a
mistake in the settings is reported without Spark, and this folder does not import `kernelcoreset.spark`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

import kernelcoreset
from kernelcoreset.jobs.explain import DONE
from kernelcoreset.jobs.report import make_report
from kernelcoreset.jobs.runner import Job, log_to_stderr, report, run_job

_RUN = ("run", "mlflow")
_ROWS = ("input", "features?", "kernel", "coreset", "spark", *_RUN)
_FEATURES = "input.features"
_OUTPUT = "output.path|output.table"
_BATCH = "kernelcoreset.spark.jobs.batch"

JOBS = {
    job.name: job
    for job in (
        Job(
            "build-coreset",
            "Read all rows once and write a coreset: a small weighted set of rows that represents all of them.",
            work=f"{_BATCH}:build_coreset",
            plan=f"{_BATCH}:plan",
            sections=_ROWS,
            needs=(
                _FEATURES,
                "coreset.path",
            ),
            record_beside="coreset.path",
            writes=("coreset.path",),
        ),
        Job(
            "cluster",
            "Find the clusters on a coreset that build-coreset wrote, and save the model. Reads no rows.",
            work="kernelcoreset.jobs.cluster:run",
            plan="kernelcoreset.jobs.cluster:plan",
            sections=("coreset", "cluster", *_RUN),
            needs=("coreset.path", "cluster.model_path"),
            record_beside="cluster.model_path",
            writes=("cluster.model_path",),
        ),
        Job(
            "assign",
            "Label every row with the model that cluster saved, and write the rows with their cluster and distance.",
            work=f"{_BATCH}:assign",
            plan=f"{_BATCH}:plan_assign",
            sections=("input", "coreset", "cluster", "output", "certificate", "spark", *_RUN),
            needs=(_FEATURES, "cluster.model_path", _OUTPUT),
        ),
        Job(
            "run",
            "Cluster all rows of a table: build the coreset, find the clusters on it, label every row and write the "
            "result.",
            work=f"{_BATCH}:run",
            plan=f"{_BATCH}:plan",
            sections=(*_ROWS, "cluster", "output", "certificate"),
            needs=(
                _FEATURES,
                _OUTPUT,
            ),
            writes=("coreset.path", "cluster.model_path"),
        ),
        Job(
            "spectral",
            "Spectral clustering of all rows, by nearest neighbors or, with [kernel], by a kernel: build a coreset, "
            "find its best cut, and label every row. With cluster.model_path the model is saved, and assign labels new "
            "rows with it.",
            work=f"{_BATCH}:spectral",
            plan=f"{_BATCH}:plan",
            sections=(
                "input",
                "features?",
                "kernel?",
                "coreset",
                "spark",
                *_RUN,
                "cluster",
                "spectral",
                "output",
                "certificate",
            ),
            needs=(
                _FEATURES,
                _OUTPUT,
            ),
            writes=("coreset.path", "cluster.model_path"),
        ),
        Job(
            "graph",
            "Cluster the nodes of a graph by normalized cut. The input has one row per edge (section [graph]), the "
            "output one row per node with its cluster. With cluster.model_path the model is saved.",
            work="kernelcoreset.spark.jobs.graph:run",
            plan="kernelcoreset.spark.jobs.graph:plan",
            sections=("input", "coreset", "cluster", "graph", "output", "spark", *_RUN),
            needs=(_OUTPUT,),
            writes=("cluster.model_path",),
        ),
        Job(
            "update",
            "Follow a table that grows: rebuild the coresets of new and changed partitions only, fit again, and label "
            "what is new.",
            work="kernelcoreset.spark.jobs.update:run",
            plan="kernelcoreset.spark.jobs.update:plan",
            sections=(*_ROWS, "cluster", "output", "certificate", "store", "update"),
            needs=(_FEATURES, "store.path", f"{_OUTPUT}|update.label=none"),
        ),
        Job(
            "stream",
            "Follow a stream: add every micro-batch to the store exactly once, label it, and fit again now and then.",
            work="kernelcoreset.spark.jobs.stream:run",
            plan="kernelcoreset.spark.jobs.stream:plan",
            sections=(*_ROWS, "cluster", "output", "store", "stream"),
            needs=(_FEATURES, "store.path", "stream.checkpoint", _OUTPUT),
        ),
    )
}

# One function per entry point: a Databricks wheel task calls it in a process whose program name says nothing.
build_coreset_main = partial(run_job, JOBS["build-coreset"])
cluster_main = partial(run_job, JOBS["cluster"])
assign_main = partial(run_job, JOBS["assign"])
run_main = partial(run_job, JOBS["run"])
spectral_main = partial(run_job, JOBS["spectral"])
graph_main = partial(run_job, JOBS["graph"])
update_main = partial(run_job, JOBS["update"])
stream_main = partial(run_job, JOBS["stream"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run `kernelcoreset JOB ...` or `kernelcoreset report RECORD`; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="kernelcoreset",
        description="Kernel clustering of data of any size. `kernelcoreset COMMAND --help` says more.",
        usage="%(prog)s COMMAND ...",
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=["report", *JOBS], metavar="COMMAND", help=f"report, {', '.join(JOBS)}")
    parser.add_argument("--version", action="version", version=f"kernelcoreset {kernelcoreset.__version__}")
    command = parser.parse_args(given[:1]).command
    if command != "report":
        return run_job(JOBS[command], given[1:])
    log_to_stderr()
    try:
        make_report(given[1:])
    except Exception as error:
        return report(error)
    return DONE
