"""The sections of a settings file for the clustering: [coreset], [cluster], [spectral], [graph] and [certificate]."""

from __future__ import annotations

from dataclasses import dataclass

from kernelcoreset.checks import check_at_least, check_count, check_positive
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.settings.fields import check_texts, set_field
from kernelcoreset.spectral.affinity import check_affinity


@dataclass(frozen=True)
class CoresetSettings:
    """[coreset]: the small weighted set of rows that represents all rows.

    Parameters
    ----------
    k : int
        Largest number of clusters for which the coreset is good.
    coreset_size : int
        Points drawn. More points give a smaller error, whatever the number of rows.
    leaf_size : int, optional
        Points of the coreset of each part of the data, before they are merged: at least `coreset_size`, by default
        4 times as many.
    z : float
        Power of the distance in the cost, at least 1: 2 is k-means, 1 is k-median.
    seed : int
        The same seed on the same input gives the same result.
    path : str, optional
        File to which build-coreset and run write the coreset, and from which cluster reads it.
    """

    k: int
    coreset_size: int = 1000
    leaf_size: int | None = None
    z: float = 2.0
    seed: int = 0
    path: str | None = None

    def __post_init__(self) -> None:
        check_count("coreset.k", self.k)
        remedy = "Ask for more coreset points or fewer clusters."
        check_count("coreset.coreset_size", self.coreset_size, least=self.k, remedy=remedy)
        if self.leaf_size is not None:
            remedy = "A leaf keeps at least `coreset.coreset_size` points; leave it out for 4 times as many."
            check_count("coreset.leaf_size", self.leaf_size, least=self.coreset_size, remedy=remedy)
        set_field(self, "z", check_at_least("coreset.z", self.z, 1.0, "Use 2 for k-means, 1 for k-median."))
        check_count("coreset.seed", self.seed, least=0)
        check_texts("coreset", self, "path")


@dataclass(frozen=True)
class ClusterSettings:
    """[cluster]: kernel k-means on the coreset.

    Parameters
    ----------
    k : int
        Number of clusters, at most `coreset.k`, which is the default.
    n_init : int
        Number of restarts; the best result is kept.
    max_iter : int
        Largest number of iterations of a restart.
    refine_iter : int, optional
        Iterations over all rows that move the centers to the means of their rows, in the job run, if centers are
        vectors (Linear and Cosine, z = 2). Each is one more pass. By default 1 for 12 or more columns, else 0.
    model_path : str, optional
        Folder in which the model is saved, and from which assign reads it.
    """

    k: int
    n_init: int = 10
    max_iter: int = 300
    refine_iter: int | None = None
    model_path: str | None = None

    def __post_init__(self) -> None:
        for name in ("k", "n_init", "max_iter"):
            check_count(f"cluster.{name}", getattr(self, name))
        if self.refine_iter is not None:
            check_count("cluster.refine_iter", self.refine_iter, least=0)
        check_texts("cluster", self, "model_path")

    @property
    def effort(self) -> dict[str, int]:
        """The arguments of a fit that limit its work."""
        return {"n_init": self.n_init, "max_iter": self.max_iter}


@dataclass(frozen=True)
class SpectralSettings:
    """[spectral]: further settings of spectral clustering.

    Parameters
    ----------
    affinity : {"auto", "nearest_neighbors", "kernel"}
        Whether rows are compared by nearest neighbors within a sample, which needs no width, or by the kernel of the
        section [kernel]. "auto": by the kernel if there is one.
    degree_sample : int
        With a kernel, number of sampled rows from which degrees are estimated, at least 2.
    """

    affinity: str = "auto"
    degree_sample: int = 1000

    def __post_init__(self) -> None:
        set_field(self, "affinity", check_affinity("spectral.affinity", self.affinity))
        check_count("spectral.degree_sample", self.degree_sample, least=2)


@dataclass(frozen=True)
class GraphSettings:
    """[graph]: the columns of the edges, for the job graph, which clusters nodes.

    Edge weights are in `input.weight_col`. The number of clusters is `coreset.k`; the job has no [kernel] and no
    `input.features`, and `graph.coreset_size` instead of `coreset.coreset_size`.

    Parameters
    ----------
    source_col, target_col : str
        Columns of node ids, both integers or both strings.
    coreset_size : int, optional
        Nodes drawn; by default enough for walks from them to meet.
    most_edges : int
        Up to this many edges are collected on the driver. If there are more, they stay on the executors.
    """

    source_col: str = "src"
    target_col: str = "dst"
    coreset_size: int | None = None
    most_edges: int = 50_000_000

    def __post_init__(self) -> None:
        check_texts("graph", self, "source_col", "target_col")
        if self.source_col == self.target_col:
            raise SettingError(f"`graph.source_col` must not be `graph.target_col`; got {self.source_col!r} for both.")
        check_count("graph.most_edges", self.most_edges)
        if self.coreset_size is not None:
            check_count("graph.coreset_size", self.coreset_size)


@dataclass(frozen=True)
class CertificateSettings:
    """[certificate]: how the error of the coreset is measured while the rows are labelled.

    Parameters
    ----------
    center_sets : int
        Number of random center sets on which the costs of coreset and rows are compared; 0 for no comparison.
    fraction : float, optional
        Share of the rows on which the costs are evaluated, above 0 and at most 1; by default chosen by the number of
        rows.
    seed : int
        Seed of the random center sets; `coreset.seed` by default.
    """

    center_sets: int = 100
    fraction: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("certificate.center_sets", self.center_sets, least=0)
        check_count("certificate.seed", self.seed, least=0)
        if self.fraction is not None and check_positive("certificate.fraction", self.fraction) > 1.0:
            raise SettingError(f"`certificate.fraction` must be at most 1; got {self.fraction!r}. 1 means all rows.")
