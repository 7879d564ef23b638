"""The base class of kernels: evaluation, combination, and conversion to and from plain data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kernelcoreset.checks import Floats, check_points, check_positive, check_same_dimension, shown
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.program import ProgramBuilder
from kernelcoreset.kernels.trust import check_modules


class Kernel(ABC):
    """A positive semidefinite function K(x, y): the inner product of feature vectors that are never computed.

    Kernels are immutable. They are equal if their parameters are. `a + b`, `a * b` and `2.5 * a` are kernels too.

    Examples
    --------
    >>> from kernelcoreset import Gaussian, Linear
    >>> kernel = Gaussian(sigma=2.0) + 0.5 * Linear()
    >>> kernel([0.0, 1.0], [0.0, 1.0])
    1.5
    >>> kernel == Kernel.from_dict(kernel.to_dict())
    True
    """

    @property
    def exact(self) -> bool:
        """Whether squared feature distances have a closed form that stays exact for points close together."""
        return False

    @abstractmethod
    def emit(self, builder: ProgramBuilder) -> None:
        """Append this kernel's operations to a program."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the kernel as plain data that can be written as JSON."""

    @classmethod
    @abstractmethod
    def _from_dict(cls, data: Mapping[str, Any], trusted_modules: tuple[str, ...]) -> Kernel:
        """Return the kernel of this class that `to_dict` described."""

    _by_name: ClassVar[dict[str, type[Kernel]]] = {}
    __array_ufunc__ = None  # so that numpy leaves `np.float64(2) * kernel` to `__rmul__`, which refuses arrays

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            Kernel._by_name[cls.__name__] = cls

    @staticmethod
    def from_dict(data: Mapping[str, Any], *, trusted_modules: Iterable[str] = ()) -> Kernel:
        """Return the kernel that a plain-data form describes.

        Parameters
        ----------
        data : mapping
            What `to_dict` returned, also after writing it as JSON and reading it back.
        trusted_modules : iterable of str
            Modules, or packages of them, that may be imported for a user's function. FormatError if another one is
            named. The environment variable KERNELCORESET_TRUSTED_MODULES adds to them.

        Returns
        -------
        Kernel

        Examples
        --------
        >>> Kernel.from_dict({"kernel": "Gaussian", "sigma": 2.0})
        Gaussian(sigma=2.0)
        """
        if not isinstance(data, Mapping) or "kernel" not in data:
            raise FormatError(f"A kernel's plain form must be a mapping with the key 'kernel'; got {shown(data)}.")
        name = data["kernel"]
        if not isinstance(name, str) or name not in Kernel._by_name:
            known = ", ".join(sorted(Kernel._by_name))
            raise FormatError(f"A kernel's plain form must name a known kernel; got {shown(name)}. Known: {known}.")
        trusted = check_modules("trusted_modules", trusted_modules)
        try:
            return Kernel._by_name[name]._from_dict(data, trusted)
        except RecursionError:
            raise FormatError("A kernel's plain form is nested too deeply.") from None
        except (KeyError, TypeError) as error:
            raise FormatError(f"The plain form of a {name} kernel has missing or unknown keys: {error}.") from None

    def __add__(self, other: object) -> Kernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        from kernelcoreset.kernels.combined import Sum

        return Sum(self, other)

    def __mul__(self, other: object) -> Kernel:
        from kernelcoreset.kernels.combined import Product, Scaled

        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, str | bytes) or np.ndim(other) != 0:  # type: ignore[arg-type]
            return NotImplemented
        return Scaled(check_positive("scale of a kernel", other), self)

    __rmul__ = __mul__

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """Return K(x, y) for two points of shape (d,)."""
        return float(self.block(np.atleast_2d(np.asarray(x)), np.atleast_2d(np.asarray(y)))[0, 0])

    def block(self, points: ArrayLike, others: ArrayLike) -> Floats:
        """Return the matrix of K between two sets of points.

        Parameters
        ----------
        points : array-like of shape (n, d)
        others : array-like of shape (m, d)

        Returns
        -------
        ndarray of shape (n, m)
            K(points[i], others[j]). Costs n * m kernel evaluations.

        Examples
        --------
        >>> from kernelcoreset import Linear
        >>> Linear().block([[1.0, 2.0]], [[3.0, 4.0], [0.0, 1.0]])
        array([[11.,  2.]])
        """
        left, right = self._two(points, others)
        return evaluator_of(self).block(as_columns(right), left)

    def squared_distances(self, points: ArrayLike, others: ArrayLike) -> Floats:
        """Return K(x, x) + K(y, y) - 2 K(x, y), at least 0, between two sets of points.

        Parameters
        ----------
        points : array-like of shape (n, d)
        others : array-like of shape (m, d)

        Returns
        -------
        ndarray of shape (n, m)

        Examples
        --------
        >>> from kernelcoreset import Linear
        >>> Linear().squared_distances([[1.0, 2.0]], [[3.0, 4.0], [0.0, 1.0]])
        array([[8., 2.]])
        """
        left, right = self._two(points, others)
        return evaluator_of(self).squared_distances(as_columns(right), left)

    def diagonal(self, points: ArrayLike) -> Floats:
        """Return K(x, x) of every point.

        Parameters
        ----------
        points : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)

        Examples
        --------
        >>> from kernelcoreset import Polynomial
        >>> Polynomial(degree=2).diagonal([[1.0, 2.0], [0.0, 1.0]])
        array([25.,  1.])
        """
        return evaluator_of(self).diagonal(as_columns(check_points(points)))

    def _two(self, points: ArrayLike, others: ArrayLike) -> tuple[Floats, Floats]:
        left, right = check_points(points), check_points(others, "others")
        check_same_dimension("others", right.shape[1], left.shape[1], "`points`")
        return left, right


def kernel_classes() -> dict[str, type[Kernel]]:
    """Return the public kernel classes by name: those of this package, and those of the user that are imported."""
    return dict(Kernel._by_name)


def check_kernel(kernel: Any) -> Kernel:
    """Return `kernel` if it is a Kernel object."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise SettingError(
            f"`kernel` must be a kernel object; got the class {kernel.__name__}. Write {kernel.__name__}(...)."
        )
    remedy = (
        "A name has no width here: write Gaussian(sigma=...); `choose_sigma` finds a width."
        if isinstance(kernel, str)
        else "Wrap a function of your own as UserKernel(function)."
    )
    raise SettingError(f"`kernel` must be a kernel object such as Gaussian(sigma=1.0); got {kernel!r}. {remedy}")
