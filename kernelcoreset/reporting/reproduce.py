"""The settings of a record as TOML, and the commands that run a job again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return the sections of a settings file as TOML; what is not set is left out.

    Examples
    --------
    >>> print(settings_text({"coreset": {"k": 5, "path": None}, "run": {"trusted_modules": []}}))
    [coreset]
    k = 5
    <BLANKLINE>
    [run]
    trusted_modules = []
    """
    parts = []
    for name, section in settings.items():
        lines = [f"{_key(key)} = {_value(value)}" for key, value in section.items() if value is not None]
        parts.append("\n".join([f"[{_key(name)}]", *lines]))
    return "\n\n".join(parts)


def command_of(record: Mapping[str, Any]) -> str:
    """Return the commands that make the same run again, and the page."""
    version = (record.get("versions") or {}).get("kernelcoreset")
    install = f"pip install 'kernelcoreset[spark]{f'=={version}' if version else ''}'"
    return "\n".join(
        [
            install,
            f"kernelcoreset {record['job']} --config settings.toml",
            "kernelcoreset report RECORD.run.json    # this page again, from the record alone",
        ]
    )


def _key(name: str) -> str:
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(name))} = {_value(part)}" for name, part in value.items() if part is not None)
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(part) for part in value if part is not None)}]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)  # numbers, true and false look alike


def _text(value: str) -> str:
    """A basic string of TOML: as in JSON, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
