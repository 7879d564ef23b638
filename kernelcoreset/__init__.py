"""Kernel clustering of data of any size, through coresets."""

from typing import TYPE_CHECKING, Any

from kernelcoreset.build import build_coreset, merge_coresets
from kernelcoreset.centers import Centers, Labels
from kernelcoreset.choosing import ChoiceOfK, choose_k, choose_sigma
from kernelcoreset.coreset import Coreset
from kernelcoreset.cuts import NormalizedCut, normalized_cut
from kernelcoreset.errors import ConflictError, DataError, FormatError, KernelCoresetError, KernelError, SettingError
from kernelcoreset.exact import solve_exact
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
from kernelcoreset.model import KernelKMeansModel
from kernelcoreset.quality import center_set_costs, draw_center_sets, empirical_error
from kernelcoreset.solve import Solution, solve
from kernelcoreset.spectral import SpectralModel, fit_spectral
from kernelcoreset.store import CoresetStore, LeafUpdate
from kernelcoreset.tree import CoresetTree

if TYPE_CHECKING:
    from kernelcoreset.estimator import KernelKMeans
    from kernelcoreset.graphs.estimator import GraphClustering
    from kernelcoreset.spectral_estimator import SpectralClustering
    from kernelcoreset.streaming import StreamingKernelKMeans

__version__ = "0.1.0"

__all__ = [
    "Centers",
    "ChoiceOfK",
    "ConflictError",
    "Coreset",
    "CoresetStore",
    "CoresetTree",
    "Cosine",
    "DataError",
    "Exponential",
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
    "NormalizedCut",
    "Polynomial",
    "SettingError",
    "Solution",
    "SpectralClustering",
    "SpectralModel",
    "StreamingKernelKMeans",
    "UserKernel",
    "build_coreset",
    "center_set_costs",
    "choose_k",
    "choose_sigma",
    "draw_center_sets",
    "empirical_error",
    "fit_graph",
    "fit_spectral",
    "graph_normalized_cut",
    "merge_coresets",
    "normalized_cut",
    "solve",
    "solve_exact",
]


def __getattr__(name: str) -> Any:
    """Import the scikit-learn faces only when they are asked for: scikit-learn is an extra."""
    if name == "KernelKMeans":
        from kernelcoreset.estimator import KernelKMeans

        return KernelKMeans
    if name == "GraphClustering":
        from kernelcoreset.graphs.estimator import GraphClustering

        return GraphClustering
    if name == "SpectralClustering":
        from kernelcoreset.spectral_estimator import SpectralClustering

        return SpectralClustering
    if name == "StreamingKernelKMeans":
        from kernelcoreset.streaming import StreamingKernelKMeans

        return StreamingKernelKMeans
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
