"""Reading the input that the settings name, as a DataFrame; and the demo's data, made on the spot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kernelcoreset.checks import Floats
from kernelcoreset.errors import DataError, KernelCoresetError, SettingError
from kernelcoreset.jobs.settings.rows import InputSettings

_DEMO_BLOCK = 65_536
_CONDITION = re.compile(r"(?m)\[([A-Z0-9_.]+)\] (.+)$")  # how Spark's messages begin
_MISSING = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "SCHEMA_NOT_FOUND")


def read_input(spark: SparkSession, settings: InputSettings, seed: int = 0) -> DataFrame:
    """Return the rows of the input, filtered, or say in one line what Spark could not find."""
    try:
        frame = open_input(spark, settings, seed)
        frame = chosen_rows(frame, settings)
        frame.schema  # noqa: B018  on Spark Connect nothing is looked up before this
    except Exception as error:  # some of Spark's errors come as py4j's, which Spark Connect does not have
        known = in_one_line(error, settings)
        if known is None:
            raise
        raise known from None
    return frame


def chosen_rows(frame: DataFrame, settings: InputSettings, *also: str) -> DataFrame:
    """Return the columns and rows that the settings choose of a frame, and the columns named besides."""
    frame = frame.selectExpr(*settings.select, *also) if settings.select else frame
    return frame if settings.where is None else frame.where(settings.where)


def open_input(spark: SparkSession, settings: InputSettings, seed: int = 0) -> DataFrame:
    """Return the input as it is, nothing chosen of it yet."""
    if settings.table is not None:
        return spark.table(settings.table)
    if settings.query is not None:
        return spark.sql(settings.query)
    if settings.demo_rows is None:
        reader = spark.read.format(settings.format).options(**settings.options)
        return (reader if settings.schema is None else reader.schema(settings.schema)).load(settings.path)
    rows = settings.demo_rows
    return spark.range(rows).mapInArrow(_demo_of(seed), "longitude double, latitude double")


def in_one_line(error: Exception, settings: InputSettings) -> KernelCoresetError | None:
    """Return an error of Spark's about the input as one of ours, None where it is about something else."""
    found = _CONDITION.search(str(error))
    if found is None:
        return None
    condition, line = found.groups()
    if condition.startswith(_MISSING):
        place = settings.path or settings.table or settings.query
        return DataError(f"The input {place!r} was not found or is empty. {line}")
    if condition.startswith("FAILED_READ_FILE"):
        return DataError(f"A file of the input {settings.path!r} cannot be read: {line}")
    return SettingError(f"Spark cannot make sense of the input: {line}")


def _demo_of(seed: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            points = demo_points(batch.column(0).to_numpy(), seed)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in points], names=["longitude", "latitude"])

    return make


def demo_points(rows: np.ndarray, seed: int) -> Floats:
    """Return longitude and latitude, shape (2, n), of the named rows of an endless geo-like mixture.

    Rows are made in blocks, each from its own seed, so a row is the same whatever partition asks for it.
    """
    points = np.empty((2, len(rows)))
    blocks = rows // _DEMO_BLOCK
    for block in np.unique(blocks):
        own = blocks == block
        points[:, own] = _demo_block(int(block), seed)[:, rows[own] % _DEMO_BLOCK]
    return points


def _demo_block(block: int, seed: int) -> Floats:
    """Towns of very different size around five regions, and a few points anywhere."""
    towns = np.random.default_rng(seed)
    regions = np.array([[-95.0, 38.0], [-55.0, -15.0], [10.0, 48.0], [105.0, 25.0], [135.0, -25.0]])
    centers = regions[towns.choice(5, size=200, p=[0.35, 0.1, 0.25, 0.25, 0.05])]
    centers = centers + towns.normal(scale=[14.0, 6.0], size=(200, 2))
    shares = towns.pareto(1.2, size=200) + 0.05
    generator = np.random.default_rng([seed, block])
    town = generator.choice(200, size=_DEMO_BLOCK, p=shares / shares.sum())
    points = centers[town] + generator.normal(scale=0.7, size=(_DEMO_BLOCK, 2))
    anywhere = generator.random(_DEMO_BLOCK) < 0.01
    points[anywhere] = generator.uniform([-180.0, -60.0], [180.0, 75.0], size=(int(anywhere.sum()), 2))
    return np.clip(points, [-180.0, -90.0], [180.0, 90.0]).T
