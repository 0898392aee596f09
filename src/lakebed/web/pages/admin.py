"""The administrators' page: health of the lake, keys, files to delete, partitions that queries
cannot see, and the journal.
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

PARAMETERS = ("operation", "view_set", "lines")
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
    """Files past their grace period."""
    overdue_seconds: float | None
    """The time since the first of them passed it."""


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
    """The data of the page."""

    asked: Mapping[str, str]
    duties: Sequence[DutyRow]
    is_looked_after: bool
    """True if any duty ever ran."""
    keys: Sequence[KeyRow]
    leases: Sequence[LeaseRow]
    unswept: Unswept
    unseen: Sequence[UnseenRow]
    journal: Sequence[EntryRow]


def read_admin(lake: Lake, query: Mapping[str, str]) -> AdminPage:
    """Return everything from the catalog; the store is not read."""
    fields = {name: query[name] for name in PARAMETERS if query.get(name)}
    limit = read_number(fields, "lines", _ENTRIES, _MOST_ENTRIES)
    with lake.catalog.read() as connection:
        now = clock.upcoming(connection)
        retired = files.list_files(connection, [FileState.RETIRED, FileState.DELETING])
        lease_list = leases.list_leases(connection)
        names = tables.list_names(connection)
        entries = journal.list_entries(
            connection,
            limit=limit,
            operations=[fields["operation"]] if "operation" in fields else (),
            view_set=tables.find_stored(connection, fields.get("view_set")),
        )
    duties = list_duties(lake)
    overdue = [e for e in retired if e.expiration is not None and e.expiration <= now]
    oldest = min((file.expiration or now for file in overdue), default=None)
    return AdminPage(
        fields,
        duties,
        any(duty.runs or duty.running_since for duty in duties),
        list_keys(lake),
        [
            LeaseRow(lease.kind, lease.holder, lease.view_set, _when(lease.oldest_tick))
            for lease in lease_list
        ],
        Unswept(
            len(retired),
            sum(file.file_size for file in retired),
            len(overdue),
            None if oldest is None else (now - oldest) / SECOND,
        ),
        list_unseen(lake),
        [
            EntryRow(
                format_instant(entry.tick),
                entry.operation,
                entry.actor,
                names.get(entry.view_set or "", entry.view_set),
                entry.reason,
                entry.rows,
                entry.bytes,
                entry.partition_id,
            )
            for entry in entries
        ],
    )


def _when(tick: int | None) -> str | None:
    return None if tick is None else format_instant(tick)
