"""View sets in the catalog: the active version of each, and when it became active."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sqlalchemy as sa

from lakebed.catalog.schema import view_sets
from lakebed.errors import UnknownViewSet
from lakebed.model.view_set import ViewSet


@dataclass(frozen=True, slots=True)
class ActiveViewSet:
    """A registered view set with the catalog's own values for it."""

    view_set: ViewSet
    schema_hash: bytes
    activated_at: int
    retained_from: int


_ACTIVE = sa.select(view_sets).order_by(view_sets.c.name)


def list_active(connection: sa.Connection) -> list[ActiveViewSet]:
    """Return every registered view set, by name."""
    return [_read(row) for row in connection.execute(_ACTIVE)]


def find(connection: sa.Connection, name: str) -> ActiveViewSet | None:
    """Return the active definition of one view set, or None."""
    row = connection.execute(sa.select(view_sets).where(view_sets.c.name == name)).one_or_none()
    return None if row is None else _read(row)


def get(connection: sa.Connection, name: str) -> ActiveViewSet:
    """Return the active definition of one view set. Raises `UnknownViewSet` if there is none."""
    active = find(connection, name)
    if active is None:
        raise UnknownViewSet(
            f"no view set is called {name!r}",
            hint="see what there is with: lakebed views list",
        )
    return active


def activate(connection: sa.Connection, view_set: ViewSet, tick: int) -> None:
    """Make a definition the active one. The caller has checked that it may be."""
    values = {
        "version": view_set.version,
        "schema_hash": view_set.schema_hash,
        "definition": view_set.definition(),
        "activated_at": tick,
        "retention_us": view_set.retention_us,
    }
    changed = connection.execute(
        sa.update(view_sets).where(view_sets.c.name == view_set.name).values(**values)
    )
    if changed.rowcount == 0:
        connection.execute(
            sa.insert(view_sets).values(name=view_set.name, retained_from=0, **values)
        )


def remove(connection: sa.Connection, name: str) -> None:
    """Remove a view set; its partitions stay and become incompatible."""
    connection.execute(sa.delete(view_sets).where(view_sets.c.name == name))


def raise_floor(connection: sa.Connection, name: str, retained_from: int) -> None:
    """Set the insert time below which the view set's rows are never built again."""
    connection.execute(
        sa.update(view_sets)
        .where(view_sets.c.name == name, view_sets.c.retained_from < retained_from)
        .values(retained_from=retained_from)
    )


def _read(row: sa.Row[tuple[object, ...]]) -> ActiveViewSet:
    return ActiveViewSet(
        view_set=_read_definition(row.definition),
        schema_hash=bytes(row.schema_hash),
        activated_at=row.activated_at,
        retained_from=row.retained_from,
    )


@lru_cache(maxsize=256)
def _read_definition(text: str) -> ViewSet:
    return ViewSet.from_definition(text)
