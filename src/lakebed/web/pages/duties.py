"""The duties of upkeep, and what came of each."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.lake import Lake
from lakebed.model.time import format_instant
from lakebed.upkeep.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class DutyRow:
    """One duty of upkeep."""

    name: str
    purpose: str
    every_seconds: int
    last_success: str | None
    said: str | None
    error: str | None
    """Why it fails at the moment."""
    next_run: str | None
    runs: int
    failures: int


def list_duties(lake: Lake) -> list[DutyRow]:
    """Every duty, also what never ran."""
    return [
        DutyRow(
            duty.name,
            duty.purpose,
            duty.every_seconds,
            None if state.last_success is None else format_instant(state.last_success),
            state.said,
            state.error,
            format_instant(state.next_run) if state.next_run else None,
            state.runs,
            state.failures,
        )
        for duty, state in Upkeep(lake).list_duties()
    ]
