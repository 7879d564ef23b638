"""The next version of a store: what two writers may both do, and which of them was first."""

from __future__ import annotations

from kernelcoreset.errors import ConflictError
from kernelcoreset.files.folder import Folder
from kernelcoreset.store.manifest import Manifest, manifest_name, newest, versions

KEPT = 20
"""Manifests kept at most. A version that left them can no longer be told from one that never was."""


def base_of_change(
    folder: Folder, path: str, own: Manifest, touched: set[str], with_state: bool, expected_version: int | None
) -> Manifest:
    """Return the newest manifest, if a change that was worked out for the version `own` may be made on top of it.

    `touched` are the keys that the change is about; `path` is what errors call the store.
    """
    is_newest = max(versions(folder), default=None) == own.version
    found = own if is_newest else newest(folder)
    if found is None:
        raise FileNotFoundError(f"The store at {path} is gone.")
    if expected_version is not None and found.version != expected_version:
        raise ConflictError(
            f"The store at {path} is at version {found.version}; the change is for version "
            f"{expected_version}. Open the store again and work the change out anew."
        )
    theirs = [key for key in sorted(touched) if found.leaves.get(key) != own.leaves.get(key)]
    if with_state and found.state != own.state:
        theirs.append("the state")
    if theirs:
        raise ConflictError(
            f"Another writer changed {', '.join(theirs[:5])}{' and more' if len(theirs) > 5 else ''} in the store "
            f"at {path} meanwhile (version {found.version}, opened at {own.version}). Open it again and see "
            "whether the change is still wanted."
        )
    return found


def commit(folder: Folder, manifest: Manifest) -> bool:
    """Make a manifest the newest version; False if another writer was first. Removes manifests of no more use."""
    present = versions(folder)
    if present and max(present) >= manifest.version:
        return False
    if not folder.create(manifest_name(manifest.version), manifest.to_bytes()):
        return False
    present = versions(folder)
    if manifest.version <= max(present) - KEPT:
        # Others made and removed this very version while this process stood still: nobody can say who was first.
        raise ConflictError(
            f"The store at {folder.path} went from version {manifest.version - 1} to {max(present)} during one change. "
            "Open it again, see whether the change is there, and make it again if not."
        )
    for version in present:
        if version <= max(present) - KEPT:
            folder.remove(manifest_name(version))
    return True
