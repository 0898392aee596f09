"""Databases and tables as such: making, altering, deleting and bringing them back. Each verb is one
transaction.
"""

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
    """What databases and tables a lake has."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def create_database(self, name: str) -> Database:
        """Make a database."""
        check_name(name, "database")
        with self._catalog.write() as transaction:
            if tables.find_database(transaction.connection, name) is not None:
                raise Conflict(f"there is a database {name} already")
            made = Database(new_id(), name, transaction.tick)
            tables.insert_database(transaction.connection, made)
            journal.append(transaction, [journal.Entry("create database", detail={"name": name})])
            return made

    def list_databases(self) -> list[str]:
        """The names of all databases."""
        with self._catalog.read() as connection:
            return [each.name for each in tables.list_databases(connection)]

    def create_table(
        self,
        database: str,
        name: str,
        schema: Any,
        bucket: str = "day",
        retention: str | None = None,
    ) -> UserTable:
        """Make a table, and the one for what it will refuse."""
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
            for each in (table, rejects):
                made = replace(each, created_at=tick, changed_at=tick)
                tables.insert(connection, made, home.database_id)
            _note(transaction, "create table", table)
        return replace(table, created_at=transaction.tick, changed_at=transaction.tick)

    def _new_table(
        self, database: str, name: str, schema: TableSchema, bucket: str, retention: str | None
    ) -> UserTable:
        if bucket not in list(Bucket):
            raise BadInput(f"{bucket!r} is not a bucket", hint=f"one of {', '.join(Bucket)}")
        kept = None if retention is None else parse_retention(retention)
        table_id = new_id().replace("-", "")[:16]
        return UserTable(table_id, database, name, Bucket(bucket), (schema,), kept)

    def list_tables(self, database: str | None = None) -> list[UserTable]:
        """Every table of one database or of all, without those of rejects."""
        with self._catalog.read() as connection:
            if database is not None:
                tables.get_database(connection, database)
            found = tables.list_tables(connection)
        return [
            each for each in found if each.rejects_of is None and database in (None, each.database)
        ]

    def list_deleted(self) -> list[UserTable]:
        """Tables that were deleted and can be restored, the last first."""
        with self._catalog.read() as connection:
            swept = clock.sweep_horizon(connection)
            found = tables.list_deleted(connection)
        return [
            each for each in found if each.rejects_of is None and (each.deleted_at or 0) > swept
        ]

    def list_deleted_databases(self) -> list[str]:
        """The names of databases that were deleted and can be restored, the last first."""
        with self._catalog.read() as connection:
            swept = clock.sweep_horizon(connection)
            live = {each.name for each in tables.list_databases(connection)}
            gone = tables.list_databases(connection, deleted=True)
        names = dict.fromkeys(each.name for each in gone if (each.deleted_at or 0) > swept)
        return [name for name in names if name not in live]

    def list_names(self) -> dict[str, str]:
        """What people call tables, by the name of their partitions."""
        with self._catalog.read() as connection:
            return tables.list_names(connection)

    def get(self, database: str, name: str) -> UserTable:
        """The table of this name."""
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
        **others: Any,
    ) -> UserTable:
        """Give a table its next schema: more columns, fractions where there were whole numbers,
        optional where there was required. Rows that are there stay as they are, and readable.
        ``others`` is what callers may ask for besides, to be refused."""
        with self._catalog.write() as transaction:
            table = tables.get(transaction.connection, database, name)
            schema = plan_alteration(
                table.schema, add=add or {}, widen=widen, relax=relax, **others
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
        """Keep a table's rows for so long after their time; None for ever."""
        kept = None if retention is None else parse_retention(retention)
        with self._catalog.write() as transaction:
            table = tables.get(transaction.connection, database, name)
            tables.set_retention(transaction.connection, table.table_id, kept)
            _note(transaction, "keep table", replace(table, retention_us=kept))
            return replace(table, retention_us=kept)

    def delete_table(self, database: str, name: str) -> UserTable:
        """Take a table and all its rows out of sight; for the lake's grace period it can be
        restored."""
        with self._catalog.write() as transaction:
            table = tables.get(transaction.connection, database, name)
            if table.rejects_of is not None:
                raise Refused("the table of rejects goes with the table that they are of")
            self._delete(transaction, [table])
            return table

    def delete_database(self, name: str) -> list[UserTable]:
        """Take a database with all its tables out of sight; restorable like a table."""
        with self._catalog.write() as transaction:
            database = tables.get_database(transaction.connection, name)
            found = [
                each
                for each in tables.list_tables(transaction.connection)
                if each.database == name and each.rejects_of is None
            ]
            self._delete(transaction, found)
            tables.mark_database(transaction.connection, database.database_id, transaction.tick)
            entry = journal.Entry("delete database", detail={"name": name})
            journal.append(transaction, [entry])
            return found

    def _delete(self, transaction: Transaction, doomed: Sequence[UserTable]) -> None:
        connection, tick = transaction.connection, transaction.tick
        for table in doomed:
            both = [table, *_rejects_of(tables.list_tables(connection), table)]
            live = [
                each for one in both for each in tables.list_partitions(connection, one.stored_as)
            ]
            retire_rows(transaction, live, operation="delete table", reason=None, hint="try again")
            tables.mark(connection, [each.table_id for each in both], tick)
            _note(transaction, "delete table", table)

    def restore_table(
        self, database: str, name: str, deleted_at: Instant | None = None
    ) -> UserTable:
        """Bring back the table of this name that was deleted last, or at an instant, with the rows
        that it had."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            home = tables.get_database(connection, database)
            if tables.find(connection, database, name) is not None:
                raise Conflict(f"there is a table {database}.{name}", hint="delete it first")
            gone = tables.list_deleted(connection, home.database_id)
            found = [each for each in gone if each.name == name and each.rejects_of is None]
            if not found:
                raise UnknownTable(f"no table {database}.{name} was deleted")
            what = f"table {database}.{name}"
            table = _choose(what, {each.deleted_at: each for each in found}, deleted_at)
            _require_unswept(connection, what, table.deleted_at)
            self._bring_back(transaction, table)
            return replace(table, deleted_at=None)

    def restore_database(self, name: str, deleted_at: Instant | None = None) -> list[UserTable]:
        """Bring back the database of this name that was deleted last, or at an instant, with its
        tables."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            if tables.find_database(connection, name) is not None:
                raise Conflict(f"there is a database {name}", hint="delete it first")
            gone = tables.list_databases(connection, deleted=True)
            found = [each for each in gone if each.name == name]
            if not found:
                raise UnknownDatabase(f"no database {name!r} was deleted")
            database = _choose(
                f"database {name}", {each.deleted_at: each for each in found}, deleted_at
            )
            _require_unswept(connection, f"database {name}", database.deleted_at)
            tables.mark_database(connection, database.database_id, None)
            entry = journal.Entry("restore database", detail={"name": name})
            journal.append(transaction, [entry])
            back = [
                each
                for each in tables.list_deleted(connection, database.database_id)
                if each.deleted_at == database.deleted_at and each.rejects_of is None
            ]
            for table in back:
                self._bring_back(transaction, table)
            return [replace(each, deleted_at=None) for each in back]

    def _bring_back(self, transaction: Transaction, table: UserTable) -> None:
        connection = transaction.connection
        both = [table, *_rejects_of(tables.list_deleted(connection), table)]
        for one in both:
            gone = tables.list_restorable(connection, one.stored_as)
            retired = [each for each in gone if each.retired_at == table.deleted_at]
            tables.mark(connection, [one.table_id], None)
            for each in retired:
                restore_row(transaction, each.partition_id, new_id())
        _note(transaction, "restore table", table)


