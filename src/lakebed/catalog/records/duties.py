"""The duties of upkeep as rows: when each ran, its result, and when it is due again. All instants
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
    """The result of the last run that succeeded."""
    error: str | None = None
    """The error of the last run; None if it succeeded."""
    next_run: int = 0
    runs: int = 0
    failures: int = 0
    memo: str | None = None
    """The text that the duty stored for its next run."""

    def overdue_us(self, now: int, lake_made_at: int) -> int:
        """Return the microseconds since the duty was due; since the lake was made if it never
        ran."""
        return max(0, now - max(self.next_run, lake_made_at))


def list_states(connection: sa.Connection) -> dict[str, DutyState]:
    """Return the state of every duty that ever ran, by name."""
    rows = connection.execute(sa.select(table).order_by(table.c.name))
    return {row.name: DutyState(*row) for row in rows}


def record(connection: sa.Connection, state: DutyState) -> None:
    """Store a duty's state, except for its memo."""
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
    """Store a text for the next run of a duty that has begun."""
    connection.execute(sa.update(table).where(table.c.name == name).values(memo=memo))
