"""What all models of points share: they prepare rows as those of the fit were, label them, and describe clusters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_columns, check_weights
from kernelcoreset.clustering.choosing_k import new_axes
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.describing.description import Description
from kernelcoreset.describing.picture import picture_of
from kernelcoreset.describing.quality import Labeller, quality_of
from kernelcoreset.describing.tally import RowTally
from kernelcoreset.features.arrays import to_floats
from kernelcoreset.features.preparation import Preparation, is_nameless, preparation_of
from kernelcoreset.features.table import Columns, columns_of
from kernelcoreset.heartbeat import step
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.labelling.centers import Labels
from kernelcoreset.reporting.notebook import card, picture_chart, shares_table
from kernelcoreset.reporting.style import LIGHT_CLUSTERS


class PreparesRows(ABC):
    """A model that labels rows of a table if its coreset was built from prepared features, else points."""

    @property
    @abstractmethod
    def own_coreset(self) -> Coreset:
        """The coreset, whose settings hold the preparation."""

    @cached_property
    def preparation(self) -> Preparation | None:
        """How rows become points; None if rows are points as they are."""
        return preparation_of(self.own_coreset.settings)

    def prepared(self, rows: Any) -> Any:
        """Return the points of rows, shape (n, d).

        Parameters
        ----------
        rows : array-like of shape (n, d), pandas.DataFrame, pyarrow.Table or mapping of columns
            With the columns that the model was fitted on. Without a preparation, points.
        """
        return rows if self.preparation is None else self.preparation.transform(rows)

    @abstractmethod
    def with_preparation(self, preparation: Preparation | None) -> Self:
        """Return the same model, fitted to points that this preparation made of rows."""

    @abstractmethod
    def predict_points(self, points: Any) -> NDArray[np.int32]:
        """Return the cluster of every point, shape (n,), without a preparation."""

    @abstractmethod
    def label_points(self, points: Any, *, margins: bool = False) -> Labels:
        """Return cluster, distance and, if `margins`, the margin of every point, without a preparation."""

    def predict(self, points: Any) -> NDArray[np.int32]:
        """Return the cluster of every row, shape (n,); rows are prepared as those of the fit were."""
        return self.predict_points(self.prepared(points))

    def label(self, points: Any, *, margins: bool = False) -> Labels:
        """Return cluster, distance and, if `margins`, how much farther the second nearest cluster is, of every row."""
        return self.label_points(self.prepared(points), margins=margins)

    @property
    @abstractmethod
    def k(self) -> int:
        """Number of clusters."""

    @property
    @abstractmethod
    def coreset_labels(self) -> NDArray[np.int32]:
        """Cluster of each coreset point."""

    @property
    @abstractmethod
    def typical_distances(self) -> Floats:
        """The typical distance of a row of each cluster, shape (k,): what outliers are measured by."""

    @abstractmethod
    def similar_fit(self, coreset: Coreset) -> Labeller:
        """Cluster another coreset in the same way; return what labels points. For the stability of the clusters."""

    @property
    def feature_kernel(self) -> Kernel | None:
        """The kernel in whose feature space clusters are round; None if there is none."""
        return None

    def quality(self, seed: int = 0) -> dict[str, float | None]:
        """Return how good the clusters are as a whole, judged on the coreset, see `quality_of`."""
        return quality_of(
            self.own_coreset,
            self.coreset_labels,
            self.similar_fit,
            self.feature_kernel,
            places=self.coreset_points,
            seed=seed,
        )

    def outlier_scores(self, found: Labels) -> Floats:
        """Return the distance of labelled rows by the typical one of their cluster, shape (n,)."""
        return found.distances / np.where(self.typical_distances > 0.0, self.typical_distances, 1.0)[found.labels]

    def describe(self, rows: Any = None, weights: Any = None, *, names: Sequence[str] | None = None) -> Description:
        """Return what the clusters are: sizes, the columns that set them apart, typical and unusual rows, quality.

        Parameters
        ----------
        rows : array-like of shape (n, d), pandas.DataFrame, pyarrow.Table or mapping of columns, optional
            Rows to describe the clusters by. A table may have more columns than the model was fitted on. By default the
            points of the coreset, which estimate all rows.
        weights : array-like of shape (n,), optional
        names : sequence of str, optional
            Names of the coordinates of points, for a model without a preparation. With them, rows may be a table with
            more columns.

        Returns
        -------
        Description
            `print` shows it in words. Its rows have their number in `rows` as `position`.

        Examples
        --------
        >>> import numpy as np
        >>> import kernelcoreset as kc
        >>> ages = np.random.default_rng(0).normal(size=(300, 1)) + np.repeat([[20.0], [60.0], [90.0]], 100, axis=0)
        >>> model = kc.KernelKMeans(3, kernel=kc.Linear(), features={}, random_state=0).fit(ages).model_
        >>> [round(each["typical"][0]["x0"]) for each in sorted(model.describe(ages).clusters, key=str)]
        [20, 60, 90]
        """
        with step("describing the clusters"):
            if rows is None:
                columns, found, own = self._coreset_columns(names)
            else:
                columns, points = self._columns_and_points(rows, names)
                found = self.label_points(points, margins=True)
                own = check_weights(weights, len(found.labels))
                columns = {**columns, "position": pa.array(np.arange(len(found.labels)))}
            tally = RowTally(self.k, self.typical_distances, ("id", "position"))
            tally.add(columns, found, own)
            return Description.of(tally, np.bincount(found.labels, own, minlength=self.k).tolist(), self.quality())

    def _columns_and_points(self, rows: Any, names: Sequence[str] | None) -> tuple[Columns, Any]:
        """All columns of rows by name, and the points of the rows."""
        columns = columns_of(rows)
        if names is None or self.preparation is not None:
            return columns, self.prepared(rows)
        if is_nameless(columns) and len(columns) == len(names):
            columns = dict(zip(names, columns.values(), strict=True))
        check_columns({"rows": names}, list(columns))
        return columns, np.column_stack([to_floats(columns[name]) for name in names])

    def picture(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the coreset in the plane, as `picture_of` describes it; `names` are those of the coordinates."""
        columns = {
            name: values.to_numpy(zero_copy_only=False)
            for name, values in self._restored(names).items()
            if pa.types.is_floating(values.type)
        }
        coreset = self.own_coreset
        return picture_of(
            coreset.points,
            coreset.weights,
            self.coreset_labels,
            self.feature_kernel,
            columns,
            counts=self.coreset_counts,
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw the coreset by cluster with matplotlib, as `picture` has it, and return the axes."""
        axes = new_axes() if axes is None else axes
        found = self.picture()
        plane = found.get("columns")
        chosen, names = (
            (plane, plane["names"]) if plane else (found["components"], ["first component", "second component"])
        )
        labels, sizes = np.array(found["labels"]), np.array(found["weights"])
        for cluster in range(self.k):
            own = np.flatnonzero(labels == cluster)
            color = LIGHT_CLUSTERS[cluster % len(LIGHT_CLUSTERS)]
            x, y = (np.array(chosen[axis])[own] for axis in "xy")
            axes.scatter(x, y, 4.0 + 60.0 * sizes[own] / sizes.max(), color=color, alpha=0.6, label=str(cluster))
        axes.set(xlabel=names[0], ylabel=names[1], title=f"Coreset of {len(self.own_coreset):,} points")
        axes.legend(title="cluster", fontsize="small")
        return axes

    def __repr__(self) -> str:
        kernel = self.feature_kernel
        by = "nearest neighbors" if kernel is None else f"kernel={kernel!r}"
        size, d = self.coreset_points.shape
        return f"{type(self).__name__}(k={self.k}, {by}, coreset of {size:,} points in {d} dimensions)"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: clusters by the coreset, and the coreset in the plane."""
        weights = np.bincount(self.coreset_labels, self.coreset_counts, minlength=self.k)
        facts = {
            "clusters": self.k,
            "kernel": self.feature_kernel,
            "coreset points": len(self.own_coreset),
            "dimensions": self.coreset_points.shape[1],
        }
        sizes = np.bincount(self.coreset_labels, minlength=self.k).tolist()
        shares = shares_table((weights / weights.sum()).tolist(), {"coreset points": sizes})
        return card(type(self).__name__, facts, shares, picture_chart(self.picture()))

    def _restored(self, names: Sequence[str] | None) -> Columns:
        """The points of the coreset as columns of the rows."""
        points, preparation = self.coreset_points, self.preparation
        if preparation is not None:
            return preparation.restore(points)
        found = columns_of(points)
        return dict(zip(names, found.values(), strict=True)) if names and len(names) == len(found) else found

    def _coreset_columns(self, names: Sequence[str] | None) -> tuple[Columns, Labels, Floats]:
        columns = self._restored(names)
        if self.own_coreset.ids is not None:
            columns["id"] = pa.array(self.own_coreset.ids)
        return columns, self.label_points(self.coreset_points, margins=True), self.coreset_counts

    @property
    def coreset_points(self) -> Floats:
        """Coreset points, shape (s, d)."""
        return self.own_coreset.points

    @property
    def coreset_counts(self) -> Floats:
        """How many rows, or how much of their weight, each coreset point stands for, shape (s,)."""
        return self.own_coreset.weights
