"""Coresets kept by partition key: add, replace, expire, and one coreset of all that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from numpy.typing import ArrayLike
from pyarrow import fs

from kernelcoreset.checks import (
    check_at_least,
    check_count,
    check_key,
    check_points,
    check_same_dimension,
    closest_name,
)
from kernelcoreset.coresets.build import check_mergeable
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.coresets.tree import CoresetTree
from kernelcoreset.errors import ConflictError, DataError, SettingError
from kernelcoreset.files.folder import Folder
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.store.commit import base_of_change, commit
from kernelcoreset.store.leaves import LEAVES, LeafUpdate, read_leaf, refuse_unlike, write_leaf
from kernelcoreset.store.manifest import Manifest, newest, plain, versions
from kernelcoreset.store.nodes import Merger, Recent
from kernelcoreset.store.vacuum import unused_files

__all__ = ["CoresetStore", "LeafUpdate"]

_MOST_ATTEMPTS = 50
_WEEK = 7 * 24 * 3600.0


class CoresetStore:
    """A folder of leaf coresets, one a partition key, and the coreset of all of them together.

    Make one with `create`, come back to it with `open`. A change costs one leaf and one small file; `result` merges
    along the paths of what has changed since it was last asked, about log_16 of the number of keys, and reads the
    rest from cached nodes. The result depends on the keys, their leaves and the seed, never on the order in which they
    came: a store with a history equals a fresh one of the same content.

    Every change is atomic: it takes hold when the manifest of the next version gets its name, and a crash before leaves
    the version before. Of two writers at once one wins. The other makes its change on top of that if it is about
    other keys, and gets a ConflictError if not.

    Attributes
    ----------
    path : str
    k, kernel, size, z, leaf_size, seed
        As given to `create`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelcoreset import CoresetStore, Gaussian
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = CoresetStore.create(folder.name + "/store", k=5, kernel=Gaussian(sigma=1.0), size=200)
    >>> for day in range(1, 8):
    ...     store.add(f"2024-01-{day:02}", np.random.default_rng(day).normal(size=(2_000, 2)))
    >>> store.replace("2024-01-03", np.random.default_rng(30).normal(size=(1_000, 2)))
    >>> store.expire_where(lambda key: key < "2024-01-03")
    ['2024-01-01', '2024-01-02']
    >>> store.version, len(store.keys()), len(store.result()) <= 200
    (9, 5, True)
    >>> folder.cleanup()
    """

    def __init__(self, folder: Folder, manifest: Manifest, path: str) -> None:
        settings = manifest.settings
        self.path = path
        self.recipe = Recipe(
            settings["k"],
            Kernel.from_dict(settings["kernel"]),
            settings["size"],
            z=settings["z"],
            seed=settings["seed"],
        )
        self.k, self.kernel, self.size = self.recipe.k, self.recipe.kernel, self.recipe.size
        self.z, self.seed = self.recipe.z, self.recipe.seed
        self.leaf_size: int = settings["leaf_size"]
        self._folder = folder
        self._manifest = manifest
        self._recent = Recent()

    @staticmethod
    def create(
        path: str | PathLike[str],
        k: int,
        kernel: Kernel,
        size: int,
        *,
        z: float = 2.0,
        leaf_size: int | None = None,
        seed: int = 0,
        filesystem: fs.FileSystem | None = None,
    ) -> CoresetStore:
        """Make an empty store.

        Parameters
        ----------
        path : path-like
            A local folder, or a URI that pyarrow can open. FileExistsError if there is a store.
        k, kernel, size, z
            As in `build_coreset`; they hold for all that is ever added. A user's function must be importable by name.
        leaf_size : int, optional
            Points a leaf keeps, at least `size`; 4 * size by default.
        seed : int
        filesystem : pyarrow.fs.FileSystem, optional
            Where `path` is to be looked up, for storage that a URI cannot describe.

        Returns
        -------
        CoresetStore
        """
        settings = _checked_settings(k, kernel, size, z, leaf_size, seed)
        folder = Folder(path, filesystem)
        manifest = Manifest(0, settings)
        if versions(folder) or not commit(folder, manifest):
            raise FileExistsError(f"There is a store at {fspath(path)} already. Open it, or choose another path.")
        return CoresetStore(folder, manifest, fspath(path))

    @staticmethod
    def open(path: str | PathLike[str], *, filesystem: fs.FileSystem | None = None) -> CoresetStore:
        """Return the newest version of the store at a path, or raise FileNotFoundError."""
        folder = Folder(path, filesystem)
        manifest = newest(folder)
        if manifest is None:
            raise FileNotFoundError(f"There is no store at {fspath(path)}. Make one with CoresetStore.create.")
        return CoresetStore(folder, manifest, fspath(path))

    @staticmethod
    def open_or_create(path: str | PathLike[str], k: int, kernel: Kernel, size: int, **options: Any) -> CoresetStore:
        """Return the store at a path, made now if there is none; SettingError if it was made with other settings.

        Parameters as in `create`.
        """
        try:
            return CoresetStore.create(path, k, kernel, size, **options)
        except FileExistsError:
            store = CoresetStore.open(path, filesystem=options.pop("filesystem", None))
        wanted = _checked_settings(k, kernel, size, **options)
        for name, found in store._manifest.settings.items():
            if wanted[name] != found:
                raise SettingError(
                    f"The store at {store.path} was made with {name}={found!r}; got {wanted[name]!r}. Use the store's "
                    "setting, or build a new store at another path."
                )
        return store

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number of changes so far, as this object sees the store."""
        return self._manifest.version

    @property
    def state(self) -> dict[str, Any]:
        """The caller's own plain data, as the last `change` that gave any left it."""
        return dict(plain(self._manifest.state, "state"))

    def keys(self) -> list[str]:
        """Return the keys, sorted."""
        return sorted(self._manifest.leaves)

    def info(self, key: str) -> dict[str, Any]:
        """Return what is known of a key: rows read, points and weight of its leaf, and the tag given with it."""
        leaf = self._manifest.leaves[self._known(key)]
        return {name: leaf[name] for name in ("rows", "points", "weight", "tag")}

    def __contains__(self, key: object) -> bool:
        return key in self._manifest.leaves

    def __repr__(self) -> str:
        return f"CoresetStore({self.path!r}, version {self.version}, {len(self._manifest.leaves)} keys)"

    def leaf(self, key: str) -> Coreset | None:
        """Return the leaf coreset of a key, None where it has no row of positive weight."""
        leaf = self._manifest.leaves[self._known(key)]
        return None if leaf["file"] is None else read_leaf(self._folder, self._manifest, key)

    def leaf_seed(self, key: str) -> int:
        """Return the seed a key's leaf is built with: from the store's seed and the key, nothing else."""
        return self._merger.seed("leaf", key)

    # --- changes -----------------------------------------------------------------------------------------------------

    def add(
        self, key: str, points: ArrayLike, weights: ArrayLike | None = None, *, ids: ArrayLike | None = None
    ) -> None:
        """Build the leaf of a new key.

        Parameters
        ----------
        key : str
            A date, a batch id, a file. Keys may come in any order. SettingError if it is there already.
        points : array-like of shape (n, d)
            May be empty: then the key is kept, and adds nothing to the result.
        weights : array-like of shape (n,), optional
            May all be 0, which is as good as empty.
        ids : array-like of shape (n,), optional
        """
        if key in self._manifest.leaves:
            raise SettingError(f"`key` must be new; {key!r} is there already. Use replace({key!r}, ...).")
        self.change(put={key: self.build_leaf(key, points, weights, ids=ids)})

    def replace(
        self, key: str, points: ArrayLike, weights: ArrayLike | None = None, *, ids: ArrayLike | None = None
    ) -> None:
        """Build the leaf of a key that is there anew; parameters as in `add`."""
        self._known(key)
        self.change(put={key: self.build_leaf(key, points, weights, ids=ids)})

    def expire(self, key: str) -> list[str]:
        """Take a key out, and return it in a list. Its file stays until `vacuum`."""
        self.change(expire=[key])
        return [key]

    def expire_where(self, predicate: Callable[[str], bool]) -> list[str]:
        """Take out all keys that `predicate` is true for, and return them."""
        gone = [key for key in self.keys() if predicate(key)]
        self.change(expire=gone)
        return gone

    def change(
        self,
        put: Mapping[str, LeafUpdate | Coreset] | None = None,
        expire: Iterable[str] = (),
        *,
        state: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> None:
        """Put and expire any number of keys and keep the caller's state, all in one commit.

        Afterwards this object is at the new version. Where nothing would change, there is no new version.

        Parameters
        ----------
        put : mapping of str to LeafUpdate or Coreset, optional
            Leaves to add, or to put in the place of those there; built with `leaf_seed` of the key.
        expire : iterable of str
            Keys to take out; they must be there.
        state : mapping, optional
            Plain data in the place of the state there.
        expected_version : int, optional
            The version the change was worked out for: ConflictError if the store is at another. Without it, changes of
            other writers to other keys are no obstacle; changes to the same keys, or to the state where `state` is
            given, since this object was opened, are a ConflictError.
        """
        put, gone = dict(put or {}), list(expire)
        if set(put) & set(gone):
            raise SettingError(f"A key is either put or expired; got both for {sorted(set(put) & set(gone))}.")
        for key in gone:
            self._known(key)
        touched = {*put, *gone}
        new_state = None if state is None else plain(dict(state), "state")
        # All is checked before anything is written.
        updates = {check_key(key): self._checked_update(key, update) for key, update in put.items()}
        entries = {key: write_leaf(self._folder, key, update) for key, update in updates.items()}
        if any(entry["file"] for entry in entries.values()):
            self._folder.sync(LEAVES)
        for _ in range(_MOST_ATTEMPTS):
            base = base_of_change(
                self._folder, self.path, self._manifest, touched, new_state is not None, expected_version
            )
            leaves = {key: leaf for key, leaf in base.leaves.items() if key not in touched}
            refuse_unlike(leaves, entries)
            changed = Manifest(
                base.version + 1, base.settings, leaves | entries, base.state if new_state is None else new_state
            )
            if changed == replace(base, version=changed.version):
                self._manifest = base
                return
            if commit(self._folder, changed):
                self._manifest = changed
                return
        raise ConflictError(
            f"The store at {self.path} is being changed by others without a pause: {_MOST_ATTEMPTS} attempts failed. "
            "Let one writer make the changes."
        )

    # --- leaves ------------------------------------------------------------------------------------------------------

    def build_leaf(
        self, key: str, points: ArrayLike, weights: ArrayLike | None = None, *, ids: ArrayLike | None = None
    ) -> LeafUpdate:
        """Return the leaf that `add` would put, to be put together with others by `change`; parameters as in `add`."""
        points = check_points(points, allow_empty=True)
        self._refuse_other_dimension(points.shape[1])
        seed = self.leaf_seed(check_key(key))
        tree = CoresetTree.from_recipe(self.recipe.varied(seed=seed), self.leaf_size)
        tree.add(points, weights, ids)
        coreset = tree.result(self.leaf_size, refine=False) if tree.n_weighted else None
        return LeafUpdate(coreset, rows=tree.n_rows)

    def _refuse_other_dimension(self, d: int) -> None:
        for leaf in self._manifest.leaves.values():
            if leaf["dimension"] is not None:
                check_same_dimension("points", d, leaf["dimension"], "the store's")
                return

    def _checked_update(self, key: str, update: LeafUpdate | Coreset) -> LeafUpdate:
        if isinstance(update, Coreset):
            update = LeafUpdate(update)
        if not isinstance(update, LeafUpdate):
            raise SettingError(f"`put` takes a Coreset or a LeafUpdate a key; got {type(update).__name__} for {key!r}.")
        if update.coreset is not None:
            check_mergeable(update.coreset, self.recipe)
            self._refuse_other_dimension(update.coreset.points.shape[1])
        rows = None if update.rows is None else check_count("rows", update.rows, least=0)
        return LeafUpdate(update.coreset, rows, plain(update.tag, "tag"))

    # --- the result --------------------------------------------------------------------------------------------------

    def result(
        self,
        size: int | None = None,
        *,
        keys: Iterable[str] | None = None,
        weight_of: Callable[[str], float] | None = None,
    ) -> Coreset:
        """Return one coreset that stands for all rows of the store, or of some keys.

        Parameters
        ----------
        size : int, optional
            Another size than the store's, at least k and at most its leaf size.
        keys : iterable of str, optional
            Only these keys, for a sliding window.
        weight_of : function of a key, optional
            Factor of a key's weights, for exponential decay by age; 0 leaves the key out. Where all factors
            shrink alike from one call to the next, the cached nodes stay good.

        Returns
        -------
        Coreset

        Notes
        -----
        Merges only what is not cached: after one changed key the nodes on its path, then the last, refined reduction.
        Nodes are cached in the store's folder and may be deleted at any time.
        """
        size = self.recipe.varied(size=size).size
        if size > self.leaf_size:
            raise SettingError(
                f"`size` must be at most the store's leaf_size ({self.leaf_size}); got {size}. Create a store "
                "with larger leaves for it."
            )
        leaves = self._merger.weighted_leaves(self.keys() if keys is None else map(self._known, keys), weight_of)
        if not leaves:
            raise DataError(
                f"A coreset needs at least one row of positive weight; the store at {self.path} has none in the keys "
                f"asked for (it has {len(self._manifest.leaves)} keys). Add data first."
            )
        return self._merger.result(leaves, size)

    @property
    def _merger(self) -> Merger:
        return Merger(self._folder, self._manifest, self.recipe, self._recent)

    # --- clearing away -----------------------------------------------------------------------------------------------

    def vacuum(self, *, older_than: float = _WEEK) -> list[str]:
        """Remove files that no version in use names, and return their names.

        Parameters
        ----------
        older_than : float
            Seconds. Spared are the files of all versions that were the newest at any time within these seconds, so that
            readers can finish, and files younger than this, which may belong to a change under way. 0 makes expired
            data go at once, with its traces in cached nodes: only while nobody else reads or writes.

        Returns
        -------
        list of str
        """
        check_at_least("older_than", older_than, 0.0)
        removed = unused_files(self._folder, self.recipe, older_than)
        # Manifests come first: a crash half-way leaves files without a name, never a name without a file.
        for name in removed:
            self._folder.remove(name)
        return removed

    def _known(self, key: str) -> str:
        if key in self._manifest.leaves:
            return key
        meant = closest_name(str(key), self._manifest.leaves)
        hint = f"Did you mean {meant!r}?" if meant else f"It has {len(self._manifest.leaves)} keys."
        raise SettingError(f"The store at {self.path} has no key {key!r}. {hint}")


def _checked_settings(
    k: int, kernel: Kernel, size: int, z: float = 2.0, leaf_size: int | None = None, seed: int = 0
) -> dict[str, Any]:
    recipe = Recipe(k, kernel, size, z=z, seed=seed)
    return {
        "k": recipe.k,
        "kernel": plain(recipe.kernel.to_dict(), "kernel"),
        "size": recipe.size,
        "z": recipe.z,
        "leaf_size": leaf_size_of(recipe.size, leaf_size),
        "seed": recipe.seed,
    }
