"""The job `cluster`: find the clusters on a coreset and save the model. It reads no rows and needs no Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.report import show_model
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.models.folder import KeptAsFolder
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spectral.degrees import Degrees
from kernelcoreset.spectral.model import SpectralModel
from kernelcoreset.spectral.neighbors import NeighborModel


def run(settings: Settings, record: RunRecord) -> None:
    """Cluster the coreset at `coreset.path` and save the model at `cluster.model_path`."""
    coreset = Coreset.read_parquet(str(settings.coreset.path))
    with record.stage("cluster"):
        show_model(record, cluster_coreset(coreset, settings, record), describe=True)


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a dry run prints."""
    coreset = Coreset.read_parquet(str(settings.coreset.path))
    return {"coreset_points": len(coreset), "k": settings.cluster.k, "restarts": settings.cluster.n_init}


def cluster_coreset(
    coreset: Coreset,
    settings: Settings,
    record: RunRecord,
    refine: Callable[[KernelKMeansModel], KernelKMeansModel] | None = None,
) -> KernelKMeansModel:
    """Return the model fitted on a coreset, saved if the settings have a `cluster.model_path`.

    `refine` improves the model before it is saved.
    """
    if "kernel" not in coreset.settings:
        raise DataError("The coreset does not say which kernel it was built with. Build it with build-coreset.")
    kernel = Kernel.from_dict(coreset.settings["kernel"], trusted_modules=settings.run.trusted_modules)
    wanted = settings.cluster
    model = KernelKMeansModel.fit_coreset(
        coreset, wanted.k, kernel, z=settings.coreset.z, seed=settings.coreset.seed, **wanted.effort
    )
    if refine is not None:
        model = refine(model)
    record.add(kernel=repr(kernel), coreset_cost=model.coreset_cost, n_iter=model.solution.n_iter)
    save_model(model, settings, record)
    return model


def cluster_spectral(coreset: Coreset, settings: Settings, record: RunRecord, degrees: Degrees) -> SpectralModel:
    """Return the spectral model fitted on a coreset of the normalized kernel, saved like that of `cluster_coreset`."""
    wanted = settings.cluster
    model = SpectralModel.fit_coreset(coreset, wanted.k, degrees, seed=settings.coreset.seed, **wanted.effort)
    record.add(normalized_cut=model.normalized_cut)
    save_model(model, settings, record)
    return model


def cluster_neighbors(coreset: Coreset, settings: Settings, record: RunRecord) -> NeighborModel:
    """Return the model of nearest neighbors fitted on a uniform sample, saved like that of `cluster_coreset`."""
    wanted = settings.cluster
    model = NeighborModel.fit_coreset(coreset, wanted.k, n_init=wanted.n_init, seed=settings.coreset.seed)
    record.add(normalized_cut=model.normalized_cut)
    save_model(model, settings, record)
    return model


def save_model(model: KeptAsFolder, settings: Settings, record: RunRecord) -> None:
    """Save a model at `cluster.model_path`, if that is set, and let the record know it."""
    record.model = model
    path = settings.cluster.model_path
    if path is not None:
        model.save(path, overwrite=True)
        record.add(model=path)
