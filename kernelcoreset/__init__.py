"""Kernel clustering of data of any size, through coresets."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from kernelcoreset._version import __version__
from kernelcoreset.heartbeat import step

# numba, scipy and pyarrow take seconds to load on a machine that has just been set up.
with step("loading"):
    from kernelcoreset.clustering.choosing import choose_sigma
    from kernelcoreset.clustering.choosing_k import ChoiceOfK, choose_k
    from kernelcoreset.clustering.exact import solve_exact
    from kernelcoreset.clustering.problem import Solution
    from kernelcoreset.clustering.solve import solve
    from kernelcoreset.coresets.build import build_coreset, merge_coresets
    from kernelcoreset.coresets.certificate import Certificate
    from kernelcoreset.coresets.coreset import Coreset
    from kernelcoreset.coresets.error import center_set_costs, draw_center_sets, empirical_error
    from kernelcoreset.coresets.tree import CoresetTree
    from kernelcoreset.errors import (
        ConflictError,
        DataError,
        FormatError,
        KernelCoresetError,
        KernelError,
        SettingError,
    )
    from kernelcoreset.exploring.explore import Exploration, explore
    from kernelcoreset.features.wanted import Features
    from kernelcoreset.graphs.graph import Graph, graph_normalized_cut
    from kernelcoreset.graphs.model import GraphModel, fit_graph
    from kernelcoreset.kernels import (
        Cosine,
        Exponential,
        Gaussian,
        Kernel,
        Laplacian,
        Linear,
        Matern,
        Polynomial,
        UserKernel,
    )
    from kernelcoreset.labelling.centers import Centers, Labels
    from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
    from kernelcoreset.spectral.cut import NormalizedCut, normalized_cut
    from kernelcoreset.spectral.model import SpectralModel, fit_spectral
    from kernelcoreset.spectral.neighbors import NeighborModel, fit_neighbors
    from kernelcoreset.store.store import CoresetStore, LeafUpdate

if TYPE_CHECKING:
    from kernelcoreset.estimators.graph import GraphClustering
    from kernelcoreset.estimators.kernel_kmeans import KernelKMeans
    from kernelcoreset.estimators.spectral import SpectralClustering
    from kernelcoreset.estimators.streaming import StreamingKernelKMeans


__all__ = [
    "Centers",
    "Certificate",
    "ChoiceOfK",
    "ConflictError",
    "Coreset",
    "CoresetStore",
    "CoresetTree",
    "Cosine",
    "DataError",
    "Exploration",
    "Exponential",
    "Features",
    "FormatError",
    "Gaussian",
    "Graph",
    "GraphClustering",
    "GraphModel",
    "Kernel",
    "KernelCoresetError",
    "KernelError",
    "KernelKMeans",
    "KernelKMeansModel",
    "Labels",
    "Laplacian",
    "LeafUpdate",
    "Linear",
    "Matern",
    "NeighborModel",
    "NormalizedCut",
    "Polynomial",
    "SettingError",
    "Solution",
    "SpectralClustering",
    "SpectralModel",
    "StreamingKernelKMeans",
    "UserKernel",
    "__version__",
    "build_coreset",
    "center_set_costs",
    "choose_k",
    "choose_sigma",
    "draw_center_sets",
    "empirical_error",
    "explore",
    "fit_graph",
    "fit_neighbors",
    "fit_spectral",
    "graph_normalized_cut",
    "merge_coresets",
    "normalized_cut",
    "solve",
    "solve_exact",
]


# Imported on first use, because scikit-learn is an optional dependency.
_ESTIMATORS = {
    "GraphClustering": "kernelcoreset.estimators.graph",
    "KernelKMeans": "kernelcoreset.estimators.kernel_kmeans",
    "SpectralClustering": "kernelcoreset.estimators.spectral",
    "StreamingKernelKMeans": "kernelcoreset.estimators.streaming",
}


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        with step("loading"):
            return getattr(importlib.import_module(_ESTIMATORS[name]), name)
    # With its name and the module, Python adds "Did you mean" to the traceback.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return list(__all__)
