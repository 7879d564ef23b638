"""Spectral clustering of points: normalized cuts as weighted kernel k-means of a normalized kernel.

With similarities A = K(x, y) and degrees D = the sums of its rows, the normalized cut of a partition is, up to a
constant, its weighted kernel k-means cost with weights D_ii and kernel D^-1 A D^-1 (Dhillon, Guan and Kulis). A point
gets its degree as one more coordinate (it is "lifted"), and then the rest of the package works unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyarrow import fs

from kernelcoreset.checks import Floats, check_count, check_points, check_same_dimension, check_seed, check_weights
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.describing.quality import Labeller
from kernelcoreset.errors import FormatError
from kernelcoreset.features.preparation import Preparation
from kernelcoreset.files.documents import parse_json
from kernelcoreset.files.folder import Folder
from kernelcoreset.kernels.combined import Normalized
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel, check_kernel
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.labelling.centers import Labels
from kernelcoreset.models.folder import ABOUT, KeptAsFolder
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel, read_clustering
from kernelcoreset.models.prepared import PreparesRows
from kernelcoreset.spectral.degrees import DEGREE_SAMPLE, Degrees
from kernelcoreset.spectral.neighbors import NeighborModel

_DEGREES = "degrees.parquet"


@dataclass(frozen=True, eq=False, repr=False)
class SpectralModel(PreparesRows, KeptAsFolder):
    """A fitted spectral clustering, which can also label new points. Immutable.

    Parameters
    ----------
    clustering : KernelKMeansModel
        Centers for the normalized kernel; the last coordinate of its coreset's points is their degree.
    degrees : Degrees
        The sample that degrees are computed from.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Gaussian
    >>> points = np.random.default_rng(0).normal(size=(2_000, 2)) + np.repeat([[0.0], [9.0]], 1_000, axis=0)
    >>> model = fit_spectral(points, k=2, kernel=Gaussian(sigma=1.0), size=200)
    >>> sorted(np.bincount(model.predict(points)).tolist())
    [1000, 1000]
    """

    FILES: ClassVar = (*KernelKMeansModel.FILES, _DEGREES)

    clustering: KernelKMeansModel
    degrees: Degrees

    @staticmethod
    def fit_coreset(
        coreset: Coreset, k: int, degrees: Degrees, *, n_init: int = 10, max_iter: int = 300, seed: int = 0
    ) -> SpectralModel:
        """Return the model of the best cut found on a coreset of lifted points; parameters as in `solve`."""
        kernel = Normalized(degrees.kernel)
        coreset = _with_coreset_degrees(coreset, degrees)
        clustering = KernelKMeansModel.fit_coreset(coreset, k, kernel, n_init=n_init, max_iter=max_iter, seed=seed)
        return SpectralModel(clustering, degrees)

    @staticmethod
    def fit_lifted(
        lifted: Floats, volumes: Floats, k: int, size: int, degrees: Degrees, *, seed: int = 0, **options: Any
    ) -> SpectralModel:
        """Return the model of the best cut found on a coreset of the points that `Degrees.lift` gave.

        Parameters
        ----------
        lifted : ndarray of shape (n, d + 1)
            Points with their degree as last coordinate.
        volumes : ndarray of shape (n,)
            Weights times degree.
        k, size, seed : int
            As in `build_coreset`.
        degrees : Degrees
            What the points were lifted by.
        **options
            As in `solve`.

        Returns
        -------
        SpectralModel

        Examples
        --------
        >>> import numpy as np
        >>> from kernelcoreset import Gaussian
        >>> points = np.random.default_rng(0).normal(size=(500, 2)) + np.repeat([[0.0], [9.0]], 250, axis=0)
        >>> degrees = Degrees.estimate(points, Gaussian(sigma=1.0))
        >>> lifted, volumes = degrees.lift(points.T, None)
        >>> SpectralModel.fit_lifted(lifted.T, volumes, 2, 100, degrees).normalized_cut < 0.01
        True
        """
        coreset = build_coreset(lifted, k, Normalized(degrees.kernel), size, weights=volumes, seed=seed)
        return SpectralModel.fit_coreset(coreset, k, degrees, seed=seed, **options)

    @property
    def kernel(self) -> Kernel:
        """The similarity, as the user gave it."""
        return self.degrees.kernel

    @property
    def k(self) -> int:
        """Number of clusters."""
        return self.clustering.k

    @property
    def coreset(self) -> Coreset:
        """The coreset that the cut was found on: points with their degree as last coordinate, weights times degree."""
        return self.clustering.coreset

    @property
    def normalized_cut(self) -> float:
        """The normalized cut of the solution as the coreset estimates it: sum over clusters of cut / volume.

        A cluster of volume V with mean c in the normalized feature space keeps the share V |c|^2 / W of its volume,
        where W is the total weight of the data.
        """
        kept = self.clustering.cluster_weights * self.clustering.centers.squared_norms
        return float(self.k - kept.sum() / self.degrees.total)

    def predict_lifted(self, lifted: Floats) -> NDArray[np.int32]:
        """Return the cluster of points with their degree as last coordinate, shape (n,). Assumes validated input.

        If they are the points of the coreset, a search that converged has put each in the cluster of its nearest
        center already: where no single move lowers the cost, no other center is as near.
        """
        clustering = self.clustering
        if clustering.solution.converged and np.array_equal(lifted, clustering.coreset.points):
            return clustering.solution.labels.copy()
        return clustering.centers.predict(lifted)

    @property
    def own_coreset(self) -> Coreset:
        """The coreset."""
        return self.coreset

    def with_preparation(self, preparation: Preparation | None) -> Self:
        """Return the same model, fitted to points that this preparation made of rows."""
        return self if preparation is None else replace(self, clustering=self.clustering.with_preparation(preparation))

    @property
    def coreset_points(self) -> Floats:
        """Coreset points, shape (s, d), without their degrees."""
        return np.ascontiguousarray(self.coreset.points[:, :-1])

    @property
    def coreset_counts(self) -> Floats:
        """How many rows, or how much of their weight, each coreset point stands for: weights without degrees."""
        return self.coreset.weights / self.coreset.points[:, -1]

    @property
    def coreset_labels(self) -> NDArray[np.int32]:
        """Cluster of each coreset point."""
        return self.clustering.solution.labels

    @property
    def typical_distances(self) -> Floats:
        """Root mean squared distance to the center in the normalized feature space, of each cluster."""
        return self.clustering.typical_distances

    @property
    def feature_kernel(self) -> Kernel | None:
        """The normalized kernel."""
        return self.clustering.kernel

    def similar_fit(self, coreset: Coreset) -> Labeller:
        """Cluster another coreset in the same way; return what labels points with their degrees."""
        return self.clustering.similar_fit(coreset)

    def predict_points(self, points: ArrayLike) -> NDArray[np.int32]:
        """Return the cluster of every point, shape (n,), without a preparation. The points may be new."""
        return self.clustering.centers.predict(self.lift(points)[0])

    def label_points(self, points: ArrayLike, *, margins: bool = False) -> Labels:
        """Return cluster, distance in the normalized feature space and, if `margins`, the margin of every point."""
        return self.clustering.label(self.lift(points)[0], margins=margins)

    def lift(self, points: ArrayLike, weights: ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Return points with their degree as one more column, shape (n, d + 1), and weights times degree, shape (n,).

        With these, any function of the package works on the normalized kernel `clustering.kernel`.
        """
        array = check_points(points)
        check_same_dimension("points", array.shape[1], self.degrees.points.shape[1], "the degree sample")
        own = None if weights is None else check_weights(weights, len(array))
        lifted, volumes = self.degrees.lift(array.T, own)
        return lifted.T, volumes

    def refit(self, k: int | None = None, **options: Any) -> SpectralModel:
        """Return a model for another k, found on the same coreset; options as in `solve`.

        k may not exceed the k that the coreset was built for.
        """
        return replace(self, clustering=self.clustering.refit(k, **options))

    def to_files(self) -> dict[str, bytes]:
        """Return the content of the files by name, for storage that is not a local folder."""
        return self.clustering.to_files_with({_DEGREES: self.degrees.to_parquet()})

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, trusted_modules: Iterable[str] = ()) -> SpectralModel:
        """Return the model that `to_files` wrote, or raise FormatError."""
        clustering = read_clustering(files, trusted_modules)
        if not isinstance(clustering.kernel, Normalized):
            raise FormatError("This is not a spectral model. Load it with KernelKMeansModel.load.")
        if _DEGREES not in files:
            raise FormatError(f"This is not a whole model: {_DEGREES} is missing. Save it again.")
        degrees = Degrees.from_parquet(files[_DEGREES], clustering.kernel.inner)
        if degrees.points.shape[1] + 1 != clustering.coreset.points.shape[1]:
            raise FormatError(f"{_DEGREES} belongs to another model: its points have other dimensions.")
        return SpectralModel(clustering, degrees)


