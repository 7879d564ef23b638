"""Which keys `update.until` and `update.keys` mean."""

import datetime

import pytest

from kernelcoreset import SettingError
from kernelcoreset.jobs.settings.key_ranges import KeyRange, KeyScope, natural_order
from kernelcoreset.jobs.settings.store import UpdateSettings

DAYS = [f"date=2026-01-{day:02}" for day in range(1, 32)]


def test_a_day_is_the_same_day_however_it_is_written():
    for key in ("2026-01-05", "date=2026-01-05", "year=2026/month=1/day=5", "year=2026/month=01/day=05", "20260105"):
        for text in ("2026-01-05", "20260105", "2026-1-5", "2026-01-01..2026-01-05", "2026-01", "..2026-01-05"):
            assert KeyRange(text).holds(key), (text, key)
        for text in ("2026-01-06", "20260104", "2026-01-06..", "..2026-01-04", "2025", "2026-02"):
            assert not KeyRange(text).holds(key), (text, key)


def test_hours_belong_to_their_day():
    hours = [f"date=2026-01-{day:02}/hour={hour:02}" for day in (4, 5, 6) for hour in (0, 23)]
    assert KeyScope(until="2026-01-05").within(hours) == hours[:4]
    assert KeyScope(keys=("2026-01-05",)).within(hours) == hours[2:4]
    assert KeyScope(keys=("2026-01-05/00..2026-01-06/00",)).within(hours) == hours[2:5]


def test_a_column_may_be_named():
    keys = [f"country={country}/date=2026-01-{day:02}" for country in ("AT", "CH") for day in (1, 2)]
    assert KeyScope(until="date=2026-01-01").within(keys) == keys[::2]
    assert KeyScope(keys=("country=CH",)).within(keys) == keys[2:]
    with pytest.raises(SettingError, match="names the column 'day'; the keys are like 'country=AT/date=2026-01-01'"):
        KeyScope(keys=("day=1",)).within(keys)


def test_until_and_keys_both_count():
    assert KeyScope().within(DAYS) == DAYS
    assert KeyScope(until="2026-01-10").within(DAYS) == DAYS[:10]
    found = KeyScope(until="2026-01-10", keys=("2026-01-08..2026-01-20", "2026-01-02")).within(DAYS)
    assert found == [DAYS[1], *DAYS[7:10]]


@pytest.mark.parametrize("value", ["2026-01-05", datetime.date(2026, 1, 5), 20260105])
def test_toml_reads_dates_and_numbers_without_quotes(value):
    settings = UpdateSettings(until=value, keys=[value, "2026-02"])
    assert settings.scope.within(["2026-01-04", "2026-01-05", "2026-01-06", "2026-02-01"]) == ["2026-01-05"]
    assert isinstance(settings.until, str)
    assert UpdateSettings(keys=value).keys == (str(value),)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"keys": "2026-02-01..2026-01-01"}, "`update.keys` has a range that ends before its start"),
        ({"keys": [""]}, "`update.keys` takes keys such as 2026-01-05"),
        ({"keys": ".."}, "`update.keys` takes keys such as 2026-01-05"),
        ({"keys": "1..2..3"}, "`update.keys` takes keys such as 2026-01-05"),
        ({"keys": [1.5]}, "`update.keys` must be a text"),
        ({"keys": {"a": 1}}, "`update.keys` must be a text"),
        ({"until": True}, "`update.until` must be a text"),
        ({"until": "2026-01-01..2026-01-05"}, "`update.until` must be one key"),
        ({"until": ["2026-01-01", "2026-01-02"]}, "`update.until` must be one key"),
        ({"until": "{{}}"}, "`update.until` takes keys such as"),
    ],
)
def test_what_is_no_key(table, message):
    with pytest.raises(SettingError, match=message):
        UpdateSettings(**table)


def test_digits_that_are_no_decimals_are_words():
    assert sorted(["a²", "a10", "a9"], key=natural_order) == ["a9", "a10", "a²"]
