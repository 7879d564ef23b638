"""A store of coresets by partition key: add, replace and expire keys, and get one coreset of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from typing import Any

from numpy.typing import ArrayLike
from pyarrow import fs

from kernelcoreset.checks import check_at_least, check_key, check_points, closest_name
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.tree import CoresetTree
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.folder import Folder
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.trust import modules_of
from kernelcoreset.store.commit import Change, commit, commit_change
from kernelcoreset.store.leaves import LEAVES, LeafUpdate, check_dimension, checked_update, read_leaf, write_leaf
from kernelcoreset.store.manifest import Manifest, newest, plain, settings_of, versions, why_no_store
from kernelcoreset.store.nodes import CoresetCache, MergeTree
from kernelcoreset.store.vacuum import remove_unused_files

__all__ = ["CoresetStore", "LeafUpdate"]

_WEEK = 7 * 24 * 3600.0


class CoresetStore:
    """A folder of leaf coresets, one per partition key, and one coreset of all of them together.

    Make a store with `create`, open it again with `open`. A change writes one leaf per key and one small file. `result`
    merges the paths of the keys that changed since the last call, about log_16 of the number of keys per path, and
    reads all other nodes from a cache. The result depends on the keys, their leaves and the seed, not on the order of
    the changes: a store with a long history and a new one with the same content give the same result.

    Every change is atomic: it counts from the moment when the manifest of the next version has its name, and a crash
    before that leaves the old version. If two writers make a change at once, one is first. The change of the other is
    made on top of it if it is about other keys, and is a ConflictError if not.

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

    def __init__(self, folder: Folder, manifest: Manifest, path: str, kernel: Kernel) -> None:
        settings = manifest.settings
        self.path = path
        self.recipe = Recipe(settings["k"], kernel, settings["size"], z=settings["z"], seed=settings["seed"])
        self.k, self.kernel, self.size = self.recipe.k, self.recipe.kernel, self.recipe.size
        self.z, self.seed = self.recipe.z, self.recipe.seed
        self.leaf_size: int = settings["leaf_size"]
        self._folder = folder
        self._manifest = manifest
        self._cache = CoresetCache()

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
            A local folder, or a URI that pyarrow can open. FileExistsError if there is a store already.
        k, kernel, size, z
            As in `build_coreset`, for everything that is ever added. A user's function must be importable by name.
        leaf_size : int, optional
            Points per leaf, at least `size`; 4 * size by default.
        seed : int
        filesystem : pyarrow.fs.FileSystem, optional
            Where to look `path` up, for storage that a URI cannot describe.

        Returns
        -------
        CoresetStore
        """
        settings = settings_of(k, kernel, size, z, leaf_size, seed)
        folder = Folder(path, filesystem)
        manifest = Manifest(0, settings)
        reason = why_no_store(folder)
        if reason is not None:
            raise FileExistsError(
                f"{fspath(path)} exists and is not a store: {reason}. Remove it yourself, or choose another path."
            )
        if versions(folder) or not commit(folder, manifest):
            raise FileExistsError(f"A store already exists at {fspath(path)}. Open it, or choose another path.")
        return CoresetStore(folder, manifest, fspath(path), kernel)

    @staticmethod
    def open(
        path: str | PathLike[str], *, filesystem: fs.FileSystem | None = None, trusted_modules: Iterable[str] = ()
    ) -> CoresetStore:
        """Return the newest version of the store at a path, or raise FileNotFoundError.

        Parameters
        ----------
        path, filesystem
            As in `create`.
        trusted_modules : iterable of str
            Modules that may be imported if the kernel is a user's function, as in `Kernel.from_dict`.

        Returns
        -------
        CoresetStore
        """
        folder = Folder(path, filesystem)
        manifest = newest(folder)
        if manifest is None:
            raise FileNotFoundError(f"There is no store at {fspath(path)}. Make one with CoresetStore.create.")
        kernel = Kernel.from_dict(manifest.settings["kernel"], trusted_modules=trusted_modules)
        return CoresetStore(folder, manifest, fspath(path), kernel)

    @staticmethod
    def open_or_create(path: str | PathLike[str], k: int, kernel: Kernel, size: int, **options: Any) -> CoresetStore:
        """Return the store at a path, and create it if there is none; SettingError if its settings are different.

        Parameters as in `create`.
        """
        try:
            return CoresetStore.create(path, k, kernel, size, **options)
        except FileExistsError:
            filesystem = options.pop("filesystem", None)
            wanted = settings_of(k, kernel, size, **options)
            store = CoresetStore.open(path, filesystem=filesystem, trusted_modules=modules_of(wanted["kernel"]))
        for name, found in store._manifest.settings.items():
            if wanted[name] != found:
                raise SettingError(
                    f"The store at {store.path} was made with {name}={found!r}; got {wanted[name]!r}. Use the store's "
                    "setting, or build a new store at another path."
                )
        return store

    # --- the content -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number of changes up to the version that this object has read or written."""
        return self._manifest.version

    @property
    def state(self) -> dict[str, Any]:
        """The caller's own plain data, as given to `change` the last time."""
        return dict(plain(self._manifest.state, "state"))

    @property
    def guarantee(self) -> str:
        """How commits of several writers are kept apart where the store is.

        "hard link" or "exclusive create" in a local folder, "conditional put" in an object store, "claim" elsewhere.
        """
        return self._folder.guarantee

    def keys(self) -> list[str]:
        """Return the keys, sorted."""
        return sorted(self._manifest.leaves)

    def info(self, key: str) -> dict[str, Any]:
        """Return the rows read for a key, the points and the weight of its leaf, and the tag given with it."""
        leaf = self._manifest.leaves[self._known(key)]
        return {name: leaf[name] for name in ("rows", "points", "weight", "tag")}

    def folder(self, name: str) -> Folder:
        """Return a folder inside the store's, for files that the caller keeps with it."""
        return self._folder.below(name)

    def __contains__(self, key: object) -> bool:
        return key in self._manifest.leaves

    def __repr__(self) -> str:
        return f"CoresetStore({self.path!r}, version {self.version}, {len(self._manifest.leaves)} keys)"

    def leaf(self, key: str) -> Coreset | None:
        """Return the leaf coreset of a key, None if it has no row of positive weight."""
        leaf = self._manifest.leaves[self._known(key)]
        return None if leaf["file"] is None else read_leaf(self._folder, self._manifest, key)

    def leaf_seed(self, key: str) -> int:
        """Return the seed to build a key's leaf with. It depends on the store's seed and the key only."""
        return self._tree.seed("leaf", key)

    # --- changes -----------------------------------------------------------------------------------------------------

    def add(
        self, key: str, points: ArrayLike, weights: ArrayLike | None = None, *, ids: ArrayLike | None = None
    ) -> None:
        """Build the leaf of a new key.

        Parameters
        ----------
        key : str
            Such as a date, a batch id or a file. Keys may come in any order. SettingError if there is such a key.
        points : array-like of shape (n, d)
            May be empty: then the key is in the store and adds nothing to the result.
        weights : array-like of shape (n,), optional
            If all are 0, the leaf is empty.
        ids : array-like of shape (n,), optional
        """
        if key in self._manifest.leaves:
            raise SettingError(f"`key` must be new; {key!r} already exists. Use replace({key!r}, ...).")
        self.change(put={key: self.build_leaf(key, points, weights, ids=ids)})

    def replace(
        self, key: str, points: ArrayLike, weights: ArrayLike | None = None, *, ids: ArrayLike | None = None
    ) -> None:
        """Build the leaf of a key that is in the store again, from other points; parameters as in `add`."""
        self._known(key)
        self.change(put={key: self.build_leaf(key, points, weights, ids=ids)})

    def expire(self, key: str) -> list[str]:
        """Remove a key, and return it in a list. Its file stays until `vacuum`."""
        self.change(expire=[key])
        return [key]

    def expire_where(self, predicate: Callable[[str], bool]) -> list[str]:
        """Remove all keys that `predicate` is true for, and return them."""
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
        """Put and expire any number of keys and set the caller's state, all in one commit.

        Afterwards this object is at the new version. If nothing changes, there is no new version.

        Parameters
        ----------
        put : mapping of str to LeafUpdate or Coreset, optional
            Leaves to add or to replace, built with `leaf_seed` of the key.
        expire : iterable of str
            Keys to remove; they must be in the store.
        state : mapping, optional
            Plain data that replaces the state.
        expected_version : int, optional
            The version that the change was worked out for: ConflictError if the store is at another one. Without it,
            other writers may have changed other keys since this object was opened. It is a ConflictError if they
            changed the same keys, or the state if `state` is given.
        """
        put, gone = dict(put or {}), list(expire)
        if set(put) & set(gone):
            raise SettingError(f"A key is either put or expired; got both for {sorted(set(put) & set(gone))}.")
        for key in gone:
            self._known(key)
        new_state = None if state is None else plain(dict(state), "state")
        # Everything is checked before anything is written.
        updates = {
            check_key(key): checked_update(self._manifest, self.recipe, key, update) for key, update in put.items()
        }
        entries = {key: write_leaf(self._folder, key, update) for key, update in updates.items()}
        if any(entry["file"] for entry in entries.values()):
            self._folder.sync(LEAVES)
        change = Change(entries, frozenset(gone), new_state, expected_version)
        self._manifest = commit_change(self._folder, self.path, self._manifest, change)

    # --- leaves ------------------------------------------------------------------------------------------------------

    def build_leaf(
        self, key: str, points: ArrayLike, weights: ArrayLike | None = None, *, ids: ArrayLike | None = None
    ) -> LeafUpdate:
        """Return the leaf that `add` would put, for a `change` of several keys; parameters as in `add`."""
        points = check_points(points, allow_empty=True)
        check_dimension(self._manifest, points.shape[1])
        seed = self.leaf_seed(check_key(key))
        tree = CoresetTree.from_recipe(self.recipe.varied(seed=seed), self.leaf_size)
        tree.add(points, weights, ids)
        coreset = tree.result(self.leaf_size, refine=False) if tree.n_weighted else None
        return LeafUpdate(coreset, rows=tree.n_rows)

    # --- the result --------------------------------------------------------------------------------------------------

    def result(
        self,
        size: int | None = None,
        *,
        keys: Iterable[str] | None = None,
        weight_of: Callable[[str], float] | None = None,
    ) -> Coreset:
        """Return one coreset of all rows in the store, or of the rows of some keys.

        Parameters
        ----------
        size : int, optional
            The store's size by default; at least k and at most the leaf size.
        keys : iterable of str, optional
            Only these keys, for a sliding window.
        weight_of : function of a key, optional
            Factor of a key's weights, for exponential decay by age; 0 leaves the key out. If all factors shrink by
            the same ratio from one call to the next, the cached nodes are used again.

        Returns
        -------
        Coreset

        Notes
        -----
        Only nodes that are not cached are merged: after a change of one key those on its path, and the final coreset.
        Nodes are cached in the store's folder. Their files may be deleted at any time.
        """
        size = self.recipe.varied(size=size).size
        if size > self.leaf_size:
            raise SettingError(
                f"`size` must be at most the store's leaf_size ({self.leaf_size}); got {size}. Create a store "
                "with larger leaves for it."
            )
        leaves = self._tree.weighted_leaves(self.keys() if keys is None else map(self._known, keys), weight_of)
        if not leaves:
            raise DataError(
                f"A coreset needs at least one row of positive weight; the store at {self.path} has none for these "
                f"keys (it has {len(self._manifest.leaves)} keys). Add data first."
            )
        return self._tree.result(leaves, size)

    @property
    def _tree(self) -> MergeTree:
        return MergeTree(self._folder, self._manifest, self.recipe, self._cache)

    # --- removal of files --------------------------------------------------------------------------------------------

    def vacuum(self, *, older_than: float = _WEEK) -> list[str]:
        """Remove files that no version in use needs, and return their names.

        Parameters
        ----------
        older_than : float
            Seconds. The files of all versions that were the newest at any time within these seconds stay, so that
            readers can finish. So do younger files, which may belong to a change that is not committed yet. 0 removes
            expired data at once, also from cached nodes; use it only if nobody else reads or writes.

        Returns
        -------
        list of str
        """
        check_at_least("older_than", older_than, 0.0)
        return remove_unused_files(self._folder, self.recipe, older_than)

    def _known(self, key: str) -> str:
        if key in self._manifest.leaves:
            return key
        meant = closest_name(str(key), self._manifest.leaves)
        hint = f"Did you mean {meant!r}?" if meant else f"It has {len(self._manifest.leaves)} keys."
        raise SettingError(f"The store at {self.path} has no key {key!r}. {hint}")
