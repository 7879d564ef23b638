"""Kernel clustering on Spark: the only folder that imports pyspark.

The DataFrame API alone, so that every line runs on classic Spark, on Spark Connect and on serverless clusters.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

try:
    import pyspark  # noqa: F401
except ImportError:
    raise ImportError(
        "kernelcoreset.spark needs pyspark: pip install 'kernelcoreset[spark]', or use ./spark-submit.sh.",
        name="pyspark",
    ) from None

from kernelcoreset.spark.explore import explore

if TYPE_CHECKING:
    from kernelcoreset.spark.ml.kernel_kmeans import KernelKMeans, KernelKMeansModel
    from kernelcoreset.spark.ml.spectral import SpectralClustering, SpectralClusteringModel
    from kernelcoreset.spark.sql import register

__all__ = ["KernelKMeans", "KernelKMeansModel", "SpectralClustering", "SpectralClusteringModel", "explore", "register"]

# Imported on first use: tasks import this package too, and need no pyspark.ml, whose import takes longer than theirs.
_PLACES = {
    "KernelKMeans": "kernelcoreset.spark.ml.kernel_kmeans",
    "KernelKMeansModel": "kernelcoreset.spark.ml.kernel_kmeans",
    "SpectralClustering": "kernelcoreset.spark.ml.spectral",
    "SpectralClusteringModel": "kernelcoreset.spark.ml.spectral",
    "register": "kernelcoreset.spark.sql",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    # With its name and the module, Python adds "Did you mean" to the traceback.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return list(__all__)
