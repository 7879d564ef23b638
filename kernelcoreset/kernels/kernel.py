"""What every kernel can do: evaluate, combine, and describe itself as plain data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kernelcoreset.checks import Floats, check_points, check_positive, check_same_dimension
from kernelcoreset.errors import FormatError, KernelError, SettingError
from kernelcoreset.kernels.loops import tiles
from kernelcoreset.kernels.loops.passes import Cloud, Program, Rows, specialise


class Kernel(ABC):
    """A positive semidefinite function K(x, y): an inner product of feature vectors nobody has to compute.

    Kernels are immutable and compare equal when their parameters do. `a + b`, `a * b` and `2.5 * a` are kernels again.

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
        """Whether squared feature distances have a closed form that keeps near points exact."""
        return False

    @abstractmethod
    def _emit(self, builder: ProgramBuilder) -> None:
        """Append this kernel's operations to a program."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the kernel as plain data that survives JSON."""

    @classmethod
    @abstractmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Kernel:
        """Rebuild a kernel of this class from what `to_dict` gave."""

    _by_name: ClassVar[dict[str, type[Kernel]]] = {}
    __array_ufunc__ = None  # a numpy scalar leaves `2.0 * kernel` to us, an array is refused

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            Kernel._by_name[cls.__name__] = cls

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Kernel:
        """Rebuild a kernel from its plain-data form.

        Parameters
        ----------
        data : mapping
            What `to_dict` returned, possibly after a trip through JSON.

        Returns
        -------
        Kernel

        Examples
        --------
        >>> Kernel.from_dict({"kernel": "Gaussian", "sigma": 2.0})
        Gaussian(sigma=2.0)
        """
        if not isinstance(data, Mapping) or "kernel" not in data:
            raise FormatError(f"A kernel's plain form must be a mapping with the key 'kernel'; got {data!r}.")
        name = data["kernel"]
        if not isinstance(name, str) or name not in Kernel._by_name:
            known = ", ".join(sorted(Kernel._by_name))
            raise FormatError(f"A kernel's plain form must name a known kernel; got {name!r}. Known: {known}.")
        try:
            return Kernel._by_name[name]._from_dict(data)
        except (KeyError, TypeError) as error:
            raise FormatError(
                f"The plain form of a {name} kernel is incomplete or has foreign keys: {error}."
            ) from None

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
        return self._block(as_columns(right), left)

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
        program = self._compiled.distances
        if program.squared:
            return self._block(as_columns(right), left, program)
        result = self._block(as_columns(right), left)
        others_diagonal = self.diagonal(right)
        for row, own in zip(result, self.diagonal(left), strict=True):
            tiles.finish_distances(row, len(row), others_diagonal, own, False, 2.0)
        return result

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
        return self._diagonal(as_columns(check_points(points)))

    # --- for the rest of the package: columns in, assumes validated input --------------------------------------------

    @property
    def _compiled(self) -> CompiledKernel:
        return _compile(self)

    def _block(self, columns: Floats, rows: Floats, program: Program | None = None) -> Floats:
        """K of shape (rows, columns); the rows are the pivots of the compiled loop."""
        out = np.empty((rows.shape[0], columns.shape[1]))
        self._compiled.passes.block(program or self._compiled.values, columns, np.ascontiguousarray(rows), out)
        if not np.isfinite(out).all():
            raise self._overflow("K(x, y)")
        return out

    def _diagonal(self, columns: Floats) -> Floats:
        out = np.empty(columns.shape[1])
        self._compiled.passes.diagonal(self._compiled.values, columns, out)
        if not np.isfinite(out).all():
            raise self._overflow("K(x, x)")
        if (out < 0).any():
            row = int(np.argmin(out))
            raise KernelError(
                f"K(x, x) must be at least 0; {self!r} gives {out[row]:g} at row {row}. "
                "It is not a kernel: mend the function."
            )
        return out

    def _cloud(self, columns: Floats) -> Cloud:
        """Points as the passes want them, with the diagonal only where it is needed."""
        exact = self._compiled.distances.squared
        return Cloud(columns, np.empty(0) if exact else self._diagonal(columns))

    def _rows(self, rows: Floats) -> Rows:
        exact = self._compiled.distances.squared
        rows = np.require(rows, requirements=["C", "W"])
        return Rows(rows, np.empty(0) if exact else self._diagonal(as_columns(rows)))

    def _refuse_if_no_kernel(self, columns: Floats) -> None:
        """Check a user's function on a few points: finite, symmetric, K(x, x) >= 0. Built-in kernels pass by proof."""
        if not self._compiled.functions:
            return
        some = np.unique(np.linspace(0, columns.shape[1] - 1, 48).astype(np.int64))
        few = np.ascontiguousarray(columns[:, some])
        gram = self._block(few, np.ascontiguousarray(few.T))
        self._diagonal(few)
        gap = np.abs(gram - gram.T)
        if gap.max() > 1e-8 * np.abs(gram).max():
            i, j = np.unravel_index(int(np.argmax(gap)), gap.shape)
            raise KernelError(
                f"A kernel must be symmetric; {self!r} gives K(x, y) = {gram[i, j]:g} and K(y, x) = {gram[j, i]:g} "
                f"for x = row {some[i]}, y = row {some[j]}. Use (f(x, y) + f(y, x)) / 2, or mend the function."
            )

    def _overflow(self, what: str) -> KernelError:
        if self._compiled.functions:
            return KernelError(
                f"A kernel must be finite; {self!r} gives NaN or infinity for {what}. Mend the function."
            )
        return KernelError(
            f"Kernel values must fit in float64; {self!r} overflows for {what}. Scale the points (divide each column "
            "by its standard deviation) or use a smaller degree."
        )

    def _two(self, points: ArrayLike, others: ArrayLike) -> tuple[Floats, Floats]:
        left, right = check_points(points), check_points(others, "others")
        check_same_dimension("others", right.shape[1], left.shape[1], "`points`")
        return left, right


