"""The partitions that were retired last, until when each can be restored, and the obstacles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.lifecycle.retired import list_retired
from lakebed.model.time import format_instant
from lakebed.web.times import read_number

PARAMETERS = ("view_set", "lines", "replaced")
"""The parameters of its address."""
_LINES = 50
_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class RetiredRow:
    """One retired partition."""

    partition_id: str
    name: str
    """The name of its view set or table."""
    instance: str
    begin: str
    end: str
    rows: int
    bytes: int
    retired: str
    until: str | None
    """The end of its grace period; None if it is held until it is restored."""
    obstacle: str | None
    """The reason why it cannot be restored; None if it can."""


@dataclass(frozen=True, slots=True)
class RetiredPage:
    """The data of the page."""

    asked: Mapping[str, str]
    retired: Sequence[RetiredRow]
    has_more: bool


def read_retired(lake: Lake, query: Mapping[str, str]) -> RetiredPage:
    """Return the retired partitions, the last first; those that a merge or a fold replaced only on
    request, because their rows are still there."""
    fields = {name: query[name] for name in PARAMETERS if query.get(name)}
    if fields.get("replaced", "yes") != "yes":
        raise BadInput(f"replaced is {fields['replaced']!r}", hint="use yes, or leave it out")
    limit = read_number(fields, "lines", _LINES, _MOST_LINES)
    retired_partitions = list_retired(
        lake.catalog, limit + 1, fields.get("view_set"), with_replaced="replaced" in fields
    )
    rows = [
        RetiredRow(
            retired.partition.partition_id,
            retired.name,
            retired.partition.instance,
            format_instant(retired.partition.insert_range.begin),
            format_instant(retired.partition.insert_range.end),
            retired.partition.num_rows,
            retired.partition.file_size,
            format_instant(retired.partition.retired_at or 0),
            None
            if retired.partition.expiration is None
            else format_instant(retired.partition.expiration),
            retired.obstacle,
        )
        for retired in retired_partitions[:limit]
    ]
    return RetiredPage(fields, rows, len(retired_partitions) > limit)
