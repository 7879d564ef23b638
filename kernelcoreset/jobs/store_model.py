"""The store of a job together with the model that is fitted to it.

Every model is written into the store's folder under a new name. The next commit of the store names it in the job's
state. So after a crash at any moment the state names a complete model, the old one or the new one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self, TypeVar

from pyarrow import fs

from kernelcoreset.coresets.recipe import leaf_size_of
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.files.documents import Fields
from kernelcoreset.jobs.record import log
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.trust import modules_of
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.models.tracking import Tracked, refit_tracked
from kernelcoreset.store.store import CoresetStore

_COMMON = ("job", "features", "weight_col")
_MODELS = "models"
_KEPT_MODELS = 2


@dataclass(frozen=True)
class JobState:
    """What a job keeps in its store between runs. Plain data; each job adds its own fields."""

    run: int = 0
    """Number of fits."""
    model: str | None = None
    fit: Any = None
    """What the model was fitted with; None if the store has changed since then, so that a new fit is due."""
    preparation: Any = None
    """How rows become points, as `Preparation.to_dict` gives it; None if they are points as they are."""
    writer: str | None = None
    """Random id of this store as a writer of labels, and ..."""
    stamp: int = 0
    """... a number that grows with every set of labels to write: a table format can tell what it has already."""

    def stamped(self) -> Self:
        """Return the state with the number of the next set of labels, which no earlier one of this writer has.

        Also not after the store was restored from a backup: the number is the time, if that is later.
        """
        number = max(self.stamp + 1, time.time_ns() // 1000)
        return replace(self, writer=self.writer or uuid.uuid4().hex, stamp=number)

    @classmethod
    def of(cls, store: CoresetStore | None) -> Self:
        """Return the state in a store, or the initial state if there is no store."""
        kept = {} if store is None else store.state
        own = {name: value for name, value in kept.items() if name not in _COMMON}
        unknown = sorted(own.keys() - {part.name for part in fields(cls)})
        if unknown:
            raise FormatError(
                f"The state of the store at {store and store.path} has unknown fields: {', '.join(unknown)}. It is not "
                "the store of this job, or a newer version wrote it. Set another store.path, or upgrade kernelcoreset."
            )
        if "run" in own:
            Fields(own, f"The state of the store at {store and store.path}").whole("run")
        return cls(**own)


_State = TypeVar("_State", bound=JobState)


def find_store(settings: Settings, job: str) -> CoresetStore | None:
    """Return the store that the settings name, None if there is none yet; SettingError if it does not fit them."""
    try:
        store = CoresetStore.open(str(settings.store.path), trusted_modules=settings.run.trusted_modules)
    except FileNotFoundError:
        return None
    state = store.state
    owner = state.get("job", job)
    if owner != job:
        raise SettingError(
            f"The store at {store.path} belongs to the job {owner}; {job} needs its own. Set another store.path."
        )
    wanted: dict[str, Any] = {
        "k": settings.coreset.k,
        "size": settings.coreset.coreset_size,
        "z": settings.coreset.z,
        "leaf_size": leaf_size_of(settings.coreset.coreset_size, settings.coreset.leaf_size),
        "seed": settings.coreset.seed,
    }
    if settings.kernel.sigma_rule is None:  # otherwise sigma was chosen from the data when the store was made
        wanted["kernel"] = settings.kernel.build().to_dict()
    of_state = {"features": list(settings.input.feature_columns), "weight_col": settings.input.weight_col}
    wanted |= {name: value for name, value in of_state.items() if name in state}
    if "features" in state:
        asked = settings.wanted_features
        wanted["[features]"] = None if asked is None else asked.to_dict()
    for name, value in wanted.items():
        if name in of_state:
            found = state[name]
        elif name == "[features]":
            found = (state.get("preparation") or {}).get("wanted")
        else:
            found = store.kernel.to_dict() if name == "kernel" else getattr(store, name)
        if found != value:
            raise SettingError(
                f"The store at {store.path} was made with {name} = {found!r}; the settings say {value!r}. Change them "
                "back, or set another store.path to build a new store."
            )
    return store


def make_store(settings: Settings, kernel: Kernel) -> CoresetStore:
    """Return a new, empty store for the settings."""
    wanted = settings.coreset
    return CoresetStore.create(
        str(settings.store.path),
        wanted.k,
        kernel,
        wanted.coreset_size,
        z=wanted.z,
        leaf_size=wanted.leaf_size,
        seed=wanted.seed,
    )


def fit_store(
    store: CoresetStore,
    settings: Settings,
    state: _State,
    before: KernelKMeansModel | None,
    fit: Any,
    weight_of: Callable[[str], float] | None = None,
) -> tuple[Tracked, _State]:
    """Fit a model to the whole store and write it; return it with the state that names it, which is not committed yet.

    Parameters
    ----------
    store : CoresetStore
    settings : Settings
    state : JobState
    before : KernelKMeansModel or None
        The last model. The new clusters get the numbers of its clusters that they match.
    fit : plain data
        What the model depends on besides the store, as `plain_fit` gives it; it goes into the state.
    weight_of : function of a key, optional
        As in `CoresetStore.result`.
    """
    coreset, wanted = store.result(weight_of=weight_of), settings.cluster
    coreset = coreset.with_preparation(preparation_in(state))
    tracked = refit_tracked(coreset, wanted.k, store.kernel, before, z=store.z, seed=store.seed, **wanted.effort)
    run = state.run + 1
    return tracked, replace(state, run=run, model=_write_model(store, tracked.model, run), fit=fit)


def _write_model(store: CoresetStore, model: KernelKMeansModel, number: int) -> str:
    """Write a model into the store's folder under a new name, and return the name."""
    name = f"{_MODELS}/{number:06d}-{uuid.uuid4().hex[:8]}"
    folder = store.folder(name)
    for file, content in model.to_files().items():
        folder.write(file, content)
    folder.sync()
    return name


