"""Databases and users' tables: their names, and every version of their schemas. The rows of tables
are in partitions like all others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlalchemy as sa

from lakebed.catalog.expressions import one_of_bound
from lakebed.catalog.records.partitions import read_partition
from lakebed.catalog.schema import (
    databases,
    series,
    table_versions,
    tables,
    temporary_files,
)
from lakebed.catalog.schema import partitions as partition_rows
from lakebed.errors import UnknownDatabase, UnknownTable
from lakebed.model.partition import FileState, Partition
from lakebed.model.tables.schema import Bucket, TableSchema
from lakebed.model.tables.table import UserTable, is_table, require_text, split_name


@dataclass(frozen=True, slots=True)
class Database:
    """A name under which tables are found."""

    database_id: str
    name: str
    created_at: int
    deleted_at: int | None = None


def insert_database(connection: sa.Connection, database: Database) -> None:
    """Record a database. The caller has checked that the name is free."""
    connection.execute(
        sa.insert(databases).values(
            database_id=database.database_id, name=database.name, created_at=database.created_at
        )
    )


def find_database(connection: sa.Connection, name: str) -> Database | None:
    """Return the database of this name, or None."""
    require_text(name)
    matching = [database for database in list_databases(connection) if database.name == name]
    return matching[0] if matching else None


def get_database(connection: sa.Connection, name: str) -> Database:
    """Return the database of this name. Raises `UnknownDatabase` if there is none."""
    database = find_database(connection, name)
    if database is None:
        raise UnknownDatabase(
            f"there is no database {name!r}",
            hint="lakebed tables list shows those that are there, lakebed tables create makes one",
        )
    return database


def list_databases(connection: sa.Connection, *, deleted: bool = False) -> list[Database]:
    """Return all databases by name, or those that were deleted, the last first."""
    query = sa.select(databases)
    if deleted:
        query = query.where(databases.c.deleted_at.is_not(None))
        query = query.order_by(databases.c.deleted_at.desc())
    else:
        query = query.where(databases.c.deleted_at.is_(None)).order_by(databases.c.name)
    return [Database(*row) for row in connection.execute(query)]


def mark_database(connection: sa.Connection, database_id: str, deleted_at: int | None) -> None:
    """Mark a database as deleted, or as restored."""
    connection.execute(
        sa.update(databases)
        .where(databases.c.database_id == database_id)
        .values(deleted_at=deleted_at)
    )


_LIVE = (
    sa.select(
        tables,
        databases.c.name.label("database"),
        table_versions.c.definition,
    )
    .join_from(tables, databases, tables.c.database_id == databases.c.database_id)
    .join(table_versions, table_versions.c.table_id == tables.c.table_id)
    .order_by(databases.c.name, tables.c.name, tables.c.table_id, table_versions.c.version)
)
_ALL_LIVE = _LIVE.where(tables.c.deleted_at.is_(None))
_ONE = _ALL_LIVE.where(
    databases.c.name == sa.bindparam("database"),
    databases.c.deleted_at.is_(None),
    tables.c.name == sa.bindparam("name"),
)
_BY_ID = _LIVE.where(tables.c.table_id == sa.bindparam("table_id"))


def list_tables(connection: sa.Connection, as_of: int | None = None) -> list[UserTable]:
    """Return every table now or at an instant, by database and name; also those that hold rejected
    rows."""
    if as_of is None:
        return _read(connection.execute(_ALL_LIVE).all())
    live_then = _LIVE.where(
        tables.c.created_at <= as_of,
        sa.or_(tables.c.deleted_at.is_(None), tables.c.deleted_at > as_of),
    )
    return _read(connection.execute(live_then).all())


def list_deleted(connection: sa.Connection, database_id: str | None = None) -> list[UserTable]:
    """Return the deleted tables of one database or of all, the last first."""
    query = _LIVE.where(tables.c.deleted_at.is_not(None))
    if database_id is not None:
        query = query.where(tables.c.database_id == database_id)
    deleted = _read(connection.execute(query).all())
    return sorted(deleted, key=lambda table: -(table.deleted_at or 0))


def list_names(connection: sa.Connection) -> dict[str, str]:
    """Return the names of tables, including deleted ones, by the name under which the catalog
    stores their partitions."""
    all_tables = [*list_deleted(connection), *list_tables(connection)]
    return {table.stored_as: table.full_name for table in all_tables}


def find_stored(connection: sa.Connection, name: str | None) -> str | None:
    """Return the name under which the partitions of a view set, or of DATABASE.TABLE, are
    recorded."""
    if name is None:
        return None
    require_text(name)
    if "." not in name:
        return name
    return get(connection, *split_name(name)).stored_as


def find(connection: sa.Connection, database: str, name: str) -> UserTable | None:
    """Return the table of this name, or None."""
    require_text(database, name)
    matching = _read(connection.execute(_ONE, {"database": database, "name": name}).all())
    return matching[0] if matching else None


def get(connection: sa.Connection, database: str, name: str) -> UserTable:
    """Return the table of this name. Raises `UnknownTable` if there is none."""
    table = find(connection, database, name)
    if table is None:
        get_database(connection, database)
        raise UnknownTable(
            f"there is no table {name!r} in database {database}",
            hint=f"see what there is with: lakebed tables list {database}",
        )
    return table


def get_by_id(connection: sa.Connection, table_id: str) -> UserTable:
    """Return the table with this id, deleted or not."""
    matching = _read(connection.execute(_BY_ID, {"table_id": table_id}).all())
    if not matching:
        raise UnknownTable(f"no table has the id {table_id!r}")
    return matching[0]


def list_versions(connection: sa.Connection, table_id: str) -> list[tuple[int, TableSchema]]:
    """Return every version of a table's schema with the tick of its creation, the oldest first."""
    query = (
        sa.select(table_versions.c.created_at, table_versions.c.definition)
        .where(table_versions.c.table_id == table_id)
        .order_by(table_versions.c.version)
    )
    return [(tick, _read_schema(text)) for tick, text in connection.execute(query)]


