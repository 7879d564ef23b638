"""The Spark ML face: KernelKMeans, an Estimator, and the KernelKMeansModel it fits, a Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from pyspark import keyword_only
from pyspark.ml import Model
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame, SparkSession

from kernelcoreset.checks import check_at_least
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError
from kernelcoreset.kernels import Kernel
from kernelcoreset.models import kernel_kmeans as local
from kernelcoreset.spark.columns import layout_of
from kernelcoreset.spark.labels import LabelSettings, label_rows
from kernelcoreset.spark.leaves import LeafSettings
from kernelcoreset.spark.ml.base import Columns, CoresetEstimator, param
from kernelcoreset.spark.ml.persistence import ModelReader, ModelWriter
from kernelcoreset.spark.summary import KernelKMeansSummary, summarize


class KernelKMeans(CoresetEstimator):
    """Kernel k-means of a DataFrame of any size, through a coreset.

    One pass over the rows builds the coreset on the executors; the driver merges and clusters it.

    Parameters
    ----------
    k : int
        Clusters, 2 by default.
    kernel : Kernel
        Such as Gaussian(sigma=50.0), which stands for itself where none is given with sigma 1.
    coresetSize : int
        Points of the coreset, 1,000 by default.
    z : float
        2 for k-means, 1 for k-median.
    nInit, maxIter, seed : int
    featuresCol : str
        One array or vector column, "features" by default.
    inputCols : list of str
        Numeric columns instead.
    weightCol, idCol : str, optional
    predictionCol, distanceCol, marginCol : str
        Names of the columns that `transform` adds; no margin unless named.
    badRows : {"fail", "drop"}

    Examples
    --------
    >>> from kernelcoreset import Gaussian
    >>> estimator = KernelKMeans(k=5, kernel=Gaussian(sigma=50.0), inputCols=["longitude", "latitude"])
    >>> estimator.getOrDefault("coresetSize")
    1000
    """

    z = param("z", "power of the distance in the cost, at least 1", lambda v: check_at_least("z", v, 1.0))

    @keyword_only
    def __init__(
        self,
        *,
        k: int = 2,
        kernel: Kernel | None = None,
        coresetSize: int = 1000,  # noqa: N803
        z: float = 2.0,
        nInit: int = 10,  # noqa: N803
        maxIter: int = 300,  # noqa: N803
        seed: int = 0,
        featuresCol: str = "features",  # noqa: N803
        inputCols: Sequence[str] | None = None,  # noqa: N803
        weightCol: str | None = None,  # noqa: N803
        idCol: str | None = None,  # noqa: N803
        predictionCol: str = "prediction",  # noqa: N803
        distanceCol: str = "distance",  # noqa: N803
        marginCol: str | None = None,  # noqa: N803
        badRows: str = "fail",  # noqa: N803
    ) -> None:
        super().__init__()
        self._setDefault(coresetSize=1000, z=2.0)
        self.setParams(**self._input_kwargs)  # type: ignore[attr-defined]  # which keyword_only fills

    def _fit_coreset(self, coreset: Coreset, settings: LeafSettings, **options: Any) -> KernelKMeansModel:
        recipe = settings.recipe
        fitted = local.KernelKMeansModel.fit_coreset(coreset, recipe.k, recipe.kernel, z=recipe.z, **options)
        return KernelKMeansModel(fitted)

    def _leaf_settings(self, dataset: DataFrame) -> LeafSettings:
        settings = super()._leaf_settings(dataset)
        return replace(settings, recipe=replace(settings.recipe, z=self.getOrDefault("z")))


class KernelKMeansModel(Model, Columns, MLReadable, MLWritable):  # type: ignore[type-arg]
    """A fitted kernel clustering that labels the rows of any DataFrame.

    Parameters
    ----------
    fitted : kernelcoreset.KernelKMeansModel
        The model of the numpy face, which this one carries: `localModel` gives it back.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> coreset = kc.Coreset([[0.0], [1.0], [9.0]], np.ones(3))
    >>> fitted = kc.KernelKMeansModel.fit_coreset(coreset, k=2, kernel=kc.Linear())
    >>> KernelKMeansModel(fitted).localModel.k
    2
    """

    localClass: ClassVar[Any] = local.KernelKMeansModel
    """The class of the numpy model in it."""

    def __init__(self, fitted: local.KernelKMeansModel) -> None:
        super().__init__()
        self.localModel = fitted
        self._training: DataFrame | None = None
        self._summary: KernelKMeansSummary | None = None

    @property
    def _clustering(self) -> local.KernelKMeansModel:
        """What labels the rows."""
        return self.localModel

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return label_rows(dataset, self._label_settings(dataset))

    def _label_settings(self, dataset: DataFrame, weight_col: str | None = None) -> LabelSettings:
        return LabelSettings(
            self._clustering.centers,
            self._clustering.z,
            layout_of(dataset, self._features(), weight_col),
            prediction_col=self.getPredictionCol(),
            distance_col=self._optional(self.distanceCol),
            margin_col=self._optional(self.marginCol),
            drop_bad_rows=self.getOrDefault("badRows") == "drop",
        )

    @property
    def hasSummary(self) -> bool:  # noqa: N802
        """Whether the rows the model was fitted on are at hand."""
        return self._training is not None

    @property
    def summary(self) -> KernelKMeansSummary:
        """Cost, sizes and certificate on the rows the model was fitted on: one pass, made when first asked for."""
        if self._training is None:
            raise DataError("A model that was loaded or refitted has no summary: call `evaluate(frame)` on some rows.")
        if self._summary is None:
            self._summary = self.evaluate(self._training)
        return self._summary

    def evaluate(self, dataset: DataFrame) -> KernelKMeansSummary:
        """Return cost, sizes and certificate of the model on the rows of a DataFrame."""
        settings = self._label_settings(dataset, self._optional(self.weightCol))
        return summarize(dataset, self._clustering, settings)

    @property
    def coreset(self) -> DataFrame:
        """The coreset as a DataFrame: point, weight and, where kept, id."""
        return SparkSession.active().createDataFrame(self.localModel.coreset.to_arrow())

    def clusterWeights(self) -> list[float]:  # noqa: N802
        """Return the weight of each cluster in the data, as the coreset estimates it."""
        return [float(weight) for weight in self._clustering.cluster_weights]

    def refit(self, k: int, **options: Any) -> Self:
        """Return a model for another k, at most the coreset's, from the kept coreset alone; the data is not touched."""
        return self._copyValues(type(self)(self.localModel.refit(k, **options)))

    def write(self) -> ModelWriter:
        """Return a writer; `write().overwrite().save(path)` replaces what is there."""
        return ModelWriter(self)

    @classmethod
    def read(cls) -> ModelReader:
        """Return a reader; `load(path)` is the short form. It also reads what the numpy face saved."""
        return ModelReader(cls)
