"""The results page of a run: one row per experiment, the figures, and the paper's claims."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import kernelcoreset
from benchmarks.paper.claims import check_claims

_RUNS = "runs.json"


def note_run(out: Path, name: str, title: str, command: str, seconds: float) -> None:
    """Save the row of an experiment; the seconds of a resumed one are those of all its parts."""
    path = out / _RUNS
    runs = json.loads(path.read_text()) if path.exists() else {}
    before = runs.get(name, {}).get("seconds", 0.0)
    runs[name] = {
        "title": title,
        "command": command,
        "date": str(datetime.date.today()),
        "machine": machine(),
        "seconds": round(before + seconds, 1),
    }
    path.write_text(json.dumps(runs, indent=2) + "\n")


def write_page(out: Path) -> Path:
    """Write the page of all experiments that were run in this folder, and return its path."""
    runs = json.loads((out / _RUNS).read_text())
    rows = [
        [f"[{about['title']}](#{name})", f"[{name}.csv]({name}.csv)", f"`{about['command']}`", about["date"],
         f"{about['seconds'] / 60:.1f} min"]
        for name, about in runs.items()
    ]  # fmt: skip
    machines = sorted({about["machine"] for about in runs.values()})
    parts = [
        "# Experiments",
        "This page is written by the commands below. [docs/results.md](../../results.md) explains the figures, and "
        "[docs/data.md](../../data.md) says how to get the data folder `DIR`."
        if out.name == "experiments"
        else "This page is written by the commands below.",
        "Machine: " + "; ".join(machines) + ".",
        table(["experiment", "table", "command", "date", "time"], rows),
        "## The paper's claims",
        table(["claim", "paper", "measured here", "holds"], [claim.row() for claim in check_claims(out)]),
    ]
    parts += [
        f'<a id="{name}"></a>\n\n## {about["title"]}\n\n![{about["title"]}]({name}.png)' for name, about in runs.items()
    ]
    path = out / "README.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def machine() -> str:
    """Return processor, cores, memory and versions in one line."""
    processor = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        names = [line.partition(":")[2].strip() for line in about.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
    return (
        f"{processor}, {os.cpu_count()} cores{memory}, {platform.system()}, Python {platform.python_version()}, numpy "
        f"{np.__version__}, kernelcoreset {kernelcoreset.__version__}"
    )
