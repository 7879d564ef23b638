"""Which modules may be imported because a file names them: only those that the caller trusts.

A saved user kernel is the import path of a function, and importing a module runs its code. So a file may not choose it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from kernelcoreset.errors import FormatError, SettingError

VARIABLE = "KERNELCORESET_TRUSTED_MODULES"
"""Environment variable with module names, separated by commas, that every reader of this process trusts."""


def check_modules(name: str, modules: Any) -> tuple[str, ...]:
    """Return module names as a tuple; raise SettingError if they are something else.

    Examples
    --------
    >>> check_modules("trusted_modules", ["my_kernels"])
    ('my_kernels',)
    """
    rule = f'`{name}` must be a list of module names, such as ["my_kernels"]'
    if isinstance(modules, str | bytes | Mapping) or not isinstance(modules, Iterable):
        raise SettingError(f"{rule}; got a {type(modules).__name__}.")
    found = tuple(modules)
    for module in found:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise SettingError(f"{rule}; one of them is no module name.")
    return found


def check_trusted(path: str, module: str, trusted_modules: Iterable[str]) -> None:
    """Raise FormatError unless the module of a user's function, or a package it is in, is trusted."""
    trusted = [*trusted_modules, *(name.strip() for name in os.environ.get(VARIABLE, "").split(","))]
    if not any(name and f"{module}.".startswith(f"{name}.") for name in trusted):
        raise FormatError(
            f"The user kernel {path!r} is a function of the module {module!r}, which is not trusted and was not "
            f"imported. If you trust it: trusted_modules=[{module!r}] when loading, run.trusted_modules in the "
            f"settings of a job, or the environment variable {VARIABLE}={module} before the process starts."
        )


def modules_of(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules that the plain form of a kernel names. They are imported already if the kernel is there.

    Examples
    --------
    >>> from kernelcoreset import Gaussian
    >>> modules_of(Gaussian(sigma=1.0).to_dict())
    ()
    """
    found = {str(plain["function"]).partition(":")[0]} if "function" in plain else set()
    for part in plain.values():
        if isinstance(part, Mapping):
            found.update(modules_of(part))
    return tuple(sorted(found))
