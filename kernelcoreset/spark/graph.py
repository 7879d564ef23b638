"""Clusters of a graph whose edges are a DataFrame, as a DataFrame with one row per node.

Up to `most_edges` edges are collected on the driver, as compressed sparse rows of 12 bytes per edge and direction:
walks and sweeps visit nodes in random order, which is fastest in the memory of one machine. More edges stay on the
executors in blocks of rows; the driver then has what is per node, and asks for the rows that walks pass. New nodes are
labelled on the executors, by joins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, IntegralType, NumericType, StringType

from kernelcoreset.checks import check_columns, check_count
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.graphs.block_graph import BlockGraph
from kernelcoreset.graphs.graph import Graph
from kernelcoreset.graphs.model import GraphModel, fit_graph
from kernelcoreset.spark.columns import quoted
from kernelcoreset.spark.graph_blocks import SparkBlocks, number_nodes

BYTES_PER_EDGE = 160
"""Memory per edge, in bytes, of the Python process of the driver that collects them. String ids need more."""
MOST_EDGES = 50_000_000
"""Default of the largest number of edges that are collected on the driver."""

_SOURCE, _TARGET, _WEIGHT = "source", "target", "weight"


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of an edge: two with node ids, both integers or both strings, and optionally one with the weight."""

    source: str = "src"
    target: str = "dst"
    weight: str | None = None


@dataclass(frozen=True, eq=False)
class GraphClusters:
    """Clusters of a graph whose edges were a DataFrame.

    Parameters
    ----------
    labels : DataFrame
        The columns node and prediction, one row per node. Cluster 0 has the largest volume; nodes without an edge of
        positive weight have -1.
    model : GraphModel
        Its labels are in the order of the sorted ids; in no order that has a meaning if the edges were not collected
        and the ids are strings, or far apart. It has the exact normalized cut, the shift and the coreset.
    edges : int
        Number of edges read.
    """

    labels: DataFrame
    model: GraphModel
    edges: int

    def predict(self, frame: DataFrame, columns: EdgeColumns | None = None) -> DataFrame:
        """Return the clusters of new nodes, by their edges to known ones.

        Parameters
        ----------
        frame : DataFrame
            Edges from a new node (the source) to a known one (the target). Edges to unknown nodes are ignored.
        columns : EdgeColumns

        Returns
        -------
        DataFrame
            The columns node and prediction. It has no row for a new node without an edge to a known one.
        """
        columns = columns or EdgeColumns()
        edges = _edges(frame, columns)
        _refuse_bad(edges, columns)
        clusters = frame.sparkSession.createDataFrame(
            pa.table(
                {
                    "prediction": np.arange(self.model.k, dtype=np.int32),
                    "volume": self.model.volumes,
                    "inner": self.model.inner,
                }
            )
        )
        known = self.labels.where("prediction >= 0").withColumnRenamed("node", _TARGET)
        found = (
            edges.where("weight > 0")
            .join(known, _TARGET)
            .groupBy(_SOURCE, "prediction")
            .agg(F.sum(_WEIGHT).alias("shared"))
        )
        degree = F.sum("shared").over(Window.partitionBy(_SOURCE))
        found = found.withColumn("degree", degree).join(clusters, "prediction")
        gain = F.expr("(inner + 2 * shared) / (volume + degree) - inner / volume")
        best = found.groupBy(_SOURCE).agg(
            F.max_by("prediction", F.struct(gain, -F.col("prediction"))).alias("prediction")
        )
        return best.withColumnRenamed(_SOURCE, "node")