PointModel: TypeAlias = KernelKMeansModel | SpectralModel | NeighborModel
"""Every kind of model that labels points."""


def load_model(path: str | os.PathLike[str], *, trusted_modules: Iterable[str] = ()) -> PointModel:
    """Return the model of points in a folder, k-means or spectral, or raise FormatError; parameters as in `load`."""
    return _class_of(Folder(path)).load(path, trusted_modules=trusted_modules)


def load_spectral(
    path: str | os.PathLike[str], *, trusted_modules: Iterable[str] = ()
) -> SpectralModel | NeighborModel:
    """Return the spectral model in a folder, of a kernel or of nearest neighbors; parameters as in `load`."""
    cls = NeighborModel if _class_of(Folder(path)) is NeighborModel else SpectralModel
    return cls.load(path, trusted_modules=trusted_modules)


def _class_of(folder: Folder) -> type[PointModel]:
    """Return the class of the model in a folder; that of k-means if nothing says otherwise."""
    try:
        about = parse_json(folder.read(ABOUT), ABOUT)
    except (FileNotFoundError, FormatError):  # `load` says what is wrong
        about = {}
    if about.get("model") == NeighborModel.KIND:
        return NeighborModel
    # Early versions listed no files in model.json.
    is_spectral = _DEGREES in (about.get("files") or ()) or folder.kind(_DEGREES) == fs.FileType.File
    return SpectralModel if is_spectral else KernelKMeansModel


