"""The Spark ML face of spectral clustering: SpectralClustering, an Estimator, and its SpectralClusteringModel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pyspark import keyword_only
from pyspark.ml import Estimator
from pyspark.ml.param import TypeConverters
from pyspark.ml.param.shared import HasMaxIter, HasSeed
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import check_count, check_seed
from kernelcoreset.degrees import DEGREE_SAMPLE
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels import Gaussian, Kernel, Normalized
from kernelcoreset.kernels.base import check_kernel
from kernelcoreset.spark.columns import layout_of, with_dimension
from kernelcoreset.spark.degrees import sample_degrees
from kernelcoreset.spark.estimator import KernelKMeansModel, _Columns, _param
from kernelcoreset.spark.labels import LabelSettings
from kernelcoreset.spark.leaves import LeafSettings, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.persistence import EstimatorReader, EstimatorWriter
from kernelcoreset.spark.summary import KernelKMeansSummary, summarize
from kernelcoreset.spectral import SPECTRAL_FILES, SpectralModel


class SpectralClustering(Estimator, _Columns, HasMaxIter, HasSeed, MLReadable, MLWritable):  # type: ignore[type-arg]
    """Spectral clustering of a DataFrame of any size, through a coreset.

    A sample of the rows gives every row its degree; one more pass builds the coreset of the normalized kernel on the
    executors; the driver finds the cut on it.

    Parameters
    ----------
    k : int
        Clusters, 2 by default.
    kernel : Kernel
        The similarity: positive semidefinite and at least 0 on the rows, Gaussian(sigma=1.0) by default.
    coresetSize : int
        Points of the coreset, 2,000 by default.
    degreeSample : int
        Rows that degrees are estimated from, 1,000 by default.
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
    >>> estimator = SpectralClustering(k=5, kernel=Gaussian(sigma=50.0), inputCols=["longitude", "latitude"])
    >>> estimator.getOrDefault("degreeSample")
    1000
    """

    k = _param("k", "number of clusters, at least 1", lambda v: check_count("k", v))
    kernel = _param("kernel", "a kernel object", check_kernel)
    coresetSize = _param("coresetSize", "points of the coreset, at least k", lambda v: check_count("coresetSize", v))
    degreeSample = _param("degreeSample", "rows of the degree sample", lambda v: check_count("degreeSample", v, 2))
    nInit = _param("nInit", "restarts on the coreset", lambda v: check_count("nInit", v))
    idCol = _param("idCol", "column of row ids that the coreset keeps", TypeConverters.toString)

    @keyword_only
    def __init__(
        self,
        *,
        k: int = 2,
        kernel: Kernel | None = None,
        coresetSize: int = 2000,  # noqa: N803
        degreeSample: int = DEGREE_SAMPLE,  # noqa: N803
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
        self._setDefault(k=2, kernel=Gaussian(sigma=1.0), coresetSize=2000, nInit=10, maxIter=300, seed=0)
        self._setDefault(degreeSample=DEGREE_SAMPLE)
        self.setParams(**self._input_kwargs)  # type: ignore[attr-defined]  # which keyword_only fills

    def _fit(self, dataset: DataFrame) -> SpectralClusteringModel:
        settings = self._leaf_settings(dataset)
        found = gather(leaves_by_spark(dataset, settings), settings)
        refuse_unusable(found, self.getOrDefault("badRows"))
        fitted = SpectralModel.fit_coreset(
            merge_leaves(found, settings),
            settings.k,
            settings.degrees,  # type: ignore[arg-type]  # it is not None
            n_init=self.getOrDefault("nInit"),
            max_iter=self.getMaxIter(),
            seed=settings.seed,
        )
        model = self._copyValues(SpectralClusteringModel(fitted))
        model._training = dataset
        return model

    def _leaf_settings(self, dataset: DataFrame) -> LeafSettings:
        k, size = self.getOrDefault("k"), self.getOrDefault("coresetSize")
        if size < k:
            raise SettingError(
                f"`coresetSize` must be at least k ({k}); got {size}. Ask for more points or fewer clusters."
            )
        layout = layout_of(dataset, self._features(), self._optional(self.weightCol), self._optional(self.idCol))
        layout, seed = with_dimension(dataset, layout), check_seed(self.getSeed())
        kernel, count = self.getOrDefault("kernel"), self.getOrDefault("degreeSample")
        return LeafSettings(
            k=k,
            kernel=Normalized(kernel),
            size=size,
            z=2.0,
            seed=seed,
            leaf_size=4 * size,
            layout=layout,
            degrees=sample_degrees(dataset, layout, kernel, count, F.rand(seed)),
        )

    def write(self) -> EstimatorWriter:
        """Return a writer; `write().overwrite().save(path)` replaces what is there."""
        return EstimatorWriter(self)

    @classmethod
    def read(cls) -> EstimatorReader:
        """Return a reader; `load(path)` is the short form."""
        return EstimatorReader(cls)


class SpectralClusteringModel(KernelKMeansModel):
    """A fitted spectral clustering that labels the rows of any DataFrame, new ones included.

    The distance is that to the own center in the feature space of the normalized kernel.

    Parameters
    ----------
    fitted : kernelcoreset.SpectralModel
        The model of the numpy face, which this one carries: `localModel` gives it back.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> points = np.random.default_rng(0).normal(size=(50, 2))
    >>> SpectralClusteringModel(kc.fit_spectral(points, 2, kc.Gaussian(sigma=1.0), 50)).localModel.k
    2
    """

    _local_files: ClassVar[tuple[str, ...]] = SPECTRAL_FILES
    _from_files: ClassVar[Any] = SpectralModel.from_files

    localModel: SpectralModel  # type: ignore[assignment]

    def __init__(self, fitted: SpectralModel) -> None:
        super().__init__(fitted.clustering)
        self.localModel = fitted

    def _label_settings(self, dataset: DataFrame, weight_col: str | None = None) -> LabelSettings:
        return LabelSettings(
            self.localModel.clustering.centers,
            2.0,
            layout_of(dataset, self._features(), weight_col),
            prediction_col=self.getPredictionCol(),
            distance_col=self._optional(self.distanceCol),
            margin_col=self._optional(self.marginCol),
            drop_bad_rows=self.getOrDefault("badRows") == "drop",
            degrees=self.localModel.degrees,
        )

    def evaluate(self, dataset: DataFrame) -> KernelKMeansSummary:
        """Return cost, sizes and volumes (as `cluster_weights`) of the model on the rows of a DataFrame."""
        settings = self._label_settings(dataset, self._optional(self.weightCol))
        return summarize(dataset, self.localModel.clustering, settings)

    @property
    def normalizedCut(self) -> float:  # noqa: N802
        """The normalized cut of the solution, as the coreset estimates it."""
        return self.localModel.normalized_cut

    def clusterWeights(self) -> list[float]:  # noqa: N802
        """Return the volume of each cluster over the total weight of the data, as the coreset estimates it."""
        return [float(weight) for weight in self.localModel.clustering.cluster_weights]

    def refit(self, k: int, **options: Any) -> SpectralClusteringModel:
        """Return a model for another k, at most the coreset's, from the kept coreset alone; the data is not touched."""
        return self._copyValues(SpectralClusteringModel(self.localModel.refit(k, **options)))
