"""The grammar of absolute times as text: a date, or a date and a time of day with a zone.

Every door that reads a time uses it: options, addresses, keywords, and values of tables.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

FULL_TIME = (
    r"[0-9]{4}(?:-[0-9]{2}-|\.[0-9]{2}\.)[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
"""The usual spelling of a time with seconds and a zone; RE2 reads this pattern too."""
_TIME = re.compile(
    r"(\d{4})([-.])(\d{2})\2(\d{2})"
    r"(?:[Tt ](\d{2})(?::(\d{2})(?::(\d{2})(?:[.,](\d+))?)?)?(Z|z|([+-])(\d{2})(?::?(\d{2}))?)?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class NotATime(ValueError):
    """The text is not a date, nor a date and a time of day."""


class NoZone(NotATime):
    """The text has a time of day and no zone."""


def read_time_text(text: str) -> int:
    """Return microseconds since 1970, rounded down.

    A date alone is its midnight in UTC. Raise `NoZone` for a time of day without a zone, and
    `NotATime` for anything else.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise NotATime(text)
    year, _, month, day, hour, minute, second, fraction, zone, sign, hours, minutes = match.groups()
    micros = int(((fraction or "") + "000000")[:6])
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    try:
        moment = datetime(int(year), int(month), int(day), *clock, micros, tzinfo=UTC)
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        timezone(offset)  # refuses a day and more
    except ValueError:
        raise NotATime(text) from None
    if int(minutes or 0) > 59:
        raise NotATime(text)
    if hour is not None and zone is None:
        raise NoZone(text)
    since = (moment - _EPOCH) // _MICROSECOND
    return since + (offset if sign == "-" else -offset) // _MICROSECOND
