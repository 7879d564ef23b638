"""Kernels made from other kernels (sums, products, positive multiples, normalization) and from a user's function."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numba import njit
from numba.core.dispatcher import Dispatcher

from kernelcoreset.checks import check_positive, shown
from kernelcoreset.errors import FormatError, KernelError, SettingError
from kernelcoreset.kernels import program
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.program import ProgramBuilder
from kernelcoreset.kernels.trust import check_trusted


@dataclass(frozen=True, repr=False)
class _Pair(Kernel):
    """A kernel made from two others."""

    left: Kernel
    right: Kernel

    def to_dict(self) -> dict[str, Any]:
        return {"kernel": type(self).__name__, "left": self.left.to_dict(), "right": self.right.to_dict()}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any], trusted_modules: tuple[str, ...]) -> Kernel:
        left = Kernel.from_dict(data["left"], trusted_modules=trusted_modules)
        return cls(left, Kernel.from_dict(data["right"], trusted_modules=trusted_modules))


@dataclass(frozen=True, repr=False)
class Sum(_Pair):
    """K = left + right, written `left + right`.

    Examples
    --------
    >>> from kernelcoreset import Linear, Polynomial
    >>> Linear() + Polynomial(degree=2)
    (Linear() + Polynomial(degree=2, c=0.0))
    """

    @property
    def exact(self) -> bool:
        """Whether both parts are exact: the squared distances of a sum are the sums of the squared distances."""
        return self.left.exact and self.right.exact

    def emit(self, builder: ProgramBuilder) -> None:
        self.left.emit(builder)
        self.right.emit(builder)
        builder.fold(program.ADD)

    def __repr__(self) -> str:
        return f"({self.left!r} + {self.right!r})"


@dataclass(frozen=True, repr=False)
class Product(_Pair):
    """K = left * right, written `left * right`.

    Examples
    --------
    >>> from kernelcoreset import Gaussian, Linear
    >>> Gaussian(sigma=1.0) * Linear()
    (Gaussian(sigma=1.0) * Linear())
    """

    def emit(self, builder: ProgramBuilder) -> None:
        self.left.emit(builder)
        self.right.emit(builder)
        builder.fold(program.MULTIPLY)

    def __repr__(self) -> str:
        return f"({self.left!r} * {self.right!r})"


@dataclass(frozen=True, repr=False)
class Scaled(Kernel):
    """K = factor * inner with factor > 0, written `factor * inner`.

    Examples
    --------
    >>> from kernelcoreset import Linear
    >>> 2 * Linear()
    (2.0 * Linear())
    """

    factor: float
    inner: Kernel

    @property
    def exact(self) -> bool:
        """Whether the inner kernel is exact: squared distances scale with the kernel."""
        return self.inner.exact

    def emit(self, builder: ProgramBuilder) -> None:
        self.inner.emit(builder)
        builder.scale(self.factor)

    def to_dict(self) -> dict[str, Any]:
        return {"kernel": "Scaled", "factor": self.factor, "inner": self.inner.to_dict()}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any], trusted_modules: tuple[str, ...]) -> Kernel:
        inner = Kernel.from_dict(data["inner"], trusted_modules=trusted_modules)
        return cls(check_positive("factor", data["factor"]), inner)

    def __repr__(self) -> str:
        return f"({self.factor!r} * {self.inner!r})"


@dataclass(frozen=True, repr=False)
class Normalized(Kernel):
    """K(x, y) = inner(x, y) / (degree of x * degree of y). The degree is the last coordinate of a point, above 0.

    With weights equal to the degrees, weighted kernel k-means of this kernel minimises the normalized cut of `inner`.

    Examples
    --------
    >>> from kernelcoreset import Linear
    >>> Normalized(Linear())([2.0, 4.0], [3.0, 0.5])  # 2 * 3 / (4 * 0.5)
    3.0
    """

    inner: Kernel

    def emit(self, builder: ProgramBuilder) -> None:
        self.inner.emit(builder)
        builder.normalize()

    def to_dict(self) -> dict[str, Any]:
        return {"kernel": "Normalized", "inner": self.inner.to_dict()}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any], trusted_modules: tuple[str, ...]) -> Kernel:
        return cls(Kernel.from_dict(data["inner"], trusted_modules=trusted_modules))

    def __repr__(self) -> str:
        return f"Normalized({self.inner!r})"


@dataclass(frozen=True, repr=False)
class UserKernel(Kernel):
    """A kernel from a user's function `f(x, y) -> float`, with x and y arrays of shape (d,).

    The function must be symmetric and positive semidefinite. It is checked on a sample of the points it is used with.

    Parameters
    ----------
    function : callable
        Compiled with `numba.njit`, or plain Python that numba can compile. To be saved, it must be importable by
        name: at the top level of a module, not in a notebook or a script. Whoever loads it must say that the module is
        trusted (`trusted_modules`), because importing it runs its code.

    Examples
    --------
    >>> from numba import njit
    >>> @njit
    ... def overlap(x, y):
    ...     total = 0.0
    ...     for j in range(len(x)):
    ...         total += min(x[j], y[j])
    ...     return total
    >>> UserKernel(overlap)([1.0, 2.0], [3.0, 1.0])
    2.0
    """

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        if isinstance(self.function, types.FunctionType):
            object.__setattr__(self, "function", _compiled_once(self.function))
        if not isinstance(self.function, Dispatcher):
            raise SettingError(
                f"`function` must be a function f(x, y) compiled with numba.njit; got {self.function!r}."
            )

    def emit(self, builder: ProgramBuilder) -> None:
        builder.push_user(self.function)

    @property
    def _source(self) -> Any:
        return self.function.py_func  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        module, name = self._source.__module__, self._source.__qualname__
        if module == "__main__" or not name.isidentifier():
            raise KernelError(
                f"A user kernel is saved by its import path; {module}.{name} has none. "
                "Move the function to the top level of a module that can be imported."
            )
        return {"kernel": "UserKernel", "function": f"{module}:{name}"}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any], trusted_modules: tuple[str, ...]) -> Kernel:
        path = data["function"]
        module, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
        if not module or not name.isidentifier():
            raise FormatError(f"A user kernel must name its function as 'module:function'; got {shown(path)}.")
        check_trusted(path, module, trusted_modules)
        try:
            function = getattr(importlib.import_module(module), name)
        except Exception as error:  # a module may fail in any way when it is imported
            raise FormatError(
                f"The user kernel {path!r} cannot be imported ({error}). Add its module to this process's Python path."
            ) from None
        if not isinstance(function, Dispatcher | types.FunctionType):
            raise FormatError(f"The user kernel {path!r} must name a function; it names a {type(function).__name__}.")
        return cls(function)

    def __repr__(self) -> str:
        return f"UserKernel({self._source.__module__}.{self._source.__qualname__})"


_compiled_functions: dict[types.FunctionType, Any] = {}


def _compiled_once(function: types.FunctionType) -> Any:
    """Compile a Python function once, so that two kernels of the same function are equal."""
    if function not in _compiled_functions:
        _compiled_functions[function] = njit(function)
    return _compiled_functions[function]
