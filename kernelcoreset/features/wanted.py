"""What a user asks for: how each column of a table becomes coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernelcoreset.checks import check_choice, check_count, closest_name, shown
from kernelcoreset.errors import SettingError

SCALES = ("standard", "robust", "none")
IMPUTES = ("none", "median", "mean")


@dataclass(frozen=True)
class Features:
    """How columns become coordinates. Immutable; the section [features] of the settings has the same names.

    Parameters
    ----------
    scale : {"standard", "robust", "none"}
        What numbers are divided by after their center is subtracted: the standard deviation around the mean, the
        interquartile range (divided by 1.349, so that it agrees with the standard deviation of a normal distribution)
        around the median, or nothing.
    categorical : sequence of str or int
        Columns whose values are names: one coordinate of 0 or 1 for each frequent value, and one for all others, also
        for values that were not there when the model was fitted. Two rows with different values are sqrt(2) apart, so a
        category weighs about as much as a standardised number. Positions are accepted for arrays without names.
    log : sequence of str or int
        Columns of amounts, replaced by sign(x) log(1 + |x|) before they are scaled.
    impute : {"none", "median", "mean"}
        What replaces a missing number. A missing category counts as a value of its own. With "none" a row with a
        missing value is a bad row.
    most_categories : int
        Values of a categorical column that get a coordinate of their own, the most frequent ones.

    Examples
    --------
    >>> Features(categorical=["job"], log=["balance"]).scale
    'standard'
    """

    scale: str = "standard"
    categorical: tuple[str | int, ...] = ()
    log: tuple[str | int, ...] = ()
    impute: str = "none"
    most_categories: int = 20

    def __post_init__(self) -> None:
        check_choice("features.scale", self.scale, SCALES)
        check_choice("features.impute", self.impute, IMPUTES)
        check_count("features.most_categories", self.most_categories)
        for name in ("categorical", "log"):
            object.__setattr__(self, name, _columns(f"features.{name}", getattr(self, name)))
        both = [name for name in self.log if name in self.categorical]
        if both:
            raise SettingError(f"`features.log` must not name categorical columns; got {both}.")

    @staticmethod
    def of(value: Any) -> Features | None:
        """Return what was asked for as an object: None, Features, or a mapping of its parameters."""
        if value is None or isinstance(value, Features):
            return value
        if isinstance(value, Mapping):
            unknown = sorted(set(value) - set(Features.__dataclass_fields__))
            if not unknown:
                return Features(**value)
            meant = closest_name(unknown[0], Features.__dataclass_fields__)
            hint = f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(Features.__dataclass_fields__)}."
            raise SettingError(f"`features` has no parameter {unknown[0]!r}. {hint}")
        raise SettingError(f"`features` must be a Features object or a mapping of its parameters; got {shown(value)}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _columns(key: str, values: Any) -> tuple[str | int, ...]:
    fine = isinstance(values, list | tuple) and all(
        (isinstance(value, str) and value) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
        for value in values
    )
    if not fine or len(set(values)) < len(values):
        raise SettingError(f'`{key}` must be a list of different columns, such as ["a", "b"]; got {shown(values)}.')
    return tuple(values)
