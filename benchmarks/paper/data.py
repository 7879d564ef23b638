"""The paper's data sets, from the raw files as their publishers ship them or from Parquet files prepared before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.choosing import choose_sigma
from kernelcoreset.errors import DataError
from kernelcoreset.kernels import Exponential, Gaussian, Kernel, Polynomial

PAPER_ROWS = 100_000
"""To as many rows the paper cuts its two large data sets, and so do we."""

_ADULT = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
_NOT_FEATURES = {"instance_weight", "income_gt_50k", "split", "caseid"}


@dataclass(frozen=True)
class Source:
    """One form in which a data set may lie in the folder: its files, and how their tables are read."""

    files: tuple[str, ...]
    read: Callable[[Path], pa.Table]
    rows: tuple[int, ...]
    """Rows of all files together, one of these; none where any number will do."""


@dataclass(frozen=True)
class DataSet:
    """One data set of the paper's Table 1.

    Parameters
    ----------
    title : str
    columns : tuple of str
        The features; empty for all that are numbers and no weight, label or id.
    sigma : float or None
        Width of the RBF kernel; None for the median distance.
    degree : int
        Degree of the polynomial kernel, whose c is 0.
    publisher : str
        Where to get it.
    sources : tuple of Source
        The first that is there is taken.
    standardise : bool
        Whether columns are brought to mean 0 and standard deviation 1; raw scale otherwise, as the kernels' widths ask.
    """

    title: str
    columns: tuple[str, ...]
    sigma: float | None
    degree: int
    publisher: str
    sources: tuple[Source, ...]
    standardise: bool = False


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set ready for use."""

    name: str
    title: str
    points: Floats
    kernels: dict[str, Kernel]
    """The paper's kernels by name: the RBF as everyone means it, as the paper prints it, and the polynomial."""


def _read_parquet(path: Path) -> pa.Table:
    return pq.read_table(path)


def _read_adult(path: Path) -> pa.Table:
    """adult.data and adult.test: no header, a blank after each comma; the test file begins with a remark."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("|")]
    fields = [[field.strip() for field in line.split(",")] for line in lines]
    if any(len(row) != len(_ADULT) for row in fields):
        raise ValueError(f"a line has not {len(_ADULT)} fields")
    return pa.table(
        {
            name: pa.array(column).cast(pa.int64()) if name in DATA_SETS["adult"].columns else pa.array(column)
            for name, column in zip(_ADULT, zip(*fields, strict=True), strict=True)
        }
    )


def _read_bank(path: Path) -> pa.Table:
    """bank-additional-full.csv: a header, semicolons, texts in quotes."""
    return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=";"))


def _read_twitter(path: Path) -> pa.Table:
    """Time, longitude and latitude of a tweet a line, between them blanks, a tab or a comma."""
    with path.open() as file:
        first = file.readline()
    delimiter = next((mark for mark in (",", "\t", ";") if mark in first), " ")
    names = ["timestamp", "longitude", "latitude"]
    has_header = any(letter.isalpha() for letter in first)
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=names, skip_rows=int(has_header)),
        parse_options=csv.ParseOptions(delimiter=delimiter),
    )
    for name, most in (("longitude", 180.0), ("latitude", 90.0)):
        largest = float(np.abs(table[name].to_numpy()).max())
        if largest > most:
            raise ValueError(f"a {name} is {largest:g}, beyond {most:g}")
    return table


DATA_SETS: dict[str, DataSet] = {
    "adult": DataSet(
        "Adult",
        ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
        200_000.0,
        2,
        'UCI Machine Learning Repository, data set "Adult": adult.data and adult.test',
        (
            Source(("adult.data", "adult.test"), _read_adult, (48_842,)),
            Source(("adult.parquet",), _read_parquet, (48_842,)),
        ),
    ),
    "bank": DataSet(
        "Bank",
        (
            "age",
            "duration",
            "campaign",
            "pdays",
            "previous",
            "emp.var.rate",
            "cons.price.idx",
            "cons.conf.idx",
            "euribor3m",
            "nr.employed",
        ),
        500.0,
        4,
        'UCI Machine Learning Repository, data set "Bank Marketing": bank-additional-full.csv',
        (
            Source(("bank-additional-full.csv",), _read_bank, (41_188,)),
            Source(("bank.parquet",), _read_parquet, (41_188,)),
        ),
    ),
    "twitter": DataSet(
        "Twitter",
        ("longitude", "latitude"),
        50.0,
        4,
        'the 21,040,936 geo-tagged tweets of Chan, Guerquin, Hu and Sozio, "Fully Dynamic k-Center Clustering": '
        "lines of time, longitude, latitude, saved as twitter.txt",
        (
            Source(("twitter.txt",), _read_twitter, (21_040_936,)),
            Source(("twitter.csv",), _read_twitter, (21_040_936,)),
            Source(("twitter.parquet",), _read_parquet, (21_040_936,)),
            Source(("twitter_first100k.parquet",), _read_parquet, (100_000,)),
        ),
    ),
    "census1990": DataSet(
        "Census1990",
        (),
        100.0,
        4,
        'UCI Machine Learning Repository, data set "US Census Data (1990)": USCensus1990.data.txt',
        # The repository counts one row more than the paper.
        (Source(("USCensus1990.data.txt",), csv.read_csv, (2_458_285, 2_458_284)),),
    ),
    "census": DataSet(
        "Census-Income (in place of Census1990)",
        (),
        None,
        4,
        'UCI Machine Learning Repository, data set "Census-Income (KDD)", integer-coded, as '
        "census_income_kdd.parquet; the paper's is USCensus1990.data.txt",
        (Source(("census_income_kdd.parquet",), _read_parquet, (299_285,)),),
        standardise=True,
    ),
}

FIGURE = ("adult", "bank", "twitter", "census")
"""The data sets of the paper's Figure 1; Census1990 itself takes the place of its stand-in where its file is there."""


