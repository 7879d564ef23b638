"""From a TOML file and `--set` options to the sections of the settings."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from kernelcoreset.checks import shown
from kernelcoreset.errors import SettingError
from kernelcoreset.files.atomic import read_file
from kernelcoreset.files.paths import open_path
from kernelcoreset.jobs.settings.fields import refuse_unknown
from kernelcoreset.jobs.settings.kernel import KernelSettings
from kernelcoreset.kernels.trust import check_modules


def read_tables(path: str | PathLike[str], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the tables of a TOML file, with `section.key=value` overrides applied in their order."""
    tables = _read_toml(fspath(path))
    for override in overrides:
        _apply(tables, override)
    return tables


def make_sections(tables: Mapping[str, Any], classes: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """Return the wanted sections, each made from its table by its class and so checked.

    Tables of other known sections are accepted, but not read: one file may serve several jobs. A wanted name with a
    question mark, such as "kernel?", is made only if there is a table for it.
    """
    wanted = [name.removesuffix("?") for name in wanted if not name.endswith("?") or name.removesuffix("?") in tables]
    refuse_unknown("section", "", tables, classes)
    for name in tables:
        if not isinstance(tables[name], Mapping):
            raise SettingError(f"`{name}` must be a section, written [{name}]; got {shown(tables[name])}.")
    sections: dict[str, Any] = {}
    for name in classes:  # in this order: defaults of later sections come from [coreset]
        if name in wanted:
            try:
                _refuse_zero(name, tables.get(name, {}))
                sections[name] = _make(classes[name], name, tables, sections)
            except RecursionError:
                raise SettingError(f"The section [{name}] is nested too deeply.") from None
    return sections


def _refuse_zero(key: str, value: Any) -> None:
    """Raise SettingError for a text with the character of code 0: no file, column or option can have that name."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _refuse_zero(f"{key}.{name}", part)
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str) and "\0" in text:
            raise SettingError(f"`{key}` must not contain the character of code 0; got {text!r}.")


def _make(cls: Any, name: str, tables: Mapping[str, Any], before: Mapping[str, Any]) -> Any:
    if cls is KernelSettings:
        if name not in tables:
            raise SettingError('The section [kernel] is required, such as name = "Gaussian" and sigma = 50.0.')
        trusted = tables.get("run", {}).get("trusted_modules", ())
        return KernelSettings(tables[name], check_modules("run.trusted_modules", trusted))
    coreset = before.get("coreset")
    defaults = {} if coreset is None else {"cluster": {"k": coreset.k}, "certificate": {"seed": coreset.seed}}
    table = {**defaults.get(name, {}), **tables.get(name, {})}
    fields = dataclasses.fields(cls)
    refuse_unknown("key", f"{name}.", table, [part.name for part in fields])
    for part in fields:
        if part.name not in table and part.default is part.default_factory is dataclasses.MISSING:
            raise SettingError(f"`{name}.{part.name}` is required; it is not set.")
    return cls(**table)


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(*open_path(path)).decode("utf-8-sig").replace("\r\n", "\n"))
    except FileNotFoundError:
        raise SettingError(f"The settings file {path} does not exist. Relative to {Path.cwd()}.") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path} is not valid TOML: {error}. Text values need quotes.") from None
    except (OSError, ValueError) as error:  # also a wrong encoding, and numbers of thousands of digits
        raise SettingError(f"The settings file {path} cannot be read: {error}.") from None
    except RecursionError:
        raise SettingError(f"The settings file {path} cannot be read: it is nested too deeply.") from None


def _apply(tables: dict[str, Any], override: str) -> None:
    """Set one `section.key=value` in the tables; a value that is not TOML is a text."""
    full_key, equals, text = override.partition("=")
    *path, last = [part.strip() for part in full_key.split(".")]
    if not equals or not path or not all([*path, last]):
        raise SettingError(f"--set takes section.key=value, such as coreset.k=8; got {full_key!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except (ValueError, RecursionError):
        raise SettingError(
            f"--set {full_key}: the value is nested too deeply, or a number with too many digits."
        ) from None
    table = tables
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise SettingError(f"--set {full_key}: `{part}` is a value, not a section.")
    table[last] = value
