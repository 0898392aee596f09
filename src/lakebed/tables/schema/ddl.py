"""Create, alter, delete and restore databases and tables. Each operation is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from lakebed.catalog import clock, journal
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.records import tables
from lakebed.catalog.records.tables import Database
from lakebed.errors import BadInput, Conflict, Refused, UnknownDatabase, UnknownTable
from lakebed.lifecycle.commit import restore_row
from lakebed.model.ids import new_id
from lakebed.model.tables.declaration import parse_schema, plan_alteration
from lakebed.model.tables.schema import Bucket, TableSchema
from lakebed.model.tables.table import REJECTS, UserTable, check_name, parse_retention
from lakebed.model.time import Instant, format_instant, to_instant
from lakebed.tables.insert.rejects import REJECTS_SCHEMA
from lakebed.writing.publish import retire_rows

_Gone = TypeVar("_Gone", UserTable, Database)


class Definitions:
    """Creates, alters, deletes and restores the databases and tables of a lake."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def create_database(self, name: str) -> Database:
        """Create a database."""
        check_name(name, "database")
        with self._catalog.write() as transaction:
            if tables.find_database(transaction.connection, name) is not None:
                raise Conflict(f"there is a database {name} already")
            database = Database(new_id(), name, transaction.tick)
            tables.insert_database(transaction.connection, database)
            journal.append(transaction, [journal.Entry("create database", detail={"name": name})])
            return database

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        with self._catalog.read() as connection:
            return [database.name for database in tables.list_databases(connection)]

    def create_table(
        self,
        database: str,
        name: str,
        schema: Any,
        bucket: str = "day",
        retention: str | None = None,
    ) -> UserTable:
        """Create a table and its rejects table."""
        check_name(name, "table")
        parsed = schema if isinstance(schema, TableSchema) else parse_schema(schema)
        table = self._new_table(database, name, parsed, bucket, retention)
        rejects = self._new_table(
            database, name + REJECTS, parse_schema(REJECTS_SCHEMA), Bucket.MONTH, None
        )
        rejects = replace(rejects, rejects_of=table.table_id)
        with self._catalog.write() as transaction:
            connection, tick = transaction.connection, transaction.tick
            home = tables.get_database(connection, database)
            if tables.find(connection, database, name) is not None:
                raise Conflict(f"there is a table {database}.{name} already")
            for definition in (table, rejects):
                created = replace(definition, created_at=tick, changed_at=tick)
                tables.insert(connection, created, home.database_id)
            _note(transaction, "create table", table)
        return replace(table, created_at=transaction.tick, changed_at=transaction.tick)

    def _new_table(
        self, database: str, name: str, schema: TableSchema, bucket: str, retention: str | None
    ) -> UserTable:
        if bucket not in list(Bucket):
            raise BadInput(f"{bucket!r} is not a bucket", hint=f"one of {', '.join(Bucket)}")
        retention_us = None if retention is None else parse_retention(retention)
        table_id = new_id().replace("-", "")[:16]
        return UserTable(table_id, database, name, Bucket(bucket), (schema,), retention_us)

    def list_tables(self, database: str | None = None) -> list[UserTable]:
        """Return the tables of one database or of all, without rejects tables."""
        with self._catalog.read() as connection:
            if database is not None:
                tables.get_database(connection, database)
            all_tables = tables.list_tables(connection)
        return [
            table
            for table in all_tables
            if table.rejects_of is None and database in (None, table.database)
        ]

    def list_deleted(self) -> list[UserTable]:
        """Return the deleted tables that can be restored, latest first."""
        with self._catalog.read() as connection:
            swept = clock.sweep_horizon(connection)
            deleted_tables = tables.list_deleted(connection)
        return [
            table
            for table in deleted_tables
            if table.rejects_of is None and (table.deleted_at or 0) > swept
        ]

    def list_deleted_databases(self) -> list[str]:
        """Return the names of deleted databases that can be restored, latest first."""
        with self._catalog.read() as connection:
            swept = clock.sweep_horizon(connection)
            live = {database.name for database in tables.list_databases(connection)}
            deleted = tables.list_databases(connection, deleted=True)
        names = dict.fromkeys(
            database.name for database in deleted if (database.deleted_at or 0) > swept
        )
        return [name for name in names if name not in live]

    def list_names(self) -> dict[str, str]:
        """Return the full names of tables, by the name of their partitions."""
        with self._catalog.read() as connection:
            return tables.list_names(connection)

    def get(self, database: str, name: str) -> UserTable:
        """Return the table of this name; raise `UnknownTable` if there is none."""
        with self._catalog.read() as connection:
            return tables.get(connection, database, name)

    def alter_table(
        self,
        database: str,
        name: str,
        *,
        add: Mapping[str, Any] | None = None,
        widen: Sequence[str] = (),
        relax: Sequence[str] = (),
        **unsupported: Any,
    ) -> UserTable:
        """Give a table its next schema: new columns, float instead of int, optional instead of
        required. Existing rows are not rewritten and stay readable. ``unsupported`` holds other
        alterations that callers may request; they are refused."""
        with self._catalog.write() as transaction:
            table = tables.get(transaction.connection, database, name)
            schema = plan_alteration(
                table.schema, add=add or {}, widen=widen, relax=relax, **unsupported
            )
            if schema == table.schema:
                return table
            tables.add_version(
                transaction.connection,
                table.table_id,
                table.version + 1,
                schema,
                transaction.tick,
            )
            altered = replace(table, versions=(*table.versions, schema))
            _note(transaction, "alter table", altered)
            return altered

    def set_retention(self, database: str, name: str, retention: str | None) -> UserTable:
        """Keep a table's rows for this long after their time; None keeps them for ever."""
        retention_us = None if retention is None else parse_retention(retention)
        with self._catalog.write() as transaction:
            table = tables.get(transaction.connection, database, name)
            tables.set_retention(transaction.connection, table.table_id, retention_us)
            _note(transaction, "keep table", replace(table, retention_us=retention_us))
            return replace(table, retention_us=retention_us)

    def delete_table(self, database: str, name: str) -> UserTable:
        """Delete a table with all its rows; it can be restored during the lake's grace period."""
        with self._catalog.write() as transaction:
            table = tables.get(transaction.connection, database, name)
            if table.rejects_of is not None:
                raise Refused("the table of rejects goes with the table that they are of")
            self._delete(transaction, [table])
            return table

    def delete_database(self, name: str) -> list[UserTable]:
        """Delete a database with all its tables; restorable like a table."""
        with self._catalog.write() as transaction:
            database = tables.get_database(transaction.connection, name)
            members = [
                table
                for table in tables.list_tables(transaction.connection)
                if table.database == name and table.rejects_of is None
            ]
            self._delete(transaction, members)
            tables.mark_database(transaction.connection, database.database_id, transaction.tick)
            entry = journal.Entry("delete database", detail={"name": name})
            journal.append(transaction, [entry])
            return members

    def _delete(self, transaction: Transaction, deleted_tables: Sequence[UserTable]) -> None:
        connection, tick = transaction.connection, transaction.tick
        for table in deleted_tables:
            members = [table, *_rejects_of(tables.list_tables(connection), table)]
            live = [
                partition
                for member in members
                for partition in tables.list_partitions(connection, member.stored_as)
            ]
            retire_rows(transaction, live, operation="delete table", reason=None, hint="try again")
            tables.mark(connection, [member.table_id for member in members], tick)
            _note(transaction, "delete table", table)

    def restore_table(
        self, database: str, name: str, deleted_at: Instant | None = None
    ) -> UserTable:
        """Restore the table of this name that was deleted last, or at an instant, with its rows."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            home = tables.get_database(connection, database)
            if tables.find(connection, database, name) is not None:
                raise Conflict(f"there is a table {database}.{name}", hint="delete it first")
            deleted = tables.list_deleted(connection, home.database_id)
            matches = [
                candidate
                for candidate in deleted
                if candidate.name == name and candidate.rejects_of is None
            ]
            if not matches:
                raise UnknownTable(f"no table {database}.{name} was deleted")
            what = f"table {database}.{name}"
            table = _choose(
                what, {candidate.deleted_at: candidate for candidate in matches}, deleted_at
            )
            _require_unswept(connection, what, table.deleted_at)
            self._bring_back(transaction, table)
            return replace(table, deleted_at=None)

    def restore_database(self, name: str, deleted_at: Instant | None = None) -> list[UserTable]:
        """Restore the database of this name that was deleted last, or at an instant, with its
        tables."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            if tables.find_database(connection, name) is not None:
                raise Conflict(f"there is a database {name}", hint="delete it first")
            deleted = tables.list_databases(connection, deleted=True)
            matches = [candidate for candidate in deleted if candidate.name == name]
            if not matches:
                raise UnknownDatabase(f"no database {name!r} was deleted")
            database = _choose(
                f"database {name}",
                {candidate.deleted_at: candidate for candidate in matches},
                deleted_at,
            )
            _require_unswept(connection, f"database {name}", database.deleted_at)
            tables.mark_database(connection, database.database_id, None)
            entry = journal.Entry("restore database", detail={"name": name})
            journal.append(transaction, [entry])
            members = [
                table
                for table in tables.list_deleted(connection, database.database_id)
                if table.deleted_at == database.deleted_at and table.rejects_of is None
            ]
            for table in members:
                self._bring_back(transaction, table)
            return [replace(table, deleted_at=None) for table in members]

    def _bring_back(self, transaction: Transaction, table: UserTable) -> None:
        connection = transaction.connection
        members = [table, *_rejects_of(tables.list_deleted(connection), table)]
        for member in members:
            restorable = tables.list_restorable(connection, member.stored_as)
            retired = [
                partition for partition in restorable if partition.retired_at == table.deleted_at
            ]
            tables.mark(connection, [member.table_id], None)
            for partition in retired:
                restore_row(transaction, partition.partition_id, new_id())
        _note(transaction, "restore table", table)


