"""From columns to points, the same way for every row: what `Features` asks for, with means, scales and values found.

A preparation is plain data. It is kept with the coreset, and so in every model, which applies it to new rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kernelcoreset.checks import Floats, check_columns, check_weights
from kernelcoreset.errors import DataError, FormatError, SettingError
from kernelcoreset.features.arrays import has_finite_sum, is_numeric, to_floats
from kernelcoreset.features.table import Columns, columns_of
from kernelcoreset.features.wanted import Features
from kernelcoreset.files.documents import Fields

KEY = "preparation"
"""The name of a preparation in the settings of a coreset."""
OTHER = "other"
MISSING = "missing"
_NORMAL_RANGE = 1.3489795003921634  # interquartile range of a normal distribution of standard deviation 1
_FEWEST = 0.001  # share of the rows from which on a value is a category of its own

Raw: TypeAlias = pa.Array | NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: x, or sign(x) log(1 + |x|), becomes (x - center) / scale."""

    name: str
    log: bool
    center: float
    scale: float
    fill: float | None
    """What a missing value becomes, after the logarithm; None if it makes the row a bad one."""

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinates."""
        return [self.name]

    def write(self, values: Raw, out: Floats) -> Mask | None:
        """Write the coordinates, shape (1, n); return which rows are bad, None if none is."""
        numbers = _numbers(values, self.log)
        bad = None
        if not has_finite_sum(numbers):
            bad = ~np.isfinite(numbers)
            if self.fill is not None:
                missing = _missing(values)
                numbers = np.where(missing, self.fill, numbers)
                bad &= ~missing
        np.subtract(numbers, self.center, out=out[0])
        out[0] /= self.scale
        return bad


@dataclass(frozen=True)
class CategoryColumn:
    """A column of names: one coordinate of 0 or 1 for each of `values`, and a last one for all others."""

    name: str
    values: tuple[str, ...]
    missing: bool
    """Whether a missing value counts as the category "missing"; if not, it makes the row a bad one."""

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinates."""
        return [f"{self.name}={value}" for value in (*self.values, *([MISSING] if self.missing else []), OTHER)]

    def write(self, values: Raw, out: Floats) -> Mask | None:
        """Write the coordinates, shape (values + 1, n), or + 2 with "missing"; return which rows are bad."""
        names, codes, missing = encoded(values)
        places = {value: place for place, value in enumerate(self.values)}
        own = np.array([places.get(name, len(out) - 1) for name in names], dtype=np.int64)
        place = np.full(len(codes), len(self.values), dtype=np.int64)  # that of "missing"
        present = slice(None) if missing is None else ~missing
        place[present] = own[codes[present]]
        out[:] = 0.0
        out[place, np.arange(len(codes))] = 1.0
        return None if self.missing else missing


