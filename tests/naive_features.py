"""The preparation of features, row by row in plain Python: slow and obvious."""

from __future__ import annotations

import math
from typing import Any


def prepare(fitted: dict[str, list[Any]], rows: dict[str, list[Any]], wanted: dict[str, Any]) -> list[list[float]]:
    """Return the points of `rows` with the means, scales and values of `fitted`; columns by name, None is missing."""
    columns = []
    for name in fitted:
        known = [value for value in fitted[name] if value is not None]
        if name in wanted.get("categorical", ()):
            columns += category(known, rows[name], len(fitted[name]), wanted)
        else:
            columns.append(number(name, known, rows[name], wanted))
    return [list(point) for point in zip(*columns, strict=True)]


def category(known: list[Any], values: list[Any], n: int, wanted: dict[str, Any]) -> list[list[float]]:
    different = sorted(set(known), key=lambda value: (-known.count(value), value))
    kept = [value for value in different if known.count(value) >= 0.001 * n][: wanted.get("most_categories", 20)]
    found = [[1.0 if value == each else 0.0 for value in values] for each in kept]
    if wanted.get("impute", "none") != "none":
        found.append([1.0 if value is None else 0.0 for value in values])
    found.append([1.0 if value is not None and value not in kept else 0.0 for value in values])
    return found


def number(name: str, known: list[float], values: list[Any], wanted: dict[str, Any]) -> list[float]:
    def changed(value: float) -> float:
        return math.copysign(math.log(1.0 + abs(value)), value) if name in wanted.get("log", ()) else value

    known = sorted(changed(value) for value in known)
    mean = sum(known) / len(known)
    spread = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))
    low, median, high = (known[math.ceil(share * len(known)) - 1] for share in (0.25, 0.5, 0.75))
    center, scale = {"standard": (mean, spread), "robust": (median, (high - low) / 1.3489795003921634)}.get(
        wanted.get("scale", "standard"), (0.0, 1.0)
    )
    fill = {"median": median, "mean": mean}.get(wanted.get("impute", "none"))
    return [((fill if value is None else changed(value)) - center) / scale for value in values]
