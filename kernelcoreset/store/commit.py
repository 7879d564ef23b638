"""The commit of a change: a new version of a store, made by creating the manifest with the next number.

Writers do not lock. Each works out its change for the version it has seen, and creates the next manifest only if nobody
else has. A writer that comes second tries again on top of the new version, unless both changed the same thing. How a
file is created by exactly one of two writers depends on the file system: `files/create.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernelcoreset.errors import ConflictError
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.leaves import Entry, check_alike
from kernelcoreset.store.manifest import Manifest, manifest_name, newest, versions

KEPT = 20
"""Number of manifests that are kept. A version number older than that cannot be checked for being free."""
_MOST_ATTEMPTS = 50


@dataclass(frozen=True)
class Change:
    """What a writer wants to change. Plain data; the files of its leaves are written already."""

    put: Mapping[str, Entry]
    """New manifest entries by key."""
    expire: frozenset[str]
    state: Mapping[str, Any] | None = None
    """None to keep the state that is there."""
    expected_version: int | None = None

    @property
    def keys(self) -> set[str]:
        """The keys it changes."""
        return {*self.put, *self.expire}

    def applied_to(self, base: Manifest) -> Manifest:
        """Return the next version after `base`, or raise an error if the leaves do not fit together."""
        kept = {key: leaf for key, leaf in base.leaves.items() if key not in self.keys}
        check_alike(kept, self.put)
        state = base.state if self.state is None else self.state
        return Manifest(base.version + 1, base.settings, {**kept, **self.put}, state)


def commit_change(folder: Folder, path: str, seen: Manifest, change: Change) -> Manifest:
    """Make a change and return the manifest of the new version; ConflictError if another writer is in the way.

    Parameters
    ----------
    folder : Folder
    path : str
        What errors call the store.
    seen : Manifest
        The version that the change was worked out for.
    change : Change
        If it changes nothing, there is no new version.
    """
    for _ in range(_MOST_ATTEMPTS):
        base = _newest_without_conflict(folder, path, seen, change)
        changed = change.applied_to(base)
        if changed == replace(base, version=changed.version):
            return base
        if commit(folder, changed):
            return changed
    raise ConflictError(
        f"Other writers keep changing the store at {path}: {_MOST_ATTEMPTS} attempts to commit failed. "
        "Let one writer make the changes."
    )


def commit(folder: Folder, manifest: Manifest) -> bool:
    """Make a manifest the newest version; return False if another writer was first. Removes the oldest manifests."""
    present = versions(folder)
    if present and max(present) >= manifest.version:
        return False
    if not folder.create(manifest_name(manifest.version), manifest.to_bytes()):
        return False
    present = versions(folder)
    last = max(present, default=manifest.version)
    if manifest.version <= last - KEPT:
        # Others may have made and removed this very version while this process was paused: who was first is unknown.
        raise ConflictError(
            f"The store at {folder.path} went from version {manifest.version - 1} to {last} during one change. "
            "Open it again, check whether the change is there, and make it again if not."
        )
    for version in present:
        if version <= last - KEPT:
            folder.remove(manifest_name(version))
    return True


def _newest_without_conflict(folder: Folder, path: str, seen: Manifest, change: Change) -> Manifest:
    """The newest manifest, if the change may be made on top of it."""
    is_newest = max(versions(folder), default=None) == seen.version
    found = seen if is_newest else newest(folder)
    if found is None:
        raise FileNotFoundError(f"The store at {path} is gone.")
    if change.expected_version is not None and found.version != change.expected_version:
        raise ConflictError(
            f"The store at {path} is at version {found.version}; the change is for version "
            f"{change.expected_version}. Open the store again and work out the change for its content now."
        )
    conflicts = [key for key in sorted(change.keys) if found.leaves.get(key) != seen.leaves.get(key)]
    if change.state is not None and found.state != seen.state:
        conflicts.append("the state")
    if conflicts:
        raise ConflictError(
            f"Another writer changed {', '.join(conflicts[:5])}{' and more' if len(conflicts) > 5 else ''} in the "
            f"store at {path} (now version {found.version}, opened at {seen.version}). Open it again and check "
            "whether the change is still wanted."
        )
    return found
