"""Kernel clustering of data of any size, through coresets."""

from typing import TYPE_CHECKING, Any

from kernelcoreset.build import build_coreset, merge_coresets
from kernelcoreset.centers import Centers, Labels
from kernelcoreset.choosing import ChoiceOfK, choose_k, choose_sigma
from kernelcoreset.coreset import Coreset
from kernelcoreset.errors import ConflictError, DataError, FormatError, KernelCoresetError, KernelError, SettingError
from kernelcoreset.exact import solve_exact
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
from kernelcoreset.store import CoresetStore, LeafUpdate
from kernelcoreset.tree import CoresetTree

if TYPE_CHECKING:
    from kernelcoreset.estimator import KernelKMeans
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
    "Polynomial",
    "SettingError",
    "Solution",
    "StreamingKernelKMeans",
    "UserKernel",
    "build_coreset",
    "center_set_costs",
    "choose_k",
    "choose_sigma",
    "draw_center_sets",
    "empirical_error",
    "merge_coresets",
    "solve",
    "solve_exact",
]


def __getattr__(name: str) -> Any:
    """Import the scikit-learn faces only when they are asked for: scikit-learn is an extra."""
    if name == "KernelKMeans":
        from kernelcoreset.estimator import KernelKMeans

        return KernelKMeans
    if name == "StreamingKernelKMeans":
        from kernelcoreset.streaming import StreamingKernelKMeans

        return StreamingKernelKMeans
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
