"""For administrators: whether the lake is looked after, who may use it, what waits to be deleted,
what queries cannot see, and what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.catalog import clock, journal, leases
from lakebed.catalog.records import files, tables
from lakebed.lake import Lake
from lakebed.model.partition import FileState
from lakebed.model.time import SECOND, format_instant
from lakebed.web.pages.duties import DutyRow, list_duties
from lakebed.web.pages.keys import KeyRow, list_keys
from lakebed.web.pages.unseen import UnseenRow, list_unseen
from lakebed.web.times import read_number

ASKED = ("operation", "view_set", "lines")
"""The parameters of its address."""
_ENTRIES = 100
_MOST_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A process that uses the lake."""

    kind: str
    holder: str
    view_set: str | None
    oldest: str | None
    """The oldest tick that it reads."""


@dataclass(frozen=True, slots=True)
class Unswept:
    """Files that are not part of the lake any more."""

    files: int
    bytes: int
    overdue_files: int
    """Their grace period is over."""
    overdue_seconds: float | None
    """For how long the oldest of them."""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One line of the journal."""

    tick: str
    operation: str
    actor: str
    view_set: str | None
    reason: str | None
    rows: int
    bytes: int
    partition_id: str | None


@dataclass(frozen=True, slots=True)
class AdminPage:
    """What the page shows."""

    asked: Mapping[str, str]
    duties: Sequence[DutyRow]
    is_looked_after: bool
    """Whether any duty ever ran."""
    keys: Sequence[KeyRow]
    leases: Sequence[LeaseRow]
    unswept: Unswept
    unseen: Sequence[UnseenRow]
    journal: Sequence[EntryRow]


def read_admin(lake: Lake, asked: Mapping[str, str]) -> AdminPage:
    """Everything from the catalog; the store is not asked."""
    wanted = {each: asked[each] for each in ASKED if asked.get(each)}
    limit = read_number(wanted, "lines", _ENTRIES, _MOST_ENTRIES)
    with lake.catalog.read() as connection:
        now = clock.upcoming(connection)
        retired = files.list_files(connection, [FileState.RETIRED, FileState.DELETING])
        held = leases.list_leases(connection)
        names = tables.list_names(connection)
        told = journal.list_entries(
            connection,
            limit=limit,
            operations=[wanted["operation"]] if "operation" in wanted else (),
            view_set=tables.find_stored(connection, wanted.get("view_set")),
        )
    duties = list_duties(lake)
    overdue = [e for e in retired if e.expiration is not None and e.expiration <= now]
    oldest = min((each.expiration or now for each in overdue), default=None)
    return AdminPage(
        wanted,
        duties,
        any(each.runs or each.running_since for each in duties),
        list_keys(lake),
        [LeaseRow(each.kind, each.holder, each.view_set, _when(each.oldest_tick)) for each in held],
        Unswept(
            len(retired),
            sum(each.file_size for each in retired),
            len(overdue),
            None if oldest is None else (now - oldest) / SECOND,
        ),
        list_unseen(lake),
        [
            EntryRow(
                format_instant(each.tick),
                each.operation,
                each.actor,
                names.get(each.view_set or "", each.view_set),
                each.reason,
                each.rows,
                each.bytes,
                each.partition_id,
            )
            for each in told
        ],
    )


def _when(tick: int | None) -> str | None:
    return None if tick is None else format_instant(tick)
