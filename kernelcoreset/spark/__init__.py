"""Kernel clustering on Spark: the only folder that imports pyspark.

The DataFrame API alone, so that every line runs on classic Spark, on Spark Connect and on serverless clusters.
"""

import sys

try:
    import pyspark  # noqa: F401
except ImportError:
    raise ImportError(
        "kernelcoreset.spark needs pyspark: pip install 'kernelcoreset[spark]', or use ./spark-submit.sh.",
        name="pyspark",
    ) from None

from kernelcoreset.spark.explore import explore
from kernelcoreset.spark.ml import kernel_kmeans, spectral
from kernelcoreset.spark.ml.kernel_kmeans import KernelKMeans, KernelKMeansModel
from kernelcoreset.spark.ml.spectral import SpectralClustering, SpectralClusteringModel
from kernelcoreset.spark.sql import register

# Pipelines saved by 0.1.0 and earlier name their classes by these module paths; Spark imports what they name.
sys.modules[f"{__name__}.estimator"] = kernel_kmeans
sys.modules[f"{__name__}.spectral"] = spectral

__all__ = ["KernelKMeans", "KernelKMeansModel", "SpectralClustering", "SpectralClusteringModel", "explore", "register"]