def _choose(what: str, found: Mapping[int | None, _Gone], deleted_at: Instant | None) -> _Gone:
    """Of what was deleted under one name, the last or the one of an instant."""
    if deleted_at is None:
        return next(iter(found.values()))
    instant = to_instant(deleted_at)
    if instant not in found:
        known = ", ".join(format_instant(each) for each in found if each is not None)
        raise UnknownTable(
            f"no {what} was deleted at {format_instant(instant)}", hint=f"it was at: {known}"
        )
    return found[instant]


def _require_unswept(connection: Connection, what: str, deleted_at: int | None) -> None:
    """Raise if a sweep has come by since: what had been deleted then may be gone in part."""
    if (deleted_at or 0) <= clock.sweep_horizon(connection):
        raise UnknownTable(
            f"{what} was deleted at {format_instant(deleted_at or 0)} and has been swept since",
            hint="what is deleted can be restored for the lake's grace period",
        )


def _rejects_of(found: Sequence[UserTable], table: UserTable) -> list[UserTable]:
    return [
        each
        for each in found
        if each.rejects_of == table.table_id and each.deleted_at == table.deleted_at
    ]


def _note(transaction: Transaction, operation: str, table: UserTable) -> None:
    detail = {"table": table.full_name, "version": table.version}
    journal.append(transaction, [journal.Entry(operation, None, table.stored_as, detail=detail)])
