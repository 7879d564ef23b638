"""Kernels K(x, y): the public classes (`families`, `combined`) and the compiled loops that evaluate them."""

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