def fit_spectral(
    points: ArrayLike,
    k: int,
    kernel: Kernel,
    size: int = 2000,
    *,
    degree_sample: int | None = DEGREE_SAMPLE,
    weights: ArrayLike | None = None,
    n_init: int = 10,
    max_iter: int = 300,
    seed: int = 0,
) -> SpectralModel:
    """Return a model of the best normalized cut found on a coreset of the points.

    Parameters
    ----------
    points : array-like of shape (n, d)
        Never changed.
    k : int
    kernel : Kernel
        The similarity: positive semidefinite and at least 0.
    size : int
        Points of the coreset, at least k.
    degree_sample : int or None
        Points that degrees are estimated from; None computes them exactly, at n^2 kernel evaluations.
    weights : array-like of shape (n,), optional
        A point of weight N counts as N points.
    n_init, max_iter : int
        As in `solve`.
    seed : int

    Returns
    -------
    SpectralModel

    Notes
    -----
    Costs O(n k) kernel evaluations in addition to the degrees, and O(n) memory.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Gaussian
    >>> points = np.random.default_rng(0).normal(size=(3_000, 2)) + np.repeat([[0.0], [9.0]], 1_500, axis=0)
    >>> model = fit_spectral(points, k=2, kernel=Gaussian(sigma=1.0), size=300)
    >>> model.normalized_cut < 0.01
    True
    """
    kernel, seed = check_kernel(kernel), check_seed(seed)
    k = check_count("k", k)
    points = check_points(points)
    own = None if weights is None else check_weights(weights, len(points))
    degrees = Degrees.estimate(points, kernel, weights=own, sample=degree_sample, seed=seed)
    lifted, volumes = degrees.lift(points.T, own)
    return SpectralModel.fit_lifted(lifted.T, volumes, k, size, degrees, n_init=n_init, max_iter=max_iter, seed=seed)


def _with_coreset_degrees(coreset: Coreset, degrees: Degrees) -> Coreset:
    """Return the coreset with degrees against itself: the same points and counts, each degree the sum of its row.

    A cut compares the similarity inside a cluster with its volume. If degrees came from another sample, the two would
    not match: a point that the sample missed would seem to keep more than its whole volume, and the best cut would be
    to cut it off.
    """
    points = np.ascontiguousarray(coreset.points[:, :-1])
    if degrees.exact and np.array_equal(points, degrees.points):  # the coreset is the data: its degrees are these
        return coreset
    counts = coreset.weights / coreset.points[:, -1]
    columns = as_columns(points)
    own = np.empty(len(points))
    for low in range(0, len(points), TILE):
        own[low : low + TILE] = evaluator_of(degrees.kernel).block(columns, points[low : low + TILE]) @ counts
    own /= degrees.total
    return Coreset(np.column_stack([points, own]), counts * own, coreset.ids, coreset.settings)
