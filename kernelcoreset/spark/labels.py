"""A label for every row: the second pass over the data, which also measures the solution on all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from kernelcoreset.centers import Centers, Labels
from kernelcoreset.checks import Floats
from kernelcoreset.degrees import Degrees
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.base import Kernel
from kernelcoreset.quality import center_set_costs
from kernelcoreset.spark.columns import BatchReader, Layout, array_column, describe_bad_rows, quoted
from kernelcoreset.spark.leaves import spare_collector

TALLY = "__kc_tally"
NOT_LABELLED = Labels(np.full(1, -1, np.int32), np.zeros(1), np.zeros(1), 0.0, 0.0)
_GROUPS = 20  # of sampled rows: how their sums differ gives the standard error


@dataclass(frozen=True)
class Probe:
    """Center sets to be measured on a seeded share of the rows, for the certificate."""

    center_sets: Floats  # shape (m, k, d)
    kernel: Kernel
    z: float
    fraction: float
    seed: int


@dataclass(frozen=True)
class LabelSettings:
    """What a task needs to know. Plain data and centers: it travels to the executors."""

    centers: Centers
    z: float
    layout: Layout
    prediction_col: str = "prediction"
    distance_col: str | None = "distance"
    margin_col: str | None = None
    drop_bad_rows: bool = False
    tally: bool = False
    probe: Probe | None = None
    degrees: Degrees | None = None  # with them, rows get their degree as one more coordinate

    @property
    def new_fields(self) -> list[StructField]:
        """The columns that labelling adds."""
        fields = [StructField(self.prediction_col, IntegerType(), False)]
        fields += [StructField(name, DoubleType(), False) for name in (self.distance_col, self.margin_col) if name]
        return [*fields, StructField(TALLY, StringType())] if self.tally else fields


def label_rows(frame: DataFrame, settings: LabelSettings) -> DataFrame:
    """Return the frame's own columns and, for every row, its cluster, its distance and what else was asked for.

    With `settings.tally` the last column holds, in the last row of each partition, what was counted there: to be
    read with `observe` on the way to the writer, and dropped before it. A partition of bad rows alone then keeps one of
    them, with the label -1, to carry its tally: that row is to be dropped too.
    """
    refuse_taken(frame.columns, [field.name for field in settings.new_fields])
    d = settings.centers.points.shape[1] - (settings.degrees is not None)
    if not settings.layout.is_array and len(settings.layout.features) != d:
        given = f"{len(settings.layout.features)} ({', '.join(settings.layout.features)})"
        raise SettingError(f"The model has {d} features; got {given}. Use the columns it was fitted on, in that order.")
    settings = replace(settings, layout=replace(settings.layout, dimension=d))
    vectors = [field for field in frame.schema.fields if isinstance(field.dataType, VectorUDT)]
    # Vectors do not travel well through Arrow: sparse ones break, so they go as arrays and come back as dense vectors.
    # The names are ours, since mapInArrow does not take one with a dot in it.
    plain = frame.select(*[array_column(frame, name).alias(f"c{i}") for i, name in enumerate(frame.columns)])
    types = [field.dataType for field in plain.schema.fields]
    own = [
        StructField(field.name, kind, field.nullable, field.metadata)
        for field, kind in zip(frame.schema.fields, types, strict=True)
    ]
    schema = StructType([*own, *settings.new_fields])

    names = frame.columns

    def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        renamed = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        yield from _label_batches(renamed, settings, partition)
        spare_collector()

    labelled = plain.mapInArrow(label, schema)
    return labelled.withColumns({field.name: _as_vector(field) for field in vectors}) if vectors else labelled


def refuse_taken(there: Sequence[str], new: Sequence[str]) -> None:
    """Refuse new columns that are there already; Spark does not tell a from A."""
    lower = {name.lower() for name in there}
    taken = [name for name in new if name.lower() in lower]
    if taken:
        raise SettingError(
            f"Columns are there already: {', '.join(taken)}. Choose other names for the new ones, or drop them."
        )


def _as_vector(field: StructField) -> Column:
    column = F.col(quoted(field.name))
    return F.when(column.isNotNull(), array_to_vector(column)).alias(field.name, metadata=field.metadata)


def _label_batches(
    batches: Iterator[pa.RecordBatch], settings: LabelSettings, partition: int
) -> Iterator[pa.RecordBatch]:
    """Label batch after batch; one is held back, so that the last can carry the tally."""
    layout = settings.layout
    reader = BatchReader(layout)
    tally = Tally.empty(len(settings.centers), partition, settings.probe)
    held: pa.RecordBatch | None = None
    dropped: pa.RecordBatch | None = None
    for batch in batches:
        arrays = [batch.column(batch.schema.get_field_index(name)) for name in layout.columns]
        columns, weights, good = reader.read(arrays)
        if good is not None:
            if not settings.drop_bad_rows:
                total = tally.rows + batch.num_rows
                where = f" in partition {partition}, so far"
                raise DataError(describe_bad_rows(reader.bad, total, where))
            dropped = batch.filter(pa.array(~good)).slice(0, 1)
            if not good.any():
                continue
            batch = batch.filter(pa.array(good))
            columns, weights = columns[:, good], None if weights is None else weights[good]
        if settings.degrees is not None:
            columns, weights = settings.degrees._lift(columns, weights)
        found = settings.centers._label_columns(columns, margins=settings.margin_col is not None)
        if settings.tally:
            tally.add(columns, weights, found.labels, found.distances**settings.z, settings.probe)
        if held is not None:
            yield held
        held = _with_columns(batch, found, settings)
    tally.bad_rows, tally.bad_columns = reader.bad.rows, reader.bad.counts
    if settings.tally and held is None and dropped is not None:
        held = _with_columns(dropped, NOT_LABELLED, settings)
    if held is not None:
        yield _carrying(held, tally) if settings.tally else held


def _with_columns(batch: pa.RecordBatch, found: Labels, settings: LabelSettings) -> pa.RecordBatch:
    arrays = [pa.array(found.labels, pa.int32())]
    arrays += [pa.array(found.distances)] if settings.distance_col else []
    arrays += [pa.array(found.margins)] if settings.margin_col else []
    arrays += [pa.nulls(batch.num_rows, pa.string())] if settings.tally else []
    names = [field.name for field in settings.new_fields]
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=[*batch.schema.names, *names])


def _carrying(batch: pa.RecordBatch, tally: Tally) -> pa.RecordBatch:
    """The batch with the tally in its last row."""
    texts = pa.array([None] * (batch.num_rows - 1) + [tally.to_json()], pa.string())
    return batch.set_column(batch.num_columns - 1, TALLY, texts)


@dataclass
class Tally:
    """What was seen of the rows of one partition, or of all of them."""

    partition: int
    rows: int
    sizes: Floats
    weights: Floats
    costs: Floats
    sampled: int
    set_costs: Floats  # of each group of sampled rows, shape (groups, sets)
    bad_rows: int = 0
    bad_columns: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def empty(k: int, partition: int = -1, probe: Probe | None = None) -> Tally:
        """Return a tally of nothing."""
        sets = 0 if probe is None else len(probe.center_sets)
        return Tally(partition, 0, np.zeros(k), np.zeros(k), np.zeros(k), 0, np.zeros((_GROUPS, sets)))

    def add(self, columns: Floats, weights: Floats | None, labels: Any, powers: Floats, probe: Probe | None) -> None:
        """Count the labelled rows of a batch; `powers` are their distances^z."""
        k, n = len(self.sizes), columns.shape[1]
        own = np.ones(n) if weights is None else weights
        self.sizes += np.bincount(labels, minlength=k)
        self.weights += np.bincount(labels, own, minlength=k)
        self.costs += np.bincount(labels, own * powers, minlength=k)
        if probe is not None:
            self._sample(columns, own, probe)
        self.rows += n

    def _sample(self, columns: Floats, weights: Floats, probe: Probe) -> None:
        # Seeded by where the batch stands in its partition, so a task that runs again samples the same rows.
        generator = np.random.default_rng([probe.seed, self.partition, self.rows])
        chosen = np.flatnonzero(generator.random(columns.shape[1]) < probe.fraction)
        for group in range(_GROUPS):
            rows = chosen[(np.arange(len(chosen)) + self.sampled) % _GROUPS == group]
            if len(rows) and weights[rows].any():
                self.set_costs[group] += center_set_costs(
                    columns[:, rows].T, probe.center_sets, probe.kernel, z=probe.z, weights=weights[rows]
                )
        self.sampled += len(chosen)

    def to_json(self) -> str:
        """Return the tally as text."""
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}
        return json.dumps(plain)

    @staticmethod
    def total(texts: list[str], k: int, probe: Probe | None) -> Tally:
        """Return the sum of the tallies of all partitions; one that a retried task told twice counts once."""
        whole = Tally.empty(k, probe=probe)
        parts = {part["partition"]: part for part in map(json.loads, texts)}
        for _, part in sorted(parts.items()):
            for name in ("rows", "sizes", "weights", "costs", "sampled", "bad_rows"):
                setattr(whole, name, getattr(whole, name) + np.asarray(part[name]))
            if probe is not None:
                whole.set_costs += np.asarray(part["set_costs"])
            for column, count in part["bad_columns"].items():
                whole.bad_columns[column] = whole.bad_columns.get(column, 0) + count
        return whole

    def certificate(self, probe: Probe, coreset_points: Floats, coreset_weights: Floats) -> dict[str, Any]:
        """Return the largest relative error of the coreset's cost over the probe's center sets, and how sure it is."""
        sums = self.set_costs.sum(axis=0)
        truth = sums / probe.fraction
        estimate = center_set_costs(coreset_points, probe.center_sets, probe.kernel, z=probe.z, weights=coreset_weights)
        known = truth > 0
        if not known.any():
            return {"largest_error": None, "center_sets": len(sums), "fraction": probe.fraction, "standard_error": None}
        errors = np.abs(estimate[known] / truth[known] - 1)
        worst = int(np.argmax(errors))
        groups = self.set_costs[:, known][:, worst]
        # A share f of the rows leaves (1 - f) of the variance of a sample of that size.
        spread = float(np.std(groups, ddof=1) * np.sqrt(_GROUPS * (1 - probe.fraction)) / groups.sum())
        return {
            "largest_error": float(errors[worst]),
            "center_sets": int(known.sum()),
            "fraction": probe.fraction,
            "sampled_rows": int(self.sampled),
            "standard_error": spread,
        }
