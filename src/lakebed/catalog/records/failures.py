"""Blocks that a view set's decoder could not read, with the reason. Plans leave them out until the
schema changes or a retry is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.expressions import one_of
from lakebed.catalog.schema import build_failures as table


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """One block that one version of a view set could not read."""

    view_set: str
    schema_hash: bytes
    block_id: str
    insert_time: int
    reason: str
    recorded_at: int = 0


def insert_many(connection: sa.Connection, failures: Sequence[BuildFailure], tick: int) -> None:
    """Record failures. Those that are recorded already stay as they are."""
    for failure in failures:
        existing = sa.select(table.c.block_id).where(
            table.c.view_set_name == failure.view_set,
            table.c.file_schema_hash == failure.schema_hash,
            table.c.block_id == failure.block_id,
        )
        if connection.scalar(existing) is None:
            connection.execute(
                sa.insert(table).values(
                    view_set_name=failure.view_set,
                    file_schema_hash=failure.schema_hash,
                    block_id=failure.block_id,
                    insert_time=failure.insert_time,
                    reason=failure.reason,
                    recorded_at=tick,
                )
            )


def list_failures(
    connection: sa.Connection, view_set: str | None = None, schema_hash: bytes | None = None
) -> list[BuildFailure]:
    """Return the blocks that could not be built, by view set and insert time."""
    query = sa.select(table)
    if view_set is not None:
        query = query.where(table.c.view_set_name == view_set)
    if schema_hash is not None:
        query = query.where(table.c.file_schema_hash == schema_hash)
    return _list(connection, query.order_by(*_ORDER))


def list_failures_of(connection: sa.Connection, view_sets: Sequence[str]) -> list[BuildFailure]:
    """Return the blocks of these view sets that could not be built, in any schema."""
    return _list(connection, _OF, {"view_sets": list(view_sets)})


_ORDER = (table.c.view_set_name, table.c.insert_time)
_OF = (
    sa.select(table)
    .where(table.c.view_set_name.in_(sa.bindparam("view_sets", expanding=True)))
    .order_by(*_ORDER)
)


def _list(
    connection: sa.Connection,
    query: sa.Select[tuple[object, ...]],
    parameters: dict[str, object] | None = None,
) -> list[BuildFailure]:
    rows = connection.execute(query, parameters)
    return [
        BuildFailure(
            row.view_set_name,
            bytes(row.file_schema_hash),
            row.block_id,
            row.insert_time,
            row.reason,
            row.recorded_at,
        )
        for row in rows
    ]


def forget_before(connection: sa.Connection, tick: int) -> None:
    """Delete the failures of blocks that are gone."""
    connection.execute(sa.delete(table).where(table.c.insert_time < tick))


def forget(connection: sa.Connection, view_set: str, block_ids: Sequence[str]) -> int:
    """Delete failures, so that the next plan tries these blocks again. Return their number."""
    statement = sa.delete(table).where(
        table.c.view_set_name == view_set, one_of(table.c.block_id, block_ids)
    )
    return connection.execute(statement).rowcount