def insert(connection: sa.Connection, table: UserTable, database_id: str) -> None:
    """Record a table. The caller has checked that the name is free."""
    connection.execute(
        sa.insert(tables).values(
            table_id=table.table_id,
            database_id=database_id,
            name=table.name,
            bucket=table.bucket.value,
            retention_us=table.retention_us,
            rejects_of=table.rejects_of,
            created_at=table.created_at,
            changed_at=table.changed_at,
        )
    )
    add_version(connection, table.table_id, 1, table.schema, table.created_at)


def add_version(
    connection: sa.Connection, table_id: str, version: int, schema: TableSchema, tick: int
) -> None:
    """Add the next version of a table's schema."""
    connection.execute(
        sa.insert(table_versions).values(
            table_id=table_id,
            version=version,
            definition=json.dumps(schema.to_json(), sort_keys=True, ensure_ascii=False),
            created_at=tick,
        )
    )


def mark(connection: sa.Connection, table_ids: Sequence[str], deleted_at: int | None) -> None:
    """Mark tables as deleted, or as restored."""
    connection.execute(
        sa.update(tables).where(tables.c.table_id.in_(table_ids)).values(deleted_at=deleted_at)
    )


def set_retention(connection: sa.Connection, table_id: str, retention_us: int | None) -> None:
    """Set the retention of a table's rows, counted from their times."""
    connection.execute(
        sa.update(tables).where(tables.c.table_id == table_id).values(retention_us=retention_us)
    )


_TOUCH = (
    sa.update(tables)
    .where(tables.c.table_id == sa.bindparam("of"), tables.c.deleted_at.is_(None))
    .values(changed_at=sa.bindparam("at"))
)


def touch(connection: sa.Connection, table_id: str, tick: int) -> bool:
    """Record that a table's rows change now. Return False if the table does not exist."""
    return connection.execute(_TOUCH, {"of": table_id, "at": tick}).rowcount == 1


@dataclass(frozen=True, slots=True)
class Ground:
    """The state of its table that an insert needs: the schema version, the last change, and for
    each bucket it writes the series number and the count of live partitions."""

    version: int
    changed_at: int
    series: dict[str, int]
    live: dict[str, int]


_GROUND = (
    sa.select(
        sa.select(sa.func.max(table_versions.c.version))
        .where(table_versions.c.table_id == tables.c.table_id)
        .scalar_subquery(),
        tables.c.changed_at,
        series.c.view_instance_id,
        series.c.series_id,
        sa.select(sa.func.count())
        .where(
            partition_rows.c.view_set_name == series.c.view_set_name,
            partition_rows.c.view_instance_id == series.c.view_instance_id,
            partition_rows.c.retired_at.is_(None),
        )
        .scalar_subquery(),
    )
    .select_from(
        tables.outerjoin(
            series,
            sa.and_(
                series.c.view_set_name == sa.bindparam("view_set"),
                series.c.file_schema_hash == sa.bindparam("schema_hash"),
                one_of_bound(series.c.view_instance_id, "instances"),
            ),
        )
    )
    .where(tables.c.table_id == sa.bindparam("table_id"), tables.c.deleted_at.is_(None))
)


