"""The built-in kernels, one class per formula. Parameters are checked at construction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from kernelcoreset.checks import check_at_least, check_count, check_positive
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels import program
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.program import ProgramBuilder


class _Parametric(Kernel):
    """A kernel that its dataclass fields describe completely."""

    _is_exact: ClassVar[bool] = False

    @property
    def exact(self) -> bool:
        """Whether squared feature distances have a closed form that stays exact for points close together."""
        return self._is_exact

    def to_dict(self) -> dict[str, Any]:
        return {"kernel": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any], trusted_modules: tuple[str, ...]) -> Kernel:
        return cls(**{name: value for name, value in data.items() if name != "kernel"})


class _Scaled(_Parametric):
    """A kernel with the one parameter sigma > 0."""

    sigma: float
    _largest_sigma: ClassVar[float] = 1e152  # the loops compute 1 / sigma^2

    def __post_init__(self) -> None:
        sigma, largest = check_positive("sigma", self.sigma), self._largest_sigma
        if not 1.0 / largest < sigma < largest:
            raise SettingError(
                f"`sigma` must be between {1.0 / largest:g} and {largest:g}; got {sigma:g}. Scale the data instead."
            )
        object.__setattr__(self, "sigma", sigma)


@dataclass(frozen=True)
class Gaussian(_Scaled):
    """K(x, y) = exp(-|x - y|^2 / (2 sigma^2)), the RBF kernel.

    Parameters
    ----------
    sigma : float
        Width, above 0, in the units of the data.

    Examples
    --------
    >>> Gaussian(sigma=1.0)([0.0], [0.0])
    1.0
    """

    sigma: float
    _is_exact: ClassVar[bool] = True

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.GAUSSIAN, 0.5 / self.sigma**2)


@dataclass(frozen=True)
class Exponential(_Scaled):
    """K(x, y) = exp(-|x - y| / (2 sigma^2)): the RBF as the paper prints it, without the square on the distance.

    Parameters
    ----------
    sigma : float
        Width, above 0. sigma^2 is in the units of the data.

    Examples
    --------
    >>> round(Exponential(sigma=1.0)([0.0], [2.0]), 6)
    0.367879
    """

    sigma: float
    _largest_sigma: ClassVar[float] = 5e75  # so that a distance whose square overflows is far: K = 0
    _is_exact: ClassVar[bool] = True

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.EXPONENTIAL, 0.5 / self.sigma**2)


@dataclass(frozen=True)
class Laplacian(_Scaled):
    """K(x, y) = exp(-|x - y|_1 / sigma), where |.|_1 is the sum of absolute differences.

    Parameters
    ----------
    sigma : float
        Width, above 0, in the units of the data.

    Examples
    --------
    >>> round(Laplacian(sigma=2.0)([0.0, 0.0], [1.0, 1.0]), 6)
    0.367879
    """

    sigma: float
    _is_exact: ClassVar[bool] = True

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.LAPLACIAN, 1.0 / self.sigma)


@dataclass(frozen=True)
class Matern(_Scaled):
    """Matern kernel of smoothness 3/2 or 5/2, with a = sqrt(2 nu) |x - y| / sigma.

    K = (1 + a) exp(-a) for nu = 1.5 and (1 + a + a^2 / 3) exp(-a) for nu = 2.5.

    Parameters
    ----------
    sigma : float
        Width, above 0, in the units of the data.
    nu : {1.5, 2.5}
        Smoothness.

    Examples
    --------
    >>> Matern(sigma=1.0, nu=2.5)([3.0], [3.0])
    1.0
    """

    sigma: float
    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (1.5, 2.5):
            raise SettingError(
                f"`nu` must be 1.5 or 2.5; got {self.nu!r}. For 0.5 use Exponential, for large nu Gaussian."
            )

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.MATERN32 if self.nu == 1.5 else program.MATERN52, math.sqrt(2 * self.nu) / self.sigma)


@dataclass(frozen=True)
class Polynomial(_Parametric):
    """K(x, y) = (<x, y> + c)^degree.

    Parameters
    ----------
    degree : int
        1 to 1,000,000.
    c : float
        Offset, at least 0: with a negative one the function is not positive semidefinite.

    Examples
    --------
    >>> Polynomial(degree=2, c=1.0)([1.0, 1.0], [2.0, 0.0])
    9.0
    """

    degree: int
    c: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", check_count("degree", self.degree, most=1_000_000))
        object.__setattr__(self, "c", check_at_least("c", self.c, 0.0))

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.POLYNOMIAL, self.c, float(self.degree))


@dataclass(frozen=True)
class Linear(_Parametric):
    """K(x, y) = <x, y>, which makes kernel k-means ordinary k-means.

    Examples
    --------
    >>> Linear()([1.0, 2.0], [3.0, 4.0])
    11.0
    """

    _is_exact: ClassVar[bool] = True

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.LINEAR)


@dataclass(frozen=True)
class Cosine(_Parametric):
    """K(x, y) = <x, y> / (|x| |y|); 0 if either is the zero vector.

    Examples
    --------
    >>> Cosine()([1.0, 0.0], [5.0, 0.0])
    1.0
    """

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push(program.COSINE)
