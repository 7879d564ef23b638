"""Graphs on Spark: a DataFrame of edges in, a DataFrame with a cluster for every node out.

The edges are gathered on the driver, as compressed rows of 12 bytes an edge and direction: a graph's clusters are found
by walks and sweeps that jump from node to node, which one machine's memory serves in seconds and a shuffle does not.
Up to `most_edges`; new nodes are labelled on the executors, by joins.
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
from kernelcoreset.graphs.graph import Graph
from kernelcoreset.graphs.model import GraphModel, fit_graph
from kernelcoreset.spark.columns import quoted

BYTES_PER_EDGE = 160
"""Bytes of the driver's Python that an edge takes on its way to compressed rows; ids that are texts come on top."""
MOST_EDGES = 50_000_000
"""Rows of edges gathered on the driver at most, unless more are allowed."""

_SOURCE, _TARGET, _WEIGHT = "source", "target", "weight"


@dataclass(frozen=True)
class EdgeColumns:
    """Where an edge is found: two columns of node ids of one type, whole numbers or texts, and maybe a weight."""

    source: str = "src"
    target: str = "dst"
    weight: str | None = None


@dataclass(frozen=True, eq=False)
class GraphClusters:
    """Clusters of a graph that came as a DataFrame.

    Parameters
    ----------
    labels : DataFrame
        The columns node and prediction, one row a node: clusters by falling volume, -1 without edges of weight above 0.
    model : GraphModel
        Clusters by the position of a node in the sorted list of ids; exact normalized cut, shift, coreset.
    edges : int
        Rows of edges read.
    """

    labels: DataFrame
    model: GraphModel
    edges: int

    def predict(self, frame: DataFrame, columns: EdgeColumns | None = None) -> DataFrame:
        """Return node and prediction of new nodes, by their edges to known ones.

        Parameters
        ----------
        frame : DataFrame
            Edges from a new node (the source) to a known one (the target). Edges to unknown nodes are passed over.
        columns : EdgeColumns

        Returns
        -------
        DataFrame
            The columns node and prediction; new nodes without an edge to a known one are left out.
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
        One row an edge; it counts in both directions, and an edge given several times has the sum of its weights.
    k : int
    columns : EdgeColumns
        By default src and dst, all of weight 1.
    coreset_size, n_init, max_iter, seed
        As `size` and the others in `fit_graph`. The same edges in any order and partitions give the same clusters.
    most_edges : int
        Refuse more rows than this before gathering any of them.

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
    if count > most_edges:
        raise DataError(
            f"The graph has {count:,} edges; at most {most_edges:,} are gathered on the driver, {BYTES_PER_EDGE} bytes "
            "each. Drop light edges or add up duplicates first, or raise most_edges on a driver with the memory."
        )
    table = edges.toArrow()
    names, source, target = _number_nodes(table[_SOURCE], table[_TARGET])
    graph = Graph.from_edges(source, target, table[_WEIGHT].to_numpy(), n=len(names))
    del table, source, target
    model = fit_graph(graph, k, size=coreset_size, n_init=n_init, max_iter=max_iter, seed=seed)
    return GraphClusters(_as_frame(frame.sparkSession, names, model), model, count)


def _edges(frame: DataFrame, columns: EdgeColumns) -> DataFrame:
    """The edges under names of our own, weights as float64; columns of a wrong kind are refused."""
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
            f"Columns {columns.source} and {columns.target} must both hold whole numbers or both texts; they are "
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
    """Refuse edges without a node or with a weight that is none, counted by column; return the number of rows."""
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
    """The sorted ids of all nodes, and both ends of every edge as positions in them."""
    both = pa.chunked_array([*source.chunks, *target.chunks]).dictionary_encode()
    names = both.chunk(0).dictionary
    order = pc.sort_indices(names)
    place = np.empty(len(names), dtype=np.int64)
    place[order.to_numpy()] = np.arange(len(names))
    codes = place[np.concatenate([chunk.indices.to_numpy() for chunk in both.chunks])]
    return names.take(order), codes[: len(source)], codes[len(source) :]


def _as_frame(spark: SparkSession, names: pa.Array, model: GraphModel) -> DataFrame:
    return spark.createDataFrame(pa.table({"node": names, "prediction": pa.array(model.labels, pa.int32())}))
