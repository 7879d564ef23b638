"""The pyspark.ml API of spectral clustering: the Estimator SpectralClustering and its SpectralClusteringModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pyspark import keyword_only
from pyspark.sql import DataFrame

from kernelcoreset.checks import check_count
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.features.wanted import Features
from kernelcoreset.kernels import Kernel, Normalized
from kernelcoreset.spark.leaves import LeafSettings
from kernelcoreset.spark.ml.base import CoresetEstimator, param
from kernelcoreset.spark.ml.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.sample import random_order, sample_degrees
from kernelcoreset.spectral.affinity import check_affinity, chosen_affinity
from kernelcoreset.spectral.degrees import DEGREE_SAMPLE
from kernelcoreset.spectral.model import SpectralModel, load_spectral
from kernelcoreset.spectral.neighbors import DRAW, NeighborModel


class SpectralClustering(CoresetEstimator):
    """Spectral clustering of a DataFrame of any size, through a coreset.

    By default by the nearest neighbors within a uniform sample of the rows, which needs no width: one pass draws it on
    the executors, and the driver cuts it. With a kernel, the degrees of all rows are estimated from a sample of them
    first, and the coreset is that of the normalized kernel.

    Parameters
    ----------
    k : int
        Number of clusters, 2 by default.
    affinity : {"auto", "nearest_neighbors", "kernel"}
        As in `kernelcoreset.SpectralClustering`: "auto" is "kernel" if a kernel is given, else "nearest_neighbors".
    kernel : Kernel, optional
        The similarity: positive semidefinite and at least 0 on the rows.
    coresetSize : int
        Points of the coreset, 2,000 by default.
    degreeSample : int
        With a kernel: rows that degrees are estimated from, 1,000 by default.
    nInit, maxIter, seed : int
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
    >>> estimator = SpectralClustering(k=5, kernel=Gaussian(sigma=50.0), inputCols=["longitude", "latitude"])
    >>> estimator.getOrDefault("degreeSample")
    1000
    """

    affinity = param("affinity", "'auto', 'nearest_neighbors' or 'kernel'", lambda v: check_affinity("affinity", v))
    degreeSample = param("degreeSample", "rows of the degree sample", lambda v: check_count("degreeSample", v, 2))

    @keyword_only
    def __init__(
        self,
        *,
        k: int = 2,
        affinity: str = "auto",
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
        outlierCol: str | None = None,  # noqa: N803
        badRows: str = "fail",  # noqa: N803
        features: Features | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._setDefault(affinity="auto", coresetSize=2000, degreeSample=DEGREE_SAMPLE)
        self.setParams(**self._input_kwargs)  # type: ignore[attr-defined]  # set by keyword_only

    def _fit_coreset(
        self, coreset: Coreset, settings: LeafSettings, dataset: DataFrame, **options: Any
    ) -> SpectralClusteringModel:
        if settings.degrees is not None:
            fitted = SpectralModel.fit_coreset(coreset, settings.recipe.k, settings.degrees, **options)
            return SpectralClusteringModel(fitted, dataset)
        effort = {name: options[name] for name in ("n_init", "seed")}
        return SpectralClusteringModel(NeighborModel.fit_coreset(coreset, settings.recipe.k, **effort), dataset)

    def _leaf_settings(self, dataset: DataFrame) -> LeafSettings:
        plain = super()._leaf_settings(dataset)
        recipe = plain.recipe
        if chosen_affinity(self.getOrDefault("affinity"), has_kernel=self.isSet("kernel")) == "nearest_neighbors":
            return replace(plain, recipe=replace(recipe, **DRAW))
        count = self.getOrDefault("degreeSample")
        degrees = sample_degrees(dataset, plain.layout, recipe.kernel, count, random_order(recipe.seed, by_file=False))
        return replace(plain, recipe=replace(recipe, kernel=Normalized(recipe.kernel)), degrees=degrees)


class SpectralClusteringModel(KernelKMeansModel):
    """A fitted spectral clustering that labels the rows of any DataFrame, new ones included.

    By nearest neighbors, distances are those to the nearest point of the sample. With a kernel, they are those to the
    nearest center in the feature space of the normalized kernel, and the weight of a cluster is its volume divided by
    the total weight of the data. A summary has no certificate.

    Parameters
    ----------
    fitted : kernelcoreset.NeighborModel or kernelcoreset.SpectralModel
        The numpy model, which labels the rows. It is available as `localModel`.
    training : DataFrame, optional
        The rows the model was fitted on, for `summary`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelcoreset as kc
    >>> points = np.random.default_rng(0).normal(size=(50, 2))
    >>> SpectralClusteringModel(kc.fit_spectral(points, 2, kc.Gaussian(sigma=1.0), 50)).localModel.k
    2
    """

    loadLocal: ClassVar[Any] = staticmethod(load_spectral)
    """Loads the numpy model in it."""

    localModel: SpectralModel | NeighborModel  # type: ignore[assignment]

    def __init__(self, fitted: SpectralModel | NeighborModel, training: DataFrame | None = None) -> None:
        super().__init__(fitted, training)  # type: ignore[arg-type]  # it has what KernelKMeansModel needs of it

    @property
    def normalizedCut(self) -> float:  # noqa: N802
        """The normalized cut of the solution, estimated from the coreset."""
        return self.localModel.normalized_cut
