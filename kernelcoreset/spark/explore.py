"""`explore` for a Spark DataFrame: one pass over the rows, then a first look at a uniform sample of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from kernelcoreset.checks import check_choice
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.exploring.explore import KS, Exploration, explore_sample
from kernelcoreset.features.wanted import Features
from kernelcoreset.spark.columns import layout_of, with_dimension
from kernelcoreset.spark.leaves import LeafSettings, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.sample import fit_preparation
from kernelcoreset.spectral.neighbors import DRAW

_SIZE = 1_000


def explore(
    dataset: DataFrame,
    *,
    inputCols: Sequence[str] | None = None,  # noqa: N803
    featuresCol: str = "features",  # noqa: N803
    weightCol: str | None = None,  # noqa: N803
    badRows: str = "fail",  # noqa: N803
    features: Features | Mapping[str, Any] | None = None,
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
    features : Features or mapping, optional
        Scales, categories, logarithms and missing values, as in the estimators.
    ks : iterable of int
        Numbers of clusters to try, at least 2 each.
    seed : int

    Returns
    -------
    kernelcoreset.exploring.explore.Exploration
    """
    check_choice("badRows", badRows, ("fail", "drop"))
    names = ("featuresCol" if inputCols is None else "inputCols", "weightCol", "idCol")
    wanted = Features.of(features)
    own = featuresCol if inputCols is None else inputCols
    categorical = () if wanted is None else [str(name) for name in wanted.categorical]
    layout = layout_of(dataset, own, weightCol, settings=names, categorical=categorical)
    layout = with_dimension(dataset, layout)
    preparation = fit_preparation(dataset, layout, wanted)
    layout = layout.prepared_by(preparation)
    settings = LeafSettings(Recipe(1, size=_SIZE, seed=seed, **DRAW), leaf_size_of(_SIZE), layout)
    found = gather(leaves_by_spark(dataset, settings), settings)
    refuse_unusable(found, badRows)
    sample = merge_leaves(found, settings)
    columns = [] if layout.is_array else list(layout.features)
    columns = columns if preparation is None else preparation.coordinates
    return explore_sample(sample.points, sample.weights, found.rows - found.bad.rows, ks=ks, names=columns, seed=seed)
