"""`explore` for a Spark DataFrame: one pass over the rows, then a first look at a uniform sample of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from kernelcoreset.checks import check_choice
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.exploring.explore import KS, Exploration, explore_sample
from kernelcoreset.spark.columns import layout_of, with_dimension
from kernelcoreset.spark.leaves import LeafSettings, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spectral.neighbors import DRAW

_SIZE = 1_000


def explore(
    dataset: DataFrame,
    *,
    inputCols: Sequence[str] | None = None,  # noqa: N803
    featuresCol: str = "features",  # noqa: N803
    weightCol: str | None = None,  # noqa: N803
    badRows: str = "fail",  # noqa: N803
    ks: Iterable[int] = KS,
    seed: int = 0,
) -> Exploration:
    """Return which clusters each estimator finds in a DataFrame, told in plain sentences; see `kernelcoreset.explore`.

    Parameters
    ----------
    dataset : DataFrame
        Read once.
    inputCols : list of str, optional
        Numeric columns.
    featuresCol : str
        One array or vector column, if `inputCols` are not given.
    weightCol : str, optional
    badRows : {"fail", "drop"}
    ks : iterable of int
        Numbers of clusters to try, at least 2 each.
    seed : int

    Returns
    -------
    kernelcoreset.exploring.explore.Exploration
    """
    check_choice("badRows", badRows, ("fail", "drop"))
    names = ("featuresCol" if inputCols is None else "inputCols", "weightCol", "idCol")
    features = featuresCol if inputCols is None else inputCols
    layout = with_dimension(dataset, layout_of(dataset, features, weightCol, settings=names))
    settings = LeafSettings(Recipe(1, size=_SIZE, seed=seed, **DRAW), leaf_size_of(_SIZE), layout)
    found = gather(leaves_by_spark(dataset, settings), settings)
    refuse_unusable(found, badRows)
    sample = merge_leaves(found, settings)
    own = [] if layout.is_array else list(layout.features)
    return explore_sample(sample.points, sample.weights, found.rows - found.bad.rows, ks=ks, names=own, seed=seed)
