"""From the columns of a DataFrame to the points of a batch: which columns, of what type, and which rows are bad."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    FloatType,
    IntegralType,
    LongType,
    NumericType,
    ShortType,
    StringType,
)

from kernelcoreset.checks import Floats, check_columns
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.features.arrays import has_finite_sum, to_floats, to_numbers, view
from kernelcoreset.features.preparation import Preparation

FEATURE, WEIGHT, ID = "__kc_feature", "__kc_weight", "__kc_id"
_ROUNDED = "a whole number beyond 2^53 that float64 rounds"
_SHORT_TYPES = (FloatType, ShortType, ByteType)
SETTINGS = ("features", "weight_col", "id_col")
"""What messages call the settings that name the columns, unless the caller says otherwise."""
DIMENSION_ROWS = 1_000
"""Rows that are read to find the length of an array column."""


@dataclass(frozen=True)
class Layout:
    """Which columns hold the points. Plain data: it is sent to the executors.

    `features` are several numeric columns, or one array or vector column. `dimension` is the number of features of a
    row; for an array or vector column it is None until `with_dimension` has found it. With a `preparation`, rows become
    points by it, and `dimension` is the number of their coordinates.
    """

    features: tuple[str, ...]
    is_array: bool
    weight_col: str | None = None
    id_col: str | None = None
    dimension: int | None = None
    categorical: tuple[str, ...] = ()
    """Features that hold names, not numbers. They can be read only with a preparation."""
    preparation: Preparation | None = None
    is_short: bool = False
    """Whether the column is an array of numbers that float32 holds exactly."""

    def prepared_by(self, preparation: Preparation | None) -> Layout:
        """Return the layout of rows that become points by a preparation; without one, the same."""
        if preparation is None:
            return self
        return replace(self, dimension=preparation.dimension, preparation=preparation)

    @property
    def columns(self) -> list[str]:
        """Names of the feature columns, then of weight and id."""
        return [*self.features, *(name for name in (self.weight_col, self.id_col) if name is not None)]

    @property
    def numbers(self) -> int | None:
        """How many numbers `selection` returns per row; None if not all that it returns are single numbers."""
        return None if self.is_array or self.categorical or self.id_col else len(self.columns)

    @property
    def length(self) -> int | None:
        """Number of elements of an array column, or of feature columns."""
        return self.dimension if self.preparation is None else len(self.preparation.columns)

    @property
    def most_dimension(self) -> int:
        """Number of coordinates of a point; of an array whose length is not known, more than any other rows have."""
        if self.dimension is not None:
            return self.dimension
        return sys.maxsize if self.is_array else len(self.features)

    @property
    def width(self) -> int:
        """Number of feature columns that `selection` returns."""
        return 1 if self.is_array else len(self.features)


def layout_of(
    frame: DataFrame,
    features: str | Sequence[str],
    weight_col: str | None = None,
    id_col: str | None = None,
    settings: tuple[str, str, str] = SETTINGS,
    categorical: Sequence[str] = (),
) -> Layout:
    """Return the layout of the named columns, or raise SettingError if one is missing or of the wrong type.

    `settings` are the names of the three settings, for messages. `categorical` features hold names, not numbers.
    """
    names = (features,) if isinstance(features, str) else tuple(features)
    if not names:
        raise SettingError(f"`{settings[0]}` must name at least one column; got none.")
    types = {field.name: field.dataType for field in frame.schema.fields}
    given = (names, *(() if name is None else (name,) for name in (weight_col, id_col)))
    check_columns(dict(zip(settings, given, strict=True)), list(types))
    wanted = [name for part in given for name in part]
    twice = sorted(name for name in set(wanted) if frame.columns.count(name) > 1)
    if twice:
        raise SettingError(f"Several columns have the name {', '.join(twice)}. Rename or drop all but one.")
    is_array = len(names) == 1 and is_array_or_vector(types[names[0]])
    check_columns({"features.categorical": categorical}, () if is_array else names)
    for name in names if not is_array else ():
        if name in categorical:
            _refuse_unless_name(name, types[name])
        else:
            _refuse_unless_numeric(
                name, types[name], "a number, or be the only feature as an array or vector of numbers"
            )
    if is_array and isinstance(types[names[0]], ArrayType):
        _refuse_unless_numeric(f"{names[0]}'s elements", types[names[0]].elementType, "numbers")  # type: ignore[attr-defined]
    if weight_col is not None:
        _refuse_unless_numeric(weight_col, types[weight_col], "a number")
    if id_col is not None and not isinstance(types[id_col], IntegralType | StringType):
        kind = types[id_col].simpleString()
        raise SettingError(f"Column {id_col} must hold integers or strings to be the id; it is {kind}. Cast it.")
    dimension = None if is_array else len(names)
    return Layout(
        *(names, is_array, weight_col, id_col, dimension, tuple(categorical)),
        is_short=is_array and isinstance(getattr(types[names[0]], "elementType", None), _SHORT_TYPES),
    )


def with_dimension(frame: DataFrame, layout: Layout) -> Layout:
    """Return the layout with its dimension; for an array column a small job finds the length that most rows have."""
    if layout.dimension is not None:
        return layout
    length = F.size(array_column(frame, layout.features[0])).alias("length")
    lengths = frame.select(length).where("length > 0").limit(DIMENSION_ROWS).toArrow()["length"]
    return with_length(layout, lengths.to_numpy())


def with_length(layout: Layout, lengths: NDArray[Any]) -> Layout:
    """Return the layout with the length that most of some rows have as its dimension; None if there is no row."""
    return replace(layout, dimension=int(np.bincount(lengths).argmax()) if len(lengths) else None)


def selection(frame: DataFrame, layout: Layout) -> list[Column]:
    """Return the columns a task needs, renamed: features, then weight, then id.

    Features are float64, but for longs: the task looks for those that float64 would round. Arrays of shorter numbers
    and categories stay as they are, too.
    """
    if layout.is_array:
        columns = [_numbers(frame, layout.features[0]).alias(FEATURE)]
    else:
        columns = [
            (F.col(quoted(name)) if name in layout.categorical else _numbers(frame, name)).alias(f"{FEATURE}{i}")
            for i, name in enumerate(layout.features)
        ]
    if layout.weight_col is not None:
        columns.append(F.col(quoted(layout.weight_col)).cast("double").alias(WEIGHT))
    if layout.id_col is not None:
        columns.append(F.col(quoted(layout.id_col)).alias(ID))
    return columns


def _numbers(frame: DataFrame, name: str) -> Column:
    """A column, or the elements of one, as float64; longs and arrays of numbers of up to 32 bits as they are."""
    kind = frame.schema[name].dataType
    column = array_column(frame, name)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, FloatType | IntegralType):
        return column
    if is_array_or_vector(kind):
        return column.cast("array<double>")
    return column if _is_long(kind) else column.cast("double")


def _is_long(kind: DataType) -> bool:
    """Whether a column holds longs, or arrays of them."""
    return isinstance(kind.elementType if isinstance(kind, ArrayType) else kind, LongType)


def is_vector(kind: DataType) -> bool:
    """Whether a column holds the vectors of pyspark.ml."""
    from pyspark.ml.linalg import VectorUDT  # imports pandas, which takes longer than a small task that needs neither

    return isinstance(kind, VectorUDT)


def is_array_or_vector(kind: DataType) -> bool:
    """Whether a column holds several numbers per row."""
    return isinstance(kind, ArrayType) or is_vector(kind)


def numbers_in(frame: DataFrame) -> int | None:
    """Return how many columns a frame has; None if not all of them are numbers of up to 8 bytes."""
    kinds = [field.dataType for field in frame.schema.fields]
    are_short = all(isinstance(kind, NumericType) and not isinstance(kind, DecimalType) for kind in kinds)
    return len(kinds) if are_short else None


def array_column(frame: DataFrame, name: str) -> Column:
    """Return a column as it is, except for a vector column, which becomes an array."""
    column = F.col(quoted(name))
    if is_vector(frame.schema[name].dataType):
        from pyspark.ml.functions import vector_to_array

        return F.when(column.isNotNull(), vector_to_array(column))  # vector_to_array fails on null
    return column


@dataclass
class BadRows:
    """Rows that cannot be used, counted by column."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: int = 0

    def add(self, column: str, bad: NDArray[np.bool_]) -> None:
        """Count the bad rows of one column."""
        found = int(np.count_nonzero(bad))
        if found:
            self.counts[column] = self.counts.get(column, 0) + found

    def plus(self, other: BadRows) -> BadRows:
        """Return the counts of both."""
        names = dict.fromkeys([*self.counts, *other.counts])
        counts = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names}
        return BadRows(counts, self.rows + other.rows)


