"""What the pyspark.ml estimators share: their parameters, and the steps from rows to a coreset to a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from pyspark.ml import Estimator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasInputCols,
    HasMaxIter,
    HasPredictionCol,
    HasSeed,
    HasWeightCol,
)
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from kernelcoreset.checks import check_choice, check_count
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.errors import SettingError
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels import Gaussian
from kernelcoreset.kernels.kernel import check_kernel
from kernelcoreset.spark.columns import Layout, layout_of, with_dimension
from kernelcoreset.spark.leaves import LeafSettings, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.ml.persistence import EstimatorReader, EstimatorWriter
from kernelcoreset.spark.sample import fit_preparation


def param(name: str, doc: str, convert: Any) -> Any:
    """Return a parameter whose values `convert` checks."""
    return Param(Params._dummy(), name, doc, typeConverter=convert)


class Columns(HasFeaturesCol, HasInputCols, HasPredictionCol, HasWeightCol):
    """Parameters of estimators and models: which columns they read and add."""

    distanceCol = param(
        "distanceCol", "new column: distance to the nearest center in the feature space", TypeConverters.toString
    )
    marginCol = param("marginCol", "new column, if set: how much farther the second center is", TypeConverters.toString)
    outlierCol = param(
        "outlierCol", "new column, if set: the distance by the typical one in the cluster", TypeConverters.toString
    )
    badRows = param(
        "badRows",
        "rows with null, NaN or infinity: 'fail' or 'drop'",
        lambda v: check_choice("badRows", v, ("fail", "drop")),
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(distanceCol="distance", badRows="fail")

    def setParams(self, **parameters: Any) -> Self:  # noqa: N802
        """Set any of the parameters by name."""
        self._set(**{name: value for name, value in parameters.items() if value is not None})
        return self


def optional(stage: Columns, name: str) -> str | None:
    """Return the column that a parameter names, None if it names none."""
    return str(stage.getOrDefault(name)) if stage.isDefined(name) else None


def stage_layout(
    stage: Columns,
    dataset: DataFrame,
    weight_col: str | None,
    id_col: str | None = None,
    categorical: Sequence[str] = (),
) -> Layout:
    """Return where a stage finds the points of a DataFrame: in `inputCols` if they are set, else in `featuresCol`."""
    has_columns = stage.isSet(stage.inputCols)
    features = stage.getInputCols() if has_columns else stage.getFeaturesCol()
    names = ("inputCols" if has_columns else "featuresCol", "weightCol", "idCol")
    return layout_of(dataset, features, weight_col, id_col, names, categorical)


class CoresetEstimator(Estimator, Columns, HasMaxIter, HasSeed, MLReadable, MLWritable):  # type: ignore[type-arg]
    """An estimator that builds a coreset on the executors and fits a model to the coreset on the driver."""

    k = param("k", "number of clusters, at least 1", lambda v: check_count("k", v))
    kernel = param("kernel", "a kernel object", check_kernel)
    coresetSize = param("coresetSize", "points of the coreset, at least k", lambda v: check_count("coresetSize", v))
    nInit = param("nInit", "restarts on the coreset", lambda v: check_count("nInit", v))
    idCol = param("idCol", "column of row ids that the coreset keeps", TypeConverters.toString)
    features = param("features", "scales, categories, logarithms and missing values: a Features object", Features.of)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(k=2, kernel=Gaussian(sigma=1.0), nInit=10, maxIter=300, seed=0)

    @abstractmethod
    def _fit_coreset(self, coreset: Coreset, settings: LeafSettings, dataset: DataFrame, **options: Any) -> Any:
        """The pyspark.ml model for the coreset of all rows of `dataset`; `options` are those of `solve`."""

    def _fit(self, dataset: DataFrame) -> Any:
        settings = self._leaf_settings(dataset)
        found = gather(leaves_by_spark(dataset, settings), settings)
        refuse_unusable(found, self.getOrDefault("badRows"))
        fitted = self._fit_coreset(
            merge_leaves(found, settings),
            settings,
            dataset,
            n_init=self.getOrDefault("nInit"),
            max_iter=self.getMaxIter(),
            seed=settings.recipe.seed,
        )
        return self._copyValues(fitted)

    def _leaf_settings(self, dataset: DataFrame) -> LeafSettings:
        """What the tasks that build leaves need to know; z is 2."""
        k, size = self.getOrDefault("k"), self.getOrDefault("coresetSize")
        if size < k:
            raise SettingError(
                f"`coresetSize` must be at least k ({k}); got {size}. Ask for more points or fewer clusters."
            )
        wanted = self.getOrDefault("features") if self.isSet("features") else None
        categorical = () if wanted is None else [str(name) for name in wanted.categorical]
        layout = stage_layout(self, dataset, optional(self, "weightCol"), optional(self, "idCol"), categorical)
        layout = with_dimension(dataset, layout)
        return LeafSettings(
            Recipe(k, self.getOrDefault("kernel"), size, seed=self.getSeed()),
            leaf_size=leaf_size_of(size),
            layout=layout.prepared_by(fit_preparation(dataset, layout, wanted)),
        )

    def write(self) -> EstimatorWriter:
        """Return a writer; `write().overwrite().save(path)` replaces what is there."""
        return EstimatorWriter(self)

    @classmethod
    def read(cls) -> EstimatorReader:
        """Return a reader; `load(path)` is the short form."""
        return EstimatorReader(cls)
