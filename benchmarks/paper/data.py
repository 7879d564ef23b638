"""The paper's data sets, read from the publishers' files or from the Parquet files that `prepare` writes.

docs/data.md says where to get them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
"""The paper samples this many rows of its two large data sets, and so do we."""

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
_CENSUS_INCOME = (
    "age", "class_of_worker", "industry_code", "occupation_code", "education", "wage_per_hour",
    "enrolled_in_edu_inst_last_wk", "marital_status", "major_industry_code", "major_occupation_code", "race",
    "hispanic_origin", "sex", "member_of_labor_union", "reason_for_unemployment", "full_or_part_time_employment_stat",
    "capital_gains", "capital_losses", "dividends_from_stocks", "tax_filer_status", "region_of_previous_residence",
    "state_of_previous_residence", "detailed_household_and_family_stat", "detailed_household_summary_in_household",
    "instance_weight", "migration_code_change_in_msa", "migration_code_change_in_reg", "migration_code_move_within_reg",
    "live_in_this_house_1_year_ago", "migration_prev_res_in_sunbelt", "num_persons_worked_for_employer",
    "family_members_under_18", "country_of_birth_father", "country_of_birth_mother", "country_of_birth_self",
    "citizenship", "own_business_or_self_employed", "fill_inc_questionnaire_for_veterans_admin", "veterans_benefits",
    "weeks_worked_in_year", "year", "income_gt_50k",
)  # fmt: skip
_NOT_FEATURES = {"instance_weight", "income_gt_50k", "split", "caseid"}
_CSV_BLOCK = 1 << 24  # bytes; types are inferred from the first block, so it must not be too short


@dataclass(frozen=True)
class Source:
    """One form of a data set: its files, and how to read each of them."""

    files: tuple[str, ...]
    read: Callable[[Path], pa.Table]
    rows: tuple[int, ...]
    """Accepted numbers of rows, over all files."""


@dataclass(frozen=True)
class DataSet:
    """One data set of the paper's Table 1.

    Parameters
    ----------
    title : str
    columns : tuple of str
        The features; empty for all columns except weight, label and id.
    sigma : float or None
        Width of the RBF kernel; None for the median distance.
    degree : int
        Degree of the polynomial kernel, whose c is 0.
    publisher : str
        Where to get it, and under which file names.
    prepared : str
        Name of the Parquet file that `prepare` writes.
    sources : tuple of Source
        The publisher's files; the first form that exists is read. The prepared file is preferred to all of them.
    standardise : bool
        Whether columns are scaled to mean 0 and standard deviation 1. The paper's kernel widths are for raw scale.
    """

    title: str
    columns: tuple[str, ...]
    sigma: float | None
    degree: int
    publisher: str
    prepared: str
    sources: tuple[Source, ...]
    standardise: bool = False

    @property
    def forms(self) -> tuple[Source, ...]:
        """All forms in the order of preference, the prepared Parquet file first."""
        return Source((self.prepared,), _read_parquet, self.sources[0].rows), *self.sources


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set ready for use."""

    name: str
    title: str
    points: Floats
    kernels: dict[str, Kernel]
    """The paper's kernels by name: the usual Gaussian RBF, the RBF as the paper prints it, and the polynomial."""


def _read_parquet(path: Path) -> pa.Table:
    return pq.read_table(path)


def _read_adult(path: Path) -> pa.Table:
    """Read adult.data or adult.test: no header, ", " between fields; the test file begins with a comment."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("|")]
    fields = [[field.strip() for field in line.split(",")] for line in lines]
    if any(len(row) != len(_ADULT) for row in fields):
        raise ValueError(f"a line does not have {len(_ADULT)} fields")
    return pa.table(
        {
            name: pa.array(column).cast(pa.int64()) if name in DATA_SETS["adult"].columns else pa.array(column)
            for name, column in zip(_ADULT, zip(*fields, strict=True), strict=True)
        }
    )


def _read_bank(path: Path) -> pa.Table:
    """Read bank-additional-full.csv: a header, semicolons between fields, texts in quotes."""
    return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=";"))


def _read_twitter(path: Path) -> pa.Table:
    """Read one tweet per line: time, longitude, latitude, separated by blanks, tabs, commas or semicolons."""
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


def _read_census_income(path: Path) -> pa.Table:
    """Read census-income.data or census-income.test: no header, ", " between fields, "NA" for a missing value."""
    text = pa.py_buffer(path.read_bytes().replace(b", ", b","))
    return csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(column_names=list(_CENSUS_INCOME), block_size=_CSV_BLOCK),
        convert_options=csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True),
    )


DATA_SETS: dict[str, DataSet] = {
    "adult": DataSet(
        "Adult",
        ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
        200_000.0,
        2,
        'UCI Machine Learning Repository, data set "Adult": adult.data and adult.test',
        "adult.parquet",
        (Source(("adult.data", "adult.test"), _read_adult, (48_842,)),),
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
        "bank.parquet",
        (Source(("bank-additional-full.csv",), _read_bank, (41_188,)),),
    ),
    "twitter": DataSet(
        "Twitter",
        ("longitude", "latitude"),
        50.0,
        4,
        'the 21,040,936 geo-tagged tweets of Chan, Guerquin, Hu and Sozio, "Fully Dynamic k-Center Clustering": '
        "lines of time, longitude, latitude, saved as twitter.txt",
        "twitter.parquet",
        (
            Source(("twitter.txt",), _read_twitter, (21_040_936,)),
            Source(("twitter.csv",), _read_twitter, (21_040_936,)),
            # The first rows alone, for machines that do not have the whole file.
            Source(("twitter_first100k.parquet",), _read_parquet, (100_000,)),
        ),
    ),
    "census1990": DataSet(
        "Census1990",
        (),
        100.0,
        4,
        'UCI Machine Learning Repository, data set "US Census Data (1990)": USCensus1990.data.txt',
        "census1990.parquet",
        # The repository has one row more than the paper.
        (Source(("USCensus1990.data.txt",), csv.read_csv, (2_458_285, 2_458_284)),),
    ),
    "census": DataSet(
        "Census-Income (in place of Census1990)",
        (),
        None,
        4,
        'UCI Machine Learning Repository, data set "Census-Income (KDD)": census-income.data and census-income.test',
        "census_income_kdd.parquet",
        (Source(("census-income.data", "census-income.test"), _read_census_income, (299_285,)),),
        standardise=True,
    ),
}

FIGURE = ("adult", "bank", "twitter", "census")
"""The data sets of the paper's Figure 1. Census-Income is used in place of Census1990 if the latter is not there."""