def cluster_graph(
    frame: DataFrame,
    k: int,
    columns: EdgeColumns | None = None,
    *,
    coreset_size: int | None = None,
    n_init: int = 5,
    max_iter: int = 30,
    seed: int = 0,
    most_edges: int = MOST_EDGES,
) -> GraphClusters:
    """Return k clusters of the nodes of a graph by normalized cut.

    Parameters
    ----------
    frame : DataFrame
        One row per edge, which counts in both directions. The weights of an edge that is given several times are added.
    k : int
    columns : EdgeColumns
        By default src and dst, and all weights are 1.
    coreset_size, n_init, max_iter, seed
        As `size`, `n_init`, `max_iter` and `seed` of `fit_graph`. The same edges give the same clusters, in any order
        and any partitioning.
    most_edges : int
        Up to this many edges are collected on the driver, 160 bytes each. If there are more, they stay on the
        executors, on their disks, until the clusters are found; the driver needs 100 bytes per node.

    Returns
    -------
    GraphClusters
    """
    columns = columns or EdgeColumns()
    check_count("most_edges", most_edges)
    edges = _edges(frame, columns)
    count = _refuse_bad(edges, columns)
    if count == 0:
        raise DataError("The graph has no edges: the input has no rows. Check the filter or the path that made it.")

    def fit(graph: Graph) -> GraphModel:
        return fit_graph(graph, k, size=coreset_size, n_init=n_init, max_iter=max_iter, seed=seed)

    if count > most_edges:
        numbering = number_nodes(edges)
        with SparkBlocks(numbering.edges(edges), numbering.n, count) as blocks:
            graph = BlockGraph(blocks, numbering.n)
            model = fit(graph)
        labels = numbering.label(frame, model.labels, graph.named)
        return GraphClusters(labels, model.restricted(graph.named), count)
    table = edges.toArrow()
    names, source, target = _number_nodes(table[_SOURCE], table[_TARGET])
    collected = Graph.from_edges(source, target, table[_WEIGHT].to_numpy(), n=len(names))
    del table, source, target
    model = fit(collected)
    return GraphClusters(_as_frame(frame.sparkSession, names, model), model, count)


def _edges(frame: DataFrame, columns: EdgeColumns) -> DataFrame:
    """The edges with the columns renamed and weights as float64; raises SettingError for columns of a wrong type."""
    types: dict[str, DataType] = {field.name: field.dataType for field in frame.schema.fields}
    wanted = {"source": [columns.source], "target": [columns.target]}
    wanted |= {} if columns.weight is None else {"weight": [columns.weight]}
    check_columns(wanted, list(types))
    kinds = [types[columns.source], types[columns.target]]
    if not (
        all(isinstance(kind, IntegralType) for kind in kinds) or all(isinstance(kind, StringType) for kind in kinds)
    ):
        shown = " and ".join(kind.simpleString() for kind in kinds)
        raise SettingError(
            f"Columns {columns.source} and {columns.target} must both hold integers or both strings; they are "
            f"{shown}. Cast them."
        )
    if columns.weight is not None and not isinstance(types[columns.weight], NumericType):
        raise SettingError(f"Column {columns.weight} must be a number; it is {types[columns.weight].simpleString()}.")
    kind = "string" if isinstance(kinds[0], StringType) else "long"
    weight = F.lit(1.0) if columns.weight is None else F.col(quoted(columns.weight)).cast("double")
    return frame.select(
        F.col(quoted(columns.source)).cast(kind).alias(_SOURCE),
        F.col(quoted(columns.target)).cast(kind).alias(_TARGET),
        weight.alias(_WEIGHT),
    )


def _refuse_bad(edges: DataFrame, columns: EdgeColumns) -> int:
    """Raise DataError if an edge lacks a node or has a bad weight; return the number of edges."""
    bad = {
        columns.source: F.col(_SOURCE).isNull(),
        columns.target: F.col(_TARGET).isNull(),
        columns.weight or "": F.col(_WEIGHT).isNull()
        | F.isnan(_WEIGHT)
        | (F.col(_WEIGHT) < 0)
        | (F.col(_WEIGHT) == float("inf")),
    }
    counts = edges.agg(F.count(F.lit(1)), *[F.count_if(condition) for condition in bad.values()]).toArrow()
    rows, *found = (int(column[0].as_py()) for column in counts.columns)
    named = [f"{name}: {number}" for name, number in zip(bad, found, strict=True) if number]
    if named:
        raise DataError(
            f"Edges must name two nodes and have a finite weight of at least 0; bad rows by column: {', '.join(named)} "
            f"of {rows}. Filter these rows."
        )
    return rows


def _number_nodes(
    source: pa.ChunkedArray, target: pa.ChunkedArray
) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """The sorted ids of all nodes, and both ends of every edge as positions among them."""
    both = pa.chunked_array([*source.chunks, *target.chunks]).dictionary_encode()
    names = both.chunk(0).dictionary
    order = pc.sort_indices(names)
    place = np.empty(len(names), dtype=np.int64)
    place[order.to_numpy()] = np.arange(len(names))
    codes = place[np.concatenate([chunk.indices.to_numpy() for chunk in both.chunks])]
    return names.take(order), codes[: len(source)], codes[len(source) :]


def _as_frame(spark: SparkSession, names: pa.Array, model: GraphModel) -> DataFrame:
    return spark.createDataFrame(pa.table({"node": names, "prediction": pa.array(model.labels, pa.int32())}))
