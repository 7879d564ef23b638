"""What is now `spark.ml.kernel_kmeans`. Pipelines saved by 0.1.0 and earlier name it so, and Spark imports the name."""

from kernelcoreset.spark import KernelKMeans, KernelKMeansModel

__all__ = ["KernelKMeans", "KernelKMeansModel"]
