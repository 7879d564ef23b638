"""Files of a store that no version in use names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.files.atomic import is_temporary
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.leaves import LEAVES
from kernelcoreset.store.manifest import load, manifest_name, versions
from kernelcoreset.store.nodes import NODES, Merger, Recent


def unused_files(folder: Folder, recipe: Recipe, older_than: float) -> list[str]:
    """Names of files that no version names which is in use or was within so many seconds; manifests first."""
    limit = datetime.now(UTC) - timedelta(seconds=older_than)
    present = versions(folder)
    numbers = list(present)
    outdated = [version for version, later in pairwise(numbers) if present[later] <= limit]
    named: set[str] = set()
    for version in numbers:
        manifest = None if version in outdated else load(folder, version)
        if manifest is not None:
            named.update(Merger(folder, manifest, recipe, Recent()).files())
    unused = [manifest_name(version) for version in outdated]
    for under in ("", LEAVES, NODES):
        for name, changed in folder.names(under).items():
            if name not in named and changed <= limit and (under or is_temporary(name)):
                unused.append(name)
    return unused
