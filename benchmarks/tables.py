"""Result tables: one Markdown file per benchmark, with the command that made it."""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import numba
import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write_results(path: Path, title: str, sections: Sequence[str]) -> None:
    """Write the tables of one run and print them."""
    command = " ".join(["python", program_name(Path(sys.argv[0])), *without_data_folder(sys.argv[1:])])
    about = (
        f"Made by `{command}` on {datetime.date.today()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"numba {numba.__version__}, {platform.machine()}."
    )
    text = "\n\n".join([f"# {title}", about, *sections]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(text)


def program_name(program: Path) -> str:
    """Return a program as one names it on the command line from the project's root."""
    if program.is_absolute() or program.name == "__main__.py":  # as Python names a module that -m runs
        module = program.parent if program.name == "__main__.py" else program.with_suffix("")
        return "-m " + ".".join(module.resolve().relative_to(ROOT).parts)
    return program.as_posix()


def without_data_folder(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with DIR in place of folders of this machine; docs/data.md explains the one after --data.

    Notes are on the page itself, so there is TEXT in their place.
    """
    shown = {"--data": "DIR", "--scratch": "DIR", "--notes": "TEXT"}
    return [shown.get(before, own) for before, own in zip(["", *arguments], arguments, strict=False)]
