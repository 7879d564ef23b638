"""The Spark ML face: KernelKMeans, an Estimator, and the KernelKMeansModel it fits, a Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pyspark import keyword_only
from pyspark.ml import Estimator, Model
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
from pyspark.sql import DataFrame, SparkSession

from kernelcoreset import model as local
from kernelcoreset.checks import check_at_least, check_choice, check_count, check_seed
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels import Gaussian, Kernel
from kernelcoreset.kernels.base import check_kernel
from kernelcoreset.spark.columns import layout_of, with_dimension
from kernelcoreset.spark.labels import LabelSettings, label_rows
from kernelcoreset.spark.leaves import LeafSettings, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.persistence import EstimatorReader, EstimatorWriter, ModelReader, ModelWriter
from kernelcoreset.spark.summary import KernelKMeansSummary, summarize


def _param(name: str, doc: str, convert: Any) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=convert)


class _Columns(HasFeaturesCol, HasInputCols, HasPredictionCol, HasWeightCol):
    """Parameters that estimator and model share: which columns."""

    distanceCol = _param(
        "distanceCol", "new column: distance to the own center in the feature space", TypeConverters.toString
    )
    marginCol = _param(
        "marginCol", "new column, if set: how much farther the second center is", TypeConverters.toString
    )
    badRows = _param(
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

    def _features(self) -> str | list[str]:
        """The feature columns: inputCols where set, else featuresCol."""
        return self.getInputCols() if self.isSet(self.inputCols) else self.getFeaturesCol()

    def _optional(self, param: Any) -> str | None:
        return str(self.getOrDefault(param)) if self.isDefined(param) else None


class KernelKMeans(Estimator, _Columns, HasMaxIter, HasSeed, MLReadable, MLWritable):  # type: ignore[type-arg]
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

    k = _param("k", "number of clusters, at least 1", lambda v: check_count("k", v))
    kernel = _param("kernel", "a kernel object", check_kernel)
    coresetSize = _param("coresetSize", "points of the coreset, at least k", lambda v: check_count("coresetSize", v))
    z = _param("z", "power of the distance in the cost, at least 1", lambda v: check_at_least("z", v, 1.0))
    nInit = _param("nInit", "restarts on the coreset", lambda v: check_count("nInit", v))
    idCol = _param("idCol", "column of row ids that the coreset keeps", TypeConverters.toString)

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
        self._setDefault(k=2, kernel=Gaussian(sigma=1.0), coresetSize=1000, z=2.0, nInit=10, maxIter=300, seed=0)
        self.setParams(**self._input_kwargs)  # type: ignore[attr-defined]  # which keyword_only fills

    def _fit(self, dataset: DataFrame) -> KernelKMeansModel:
        settings = self._leaf_settings(dataset)
        found = gather(leaves_by_spark(dataset, settings), settings)
        refuse_unusable(found, self.getOrDefault("badRows"))
        fitted = local.KernelKMeansModel.fit_coreset(
            merge_leaves(found, settings),
            settings.k,
            settings.kernel,
            z=settings.z,
            n_init=self.getOrDefault("nInit"),
            max_iter=self.getMaxIter(),
            seed=settings.seed,
        )
        model = self._copyValues(KernelKMeansModel(fitted))
        model._training = dataset
        return model

    def _leaf_settings(self, dataset: DataFrame) -> LeafSettings:
        k, size = self.getOrDefault("k"), self.getOrDefault("coresetSize")
        if size < k:
            raise SettingError(
                f"`coresetSize` must be at least k ({k}); got {size}. Ask for more points or fewer clusters."
            )
        layout = layout_of(dataset, self._features(), self._optional(self.weightCol), self._optional(self.idCol))
        return LeafSettings(
            k=k,
            kernel=self.getOrDefault("kernel"),
            size=size,
            z=self.getOrDefault("z"),
            seed=check_seed(self.getSeed()),
            leaf_size=4 * size,
            layout=with_dimension(dataset, layout),
        )

    def write(self) -> EstimatorWriter:
        """Return a writer; `write().overwrite().save(path)` replaces what is there."""
        return EstimatorWriter(self)

    @classmethod
    def read(cls) -> EstimatorReader:
        """Return a reader; `load(path)` is the short form."""
        return EstimatorReader(cls)


class KernelKMeansModel(Model, _Columns, MLReadable, MLWritable):  # type: ignore[type-arg]
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

    _local_files: ClassVar[tuple[str, ...]] = local.MODEL_FILES
    _from_files: ClassVar[Any] = local.KernelKMeansModel.from_files

    def __init__(self, fitted: local.KernelKMeansModel) -> None:
        super().__init__()
        self.localModel = fitted
        self._training: DataFrame | None = None
        self._summary: KernelKMeansSummary | None = None

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return label_rows(dataset, self._label_settings(dataset))

    def _label_settings(self, dataset: DataFrame, weight_col: str | None = None) -> LabelSettings:
        return LabelSettings(
            self.localModel.centers,
            self.localModel.z,
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
        return summarize(dataset, self.localModel, settings)

    @property
    def coreset(self) -> DataFrame:
        """The coreset as a DataFrame: point, weight and, where kept, id."""
        return SparkSession.active().createDataFrame(self.localModel.coreset.to_arrow())

    def clusterWeights(self) -> list[float]:  # noqa: N802
        """Return the weight of each cluster in the data, as the coreset estimates it."""
        return [float(weight) for weight in self.localModel.cluster_weights]

    def refit(self, k: int, **options: Any) -> KernelKMeansModel:
        """Return a model for another k, at most the coreset's, from the kept coreset alone; the data is not touched."""
        return self._copyValues(KernelKMeansModel(self.localModel.refit(k, **options)))

    def write(self) -> ModelWriter:
        """Return a writer; `write().overwrite().save(path)` replaces what is there."""
        return ModelWriter(self)

    @classmethod
    def read(cls) -> ModelReader:
        """Return a reader; `load(path)` is the short form. It also reads what the numpy face saved."""
        return ModelReader(cls)
