"""JSON files that carry a digest of their content, and fields of them that are checked one by one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.errors import FormatError

_CHECKSUM = "checksum"
_REMEDY = "Restore it, or make it again."
_MOST = 2**63 - 1


class Fields:
    """The fields of a JSON object, each checked when it is asked for. Errors name the file and the field.

    Parameters
    ----------
    data : plain data
        FormatError if it is no mapping.
    name : str
        The file, for errors.
    remedy : str
        What to do if the file is damaged, for errors.

    Examples
    --------
    >>> fields = Fields({"k": 3, "cost": 0.5}, "model.json")
    >>> fields.whole("k", least=1), fields.number("cost")
    (3, 0.5)
    """

    def __init__(self, data: Any, name: str, remedy: str = _REMEDY) -> None:
        if not isinstance(data, Mapping):
            raise FormatError(f"{name} is damaged: it must be a JSON object, not a {type(data).__name__}. {remedy}")
        self.data = data
        self.name = name
        self.remedy = remedy

    def whole(self, field: str, least: int = 0, most: int = _MOST) -> int:
        """Return a whole number from `least` to `most`."""
        value = self.data.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(field, f"a whole number from {least} to {most}")
        return value

    def number(self, field: str) -> float:
        """Return a finite number."""
        value = self.data.get(field)
        if not _is_finite(value):
            raise self.wrong(field, "a finite number")
        return float(value)  # type: ignore[arg-type]

    def numbers(self, field: str) -> NDArray[np.float64]:
        """Return a list of finite numbers as an array."""
        value = self.data.get(field)
        if not isinstance(value, list) or not all(map(_is_finite, value)):
            raise self.wrong(field, "a list of finite numbers")
        return np.array(value, dtype=np.float64)

    def flag(self, field: str) -> bool:
        """Return true or false."""
        value = self.data.get(field)
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def text(self, field: str) -> str:
        """Return a text."""
        value = self.data.get(field)
        if not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def mapping(self, field: str) -> dict[str, Any]:
        """Return an object within the object."""
        value = self.data.get(field)
        if not isinstance(value, Mapping):
            raise self.wrong(field, "an object")
        return dict(value)

    def version(self, newest: int) -> int:
        """Return the field `format`, or raise a FormatError that says that a newer version wrote the file."""
        version = self.whole("format", least=1)
        if version > newest:
            raise FormatError(
                f"{self.name} has format {version}; this version reads up to {newest}. Upgrade kernelcoreset."
            )
        return version

    def wrong(self, field: str, rule: str) -> FormatError:
        """Return the error for a field that breaks a rule."""
        found = f"it is a {type(self.data[field]).__name__}" if field in self.data else "it is missing"
        if field in self.data and not isinstance(self.data[field], str | list | Mapping):
            with_digits = self.data[field]
            # Python refuses to write very long numbers.
            found = "it is a very long number" if _is_long(with_digits) else f"it is {with_digits!r}"
        return FormatError(f"{self.name} is damaged: `{field}` must be {rule}; {found}. {self.remedy}")


def parse_json(content: bytes, name: str, remedy: str = _REMEDY) -> dict[str, Any]:
    """Return the JSON object in a file, or raise a FormatError that names the file."""
    try:
        data = json.loads(content)
    except RecursionError:
        raise FormatError(f"{name} is damaged: its JSON is nested too deeply. {remedy}") from None
    except ValueError as error:  # also a wrong encoding, and numbers of thousands of digits
        raise FormatError(f"{name} is damaged: it is not valid JSON ({error}). {remedy}") from None
    return dict(Fields(data, name, remedy).data)


def signed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with one more field, the digest of all others. White space and order do not count."""
    return {**data, _CHECKSUM: _checksum(data)}


def unsigned(data: Mapping[str, Any], name: str, remedy: str = _REMEDY) -> dict[str, Any]:
    """Return what `signed` was given, or raise a FormatError if the digest is missing or wrong."""
    rest = {field: value for field, value in data.items() if field != _CHECKSUM}
    try:
        right = data.get(_CHECKSUM) == _checksum(rest)
    except RecursionError:
        right = False  # nothing of ours is nested so deeply
    if not right:
        raise FormatError(f"{name} is damaged: its checksum is wrong. {remedy}")
    return rest


def _checksum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > 10**100


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not _is_long(value) and math.isfinite(value)