def figure_sets(folder: Path) -> tuple[str, ...]:
    """Return the names of Figure 1's data sets that this folder can serve."""
    own = any((folder / name).exists() for name in DATA_SETS["census1990"].sources[0].files)
    return tuple("census1990" if name == "census" and own else name for name in FIGURE)


def load(folder: Path, name: str, *, most_rows: int | None = PAPER_ROWS, check_rows: bool = True) -> Prepared:
    """Return one data set, prepared: columns chosen, scaled, cut, its row count checked.

    Parameters
    ----------
    folder : Path
        Holds the publisher's raw files or the prepared Parquet files.
    name : str
        A key of `DATA_SETS`.
    most_rows : int, optional
        Rows kept, drawn without replacement by a fixed seed; by default as in the paper, None for all.
    check_rows : bool
        Whether another number of rows than published is refused.
    """
    about = DATA_SETS[name]
    source = _source(folder, about)
    tables = [_read(source, folder / file, about) for file in source.files]
    rows = sum(table.num_rows for table in tables)
    if check_rows and rows not in source.rows:
        raise DataError(
            f"{' and '.join(source.files)} must have {source.rows[0]:,} rows, as published; got {rows:,}. The copy is "
            f"cut or changed: get {about.publisher}."
        )
    points = np.concatenate([_features(table, about, source) for table in tables])
    bad = ~np.isfinite(points).all(axis=1)
    if bad.any():
        raise DataError(
            f"{' and '.join(source.files)} must hold finite numbers; got missing or infinite ones in {bad.sum():,} "
            f"rows, the first of them row {int(bad.argmax()):,}. The copy is changed: get {about.publisher}."
        )
    if about.standardise:
        spread = points.std(axis=0)
        points = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    sigma = about.sigma or choose_sigma(points)
    if most_rows is not None and most_rows < len(points):
        points = points[np.random.default_rng(0).permutation(len(points))[:most_rows]]
    kernels: dict[str, Kernel] = {
        "Gaussian": Gaussian(sigma=sigma),
        "Exponential": Exponential(sigma=sigma),
        "Polynomial": Polynomial(degree=about.degree),
    }
    return Prepared(name, about.title, points, kernels)


def twitter_like(tweets: Floats, rows: int, seed: int = 0) -> Floats:
    """Return rows drawn from the tweets with replacement, plus Gaussian noise of 0.05 degrees."""
    generator = np.random.default_rng(seed)
    points = tweets[generator.integers(len(tweets), size=rows)]
    points += generator.normal(scale=0.05, size=points.shape)
    return points


def _source(folder: Path, about: DataSet) -> Source:
    for source in about.sources:
        there = [file for file in source.files if (folder / file).exists()]
        if len(there) == len(source.files):
            return source
    wanted = " or ".join(" with ".join(source.files) for source in about.sources)
    raise DataError(f"{about.title} is missing in {folder}: no {wanted}. Get it from: {about.publisher}.")


def _read(source: Source, path: Path, about: DataSet) -> pa.Table:
    try:
        return source.read(path)
    except (ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read as {about.title}: {str(error).rstrip('.')}. Get {about.publisher}."
        ) from None


def _features(table: pa.Table, about: DataSet, source: Source) -> Floats:
    names = about.columns or tuple(name for name in table.column_names if name not in _NOT_FEATURES)
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise DataError(
            f"{' and '.join(source.files)} must have the columns {', '.join(missing)}; got "
            f"{', '.join(table.column_names)}. Get {about.publisher}."
        )
    return np.column_stack([table[name].to_numpy() for name in names]).astype(np.float64)
