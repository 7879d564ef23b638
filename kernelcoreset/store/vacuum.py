"""Removal of files that no version of a store needs any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.files.atomic import is_temporary
from kernelcoreset.files.exclusive import intended
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.leaves import LEAVES
from kernelcoreset.store.manifest import load, manifest_name, versions
from kernelcoreset.store.nodes import NODES, CoresetCache, MergeTree


def remove_unused_files(folder: Folder, recipe: Recipe, older_than: float) -> list[str]:
    """Remove the files that no version names, of those in use now or within the last seconds; return their names."""
    names = _unused_files(folder, recipe, older_than)
    # Manifests come first: a crash half-way leaves files that no manifest names, never a name without its file.
    for name in names:
        folder.remove(name)
    return names


def _unused_files(folder: Folder, recipe: Recipe, older_than: float) -> list[str]:
    limit = datetime.now(UTC) - timedelta(seconds=older_than)
    present = versions(folder)
    outdated = [version for version, later in pairwise(present) if present[later] <= limit]
    named: set[str] = set()
    for version in present:
        manifest = None if version in outdated else load(folder, version)
        if manifest is not None:
            named.update(MergeTree(folder, manifest, recipe, CoresetCache()).files())
    unused = [manifest_name(version) for version in outdated]
    for under in ("", LEAVES, NODES):
        for name, changed in folder.names(under).items():
            if name not in named and changed <= limit and (under or is_temporary(name) or _is_done(folder, name)):
                unused.append(name)
    return unused


def _is_done(folder: Folder, name: str) -> bool:
    """Whether a file is what a crash left of a commit that was finished, or never begun."""
    target = intended(name)
    return target is not None and not folder.is_unfinished(target)
