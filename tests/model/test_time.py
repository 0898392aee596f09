"""Instants, durations and ranges: one spelling each, nothing guessed, ranges half-open."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import BadInput
from lakebed.model.time import (
    TimeRange,
    covers,
    format_duration,
    format_instant,
    is_relative,
    parse_duration,
    parse_moment,
    to_datetime,
    to_instant,
)

FIRST = to_instant(datetime.min.replace(tzinfo=UTC))
LAST = to_instant(datetime.max.replace(tzinfo=UTC))
YEAR_1000 = to_instant("1000-01-01T00:00:00Z")
calendar = st.integers(YEAR_1000, LAST)


# ---- instants -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "instant"),
    [
        (0, 0),
        (-1, -1),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00Z", 0),
        ("1970-01-01 00:00:00+00:00", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2026-11-15T12:00:00.000001Z", 1_794_744_000_000_001),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 1_000_005),
        ("1970-01-02", 86_400_000_000),
        ("1970.01.02", 86_400_000_000),
        (date(1970, 1, 2), 86_400_000_000),
        ("1970-01-01t00:00:00,5z", 500_000),
        ("1970-01-01T01:00+01", 0),
        ("1969-12-31T18:30:00-0530", 0),
    ],
)
def test_an_instant_has_several_spellings(spelling: Any, instant: int) -> None:
    assert to_instant(spelling) == instant


@pytest.mark.parametrize(
    "spelling",
    ["2026-11-15T12:00:00", "2026-11-15 12:00", "2026-11-15T12:00:00.5", datetime(2026, 11, 15)],  # noqa: DTZ001
)
def test_a_time_without_a_zone_is_refused_with_the_right_spelling(spelling: Any) -> None:
    with pytest.raises(BadInput, match="has no zone") as raised:
        to_instant(spelling)
    suggested = str(raised.value.hint).split()[1]
    assert to_instant(suggested) // 86_400_000_000 == 20_772


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "now",
        "yesterday",
        "20261115T120000Z",
        "2026-W47-1",
        "2026-11",
        "12:00",
        "2026-13-01T00:00Z",
        "2026-02-30T00:00Z",
        "1767225600",
        "٣",
    ],
)
def test_a_text_that_is_no_time_is_refused_with_an_example(garbage: str) -> None:
    with pytest.raises(BadInput, match="as a time") as raised:
        to_instant(garbage)
    assert repr(garbage) in str(raised.value)
    assert to_instant(str(raised.value.hint).split()[-1])


@pytest.mark.parametrize("garbage", [True, None, 1.5, b"2026-11-15T12:00:00Z", [], timedelta(1)])
def test_a_value_of_another_type_is_refused(garbage: Any) -> None:
    with pytest.raises(BadInput, match="expected an instant"):
        to_instant(garbage)


@pytest.mark.parametrize("number", [1 << 62, -(1 << 62), 1 << 63, 10**30])
def test_a_number_that_no_catalog_could_hold_is_refused(number: int) -> None:
    with pytest.raises(BadInput, match="not an instant of this era"):
        to_instant(number)


NOW = to_instant("2026-11-15T12:30:00Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-15T12:30:00Z"),
        ("today", "2026-11-15"),
        (" yesterday ", "2026-11-14"),
        ("1h", "2026-11-15T11:30:00Z"),
        ("7d", "2026-11-08T12:30:00Z"),
        ("2026-11-01", "2026-11-01T00:00:00Z"),
        ("2026-11-01T02:00+02:00", "2026-11-01"),
    ],
)
def test_moment_is_absolute_or_relative_to_now(text: str, expected: str) -> None:
    assert parse_moment(text, NOW) == to_instant(expected)
    assert is_relative(text) == (not text.startswith("2"))


@pytest.mark.parametrize("text", ["tomorrow", "Now", "1 h", "-1h", "2026-11-15T12:00:00", "1h ago"])
def test_moment_that_cannot_be_read_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_moment(text, NOW)
    assert "2026-11-15T12:00:00Z" in str(raised.value.hint)
    assert "1h, 7d" in str(raised.value.hint)


@given(calendar)
def test_what_is_shown_can_be_given_back(instant: int) -> None:
    shown = format_instant(instant)
    assert to_instant(shown) == instant
    assert len(shown) == len("2026-11-15T12:00:00.000000Z")
    assert to_instant(to_datetime(instant)) == instant


def test_early_years_are_shown_with_four_digits() -> None:
    assert format_instant(FIRST) == "0001-01-01T00:00:00.000000Z"
    assert to_instant(format_instant(YEAR_1000 - 1)) == YEAR_1000 - 1


@given(calendar, calendar)
def test_instants_that_are_shown_sort_as_they_are(one: int, other: int) -> None:
    assert (format_instant(one) < format_instant(other)) == (one < other)


@pytest.mark.parametrize("instant", [FIRST - 1, LAST + 1, (1 << 62) - 1, 1 << 80, -(1 << 80)])
def test_an_instant_beyond_the_calendar_is_shown_as_a_number(instant: int) -> None:
    assert format_instant(instant) == f"{instant}us"
    with pytest.raises(BadInput, match="beyond the calendar"):
        to_datetime(instant)


# ---- durations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0s", 0),
        ("1us", 1),
        ("20ms", 20_000),
        ("30s", 30_000_000),
        ("15m", 900_000_000),
        ("24h", 86_400_000_000),
        ("7d", 604_800_000_000),
        ("2w", 1_209_600_000_000),
        (" 30s ", 30_000_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1.5h", "1 h", "1h30m", "1y", "1M", "1S", "forever", "1s\n2"]
)
def test_a_text_that_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match="as a duration") as raised:
        parse_duration(text)
    assert "24h" in str(raised.value.hint)
    assert "\n" not in str(raised.value)


def test_a_duration_longer_than_any_lake_is_refused() -> None:
    with pytest.raises(BadInput, match="too long"):
        parse_duration("999999999999w")


units = st.sampled_from([1, 1000, 10**6, 60 * 10**6, 3600 * 10**6, 86_400 * 10**6])


@given(st.integers(0, 10**6), units)
def test_a_duration_that_is_shown_can_be_given_back(count: int, unit: int) -> None:
    assert parse_duration(format_duration(count * unit)) == count * unit


@given(st.integers(0, (1 << 62) - 1))
def test_any_duration_that_is_shown_can_be_given_back(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "0us"), (1, "1us"), (1500, "1500us"), (90_000_000, "90s"), (86_400_000_000, "1d")],
)
def test_a_duration_is_shown_in_its_largest_exact_unit(micros: int, text: str) -> None:
    assert format_duration(micros) == text


# ---- ranges -------------------------------------------------------------------------------------

SIZE = 12
ends = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).filter(lambda pair: pair[0] < pair[1])
ranges = ends.map(lambda pair: TimeRange(*pair))


def _instants(each: TimeRange) -> set[int]:
    """The range the slow way: every instant in it."""
    return {instant for instant in range(SIZE + 1) if each.begin <= instant < each.end}


def test_a_range_is_made_of_any_two_spellings() -> None:
    made = TimeRange.of("1970-01-01T00:00Z", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert made == TimeRange(0, 1_000_000)
    assert str(made) == "[1970-01-01T00:00:00.000000Z, 1970-01-01T00:00:01.000000Z)"


@pytest.mark.parametrize(("begin", "end", "says"), [(5, 5, "is empty"), (6, 5, "runs backwards")])
def test_a_range_without_an_instant_is_refused(begin: int, end: int, says: str) -> None:
    with pytest.raises(BadInput, match=says) as raised:
        TimeRange(begin, end)
    assert raised.value.hint == "begin must be before end"


@given(ranges, ranges)
def test_ranges_overlap_if_they_share_an_instant(one: TimeRange, other: TimeRange) -> None:
    assert one.overlaps(other) == bool(_instants(one) & _instants(other))
    assert one.overlaps(other) == other.overlaps(one)


@given(ranges, ranges)
def test_a_range_contains_another_if_it_has_all_its_instants(
    one: TimeRange, other: TimeRange
) -> None:
    assert one.contains(other) == (_instants(one) >= _instants(other))


@given(st.lists(ranges, max_size=6), ranges)
def test_ranges_cover_another_if_none_of_its_instants_is_left(
    given_ranges: list[TimeRange], target: TimeRange
) -> None:
    union = set().union(*(_instants(each) for each in given_ranges))
    assert covers(given_ranges, target) == (_instants(target) <= union)


def test_neighbours_touch_without_overlapping() -> None:
    first, second = TimeRange(0, 5), TimeRange(5, 9)
    assert not first.overlaps(second)
    assert covers([second, first], TimeRange(0, 9))
    assert not covers([], TimeRange(0, 1))
