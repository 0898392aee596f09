"""Buckets: every instant is in exactly one, and its name says which."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import BadInput
from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT, Bucket
from lakebed.model.time import to_instant

BUCKETS = st.sampled_from(Bucket)
INSTANTS = st.integers(FIRST_INSTANT, LAST_INSTANT) | st.sampled_from(
    [FIRST_INSTANT, LAST_INSTANT, -1, 0, 1, to_instant("1969-12-31T23:00:00Z")]
)


@pytest.mark.parametrize(
    ("bucket", "name"),
    [
        (Bucket.HOUR, "2026-11-18T05"),
        (Bucket.DAY, "2026-11-18"),
        (Bucket.WEEK, "2026-11-16"),
        (Bucket.MONTH, "2026-11"),
    ],
)
def test_a_bucket_is_named_for_its_begin(bucket: Bucket, name: str) -> None:
    assert bucket.name_of(to_instant("2026-11-18T05:59:59.999999Z")) == name


@pytest.mark.parametrize(
    ("bucket", "name", "end"),
    [
        (Bucket.HOUR, "1969-12-31T23", "1970-01-01T00:00:00Z"),
        (Bucket.DAY, "2026-11-16", "2026-11-17T00:00:00Z"),
        (Bucket.WEEK, "2026-12-28", "2027-01-04T00:00:00Z"),
        (Bucket.MONTH, "2024-02", "2024-03-01T00:00:00Z"),
        (Bucket.MONTH, "2026-12", "2027-01-01T00:00:00Z"),
    ],
)
def test_a_bucket_ends_where_the_next_begins(bucket: Bucket, name: str, end: str) -> None:
    assert bucket.range_of(name).end == to_instant(end)


def test_the_calendars_last_buckets_have_an_end() -> None:
    begin = to_instant(datetime(9999, 12, 27, tzinfo=UTC))
    week = Bucket.WEEK.range_of("9999-12-27")
    assert (week.begin, week.end - week.begin) == (begin, 7 * 24 * 3600 * 1_000_000)
    assert Bucket.MONTH.range_of("9999-12").end == LAST_INSTANT + 1


@given(BUCKETS, INSTANTS)
def test_an_instant_is_in_the_bucket_of_its_name(bucket: Bucket, instant: int) -> None:
    within = bucket.range_of(bucket.name_of(instant))
    assert within.begin <= instant < within.end
    assert bucket.name_of(within.begin) == bucket.name_of(instant)
    if within.begin > FIRST_INSTANT:
        assert bucket.name_of(within.begin - 1) < bucket.name_of(instant)
    if within.end <= LAST_INSTANT:
        assert bucket.name_of(within.end) > bucket.name_of(instant)


@given(BUCKETS, st.lists(INSTANTS | st.none()), st.booleans())
def test_many_are_named_as_each_is(
    bucket: Bucket, instants: list[int | None], chunked: bool
) -> None:
    times = pa.array(instants, pa.int64()).cast(pa.timestamp("us", "UTC"))
    names = bucket.name_all(pa.chunked_array([times[:1], times[1:]]) if chunked else times)
    assert isinstance(names, pa.Array) and names.type == pa.string()
    assert names.to_pylist() == [None if at is None else bucket.name_of(at) for at in instants]


def test_weeks_begin_on_mondays_all_year_round() -> None:
    begin = datetime(2023, 12, 25, tzinfo=UTC)
    assert begin.weekday() == 0
    for day in range(800):
        name = Bucket.WEEK.name_of(to_instant(begin + timedelta(days=day, hours=23)))
        assert name == (begin + timedelta(weeks=day // 7)).date().isoformat()


@pytest.mark.parametrize(
    ("bucket", "name"),
    [
        (Bucket.WEEK, "2026-11-17"),  # a Tuesday
        (Bucket.DAY, "2026-11-16T05"),
        (Bucket.DAY, "20261116"),
        (Bucket.DAY, "2026-11"),
        (Bucket.HOUR, "2026-11-16"),
        (Bucket.HOUR, "2026-11-16 05"),
        (Bucket.HOUR, "2026-11-16T24"),
        (Bucket.MONTH, "2026-13"),
        (Bucket.MONTH, "2026-11-16"),
        (Bucket.MONTH, ""),
        (Bucket.DAY, "2026-W47-1"),
        (Bucket.DAY, None),
    ],
)
def test_what_names_no_bucket_is_refused(bucket: Bucket, name: str) -> None:
    with pytest.raises(BadInput, match=f"is not the name of a bucket by {bucket}"):
        bucket.range_of(name)


def test_an_instant_beyond_the_calendar_has_no_bucket() -> None:
    with pytest.raises(BadInput, match="beyond the calendar"):
        Bucket.DAY.name_of(LAST_INSTANT + 1)
