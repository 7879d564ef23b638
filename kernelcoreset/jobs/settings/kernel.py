"""The section [kernel] of a settings file: a kernel by name and parameters, possibly nested."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelcoreset.checks import closest_name, shown
from kernelcoreset.errors import KernelCoresetError, SettingError
from kernelcoreset.jobs.settings.fields import refuse_unknown
from kernelcoreset.kernels import Kernel, Normalized
from kernelcoreset.kernels.kernel import kernel_classes

_SIGMA_RULES = ("median", "auto")  # the rules of kernelcoreset.clustering.choosing.choose_sigma


@dataclass(frozen=True)
class KernelSettings:
    """[kernel]: the kernel by its class name and parameters, possibly nested.

    `name = "Gaussian"`, `sigma = 50.0`; or `name = "Sum"` with `left = {name = "Gaussian", sigma = 50.0}` and
    `right = {name = "Linear"}`; or `name = "UserKernel"` with `function = "my_module:my_function"`. Sigma may be a
    rule, "median" or "auto": then the job chooses it from the data.

    Parameters
    ----------
    plain : mapping
        The kernel as `Kernel.to_dict` returns it; sigma may be a rule.
    trusted_modules : tuple of str
        `run.trusted_modules`, the modules that may be imported for a UserKernel.

    Examples
    --------
    >>> settings = KernelSettings({"kernel": "Gaussian", "sigma": "median"})
    >>> settings.sigma_rule, settings.build(sigma=2.0)
    ('median', Gaussian(sigma=2.0))
    """

    plain: Mapping[str, Any]
    trusted_modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", _plain_kernel("kernel", self.plain))
        self.build(sigma=1.0)  # checks everything but sigma rules, which any number may replace

    @property
    def sigma_rule(self) -> str | None:
        """The rule by which sigma is chosen from the data; None if sigma is a number or the kernel has none."""
        rules = sorted(_sigma_rules(self.plain))
        return rules[0] if rules else None

    def build(self, sigma: float | None = None) -> Kernel:
        """Return the kernel, with `sigma` in place of a rule."""
        if sigma is None and self.sigma_rule is not None:
            raise SettingError(f"`kernel.sigma` = {self.sigma_rule!r} is chosen from the data: pass the chosen sigma.")
        return _kernel("kernel", self.plain, sigma, self.trusted_modules)


def _plain_kernel(key: str, table: Any) -> dict[str, Any]:
    """Return a [kernel] table in the form of `Kernel.to_dict`, with its names checked."""
    if not isinstance(table, Mapping):
        raise SettingError(f'`{key}` must be a table such as {{name = "Gaussian", sigma = 50.0}}; got {shown(table)}.')
    parameters = {name: value for name, value in table.items() if name not in ("name", "kernel")}
    classes = {each: kind for each, kind in kernel_classes().items() if kind is not Normalized}
    name = _class_name(table.get("name", table.get("kernel")), classes)
    if name == Normalized.__name__:
        raise SettingError(
            f"`{key}.name` must not be 'Normalized': the last column would be read as degrees. Name the kernel "
            "inside it, and run the job `spectral`, which normalizes it."
        )
    if not isinstance(name, str) or name not in classes:
        meant = closest_name(name, sorted(classes)) if isinstance(name, str) else None
        hint = f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(sorted(classes))}."
        raise SettingError(f"`{key}.name` must be the name of a kernel; got {shown(name)}. {hint}")
    expected = dataclasses.fields(classes[name])  # type: ignore[arg-type]
    refuse_unknown("key", f"{key}.", parameters, [part.name for part in expected])
    for part in expected:
        if part.name not in parameters and part.default is dataclasses.MISSING:
            raise SettingError(f"`{key}.{part.name}` is required by {name}; it is not set.")
    sigma = parameters.get("sigma")
    if isinstance(sigma, str) and sigma not in _SIGMA_RULES:
        raise SettingError(f'`{key}.sigma` must be a number above 0, or "median" or "auto"; got {shown(sigma)}.')
    nested = ("left", "right", "inner")
    return {"kernel": name} | {
        part: _plain_kernel(f"{key}.{part}", value) if part in nested else value for part, value in parameters.items()
    }


def _class_name(name: Any, classes: Iterable[str]) -> Any:
    """The name of the class for a name as the estimators of Python take it, such as "gaussian" or "rbf"."""
    if not isinstance(name, str):
        return name
    return {"rbf": "Gaussian", **{each.lower(): each for each in classes}}.get(name.lower(), name)


def _kernel(key: str, plain: Mapping[str, Any], sigma: float | None, trusted: tuple[str, ...]) -> Kernel:
    """Return the kernel of a plain form. Nested kernels are built first, so that an error names the one it is in."""
    parts: dict[str, Any] = {
        name: _kernel(f"{key}.{name}", part, sigma, trusted).to_dict() for name, part in _nested(plain)
    }
    if sigma is not None and plain.get("sigma") in _SIGMA_RULES:
        parts["sigma"] = sigma
    try:
        return Kernel.from_dict({**plain, **parts}, trusted_modules=trusted)
    except KernelCoresetError as error:
        message = str(error)
        raise SettingError(f"`{key}.{message[1:]}" if message.startswith("`") else f"`{key}`: {message}") from None


def _nested(plain: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, value) for name, value in plain.items() if isinstance(value, Mapping)]


def _sigma_rules(plain: Mapping[str, Any]) -> set[str]:
    rules = {plain["sigma"]} if plain.get("sigma") in _SIGMA_RULES else set()
    return rules.union(*(_sigma_rules(part) for _, part in _nested(plain)))
