"""The graph job: reads edges, clusters the nodes, writes one row per node with its cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from kernelcoreset.checks import check_columns
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.cluster import save_model
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.spark.graph import BYTES_PER_EDGE, EdgeColumns, cluster_graph
from kernelcoreset.spark.jobs.delta import Commit
from kernelcoreset.spark.jobs.history import recorded_session
from kernelcoreset.spark.jobs.input import read_input
from kernelcoreset.spark.jobs.output import check_output, check_tables, write_output
from kernelcoreset.spark.jobs.session import open_session


def run(settings: Settings, record: RunRecord) -> None:
    """Cluster the nodes of a graph, and write node and cluster."""
    with recorded_session(settings, record) as spark:
        _run(spark, settings, record)


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a run would read and need, without running it."""
    with open_session(settings) as spark:
        frame, _ = _open(spark, settings)
        edges = frame.count()
    most = settings.graph.most_edges
    if edges > most:
        return {"edges": edges, "most_edges": most, "edges_are": "more than that: they stay on the executors"}
    return {"edges": edges, "most_edges": most, "driver_bytes": edges * BYTES_PER_EDGE}


def _run(spark: SparkSession, settings: Settings, record: RunRecord) -> None:
    check_output(spark, settings.output)
    frame, columns = _open(spark, settings)
    check_tables(spark, settings, frame)
    with record.stage("cluster"):
        found = cluster_graph(
            frame,
            settings.coreset.k,
            columns,
            coreset_size=settings.graph.coreset_size,
            n_init=settings.cluster.n_init,
            seed=settings.coreset.seed,
            most_edges=settings.graph.most_edges,
        )
    model = found.model
    record.add(
        rows=found.edges,
        nodes=len(model.labels),
        kernel=f"a graph of {len(model.labels):,} nodes, walks of {model.hops} steps, cut {model.normalized_cut:.6g}",
        exact_normalized_cut=model.normalized_cut,
        shift=model.shift,
        hops=model.hops,
        sweeps=model.sweeps,
        coreset_points=len(model.coreset_nodes),
        cluster_sizes=np.bincount(model.labels[model.labels >= 0], minlength=model.k),
        nodes_without_edges=int(np.count_nonzero(model.labels < 0)),
    )
    save_model(model, settings, record)
    labels = found.labels.withColumnRenamed("prediction", settings.output.prediction_col)
    with record.stage("write"):
        write_output(labels, settings.output, commit=Commit(record.job, record.id))
    record.add(output=settings.output.path or settings.output.table)


def _open(spark: SparkSession, settings: Settings) -> tuple[DataFrame, EdgeColumns]:
    if settings.input.bad_rows != "fail":
        raise SettingError(
            f'`input.bad_rows` must be "fail" for a graph; got {settings.input.bad_rows!r}. Filter with `input.where`.'
        )
    columns = EdgeColumns(settings.graph.source_col, settings.graph.target_col, settings.input.weight_col)
    frame = read_input(spark, settings.input, settings.coreset.seed)
    wanted = {
        "graph.source_col": columns.source,
        "graph.target_col": columns.target,
        "input.weight_col": columns.weight,
    }
    check_columns({setting: [name] for setting, name in wanted.items() if name}, frame.columns)
    return frame, columns