@dataclass(frozen=True)
class Preparation:
    """How the columns of a table become points, found from data. Immutable.

    Parameters
    ----------
    columns : tuple of NumberColumn and CategoryColumn
        In the order of the coordinates.
    wanted : Features
        What was asked for.

    Examples
    --------
    >>> table = {"age": [20.0, 40.0, 60.0], "job": ["cook", "clerk", "cook"]}
    >>> preparation = Preparation.fit(table, Features(categorical=["job"]))
    >>> preparation.coordinates
    ['age', 'job=cook', 'job=clerk', 'job=other']
    >>> preparation.transform({"age": [40.0], "job": ["pilot"]}).tolist()
    [[0.0, 0.0, 0.0, 1.0]]
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    wanted: Features

    @staticmethod
    def fit(table: Any, wanted: Features, weights: ArrayLike | None = None) -> Preparation:
        """Return the preparation for a table, or a sample of one.

        Parameters
        ----------
        table : pandas.DataFrame, pyarrow.Table, mapping of columns, or array-like of shape (n, d)
        wanted : Features
        weights : array-like of shape (n,), optional
            A row of weight N counts as N rows.
        """
        columns = columns_of(table)
        n = len(next(iter(columns.values()))) if columns else 0
        if not n:
            raise DataError(
                "Means and scales of the features cannot be found: there is no row. Check the filter or the path."
            )
        own = check_weights(weights, n)
        named = {key: named_columns(columns, getattr(wanted, key)) for key in ("categorical", "log")}
        check_columns({f"features.{key}": names for key, names in named.items()}, list(columns))
        found = [
            _category(name, values, wanted, own)
            if name in named["categorical"]
            else _number(name, values, wanted, own, name in named["log"])
            for name, values in columns.items()
        ]
        return Preparation(tuple(found), wanted)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def categorical(self) -> list[str]:
        """Names of the columns that hold names, not numbers."""
        return [column.name for column in self.columns if isinstance(column, CategoryColumn)]

    @cached_property
    def coordinates(self) -> list[str]:
        """Names of the coordinates of a point, such as "age" and "job=cook"."""
        return [name for column in self.columns for name in column.coordinates]

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The number of the column that each coordinate is from."""
        return np.repeat(np.arange(len(self.columns)), [len(column.coordinates) for column in self.columns])

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    def apply(self, arrays: Sequence[Raw]) -> tuple[Floats, dict[str, Mask]]:
        """Return the points of some rows as columns (d, n), and which rows each column makes bad.

        `arrays` are the columns in the order of `names`. The coordinates of bad rows may be any number.
        """
        points = np.empty((self.dimension, len(arrays[0])))
        bad = {}
        first = 0
        for column, values in zip(self.columns, arrays, strict=True):
            last = first + len(column.coordinates)
            wrong = column.write(values, points[first:last])
            if wrong is not None and wrong.any():
                bad[column.name] = wrong
            first = last
        return points, bad

    def transform(self, table: Any) -> Floats:
        """Return the points of a table, shape (n, d). The table needs the columns that this was fitted on.

        Raises DataError if a row has a value that cannot be used.
        """
        columns = columns_of(table)
        if not set(self.names) <= set(columns) and len(columns) == len(self.names) and is_nameless(columns):
            columns = dict(zip(self.names, columns.values(), strict=True))
        check_columns({"features": self.names}, list(columns))
        points, bad = self.apply([columns[name] for name in self.names])
        if bad:
            counts = ", ".join(f"{name}: {int(wrong.sum()):,}" for name, wrong in bad.items())
            raise DataError(
                "Some rows cannot be used (missing, NaN, infinite or a whole number beyond 2^53); by column: "
                f'{counts}. Drop them, or replace missing values by Features(impute="median").'
            )
        return points.T

    def restore(self, points: Floats) -> Columns:
        """Return the columns of points, as far as they can be told: rare values of a category are "other"."""
        found, first = {}, 0
        for column in self.columns:
            last = first + len(column.coordinates)
            own = points[:, first:last]
            if isinstance(column, NumberColumn):
                numbers = own[:, 0] * column.scale + column.center
                found[column.name] = pa.array(np.sign(numbers) * np.expm1(np.abs(numbers)) if column.log else numbers)
            else:
                texts = np.array([name.removeprefix(f"{column.name}=") for name in column.coordinates], dtype=object)
                found[column.name] = pa.array(texts[own.argmax(axis=1)], pa.string())
            first = last
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the preparation as plain data."""
        kinds = {NumberColumn: "number", CategoryColumn: "category"}
        columns = [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns]
        for column in columns:
            if "values" in column:
                column["values"] = list(column["values"])
        return {"wanted": self.wanted.to_dict(), "columns": columns}

    @staticmethod
    def from_dict(plain: Any, name: str = "The preparation") -> Preparation:
        """Return the preparation that `to_dict` gave, or raise FormatError."""
        try:
            fields = Fields(plain, name)
            columns = tuple(_column_from(Fields(column, name)) for column in plain["columns"])
            found = Preparation(columns, Features(**fields.mapping("wanted")))
        except (KeyError, TypeError, SettingError) as error:
            raise FormatError(f"{name} of the features is damaged: {error}. Save the model again.") from None
        if not columns or len(set(found.names)) < len(columns):
            raise FormatError(f"{name} of the features is damaged: it needs different columns. Save the model again.")
        return found


def preparation_of(settings: Mapping[str, Any]) -> Preparation | None:
    """Return the preparation in the settings of a coreset; None if its points are rows as they are."""
    return Preparation.from_dict(settings[KEY]) if KEY in settings else None


def named_columns(columns: Columns, wanted: Sequence[str | int]) -> list[str]:
    """Return columns by name. A position stands for a column of an array without names."""
    nameless = is_nameless(columns)
    return [f"x{each}" if isinstance(each, int) and nameless else str(each) for each in wanted]


def is_nameless(columns: Columns | Sequence[str]) -> bool:
    """Return whether columns have the names that `columns_of` gives to those of an array."""
    return list(columns) == [f"x{place}" for place in range(len(columns))]


def encoded(values: Raw) -> tuple[list[str], NDArray[np.int64], Mask | None]:
    """Return the different values as texts, which of them each row has, and which rows have none (None if all do)."""
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    if pa.types.is_floating(array.type):
        array = pa.array(array.to_numpy(zero_copy_only=False), from_pandas=True)  # NaN is missing
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        array = array.cast(pa.string())
    found = array.dictionary_encode()
    missing = found.indices.is_null().to_numpy(zero_copy_only=False) if found.null_count else None
    codes = found.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found.dictionary.to_pylist(), codes, missing


def _numbers(values: Raw, log: bool) -> Floats:
    numbers = to_floats(values) if isinstance(values, pa.Array) else np.asarray(values, dtype=np.float64)
    return np.sign(numbers) * np.log1p(np.abs(numbers)) if log else numbers


def _missing(values: Raw) -> Mask:
    """Which values are null or NaN; not the whole numbers that float64 would round."""
    if isinstance(values, pa.Array):
        values = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=bool)
    return np.asarray(np.isnan(values), dtype=bool)


def _refuse_unless_numbers(name: str, values: Raw) -> None:
    kind = values.type if isinstance(values, pa.Array) else pa.from_numpy_dtype(values.dtype)
    if not (pa.types.is_null(kind) or is_numeric(kind)):
        raise SettingError(
            f"Column {name} must hold numbers; it holds {kind}. Name it in features.categorical, or cast it."
        )


def _number(name: str, values: Raw, wanted: Features, weights: Floats, log: bool) -> NumberColumn:
    _refuse_unless_numbers(name, values)
    numbers = _numbers(values, log)
    fine = np.isfinite(numbers) & (weights > 0)
    if not fine.any():
        raise DataError(f"Column {name} has no number in the rows that were looked at. Leave it out.")
    numbers, weights = numbers[fine], weights[fine]
    mean = float(np.average(numbers, weights=weights))
    spread = float(np.sqrt(np.average(np.square(numbers - mean), weights=weights)))
    needs_order = wanted.scale == "robust" or wanted.impute == "median"
    low, median, high = _quantiles(numbers, weights, (0.25, 0.5, 0.75)) if needs_order else (mean, mean, mean)
    center, scale = {
        "standard": (mean, spread),
        "robust": (median, (high - low) / _NORMAL_RANGE or spread),
        "none": (0.0, 1.0),
    }[wanted.scale]
    fill = {"none": None, "median": median, "mean": mean}[wanted.impute]
    # Rounding leaves a constant column a spread of about 1e-16 of its values.
    constant = scale <= 1e-12 * abs(mean) or scale == 0.0
    return NumberColumn(name, log, center, 1.0 if constant else scale, fill)


def _category(name: str, values: Raw, wanted: Features, weights: Floats) -> CategoryColumn:
    names, codes, missing = encoded(values)
    present = np.ones(len(codes), dtype=bool) if missing is None else ~missing
    masses = np.bincount(codes[present], weights[present], minlength=len(names))
    order = sorted(range(len(names)), key=lambda place: (-masses[place], names[place]))
    kept = [names[place] for place in order if masses[place] >= _FEWEST * weights.sum()]
    return CategoryColumn(name, tuple(kept[: wanted.most_categories]), wanted.impute != "none")


def _quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    """Smallest values that at least these shares of the weight do not exceed."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    places = np.searchsorted(below, np.asarray(shares) * below[-1] * (1.0 - 1e-12))
    return [float(values[order[place]]) for place in places]


def _column_from(fields: Fields) -> NumberColumn | CategoryColumn:
    kind = fields.text("kind")
    if kind == "category":
        values = fields.data["values"]
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise fields.wrong("values", "a list of texts")
        return CategoryColumn(fields.text("name"), tuple(values), fields.flag("missing"))
    if kind != "number":
        raise fields.wrong("kind", "number or category")
    scale = fields.number("scale")
    if scale <= 0.0:
        raise fields.wrong("scale", "above 0")
    fill = None if fields.data.get("fill") is None else fields.number("fill")
    return NumberColumn(fields.text("name"), fields.flag("log"), fields.number("center"), scale, fill)