class BatchReader:
    """Turns Arrow batches into points, keeping the good rows and counting the bad ones."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.bad = BadRows()

    def read(self, arrays: Sequence[pa.Array]) -> tuple[Floats, Floats | None, NDArray[np.bool_] | None]:
        """Return columns (d, n) in float64, weights or None, and the mask of good rows (None if all are good).

        Bad rows stay in place, with zeros for coordinates and weight, so that positions still match the batch.
        """
        rows, weights, good = self.read_rows(arrays)
        # A copy of an array's rows: the memory of Arrow is read-only.
        return np.require(rows.T, dtype=np.float64, requirements=["C", "W"]), weights, good

    def read_rows(self, arrays: Sequence[pa.Array]) -> tuple[NDArray[Any], Floats | None, NDArray[np.bool_] | None]:
        """Return `read` as rows (n, d). Those of an array column keep their type and are not copied if all are good."""
        layout, n = self.layout, len(arrays[0])
        bad = np.zeros(n, dtype=bool)
        if layout.is_array:
            rows = self._from_array(arrays[0], bad)
            if layout.preparation is not None:
                rows = self._prepared(layout.preparation, list(rows.T), bad)
        elif layout.preparation is not None:
            rows = self._prepared(layout.preparation, arrays[: layout.width], bad)
        else:
            rows = self._from_columns(arrays, n, bad).T
        weights = None
        if layout.weight_col is not None:
            weights = to_floats(arrays[layout.width], exact=False)
            wrong = ~np.isfinite(weights) | (weights < 0)
            if wrong.any():
                self.bad.add(layout.weight_col, wrong)
                bad |= wrong
        if not bad.any():
            return rows, weights, None
        self.bad.rows += int(bad.sum())
        if not rows.flags.writeable:
            rows = rows.copy()
        rows[bad] = 0
        if weights is not None:
            weights = np.where(bad, 0.0, weights)
        return rows, weights, ~bad

    def _prepared(self, preparation: Preparation, arrays: Sequence[Any], bad: NDArray[np.bool_]) -> Floats:
        points, wrong = preparation.apply(arrays)
        for name, found in wrong.items():
            if not self.layout.is_array:  # bad elements of arrays are counted already
                self.bad.add(name, found)
            bad |= found
        return points.T

    def _from_columns(self, arrays: Sequence[pa.Array], n: int, bad: NDArray[np.bool_]) -> Floats:
        columns = np.empty((self.layout.width, n))
        for j, name in enumerate(self.layout.features):
            columns[j] = to_floats(arrays[j])
            if not has_finite_sum(columns[j]):
                wrong = ~np.isfinite(columns[j])
                self.bad.add(name, wrong)
                bad |= wrong
        return columns

    def _from_array(self, array: pa.Array, bad: NDArray[np.bool_]) -> NDArray[Any]:
        name = self.layout.features[0]
        lengths = np.diff(view(array.offsets)).astype(np.int64)
        missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else False
        d = self.layout.length or 1  # None only if all rows are null or empty, so bad
        wrong = missing | (lengths != d)
        if not wrong.any():
            rows = to_numbers(array.flatten()).reshape(len(array), d)
        else:
            kept = to_numbers(array.filter(pa.array(~wrong)).flatten())
            rows = np.full((len(array), d), np.nan, dtype=kept.dtype if kept.dtype.kind == "f" else np.float64)
            rows[~wrong] = kept.reshape(-1, d)
        if not has_finite_sum(rows):
            wrong |= ~np.isfinite(rows).all(axis=1)
        self.bad.add(name, wrong)
        bad |= wrong
        return rows


def why_bad(frame: DataFrame, layout: Layout) -> Column:
    """Return a column with the reason why a row is bad, null for good rows: the rules of `BatchReader`, in SQL."""
    if layout.is_array:
        name, d = layout.features[0], layout.length or 1
        column = array_column(frame, name)
        bad = column.isNull() | (F.size(column) != d) | F.exists(column.cast("array<double>"), _not_finite)
        reasons = [F.when(bad, F.lit(f"{name}: null, NaN, infinite, or its length is not {d}"))]
        if _is_long(frame.schema[name].dataType):
            reasons.append(F.when(F.exists(column, _rounded), F.lit(f"{name}: {_ROUNDED}")))
    else:
        reasons = [reason for name in layout.features for reason in _why_bad_value(name, layout)]
        numbers = [name for name in layout.features if name not in layout.categorical]
        longs = [name for name in numbers if _is_long(frame.schema[name].dataType)]
        reasons += [F.when(_rounded(F.col(quoted(name))), F.lit(f"{name}: {_ROUNDED}")) for name in longs]
    if layout.weight_col is not None:
        weight = F.col(quoted(layout.weight_col)).cast("double")
        reason = F.lit(f"{layout.weight_col}: null, NaN, infinite or negative")
        reasons.append(F.when(_not_finite(weight) | (weight < 0), reason))
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def _why_bad_value(name: str, layout: Layout) -> list[Column]:
    """The reason why a row is bad for one column, if there can be one: missing values may be replaced."""
    column = F.col(quoted(name))
    imputes = layout.preparation is not None and layout.preparation.wanted.impute != "none"
    if name in layout.categorical:
        return [] if imputes else [F.when(column.isNull(), F.lit(f"{name}: null"))]
    number = column.cast("double")
    if imputes:
        return [F.when(F.abs(number) == F.lit(float("inf")), F.lit(f"{name}: infinite"))]
    return [F.when(_not_finite(number), F.lit(f"{name}: null, NaN or infinite"))]


def _rounded(value: Column) -> Column:
    """Whether float64 rounds a long: the way there and back gives another one, or none."""
    back = value.cast("double").try_cast("long")
    return back.isNull() | (back != value) | (value == F.lit(2**63 - 1))


def _not_finite(value: Column) -> Column:
    return value.isNull() | F.isnan(value) | (F.abs(value) == F.lit(float("inf")))


def describe_bad_rows(bad: BadRows, total: int, where: str = "") -> str:
    """Return the message that says how many bad rows each column has, and what to do about them."""
    columns = ", ".join(f"{name}: {count:,}" for name, count in sorted(bad.counts.items()))
    return (
        f"{bad.rows:,} of {total:,} rows cannot be used (null, NaN, infinite, {_ROUNDED}, wrong length or a negative "
        f"weight){where}; by column: {columns}. Fix them, filter them out, or set bad_rows to 'drop' or 'quarantine'."
    )


def refuse_bad_rows(bad: BadRows, total: int) -> None:
    """Raise DataError if there are bad rows."""
    if bad.rows:
        raise DataError(describe_bad_rows(bad, total))


def _refuse_unless_name(name: str, kind: DataType) -> None:
    if not isinstance(kind, StringType | NumericType | BooleanType):
        raise SettingError(f"Column {name} must hold texts or numbers to be categorical; it is {kind.simpleString()}.")


def _refuse_unless_numeric(name: str, kind: DataType, rule: str) -> None:
    if not isinstance(kind, NumericType):
        hint = ""
        if isinstance(kind, StringType):
            hint = (
                " Or name it in features.categorical. All columns of a CSV are strings unless it is read with "
                "inferSchema=True."
            )
        raise SettingError(f"Column {name} must be {rule}; it is {kind.simpleString()}. Cast it first.{hint}")


def quoted(name: str) -> str:
    """Return the name of a column in backquotes, for Spark's parser: a name may hold dots."""
    return "`" + name.replace("`", "``") + "`"
