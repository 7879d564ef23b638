"""Checks of single fields, shared by all sections of the settings. Messages name the full key, such as `coreset.k`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernelcoreset.checks import closest_name, shown
from kernelcoreset.errors import SettingError


def refuse_unknown(what: str, prefix: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Raise SettingError if a name is not known, with the name that was probably meant or all that are known."""
    known = list(known)
    for name in found:
        if name not in known:
            meant = closest_name(name, known)
            hint = f"Did you mean `{prefix}{meant}`?" if meant else f"Known: {', '.join(known) or 'none'}."
            raise SettingError(f"Unknown {what} `{prefix}{name}`. {hint}")


def set_field(section: Any, name: str, value: Any) -> None:
    """Set a field of a frozen section in its `__post_init__`."""
    object.__setattr__(section, name, value)


def check_texts(section_name: str, section: Any, *names: str) -> None:
    """Raise SettingError unless each of these fields is None or a text that is not empty."""
    for name in names:
        value = getattr(section, name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise SettingError(
                f"`{section_name}.{name}` must be a text that is not empty, in quotes; got {shown(value)}."
            )


def plain_text(key: str, value: Any) -> str:
    """Return a single value as text; raise SettingError if it is a number with thousands of digits."""
    try:
        return str(value)
    except ValueError:
        raise SettingError(f"`{key}` is a number with too many digits.") from None


def column_names(key: str, values: Any) -> tuple[str, ...]:
    """Return a list of column names as a tuple; raise SettingError if it is something else or has duplicates."""
    texts = isinstance(values, list | tuple) and all(isinstance(value, str) and value for value in values)
    if not texts or len(set(values)) < len(values):
        raise SettingError(
            f'`{key}` must be a list of different column names, such as ["a", "b"]; got {shown(values)}.'
        )
    return tuple(values)


def flat_options(key: str, values: Any) -> dict[str, str]:
    """Return options as Spark takes them, text to text. Nested tables, as TOML reads dotted names, are joined again."""
    if not isinstance(values, Mapping):
        raise SettingError(
            f"`{key}` must be a table of names and values, such as {{name = 1}}; got a {type(values).__name__}."
        )
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{rest}": text for rest, text in flat_options(f"{key}.{name}", value).items()})
        elif isinstance(value, str | int | float):
            text = plain_text(f"{key}.{name}", value)
            flat[name] = text.lower() if isinstance(value, bool) else text
        else:
            raise SettingError(f"`{key}.{name}` must be a text, a number or true/false; got a {type(value).__name__}.")
    return flat
