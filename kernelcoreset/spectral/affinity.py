"""Which similarities spectral clustering uses: those of nearest neighbors or those of a kernel."""

from __future__ import annotations

from typing import Any

from kernelcoreset.checks import check_choice
from kernelcoreset.errors import SettingError

AFFINITIES = ("auto", "nearest_neighbors", "kernel")
"""What a user may ask for."""


def check_affinity(name: str, value: Any) -> str:
    """Return an affinity by its name here: scikit-learn's "rbf" is "kernel"."""
    return check_choice(name, "kernel" if value == "rbf" else value, AFFINITIES)


def chosen_affinity(affinity: Any, *, has_kernel: bool, name: str = "affinity") -> str:
    """Return "nearest_neighbors" or "kernel" for a user's setting; `has_kernel` if a kernel or its width was given.

    Examples
    --------
    >>> chosen_affinity("auto", has_kernel=False), chosen_affinity("auto", has_kernel=True)
    ('nearest_neighbors', 'kernel')
    """
    affinity = check_affinity(name, affinity)
    if affinity == "nearest_neighbors" and has_kernel:
        raise SettingError(
            f"`{name}` = 'nearest_neighbors' uses no kernel; got one, or its width. Leave them out, or use 'kernel'."
        )
    if affinity == "auto":
        return "kernel" if has_kernel else "nearest_neighbors"
    return str(affinity)
