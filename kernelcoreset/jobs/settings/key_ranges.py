"""Which keys a run of the job update is about: `update.until` and `update.keys`.

A key is compared by its values: numbers as numbers, words as words; the characters between them do not count. So
`2026-01-05`, `date=2026-01-05`, `year=2026/month=1/day=5` and `20260105` mean the same day. If one of two texts is
shorter, only as much as both have is compared: the hours of a day belong to the day.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from kernelcoreset.checks import shown
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.settings.fields import plain_text

Order = list[tuple[int, int, str]]

_SEGMENT = re.compile("([^=/]+)=([^/]*)")
_WORD = re.compile(r"\d+|[^\W\d_]+")
_DAY = re.compile(r"((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_TO = ".."


def natural_order(key: str) -> Order:
    """Return a sort key that puts batch-9 before batch-10; dates are in the usual order."""
    return [(0, int(text), "") if text.isdecimal() else (1, 0, text) for text in re.findall(r"\d+|\D+", key)]


def _order(text: str) -> Order:
    """The numbers and words of a text; a day such as 20260105 is three numbers."""
    found: Order = []
    for word in _WORD.findall(text):
        day = _DAY.fullmatch(word)
        parts = day.groups() if day else (word,)
        found += [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
    return found


@dataclass(frozen=True)
class KeyRange:
    """Keys from a first to a last one, both included.

    Parameters
    ----------
    text : str
        "2026-01-01..2026-01-31", "2026-01-15..", "..2026-01-31", or a key or its start: "2026-01-05", "2026-01".
        With several partition columns it may name those to compare: "date=2026-01-01..2026-01-31".
    setting : str
        Name of the setting, for errors.
    up_to : bool
        Whether `text` is one key, the last of the range.

    Examples
    --------
    >>> january = KeyRange("2026-01-01..2026-01-31")
    >>> [january.holds(key) for key in ("date=2026-01-31", "year=2026/month=2/day=1", "20260115", "2026-01-31 23:00")]
    [True, False, True, True]
    """

    text: str
    setting: str = "update.keys"
    up_to: bool = False

    def __post_init__(self) -> None:
        if not any(_WORD.search(bound) for bound in self._bounds) or self.text.count(_TO) > 1:
            raise SettingError(
                f"`{self.setting}` takes keys such as 2026-01-05 or ranges such as 2026-01-01..2026-01-31; "
                f"got {self.text!r}."
            )
        first, last = (_order(bound) for bound in self._bounds)
        if first and last and _is_before(last, first):
            raise SettingError(f"`{self.setting}` has a range that ends before its start: {self.text!r}. Swap the two.")

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in _SEGMENT.findall(self.text)]

    @property
    def _bounds(self) -> tuple[str, str]:
        plain = "/".join(value for _, value in _SEGMENT.findall(self.text)) or self.text
        if self.up_to:
            return "", plain
        first, to, last = plain.partition(_TO)
        return (first, last) if to else (first, first)

    def holds(self, key: str) -> bool:
        """Return whether a key is in the range."""
        own = _order(self._values_of(unquote(key)))
        first, last = (_order(bound) for bound in self._bounds)
        return not (first and _is_before(own, first)) and not (last and _is_before(last, own))

    def _values_of(self, key: str) -> str:
        segments = dict(_SEGMENT.findall(key))
        names = self._names if segments else []
        missing = [name for name in names if name not in segments]
        if missing:
            raise SettingError(
                f"`{self.setting}` = {self.text!r} names the column {missing[0]!r}; the keys are like {key!r}."
            )
        return "/".join(segments[name] for name in names or segments) or key


@dataclass(frozen=True)
class KeyScope:
    """The keys that a run may change; all others stay as they are.

    Parameters
    ----------
    until : str, optional
        No key after this one.
    keys : iterable of str
        Only keys in one of these ranges; all if there are none.
    """

    until: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Whether there may be keys outside."""
        return self.until is not None or bool(self.keys)

    def within(self, keys: Iterable[str]) -> list[str]:
        """Return those of some keys that a run may change."""
        until = None if self.until is None else KeyRange(self.until, "update.until", up_to=True)
        ranges = [KeyRange(text) for text in self.keys]
        return [
            key
            for key in keys
            if (until is None or until.holds(key)) and (not ranges or any(part.holds(key) for part in ranges))
        ]


def key_texts(setting: str, value: Any) -> tuple[str, ...]:
    """Return the texts of `update.keys` or `update.until`, checked. TOML reads 2026-01-05 without quotes as a date."""
    values = value if isinstance(value, list | tuple) else [value]
    texts = []
    for part in values:
        if isinstance(part, bool) or not isinstance(part, str | int | datetime.date):
            raise SettingError(f'`{setting}` must be a text such as "2026-01-05"; got {shown(part)}.')
        texts.append(plain_text(setting, part).strip())
        KeyRange(texts[-1], setting)  # checks it
    return tuple(texts)


def _is_before(one: Order, other: Order) -> bool:
    """Whether one text comes before another, as far as both go."""
    length = min(len(one), len(other))
    return one[:length] < other[:length]
