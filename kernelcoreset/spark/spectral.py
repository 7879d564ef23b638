"""What is now `spark.ml.spectral`. Pipelines saved by 0.1.0 and earlier name it so, and Spark imports the name."""

from kernelcoreset.spark import SpectralClustering, SpectralClusteringModel

__all__ = ["SpectralClustering", "SpectralClusteringModel"]
