"""What clusters have in their columns, collected while rows are labelled. Tallies of parts can be merged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.features.arrays import has_finite_sum, is_numeric, to_floats
from kernelcoreset.features.preparation import encoded
from kernelcoreset.labelling.centers import Labels

MOST_CLUSTERS = 100
"""More clusters are not described: nobody reads that, and tallies would become large."""
TYPICAL_ROWS = 3
UNUSUAL_ROWS = 5
ALL_UP_TO = 8_192
"""Of so many rows of a partition all columns are described, of row i > ALL_UP_TO with probability ALL_UP_TO / i."""
_MOST_VALUES = 1_000  # a text column with more different values is not described: it holds names or ids
_MOST_LETTERS = 200
# A few rows first: they give thresholds that nearly all others do not pass.
_FIRST_PARTS = (slice(0, 4_096), slice(4_096, None))


def can_describe(kind: pa.DataType) -> bool:
    """Return whether columns of an Arrow type are described: numbers, dates, texts, true and false."""
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_dictionary, types.is_boolean)
    return is_numeric(kind) or _is_date(kind) or any(is_kind(kind) for is_kind in texts)


def _is_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


class RowTally:
    """Sums of numbers and counts of values by cluster, and the rows that are typical, far and on a border.

    Parameters
    ----------
    k : int
        Number of clusters.
    typical : ndarray of shape (k,)
        The typical distance of each cluster's rows; far rows are measured by it.
    silent : collection of str
        Columns that are shown with rows, but not described: ids and weights.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> tally = RowTally(2, np.ones(2))
    >>> found = Labels(np.array([0, 0, 1]), np.array([0.1, 0.2, 0.3]), None, 0.0, 0.0)
    >>> tally.add({"age": pa.array([20, 40, 70])}, found)
    >>> RowTally.total([tally.to_dict()], 2).numbers["age"]["mean"].tolist()
    [30.0, 70.0]
    """

    def __init__(self, k: int, typical: Floats, silent: Iterable[str] = ()) -> None:
        self.k = k
        self.numbers: dict[str, dict[str, Floats]] = {}
        self.values: dict[str, dict[str, Floats]] = {}
        self.dates: set[str] = set()
        self.skipped: set[str] = set()
        self.nearest: list[list[tuple[float, dict[str, Any]]]] = [[] for _ in range(k)]
        self.farthest: list[tuple[float, dict[str, Any]]] = []
        self.borderline: list[tuple[float, dict[str, Any]]] = []
        self.rows, self.sampled = 0, 0
        self._typical = np.where(typical > 0.0, typical, 1.0)
        self._silent = set(silent)
        self._shifts: dict[str, float] = {}
        self._worst = np.full(k, np.inf)

    def add(self, columns: Mapping[str, pa.Array], found: Labels, weights: Floats | None = None) -> None:
        """Add labelled rows: their columns by name, and their labels, distances and, if there are any, margins."""
        self.rows += len(found.labels)
        self.sampled += len(found.labels)
        self._add_columns(columns, found.labels, weights)
        self._keep_typical(columns, found)
        self._keep_unusual(columns, found)

    def add_sampled(
        self,
        columns: Mapping[str, pa.Array],
        others: Mapping[str, pa.Array],
        rows: NDArray[np.intp],
        places: NDArray[np.int64],
        found: Labels,
        weights: Floats | None = None,
    ) -> None:
        """Add labelled rows of which some columns are known for a sample only, as `ALL_UP_TO` says.

        The other columns are described by this sample, each row weighted by the inverse of its probability, and typical
        rows are taken from it. All else is that of all rows.

        Parameters
        ----------
        columns : mapping of str to array of length n
            Columns that are known for all rows.
        others : mapping of str to array of length m
            The other columns, for the rows of the sample.
        rows : ndarray of shape (m,)
            Which of the n rows are in the sample.
        places : ndarray of shape (n,)
            Number of each row in its partition, from 0.
        found : Labels
        weights : ndarray of shape (n,), optional
        """
        own = Labels(found.labels[rows], found.distances[rows], None, found.certified, found.distance_error)
        inverse = np.maximum(1.0, places[rows] / ALL_UP_TO)
        self.rows += len(found.labels)
        self.sampled += len(rows)
        self._add_columns(columns, found.labels, weights)
        self._add_columns(others, own.labels, inverse if weights is None else inverse * weights[rows])
        picked = pa.array(rows)
        self._keep_typical({**{name: values.take(picked) for name, values in columns.items()}, **others}, own)
        self._keep_unusual(columns, found)

    def _add_columns(self, columns: Mapping[str, pa.Array], labels: NDArray[np.int32], weights: Floats | None) -> None:
        if not len(labels):
            return
        found = labels.astype(np.intp)
        own = np.bincount(found, weights, minlength=self.k).astype(np.float64)
        for name, values in columns.items():
            if name in self.skipped or name in self._silent or not can_describe(values.type):
                continue
            if _is_date(values.type):
                self.dates.add(name)
                self._add_numbers(name, _seconds(values), found, weights, own)
            elif is_numeric(values.type):
                self._add_numbers(name, to_floats(values, exact=False), found, weights, own)
            else:
                self._add_values(name, values, found, weights)

    def _add_numbers(
        self, name: str, numbers: Floats, labels: NDArray[np.intp], weights: Floats | None, own: Floats
    ) -> None:
        if not has_finite_sum(numbers):
            good = np.isfinite(numbers)
            numbers, labels = numbers[good], labels[good]
            weights = None if weights is None else weights[good]
            own = np.bincount(labels, weights, minlength=self.k).astype(np.float64)
            if not len(numbers):
                return
        # Sums around a typical value: those of raw values would lose the digits that tell clusters apart.
        shift = self._shifts.setdefault(name, float(numbers.mean()))
        apart = numbers - shift
        weighted = apart if weights is None else apart * weights
        first = np.bincount(labels, weighted, minlength=self.k)
        second = np.bincount(labels, weighted * apart, minlength=self.k)
        mean = np.divide(first, own, out=np.zeros(self.k), where=own > 0)
        part = {"weight": own, "mean": mean + shift, "squares": np.maximum(second - own * mean**2, 0.0)}
        self.numbers[name] = _merged(self.numbers.get(name), part)

    def _add_values(self, name: str, values: pa.Array, labels: NDArray[np.intp], weights: Floats | None) -> None:
        texts, codes, missing = encoded(values)
        if missing is not None:
            codes, labels = codes[~missing], labels[~missing]
            weights = None if weights is None else weights[~missing]
        counts = np.bincount(codes * self.k + labels, weights, minlength=len(texts) * self.k)
        known = self.values.setdefault(name, {})
        for text, row in zip(texts, counts.reshape(-1, self.k), strict=True):
            text = text[:_MOST_LETTERS]
            known[text] = known[text] + row if text in known else row.astype(np.float64)
        self._skip_names(name)

    def _skip_names(self, name: str) -> None:
        if len(self.values.get(name, ())) > _MOST_VALUES:
            self.skipped.add(name)
            del self.values[name]

    def _keep_typical(self, columns: Mapping[str, pa.Array], found: Labels) -> None:
        for part in _FIRST_PARTS:
            labels = found.labels[part].astype(np.intp)
            self._keep_nearest(columns, labels, found.distances[part], part.start)

    def _keep_unusual(self, columns: Mapping[str, pa.Array], found: Labels) -> None:
        for part in _FIRST_PARTS:
            scores = found.distances[part] / self._typical[found.labels[part]]
            self.farthest = _extreme(self.farthest, -scores, columns, part.start)
            if found.margins is not None:
                self.borderline = _extreme(self.borderline, found.margins[part], columns, part.start)

    def _keep_nearest(
        self, columns: Mapping[str, pa.Array], labels: NDArray[np.intp], distances: Floats, first: int
    ) -> None:
        near = np.flatnonzero(distances < self._worst[labels])
        order = near[np.lexsort((distances[near], labels[near]))]
        place = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
        for row in order[place < TYPICAL_ROWS]:
            cluster = int(labels[row])
            kept = _best([*self.nearest[cluster], (float(distances[row]), _row(columns, first + row))])
            self.nearest[cluster] = kept
            if len(kept) == TYPICAL_ROWS:
                self._worst[cluster] = kept[-1][0]

    def to_dict(self) -> dict[str, Any]:
        """Return the tally as plain data."""
        return {
            "numbers": {name: {part: a.tolist() for part, a in own.items()} for name, own in self.numbers.items()},
            "values": {name: {text: a.tolist() for text, a in own.items()} for name, own in self.values.items()},
            "dates": sorted(self.dates),
            "skipped": sorted(self.skipped),
            "rows": self.rows,
            "sampled": self.sampled,
            "nearest": self.nearest,
            "farthest": self.farthest,
            "borderline": self.borderline,
        }

    @staticmethod
    def total(parts: Sequence[Mapping[str, Any]], k: int) -> RowTally:
        """Return the tally of all rows from those of parts, as `to_dict` gave them."""
        whole = RowTally(k, np.ones(k))
        for part in parts:
            whole.skipped |= set(part["skipped"])
            whole.dates |= set(part["dates"])
            whole.rows += part["rows"]
            whole.sampled += part["sampled"]
            for name, own in part["numbers"].items():
                arrays = {each: np.asarray(values, dtype=np.float64) for each, values in own.items()}
                whole.numbers[name] = _merged(whole.numbers.get(name), arrays)
            for name, counts in part["values"].items():
                known = whole.values.setdefault(name, {})
                for text, row in counts.items():
                    known[text] = known.get(text, np.zeros(k)) + np.asarray(row)
            for cluster, rows in enumerate(part["nearest"]):
                whole.nearest[cluster] = _best([*whole.nearest[cluster], *map(tuple, rows)])
            for name in ("farthest", "borderline"):
                setattr(whole, name, _best([*getattr(whole, name), *map(tuple, part[name])], UNUSUAL_ROWS))
        for name in list(whole.values):
            whole._skip_names(name)
        for name in whole.skipped & set(whole.values):
            del whole.values[name]
        return whole


def _seconds(dates: pa.Array) -> Floats:
    """Dates as seconds since 1970."""
    return to_floats(dates.cast(pa.timestamp("us"), safe=False).cast(pa.int64()), exact=False) / 1e6


def _merged(one: Mapping[str, Floats] | None, other: Mapping[str, Floats]) -> dict[str, Floats]:
    """Weights, means and sums of squared differences from the mean, of two parts of the rows together."""
    if one is None:
        return dict(other)
    weight = one["weight"] + other["weight"]
    share = np.divide(other["weight"], weight, out=np.zeros_like(weight), where=weight > 0)
    apart = other["mean"] - one["mean"]
    return {
        "weight": weight,
        "mean": one["mean"] + apart * share,
        "squares": one["squares"] + other["squares"] + apart**2 * one["weight"] * share,
    }


def _best(rows: list[tuple[float, dict[str, Any]]], count: int = TYPICAL_ROWS) -> list[tuple[float, dict[str, Any]]]:
    """The rows of the smallest numbers; the first of equal ones."""
    return sorted(rows, key=lambda row: row[0])[:count]


def _extreme(
    kept: list[tuple[float, dict[str, Any]]], numbers: Floats, columns: Mapping[str, pa.Array], first: int
) -> list[tuple[float, dict[str, Any]]]:
    """The rows of the smallest numbers, those before included; the numbers are those of the rows from `first` on."""
    worst = kept[-1][0] if len(kept) == UNUSUAL_ROWS else np.inf
    near = np.flatnonzero(numbers < worst)
    rows = near[np.argsort(numbers[near], kind="stable")[:UNUSUAL_ROWS]]
    return _best([*kept, *((float(numbers[row]), _row(columns, first + row)) for row in rows)], UNUSUAL_ROWS)


def _row(columns: Mapping[str, pa.Array], place: Any) -> dict[str, Any]:
    return {name: _plain(_beginning(values[int(place)])) for name, values in columns.items()}


def _beginning(value: pa.Scalar) -> Any:
    """A value in Python; of a long list only what is shown, since each element takes at least three letters."""
    if isinstance(value, pa.ListScalar) and value.is_valid:
        return value.values[: _MOST_LETTERS // 3 + 1].to_pylist()
    return value.as_py()


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)[:_MOST_LETTERS]
