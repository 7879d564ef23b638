"""The pyspark.ml API of kernel k-means: the Estimator KernelKMeans and its model, KernelKMeansModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from pyspark import keyword_only
from pyspark.ml import Model
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame, SparkSession

from kernelcoreset.checks import check_at_least, check_count
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.describing.description import Description
from kernelcoreset.errors import DataError
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels import Kernel
from kernelcoreset.models import kernel_kmeans as local
from kernelcoreset.spark.columns import numbers_in
from kernelcoreset.spark.labels import LabelSettings, label_rows
from kernelcoreset.spark.large_batches import large_batches
from kernelcoreset.spark.leaves import LeafSettings
from kernelcoreset.spark.means import move_centers
from kernelcoreset.spark.ml.base import Columns, CoresetEstimator, optional, param, stage_layout
from kernelcoreset.spark.ml.persistence import ModelReader, ModelWriter
from kernelcoreset.spark.summary import KernelKMeansSummary, Measurement, clustering_of


class KernelKMeans(CoresetEstimator):
    """Kernel k-means of a DataFrame of any size, through a coreset.

    One pass over the rows builds the coreset on the executors; the driver merges and clusters it.

    Parameters
    ----------
    k : int
        Number of clusters, 2 by default.
    kernel : Kernel
        For example Gaussian(sigma=50.0). The default is Gaussian(sigma=1.0).
    coresetSize : int
        Points of the coreset, 1,000 by default.
    z : float
        2 for k-means, 1 for k-median.
    nInit, maxIter, seed : int
    refineIter : int, optional
        Passes over all rows after the fit on the coreset, each of which moves the centers to the means of their rows:
        for Linear and Cosine with z = 2. By default 1 for 12 or more columns, else 0.
    featuresCol : str
        One array or vector column, "features" by default.
    inputCols : list of str
        Numeric columns, instead of featuresCol.
    weightCol, idCol : str, optional
    predictionCol, distanceCol, marginCol, outlierCol : str
        Names of the columns that `transform` adds. The margin, and the distance by the typical one in the cluster, are
        added only if they are named.
    badRows : {"fail", "drop"}
    features : Features or mapping, optional
        Scales, categories, logarithms and missing values, as in `kernelcoreset.Features`; `inputCols` may then have
        columns of texts. `transform` prepares rows in the same way. By default numbers are used as they are.

    Examples
    --------
    >>> from kernelcoreset import Gaussian
    >>> estimator = KernelKMeans(k=5, kernel=Gaussian(sigma=50.0), inputCols=["longitude", "latitude"])
    >>> estimator.getOrDefault("coresetSize")
    1000
    """

    z = param("z", "power of the distance in the cost, at least 1", lambda v: check_at_least("z", v, 1.0))

    refineIter = param(
        "refineIter",
        "passes over all rows that move centers that are vectors",
        lambda v: check_count("refineIter", v, 0),
    )

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
        refineIter: int | None = None,  # noqa: N803
        seed: int = 0,
        featuresCol: str = "features",  # noqa: N803
        inputCols: Sequence[str] | None = None,  # noqa: N803
        weightCol: str | None = None,  # noqa: N803
        idCol: str | None = None,  # noqa: N803
        predictionCol: str = "prediction",  # noqa: N803
        distanceCol: str = "distance",  # noqa: N803
        marginCol: str | None = None,  # noqa: N803
        outlierCol: str | None = None,  # noqa: N803
        badRows: str = "fail",  # noqa: N803
        features: Features | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._setDefault(coresetSize=1000, z=2.0)
        self.setParams(**self._input_kwargs)  # type: ignore[attr-defined]  # set by keyword_only

    def _fit_coreset(
        self, coreset: Coreset, settings: LeafSettings, dataset: DataFrame, **options: Any
    ) -> KernelKMeansModel:
        recipe = settings.recipe
        fitted = local.KernelKMeansModel.fit_coreset(coreset, recipe.k, recipe.kernel, z=recipe.z, **options)
        steps = self.getOrDefault("refineIter") if self.isSet("refineIter") else None
        return KernelKMeansModel(move_centers(dataset, settings.layout, fitted, steps), dataset)

    def _leaf_settings(self, dataset: DataFrame) -> LeafSettings:
        settings = super()._leaf_settings(dataset)
        return replace(settings, recipe=replace(settings.recipe, z=self.getOrDefault("z")))


class KernelKMeansModel(Model, Columns, MLReadable, MLWritable):  # type: ignore[type-arg]
    """A fitted kernel clustering that labels the rows of any DataFrame.

    Parameters
    ----------
    fitted : kernelcoreset.KernelKMeansModel
        The numpy model, which labels the rows. It is available as `localModel`.
    training : DataFrame, optional
        The rows the model was fitted on, for `summary`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> coreset = kc.Coreset([[0.0], [1.0], [9.0]], np.ones(3))
    >>> fitted = kc.KernelKMeansModel.fit_coreset(coreset, k=2, kernel=kc.Linear())
    >>> KernelKMeansModel(fitted).localModel.k
    2
    """

    loadLocal: ClassVar[Any] = staticmethod(local.KernelKMeansModel.load)
    """Loads the numpy model in it."""

    def __init__(self, fitted: local.KernelKMeansModel, training: DataFrame | None = None) -> None:
        super().__init__()
        self.localModel = fitted
        self._training = training
        self._summary: KernelKMeansSummary | None = None

    def __repr__(self) -> str:
        return f"{self.uid}: {self.localModel!r}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.localModel._repr_html_()

    def plot(self, axes: Any = None) -> Any:
        """Draw the coreset by cluster with matplotlib, and return the axes."""
        return self.localModel.plot(axes)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return label_rows(dataset, self._label_settings(dataset))

    def _label_settings(self, dataset: DataFrame, weight_col: str | None = None) -> LabelSettings:
        prepared = self.localModel.preparation
        return LabelSettings.of(
            self.localModel,
            stage_layout(self, dataset, weight_col, categorical=() if prepared is None else prepared.categorical),
            prediction_col=self.getPredictionCol(),
            distance_col=optional(self, "distanceCol"),
            margin_col=optional(self, "marginCol"),
            outlier_col=optional(self, "outlierCol"),
            drop_bad_rows=self.getOrDefault("badRows") == "drop",
        )

    @property
    def hasSummary(self) -> bool:  # noqa: N802
        """Whether the rows the model was fitted on are known."""
        return self._training is not None

    @property
    def summary(self) -> KernelKMeansSummary:
        """Cost, cluster sizes and certificate on the rows the model was fitted on; the first access takes one pass."""
        if self._training is None:
            raise DataError("A model that was loaded or refitted has no summary: call `evaluate(frame)` on some rows.")
        if self._summary is None:
            self._summary = self.evaluate(self._training)
        return self._summary

    def evaluate(self, dataset: DataFrame) -> KernelKMeansSummary:
        """Return cost, cluster sizes and certificate of the model on the rows of a DataFrame; nothing is written."""
        weight_col = optional(self, "weightCol")
        measurement = Measurement(self.localModel, weighted=weight_col is not None)
        labelled = label_rows(dataset, self._label_settings(dataset, weight_col), measurement=measurement)
        with large_batches(dataset.sparkSession, numbers_in(dataset)):
            labelled.write.format("noop").mode("overwrite").save()
        return measurement.summary()

    @property
    def coreset(self) -> DataFrame:
        """The coreset as a DataFrame: point, weight and, if `idCol` was set, id."""
        return SparkSession.active().createDataFrame(self.localModel.coreset.to_arrow())

    def describe(self) -> Description:
        """Return what the clusters are, estimated from the coreset; `summary.description` has it for all rows."""
        return self.localModel.describe(names=self.getInputCols() if self.isSet(self.inputCols) else None)

    def clusterWeights(self) -> list[float]:  # noqa: N802
        """Return the weight of each cluster in the data, estimated from the coreset."""
        return [float(weight) for weight in clustering_of(self.localModel).cluster_weights]

    def refit(self, k: int, **options: Any) -> Self:
        """Return a model for another k, at most that of the coreset. Only the coreset is used; no rows are read."""
        return self._copyValues(type(self)(self.localModel.refit(k, **options)))

    def write(self) -> ModelWriter:
        """Return a writer; `write().overwrite().save(path)` replaces an existing one."""
        return ModelWriter(self)

    @classmethod
    def read(cls) -> ModelReader:
        """Return a reader; `load(path)` is the short form. It also reads what the numpy model saved."""
        return ModelReader(cls)
