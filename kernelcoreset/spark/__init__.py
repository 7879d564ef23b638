"""Kernel clustering on Spark: the only folder that imports pyspark.

The DataFrame API alone, so that every line runs on classic Spark, on Spark Connect and on serverless clusters.
"""

from kernelcoreset.spark.estimator import KernelKMeans, KernelKMeansModel
from kernelcoreset.spark.spectral import SpectralClustering, SpectralClusteringModel

__all__ = ["KernelKMeans", "KernelKMeansModel", "SpectralClustering", "SpectralClusteringModel"]