def read_model(store: CoresetStore, name: str | None) -> KernelKMeansModel | None:
    """Return the model that the store's state names; None if there is none yet, or if it cannot be read.

    A lost model is no lost data: a new one can be fitted to the store. Only the numbers of its clusters are lost.
    """
    if name is None:
        return None
    folder = store.folder(name)
    try:
        files = {file: folder.read(file) for file in sorted(folder.names())}
        return KernelKMeansModel.from_files(files, trusted_modules=modules_of(store.kernel.to_dict()))
    except (FileNotFoundError, FormatError) as error:
        log.warning(
            "The model %s of the store at %s cannot be read (%s). A new one is fitted.", name, store.path, error
        )
        return None


def remove_old_models(store: CoresetStore, state: JobState) -> None:
    """Keep the model that the state names and the one before it; remove older ones, also those of crashed runs."""
    folder = store.folder(_MODELS)
    found = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    older = sorted(info.base_name for info in found if f"{_MODELS}/{info.base_name}" < str(state.model))
    for name in older[: len(older) - _KEPT_MODELS + 1]:
        folder.system.delete_dir(f"{folder.path}/{name}")


def preparation_in(state: JobState) -> Preparation | None:
    """Return how rows become points, as the first run found it."""
    return None if state.preparation is None else Preparation.from_dict(state.preparation, "The state of the store")


def keep_state(store: CoresetStore, settings: Settings, job: str, state: JobState, **change: Any) -> None:
    """Commit a job's state with other changes of the store; the settings that later runs must share go with it."""
    common = {"job": job, "features": list(settings.input.feature_columns), "weight_col": settings.input.weight_col}
    own = asdict(state)
    if state.preparation is None:  # versions that do not know of preparations can go on with the store
        del own["preparation"]
    store.change(**change, state={**common, **own}, expected_version=store.version)


def plain_fit(settings: Settings, **more: Any) -> dict[str, Any]:
    """Return what a fit depends on besides the store. If it differs from the last time, a new fit is due."""
    return {"k": settings.cluster.k, **settings.cluster.effort, **more}
