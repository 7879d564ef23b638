"""Kernels K(x, y): the classes a user names (`families`, `combined`) and the compiled loops behind them."""

from kernelcoreset.kernels.combined import Normalized, Product, Scaled, Sum, UserKernel
from kernelcoreset.kernels.families import Cosine, Exponential, Gaussian, Laplacian, Linear, Matern, Polynomial
from kernelcoreset.kernels.kernel import Kernel

__all__ = [
    "Cosine",
    "Exponential",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Normalized",
    "Polynomial",
    "Product",
    "Scaled",
    "Sum",
    "UserKernel",
]