class CompiledKernel(NamedTuple):
    """A kernel made ready: a program for K, one for squared distances, and the passes that run them."""

    values: Program
    distances: Program
    passes: SimpleNamespace
    functions: tuple[Callable[..., Any], ...]


class ProgramBuilder:
    """Collects the operations of a kernel in postfix order."""

    def __init__(self) -> None:
        self.operations: list[tuple[int, int]] = []
        self.parameters: list[float] = []
        self.functions: list[Callable[..., Any]] = []
        self.height = 0
        self.tallest = 0
        self.extra = 0

    def push(self, code: int, *parameters: float) -> None:
        """Evaluate a kernel onto the stack."""
        self._append(code, parameters)
        self.height += 1
        self.tallest = max(self.tallest, self.height)

    def push_user(self, function: Callable[..., Any]) -> None:
        """Evaluate a user's function onto the stack."""
        if function not in self.functions:
            self.functions.append(function)
        self.push(tiles.USER, float(self.functions.index(function)))

    def fold(self, code: int) -> None:
        """Combine the two topmost entries."""
        self._append(code, ())
        self.height -= 1

    def scale(self, factor: float) -> None:
        """Multiply the topmost entry."""
        self._append(tiles.SCALE, (factor,))

    def normalize(self) -> None:
        """Divide the topmost entry by the degrees of both points, their last coordinate."""
        self._append(tiles.NORMALIZE, ())
        self.extra = 1

    def program(self, squared: bool) -> Program:
        """Return what was collected; one more stack row serves as scratch."""
        if tiles.NORMALIZE in [code for code, _ in self.operations[:-1]]:
            raise KernelError(
                "A normalized kernel cannot be part of another kernel. Combine the kernels first, then normalize."
            )
        parameters = np.array([*self.parameters, 0.0])  # never empty, so a slice at any offset is valid
        return Program(np.array(self.operations, dtype=np.int64), parameters, squared, self.tallest + 1, self.extra)

    def _append(self, code: int, parameters: tuple[float, ...]) -> None:
        self.operations.append((code, len(self.parameters)))
        self.parameters.extend(parameters)


@lru_cache(maxsize=128)
def _compile(kernel: Kernel) -> CompiledKernel:
    builder = ProgramBuilder()
    kernel._emit(builder)
    functions = tuple(builder.functions)
    return CompiledKernel(builder.program(False), builder.program(kernel.exact), specialise(functions), functions)


def as_columns(points: Floats) -> Floats:
    """Points (n, d) as contiguous columns (d, n): free for Fortran order, one copy otherwise, and of read-only input.

    numba would compile every pass again for read-only arrays.
    """
    return np.require(points.T, requirements=["C", "W"])


def check_kernel(kernel: Any) -> Kernel:
    """Return `kernel` if it is one."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise SettingError(
            f"`kernel` must be a kernel object; got the class {kernel.__name__}. Write {kernel.__name__}(...)."
        )
    raise SettingError(
        f"`kernel` must be a kernel object such as Gaussian(sigma=1.0); got {kernel!r}. "
        "A function of your own goes in as UserKernel(function)."
    )
