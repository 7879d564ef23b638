"""Kernel clustering of data of any size, through coresets."""

from kernelcoreset.build import build_coreset, merge_coresets
from kernelcoreset.coreset import Coreset
from kernelcoreset.errors import DataError, FormatError, KernelCoresetError, KernelError, SettingError
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
from kernelcoreset.quality import center_set_costs, draw_center_sets, empirical_error
from kernelcoreset.tree import CoresetTree

__version__ = "0.1.0"

__all__ = [
    "Coreset",
    "CoresetTree",
    "Cosine",
    "DataError",
    "Exponential",
    "FormatError",
    "Gaussian",
    "Kernel",
    "KernelCoresetError",
    "KernelError",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "SettingError",
    "UserKernel",
    "build_coreset",
    "center_set_costs",
    "draw_center_sets",
    "empirical_error",
    "merge_coresets",
]