def figure_sets(folder: Path) -> tuple[str, ...]:
    """Return the names of Figure 1's data sets, with Census1990 itself if the folder has it."""
    has_census1990 = _find(folder, DATA_SETS["census1990"].forms) is not None
    return tuple("census1990" if name == "census" and has_census1990 else name for name in FIGURE)


def prepare(folder: Path) -> tuple[list[str], list[str]]:
    """Write a Parquet file of the features of every data set whose publisher's files are in the folder.

    Returns
    -------
    written : list of str
        One line per file written.
    missing : list of str
        One line per data set that the folder does not have, saying where to get it.
    """
    written, missing = [], []
    for about in DATA_SETS.values():
        source = _find(folder, about.sources)
        if source is not None:
            table = _read_features(folder, about, source, check_rows=True)
            # Named as being written until it is whole, so that a stopped run leaves no half file to be read later.
            unfinished = folder / f"{about.prepared}.unfinished"
            pq.write_table(table, unfinished)
            unfinished.replace(folder / about.prepared)
            written.append(f"{about.prepared}: {table.num_rows:,} rows, {table.num_columns} columns")
        elif not (folder / about.prepared).exists():
            missing.append(f"{about.title}: {about.publisher}")
    return written, missing


def load(folder: Path, name: str, *, most_rows: int | None = PAPER_ROWS, check_rows: bool = True) -> Prepared:
    """Return one data set: its row count checked, its features selected and scaled, its rows sampled.

    Parameters
    ----------
    folder : Path
        Holds the publisher's files or the prepared Parquet files.
    name : str
        A key of `DATA_SETS`.
    most_rows : int, optional
        Rows kept, drawn without replacement with a fixed seed; by default as in the paper, None for all.
    check_rows : bool
        Whether a number of rows other than the published one is an error.
    """
    about = DATA_SETS[name]
    source = _find(folder, about.forms)
    if source is None:
        wanted = " or ".join(" with ".join(form.files) for form in about.forms)
        raise DataError(f"{about.title} is missing in {folder}: no {wanted}. Get it from: {about.publisher}.")
    table = _read_features(folder, about, source, check_rows=check_rows)
    points = np.column_stack([column.to_numpy() for column in table.columns]).astype(np.float64)
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


def _find(folder: Path, forms: Sequence[Source]) -> Source | None:
    """Return the first form whose files are all in the folder."""
    return next((form for form in forms if all((folder / file).exists() for file in form.files)), None)


def _read_features(folder: Path, about: DataSet, source: Source, *, check_rows: bool) -> pa.Table:
    """Return the feature columns of all files of a source, as finite numbers."""
    files = " and ".join(source.files)
    tables = []
    for file in source.files:
        try:
            tables.append(source.read(folder / file))
        except (ValueError, pa.ArrowException) as error:
            raise DataError(
                f"{folder / file} cannot be read as {about.title}: {str(error).rstrip('.')}. Get {about.publisher}."
            ) from None
    rows = sum(table.num_rows for table in tables)
    if check_rows and rows not in source.rows:
        raise DataError(
            f"{files} must have {source.rows[0]:,} rows, as published; got {rows:,}. The copy is incomplete or "
            f"changed: get {about.publisher}."
        )
    there = tables[0].column_names
    names = about.columns or tuple(name for name in there if name not in _NOT_FEATURES)
    missing = [name for name in names if name not in there]
    if missing:
        raise DataError(
            f"{files} must have the columns {', '.join(missing)}; got {', '.join(there)}. Get {about.publisher}."
        )
    features = pa.concat_tables([table.select(names) for table in tables], promote_options="permissive")
    features = pa.table({name: _as_numbers(features[name]) for name in names})
    bad = np.zeros(rows, dtype=bool)
    for column in features.columns:
        bad |= ~np.isfinite(column.to_numpy().astype(np.float64))
    if bad.any():
        raise DataError(
            f"{files} must hold finite numbers; got missing or infinite ones in {bad.sum():,} rows, the first of them "
            f"row {int(bad.argmax()):,}. The copy is changed: get {about.publisher}."
        )
    return features


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as their rank in sorted order, -1 for a missing one; numbers as they are."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return column
    texts = column.to_pylist()
    rank = {text: place for place, text in enumerate(sorted({text for text in texts if text is not None}))}
    return pa.chunked_array([pa.array([rank.get(text, -1) for text in texts], type=pa.int16())])
