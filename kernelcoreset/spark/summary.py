"""A model measured on all rows of a DataFrame, in the same pass that labels and writes them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.certificate import Premises
from kernelcoreset.coresets.error import draw_mixed_center_sets
from kernelcoreset.coresets.row_sample import rates_for
from kernelcoreset.describing.description import Description
from kernelcoreset.describing.tally import MOST_CLUSTERS, RowTally
from kernelcoreset.labelling.certificate import Probe, Tally, premises_for
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.reporting.notebook import card, shares_table, verdicts
from kernelcoreset.reporting.verdict import cluster_verdict, coreset_verdict
from kernelcoreset.spectral.model import PointModel, SpectralModel
from kernelcoreset.spectral.neighbors import NeighborModel

TALLY = "__kc_tally"
"""The column that carries the tally of a partition, in the last row of the partition."""
CENTER_SETS = 100
_PROBED_ROWS = 200_000  # about how many rows the certificate is measured on; more would slow the labelling down
_PROBED_NUMBERS = 16_000_000  # and of how many coordinates, if there are many columns
_CENTER_NUMBERS = 1_500_000  # of the points that center sets are chosen among, if there are many columns
_KEPT_NUMBERS = 500_000  # of rows that come to the driver for the proof
_KEPT_EVALUATIONS = 60_000_000


@dataclass(frozen=True)
class KernelKMeansSummary:
    """How a model fits some rows.

    Attributes
    ----------
    rows, bad_rows : int
    cost : float
        Exact cost of the centers on these rows.
    coreset_cost : float
        Cost of the centers on the coreset.
    cluster_sizes : list of int
    cluster_weights, cluster_costs : list of float
    certificate : dict or None
        What was measured, what is proved, and what both mean, as `Certificate.to_dict` gives it.
    n_iter : int
    description : dict or None
        What the clusters are, as `Description.to_dict` gives it; None for more than 100 clusters.
    other_rows : bool
        Whether these are clearly not the rows that the coreset was built from, but for example new ones: their weight
        is less than half of the coreset's, or more than twice. Then there is no certificate.
    """

    rows: int
    bad_rows: int
    cost: float
    coreset_cost: float
    cluster_sizes: list[int]
    cluster_weights: list[float]
    cluster_costs: list[float]
    certificate: dict[str, Any] | None
    n_iter: int
    description: dict[str, Any] | None = None
    other_rows: bool = False

    def _repr_html_(self) -> str:
        """Return what a notebook shows: figures, what follows from them, and the clusters."""
        quality = (self.description or {}).get("quality")
        found = {"Coreset error": coreset_verdict(self.certificate), "Cluster quality": cluster_verdict(quality)}
        facts = {
            "rows": self.rows,
            "bad rows": self.bad_rows or None,
            "cost": self.cost,
            "by the coreset": self.coreset_cost,
        }
        total = sum(self.cluster_weights) or 1.0
        shares = [weight / total for weight in self.cluster_weights]
        return card("Summary", facts, verdicts(found), shares_table(shares, {"rows": self.cluster_sizes}))


def clustering_of(model: PointModel) -> KernelKMeansModel | NeighborModel:
    """Return the model that labels points: of a spectral model of a kernel, that of the normalized kernel."""
    return model.clustering if isinstance(model, SpectralModel) else model


class Measurement:
    """Measures a model on rows while they are labelled and written.

    Parameters
    ----------
    model : KernelKMeansModel, SpectralModel or NeighborModel
    weighted : bool
        Whether the rows have weights of their own.
    center_sets : int
        Random center sets for the certificate; 0 for no certificate. A spectral model never has one: its coreset was
        built with estimated degrees, so the costs of coreset and rows differ for that reason too.
    fraction : float, optional
        Share of the rows that the certificate is measured on; by default about 200,000 rows.
    seed : int
    describe : bool
        Whether to describe the clusters by the columns of the rows.

    Notes
    -----
    `label_rows` takes a measurement and observes the labelled rows with it. Once they have been written, `summary`
    returns the result.
    """

    def __init__(
        self,
        model: PointModel,
        weighted: bool,
        center_sets: int = CENTER_SETS,
        fraction: float | None = None,
        seed: int = 0,
        describe: bool = True,
    ) -> None:
        self.model = clustering_of(model)
        self.describe = describe and model.k <= MOST_CLUSTERS
        self._described = model
        has_certificate = center_sets > 0 and isinstance(model, KernelKMeansModel)
        self.probe = _draw_probe(model, weighted, center_sets, fraction, seed) if has_certificate else None  # type: ignore[arg-type]
        self._observation = Observation()

    @property
    def typical(self) -> Floats | None:
        """The typical distance in each cluster, if the clusters are described."""
        return self._described.typical_distances if self.describe else None

    def observe(self, labelled: DataFrame, tallies: Column) -> DataFrame:
        """Return the same rows; the column of tallies is collected when they are written."""
        # As one text with a line per tally: the Observation of pyspark 4.0 cannot return an array.
        lines = F.concat_ws("\n", F.collect_list(tallies)).alias("tallies")
        return labelled.observe(self._observation, lines)

    @property
    def preparations(self) -> list[Callable[[], object]]:
        """What computes what `summary` needs of the model alone. All of it may run at once, while rows are written."""
        works: list[Callable[[], object]] = [lambda: self._quality] if self.describe else []
        return [*works, lambda: self._premises] if self.probe is not None else works

    @cached_property
    def _quality(self) -> dict[str, float | None]:
        return self._described.quality()

    @cached_property
    def _premises(self) -> Premises | None:
        if self.probe is None or isinstance(self.model, NeighborModel):
            return None
        return premises_for(self.probe, self.model.coreset.points, self.model.coreset.weights)

    def summary(self) -> KernelKMeansSummary:
        """Return what was measured; the observed rows must have been written."""
        model, probe = self.model, self.probe
        texts = [unpacked(line) for line in self._observation.get["tallies"].splitlines()]
        tally = Tally.total(texts, model.k, probe)
        other_rows = self._is_of_other_rows(tally)
        return KernelKMeansSummary(
            rows=int(tally.rows + tally.bad_rows),
            bad_rows=int(tally.bad_rows),
            cost=float(tally.costs.sum()),
            coreset_cost=0.0 if isinstance(model, NeighborModel) else model.coreset_cost,
            cluster_sizes=[int(size) for size in tally.sizes],
            cluster_weights=tally.weights.tolist(),
            cluster_costs=tally.costs.tolist(),
            certificate=None if other_rows else self._certificate(tally),
            n_iter=1 if isinstance(model, NeighborModel) else model.solution.n_iter,
            description=self._description(tally),
            other_rows=other_rows,
        )

    def _is_of_other_rows(self, tally: Tally) -> bool:
        """Whether the rows are clearly not those of the coreset, which says nothing about the cost of others."""
        share = float(tally.weights.sum() / self._described.own_coreset.weights.sum())
        return isinstance(self._described, KernelKMeansModel) and share > 0.0 and not 0.5 < share < 2.0

    def _description(self, tally: Tally) -> dict[str, Any] | None:
        if not tally.descriptions:
            return None
        whole = RowTally.total(tally.descriptions, self.model.k)
        return Description.of(whole, tally.sizes.tolist(), self._quality).to_dict()

    def _certificate(self, tally: Tally) -> dict[str, Any] | None:
        if self.probe is None or isinstance(self.model, NeighborModel):
            return None
        coreset = self.model.coreset
        cost = self.model.coreset_cost
        return tally.certificate(self.probe, coreset.points, coreset.weights, cost, self._premises).to_dict()


def packed(text: str) -> str:
    """Return a text as a shorter line: what Spark observes comes to Python slowly, about 5 MB per second."""
    return base64.b64encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(line: str) -> str:
    """Return the text of a line that `packed` returned."""
    return zlib.decompress(base64.b64decode(line)).decode()


def _draw_probe(model: KernelKMeansModel, weighted: bool, center_sets: int, fraction: float | None, seed: int) -> Probe:
    """Center sets of all kinds, and how many rows are looked at."""
    coreset = model.coreset
    # The coreset estimates the sum of the rows' weights, which is their number if they have none.
    rows = float(coreset.weights.sum())
    if fraction is None:
        probed = min(_PROBED_ROWS, _PROBED_NUMBERS // coreset.points.shape[1])
        fraction = 0.01 if weighted else min(1.0, probed / rows)
    weights = model.cluster_weights
    kept = rows_for_proof(*coreset.points.shape)
    rates = rates_for(weights, weights * model.typical_distances**model.z, model.z, kept)
    most = max(_CENTER_NUMBERS // coreset.points.shape[1], 2 * model.k)
    sets = draw_mixed_center_sets(
        coreset.points, coreset.weights, model.k, model.kernel, model.z, center_sets, seed, most
    )
    return Probe(sets.among, sets.chosen, model.kernel, model.z, fraction, seed, sets.kinds, rates)


def rows_for_proof(size: int, d: int) -> int:
    """About how many rows come to the driver: few enough for its memory, and for their distances to all points."""
    return max(1, min(_KEPT_NUMBERS // d, _KEPT_EVALUATIONS // size))
