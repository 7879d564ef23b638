"""How a coreset is built: the number of clusters, the kernel, the size, the exponent, the draw and the seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernelcoreset.checks import check_at_least, check_choice, check_count, check_seed
from kernelcoreset.errors import KernelError, SettingError
from kernelcoreset.kernels.kernel import Kernel, check_kernel

DRAWS = ("ordered", "iid", "uniform")


@dataclass(frozen=True)
class Recipe:
    """What every reduction of one coreset shares. Immutable, checked when it is made.

    Parameters
    ----------
    k : int
        Number of centers the coreset is for, at least 1.
    kernel : Kernel
    size : int
        Number of points to draw, at least k.
    z : float
        Exponent of the distances, at least 1.
    draw : {"ordered", "iid", "uniform"}
        How the points are drawn, see `coresets.sampling`.
    seed : int
        At least 0. Same recipe, same input, same coreset.

    Examples
    --------
    >>> from kernelcoreset import Gaussian
    >>> recipe = Recipe(k=5, kernel=Gaussian(sigma=1.0), size=200)
    >>> recipe.varied(size=800, seed=7).size
    800
    """

    k: int
    kernel: Kernel
    size: int
    z: float = 2.0
    draw: str = "ordered"
    seed: int = 0

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "kernel": check_kernel(self.kernel),
            "k": check_count("k", self.k),
            "z": check_at_least("z", self.z, 1.0, "Use z=2 for k-means, z=1 for k-median."),
            "seed": check_seed(self.seed),
            "draw": check_choice("draw", self.draw, DRAWS),
            "size": check_count("size", self.size),
        }
        if checked["size"] < checked["k"]:
            raise SettingError(
                f"`size` must be at least k ({self.k}); got {self.size}. Ask for more coreset points or fewer clusters."
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def varied(self, *, size: int | None = None, seed: int | None = None) -> Recipe:
        """Return the same recipe with another size, another seed, or both."""
        return replace(self, size=self.size if size is None else size, seed=self.seed if seed is None else seed)

    @property
    def settings(self) -> dict[str, Any]:
        """The recipe as plain data, as a coreset carries it; the order of the keys is part of the file format."""
        return {
            "k": self.k,
            "z": self.z,
            "kernel": plain_kernel(self.kernel),
            "size": self.size,
            "draw": self.draw,
            "seed": self.seed,
        }


def leaf_size_of(size: int, leaf_size: int | None = None) -> int:
    """Return the number of points a leaf or inner node of a tree keeps: 4 * size if None is asked for.

    A wide union that is reduced once loses less than many narrow levels, so nodes keep more points than the result.
    """
    wanted = 4 * size if leaf_size is None else leaf_size
    return check_count("leaf_size", wanted, size, "A node keeps at least `size` points.")


def plain_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as plain data. A user's function that cannot be imported by name is only described."""
    try:
        return kernel.to_dict()
    except KernelError:
        return {"kernel": repr(kernel)}
