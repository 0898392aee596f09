"""Duties of upkeep as rows: when each ran, what came of it, and when it is due again. All instants
are ticks of the lake's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.schema import upkeep_duties as table


@dataclass(frozen=True, slots=True)
class DutyState:
    """The recorded state of one duty."""

    name: str
    last_begin: int | None = None
    last_success: int | None = None
    last_failure: int | None = None
    result: str | None = None
    """What the last run that succeeded did."""
    error: str | None = None
    """Why the last run failed; None if it did not."""
    next_run: int = 0
    runs: int = 0
    failures: int = 0
    memo: str | None = None
    """What it wants to know in its next run, in its own words."""

    def overdue_us(self, now: int, lake_made_at: int) -> int:
        """For how long it should have been done; what never was, since there is a lake."""
        return max(0, now - max(self.next_run, lake_made_at))


def list_states(connection: sa.Connection) -> dict[str, DutyState]:
    """Every duty that ever ran, by name."""
    rows = connection.execute(sa.select(table).order_by(table.c.name))
    return {row.name: DutyState(*row) for row in rows}


def record(connection: sa.Connection, state: DutyState) -> None:
    """Make this what is known of a duty, but for its memo."""
    values = {
        "last_begin": state.last_begin,
        "last_success": state.last_success,
        "last_failure": state.last_failure,
        "said": state.result,
        "error": state.error,
        "next_run": state.next_run,
        "runs": state.runs,
        "failures": state.failures,
    }
    changed = connection.execute(
        sa.update(table).where(table.c.name == state.name).values(**values)
    )
    if changed.rowcount == 0:
        connection.execute(sa.insert(table).values(name=state.name, **values))


def find_memo(connection: sa.Connection, name: str) -> str | None:
    """Return the text that a duty stored for its next run, or None."""
    memo = connection.scalar(sa.select(table.c.memo).where(table.c.name == name))
    return None if memo is None else str(memo)


def leave_memo(connection: sa.Connection, name: str, memo: str) -> None:
    """Leave something for the next run of a duty that has begun."""
    connection.execute(sa.update(table).where(table.c.name == name).values(memo=memo))
