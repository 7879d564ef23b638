"""Centers that are combinations of the same few points, as a model keeps them."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.files.documents import Fields

_COUNT, _POINTS, _COEFFICIENTS = "shared_count", "shared_points", "shared_coefficients"
_MOST = 1_000_000
_SUM_ERROR = 1e-9


class SharedPoints(NamedTuple):
    """Centers c_i = sum_j a_ij phi(l_j)."""

    points: Floats
    """l_j, shape (m, d)."""
    coefficients: Floats
    """a_ij, shape (k, m); they sum to 1 for every center."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as fields of model.json."""
        return {
            _COUNT: len(self.points),
            _POINTS: numbers_text(self.points),
            _COEFFICIENTS: numbers_text(self.coefficients),
        }

    @classmethod
    def from_fields(cls, about: Fields, k: int, d: int) -> SharedPoints | None:
        """Return what `to_dict` wrote, or None if it is not there; FormatError if it is damaged."""
        if _COUNT not in about.data:
            return None
        count = about.whole(_COUNT, least=1, most=_MOST)
        points, coefficients = read_numbers(about, _POINTS, count, d), read_numbers(about, _COEFFICIENTS, k, count)
        if (np.abs(coefficients.sum(axis=1) - 1.0) > _SUM_ERROR).any():
            raise about.wrong(_COEFFICIENTS, "numbers that sum to 1 for every center")
        return cls(points, coefficients)


def numbers_text(array: Floats) -> str:
    """Return float64 numbers as a text, exactly."""
    return base64.b64encode(array.astype("<f8").tobytes()).decode()


def read_numbers(about: Fields, name: str, rows: int, columns: int) -> Floats:
    """Return the (rows, columns) numbers that `numbers_text` wrote, or raise FormatError."""
    rule = f"{rows} x {columns} finite float64 numbers in base64"
    try:
        content = base64.b64decode(about.text(name), validate=True)
    except binascii.Error:
        raise about.wrong(name, rule) from None
    if len(content) != 8 * rows * columns:
        raise about.wrong(name, rule)
    found: Floats = np.frombuffer(content, dtype="<f8").astype(np.float64).reshape(rows, columns)
    if not np.isfinite(found).all():
        raise about.wrong(name, rule)
    return found
