"""A look at features before they are clustered: who carries the distances, and what looks like a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kernelcoreset.checks import Floats
from kernelcoreset.features.arrays import to_floats
from kernelcoreset.features.preparation import CategoryColumn, NumberColumn, Preparation, Raw, encoded
from kernelcoreset.features.wanted import Features

_NEARLY_ALL = 0.9
_FEW_OF = 3  # up to a third of the columns are few
_NEARLY_CONSTANT = 0.99
_FEWEST = 0.01  # share of the rows that a sentinel has at least
_SMALL_SENTINELS = (-1.0, -9.0)
_AS_THEY_ARE = Features(scale="none")


@dataclass(frozen=True)
class Look:
    """What was seen.

    Attributes
    ----------
    shares : dict
        Share of each column in the mean squared distance of two rows; they sum to 1.
    warnings : list of str
    """

    shares: dict[str, float]
    warnings: list[str]


def look_at(names: Sequence[str], arrays: Sequence[Raw], preparation: Preparation | None = None) -> Look:
    """Return the share of each column in the squared distances, and what looks like a mistake.

    Parameters
    ----------
    names : sequence of str
    arrays : sequence of arrays
        Columns of a sample of the rows, as they are in the data.
    preparation : Preparation, optional
        How they become points; by default numbers stay as they are.

    Examples
    --------
    >>> import numpy as np
    >>> columns = [np.array([1.0, 2.0, 3.0]), np.array([100.0, 200.0, 300.0])]
    >>> look_at(["age", "income"], columns).warnings[0].split(":")[0]
    'income carries 100.0 % of the squared distances'
    """
    if preparation is None:
        preparation = Preparation(tuple(NumberColumn(name, False, 0.0, 1.0, None) for name in names), _AS_THEY_ARE)
    points, bad = preparation.apply(arrays)
    good = np.ones(points.shape[1], dtype=bool)
    for wrong in bad.values():
        good &= ~wrong
    variances = points[:, good].var(axis=1) if good.any() else np.zeros(len(points))
    sums = np.bincount(preparation.owners, variances, minlength=len(names))
    total = float(sums.sum())
    shares = {name: float(each) / total if total > 0.0 else 0.0 for name, each in zip(names, sums, strict=True)}
    warnings = _of_shares(shares)
    for column, values in zip(preparation.columns, arrays, strict=True):
        warnings += _of_category(column, values) if isinstance(column, CategoryColumn) else _of_numbers(column, values)
    return Look(shares, warnings)


def _of_shares(shares: Mapping[str, float]) -> list[str]:
    """A warning if one column, or a few of many, carry nearly all of the squared distances."""
    order = sorted(shares, key=lambda name: -shares[name])
    for count in range(1, max(2, 1 + len(order) // _FEW_OF)):
        some = order[:count]
        together = sum(shares[name] for name in some)
        if together > _NEARLY_ALL and len(order) > 1:
            carry, these = ("carries", "this column") if count == 1 else ("carry", "these columns")
            return [
                f"{' and '.join(some)} {carry} {_percent(together)} of the squared distances: the clusters are those "
                f"of {these} alone. Set features.scale."
            ]
    return []


def _of_category(column: CategoryColumn, values: Raw) -> list[str]:
    names, codes, missing = encoded(values)
    counts = np.bincount(codes if missing is None else codes[~missing], minlength=len(names))
    return _of_most(column.name, names[int(counts.argmax())], counts.max() / len(codes)) if len(names) else []


def _of_numbers(column: NumberColumn, values: Raw) -> list[str]:
    numbers = to_floats(values) if isinstance(values, pa.Array) else np.asarray(values, dtype=np.float64)
    different, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
    if not len(different):
        return []
    shares = counts / len(numbers)
    found = [
        f"{column.name} is {different[place]:g} in {_percent(shares[place])} of the rows, far from its other values: "
        "does it mean that the value is missing? Then make it missing, as NULLIF"
        f"({column.name}, {different[place]:g}) does in input.query, and set features.impute."
        for place in (0, len(different) - 1)
        if shares[place] >= _FEWEST and _is_sentinel(different, place)
    ]
    most = int(counts.argmax())
    return [*found, *([] if found else _of_most(column.name, f"{different[most]:g}", shares[most]))]


def _of_most(name: str, value: str, share: float) -> list[str]:
    if share < _NEARLY_CONSTANT:
        return []
    return [f"{name} is nearly constant: {value} in {_percent(share)} of the rows. Leave it out."]


def _is_sentinel(different: Floats, place: int) -> bool:
    """Whether the smallest or largest value is one that often stands for a missing value, apart from all others."""
    if len(different) < 3:
        return False
    value, others = different[place], np.delete(different, place)
    if value in _SMALL_SENTINELS and others[0] >= 0.0:
        return True
    digits = f"{abs(value):g}"
    return len(digits) > 1 and set(digits) == {"9"} and np.abs(others - value).min() > np.ptp(others)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
