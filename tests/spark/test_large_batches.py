"""How many rows Spark sends to Python at once."""

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

from kernelcoreset.spark.large_batches import large_batches

RECORDS, BYTES = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes"))


def settings_of(spark):
    return spark.conf.get(RECORDS, None), spark.conf.get(BYTES, None)


@pytest.fixture
def default(spark):
    """A session that nobody has configured."""
    before = settings_of(spark)
    spark.conf.unset(BYTES)
    spark.conf.set(RECORDS, "10000")
    yield spark
    for name, value in zip((RECORDS, BYTES), before, strict=True):
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def count_rows(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows])], names=["rows"])


def test_narrow_rows_come_in_large_batches(default):
    with large_batches(default, 2):
        assert settings_of(default) == ("131072", "2147483647")
        sizes = default.range(200_000).coalesce(1).mapInArrow(count_rows, "rows long")
        assert [row.rows for row in sizes.collect()] == [131_072, 68_928]
    assert settings_of(default) == ("10000", None)


@pytest.mark.parametrize(
    ("numbers", "records", "limit", "expected"),
    [
        (None, "10000", None, ("10000", None)),  # rows of any size
        (100, "10000", None, ("10000", "2147483647")),  # 131,072 such rows are too large, 10,000 are not
        (10_000, "10000", None, ("10000", None)),
        (2, "128", None, ("128", "2147483647")),  # somebody has chosen so
        (2, "0", None, ("0", None)),  # no limit but that of bytes
        (2, "10000", "16m", ("131072", "2147483647")),
        (2, "10000", "1MB", ("10000", "2147483647")),
        (2, "131072", "1mb", ("131072", "1mb")),
        (2, "131072", "4096", ("131072", "4096")),
    ],
)
def test_only_batches_that_stay_small_are_not_measured(default, numbers, records, limit, expected):
    default.conf.set(RECORDS, records)
    if limit is not None:
        default.conf.set(BYTES, limit)
    with large_batches(default, numbers):
        assert settings_of(default) == expected
    assert settings_of(default) == (records, limit)


def test_the_last_of_several_restores_the_session(default):
    first, second = large_batches(default, 2), large_batches(default, 3)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings_of(default) == ("131072", "2147483647")
    second.__exit__(None, None, None)
    assert settings_of(default) == ("10000", None)
    with pytest.raises(ZeroDivisionError), large_batches(default, 2):
        raise ZeroDivisionError
    assert settings_of(default) == ("10000", None)


def test_a_platform_that_refuses_goes_on_without(default, monkeypatch):
    def refuse(name, value):
        raise IllegalArgumentException(f"{name} cannot be set")

    with monkeypatch.context() as patch:
        patch.setattr(default.conf, "set", refuse)
        with large_batches(default, 2):
            assert settings_of(default) == ("10000", None)