def _choose(
    what: str, by_deletion_time: Mapping[int | None, _Gone], deleted_at: Instant | None
) -> _Gone:
    """Return what was deleted under one name last, or at an instant; raise `UnknownTable` if
    nothing was deleted at that instant."""
    if deleted_at is None:
        return next(iter(by_deletion_time.values()))
    instant = to_instant(deleted_at)
    if instant not in by_deletion_time:
        instants = ", ".join(format_instant(time) for time in by_deletion_time if time is not None)
        raise UnknownTable(
            f"no {what} was deleted at {format_instant(instant)}", hint=f"it was at: {instants}"
        )
    return by_deletion_time[instant]


def _require_unswept(connection: Connection, what: str, deleted_at: int | None) -> None:
    """Raise if a sweep has come by since: what had been deleted then may be gone in part."""
    if (deleted_at or 0) <= clock.sweep_horizon(connection):
        raise UnknownTable(
            f"{what} was deleted at {format_instant(deleted_at or 0)} and has been swept since",
            hint="what is deleted can be restored for the lake's grace period",
        )


def _rejects_of(candidates: Sequence[UserTable], table: UserTable) -> list[UserTable]:
    return [
        candidate
        for candidate in candidates
        if candidate.rejects_of == table.table_id and candidate.deleted_at == table.deleted_at
    ]


def _note(transaction: Transaction, operation: str, table: UserTable) -> None:
    detail = {"table": table.full_name, "version": table.version}
    journal.append(transaction, [journal.Entry(operation, None, table.stored_as, detail=detail)])