def find_ground(
    connection: sa.Connection, table: UserTable, instances: Sequence[str]
) -> Ground | None:
    """Return the state that an insert needs, or None if the table no longer exists."""
    parameters = {
        "table_id": table.table_id,
        "view_set": table.stored_as,
        "schema_hash": table.view_set.schema_hash,
        "instances": list(instances),
    }
    rows = connection.execute(_GROUND, parameters).all()
    if not rows:
        return None
    version, changed_at = rows[0][:2]
    known_series = [row[2:] for row in rows if row[2] is not None]
    numbers = {instance: number for instance, number, _ in known_series}
    return Ground(
        version, changed_at, numbers, {instance: live for instance, _, live in known_series}
    )


def list_partitions(
    connection: sa.Connection,
    stored_as: str,
    *,
    as_of: int | None = None,
    instance: str | None = None,
    within: tuple[int, int] | None = None,
) -> list[Partition]:
    """Return a table's partitions, now or at a past tick, by bucket and insert time; ``within``
    selects those that may have events from one instant up to and including another."""
    table = partition_rows
    query = sa.select(table).where(table.c.view_set_name == stored_as)
    if as_of is None:
        query = query.where(table.c.retired_at.is_(None))
    else:
        query = query.where(
            table.c.published_at <= as_of,
            sa.or_(table.c.retired_at.is_(None), table.c.retired_at > as_of),
        )
    if instance is not None:
        query = query.where(table.c.view_instance_id == instance)
    if within is not None:
        query = query.where(
            table.c.min_event_time <= within[1], table.c.max_event_time >= within[0]
        )
    rows = connection.execute(query.order_by(table.c.view_instance_id, table.c.begin_insert_time))
    return [read_partition(row) for row in rows]


def list_crowded(connection: sa.Connection) -> set[str]:
    """Return the stored names of the tables that have a bucket with several live partitions."""
    table = partition_rows
    query = (
        sa.select(table.c.view_set_name)
        .where(table.c.retired_at.is_(None))
        .group_by(table.c.view_set_name, table.c.view_instance_id)
        .having(sa.func.count() > 1)
        .distinct()
    )
    return {name for name in connection.execute(query).scalars() if is_table(name)}


def list_restorable(
    connection: sa.Connection, stored_as: str, instance: str | None = None
) -> list[Partition]:
    """Return a table's retired partitions that can be restored: they were not replaced, nor
    restored already, and no sweep is deleting their files."""
    table, other = partition_rows, partition_rows.alias()
    restored = sa.exists().where(
        other.c.file_path == table.c.file_path, other.c.published_at > table.c.published_at
    )
    deleting = sa.exists().where(
        temporary_files.c.file_path == table.c.file_path,
        temporary_files.c.state == FileState.DELETING.value,
    )
    query = sa.select(table).where(
        table.c.view_set_name == stored_as,
        table.c.retired_at.is_not(None),
        sa.not_(table.c.replaced),
        sa.not_(restored),
        sa.not_(deleting),
    )
    if instance is not None:
        query = query.where(table.c.view_instance_id == instance)
    return [read_partition(row) for row in connection.execute(query)]


def _read(rows: Sequence[sa.Row[tuple[object, ...]]]) -> list[UserTable]:
    by_table: dict[str, list[sa.Row[tuple[object, ...]]]] = {}
    for row in rows:
        by_table.setdefault(row.table_id, []).append(row)
    return [
        UserTable(
            table_id=first.table_id,
            database=first.database,
            name=first.name,
            bucket=Bucket(first.bucket),
            versions=tuple(_read_schema(version.definition) for version in versions),
            retention_us=first.retention_us,
            rejects_of=first.rejects_of,
            created_at=first.created_at,
            changed_at=first.changed_at,
            deleted_at=first.deleted_at,
        )
        for versions in by_table.values()
        for first in versions[:1]
    ]


@lru_cache(maxsize=512)
def _read_schema(text: str) -> TableSchema:
    return TableSchema.from_json(json.loads(text))
