"""Commits of two processes at once to one store: in a local folder, in one without hard links, and on an S3 server.

Every commit puts a key of its own. A commit that was acknowledged and whose key is not in the store at the end is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import kernelcoreset as kc
from tests.faults.tally import Tally
from tests.services.s3 import s3_server

ROOT = Path(__file__).parents[2]
COMMITS = 400
WRITERS = ("a", "b")


def run(folder: Path, cases: int | None = None) -> list[Tally]:
    """Make that many commits on each kind of storage, and count what came of them."""
    cases = cases or COMMITS
    tallies = [
        write_at_once(f"{folder}/links", cases, "hard link"),
        write_at_once(f"{folder}/no-links", cases, "exclusive create", links=False),
    ]
    with s3_server(folder / "s3") as server:
        tallies.append(write_at_once(server.uri("some folder/store"), cases, "conditional put", on=f" ({server.name})"))
    return tallies


def write_at_once(path: str, cases: int, guarantee: str, *, links: bool = True, on: str = "") -> Tally:
    """Let two processes commit at once to a new store, and compare what they were told with what is there."""
    kc.CoresetStore.create(path, 2, kc.Linear(), 10)
    command = [sys.executable, "-m", "tests.faults.commit_writer", path]
    rest = [str(cases // len(WRITERS)), "links" if links else "no-links"]
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen([*command, name, *rest], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for name in WRITERS
    ]
    for writer in writers:
        if writer.stdout is None or writer.stdout.readline() != "ready\n":
            raise RuntimeError("A writer did not start; see its error above.")
    found = [json.loads(writer.communicate(timeout=900)[0]) for writer in _started(writers)]
    store = kc.CoresetStore.open(path)
    there = {key: store.info(key)["rows"] for key in store.keys()}  # noqa: SIM118
    tally = Tally(f"two writers at once, commits by {guarantee}{on}")
    for name, told in zip(WRITERS, found, strict=True):
        if told["by"] != guarantee:
            raise RuntimeError(f"{path} commits by {told['by']}.")
        for i in range(cases // len(WRITERS)):
            key = f"{name}-{i:04}"
            if key not in told["acknowledged"]:
                tally.add("unclear error" if told["others"] else "silent wrong")
            elif there.get(key) == i:
                tally.add("done right")
            else:
                tally.add("silent wrong", lost=1)
    if store.version != len(there):
        raise RuntimeError(f"{len(there)} keys were put by {store.version} commits.")
    return tally


def _started(writers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Let all writers begin before the first is waited for."""
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    return writers
