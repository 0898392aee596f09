"""What was retired last, until when it can be restored, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.lifecycle.retired import list_retired
from lakebed.model.time import format_instant
from lakebed.web.times import read_number

ASKED = ("view_set", "lines", "replaced")
"""The parameters of its address."""
_LINES = 50
_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class RetiredRow:
    """One retired partition."""

    partition_id: str
    name: str
    """Its view set's, or its table's."""
    instance: str
    begin: str
    end: str
    rows: int
    bytes: int
    retired: str
    until: str | None
    """When its grace period ends; None if it is held until it is restored."""
    obstacle: str | None
    """Why it cannot be restored; None if it can."""


@dataclass(frozen=True, slots=True)
class RetiredPage:
    """What the page shows."""

    asked: Mapping[str, str]
    retired: Sequence[RetiredRow]
    has_more: bool


def read_retired(lake: Lake, asked: Mapping[str, str]) -> RetiredPage:
    """What was retired, the last first; what a merge or a fold replaced only if it is asked for,
    because its rows are still there."""
    wanted = {each: asked[each] for each in ASKED if asked.get(each)}
    if wanted.get("replaced", "yes") != "yes":
        raise BadInput(f"replaced is {wanted['replaced']!r}", hint="use yes, or leave it out")
    limit = read_number(wanted, "lines", _LINES, _MOST_LINES)
    listed = list_retired(
        lake.catalog, limit + 1, wanted.get("view_set"), with_replaced="replaced" in wanted
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
        for retired in listed[:limit]
    ]
    return RetiredPage(wanted, rows, len(listed) > limit)
