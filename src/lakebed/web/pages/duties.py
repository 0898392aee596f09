"""The duties of upkeep, with their last results."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.catalog import leases
from lakebed.lake import Lake
from lakebed.model.time import SECOND, format_instant
from lakebed.upkeep.upkeep import Upkeep, lease_of


@dataclass(frozen=True, slots=True)
class DutyRow:
    """One duty of upkeep."""

    name: str
    purpose: str
    every_seconds: int
    last_success: str | None
    said: str | None
    error: str | None
    """The error of its last run, if that failed."""
    next_run: str | None
    runs: int
    failures: int
    running_since: str | None
    overdue_seconds: int
    """The time since it was due."""


def list_duties(lake: Lake) -> list[DutyRow]:
    """Return every duty, also those that never ran."""
    upkeep = Upkeep(lake)
    overdue = upkeep.find_overdue()
    with lake.catalog.read() as connection:
        busy = {lease.view_set for lease in leases.list_leases(connection)}
    return [
        DutyRow(
            duty.name,
            duty.purpose,
            duty.every_seconds,
            None if state.last_success is None else format_instant(state.last_success),
            state.result,
            state.error,
            format_instant(state.next_run) if state.next_run else None,
            state.runs,
            state.failures,
            format_instant(state.last_begin)
            if state.last_begin and lease_of(duty.name) in busy
            else None,
            overdue[duty.name] // SECOND,
        )
        for duty, state in upkeep.list_duties()
    ]
