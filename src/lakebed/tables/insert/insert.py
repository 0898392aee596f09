"""Insert records: read, validate, split into buckets, write, and make them live in one transaction.
A bad record refuses the whole insert, or goes with the reason to the rejects table.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import inserts, tables
from lakebed.errors import BadInput, BadRecords, LeaseLost, Refused, StalePlan, UnknownTable
from lakebed.logs import Operation
from lakebed.model.tables.table import REJECTS, UserTable, is_speakable, require_text
from lakebed.tables.fold import fold_rows
from lakebed.tables.fold.fold import Folder
from lakebed.tables.insert.existing_keys import NewKeys, leave_out_existing
from lakebed.tables.insert.insert_values import (
    Inserted,
    Insertion,
    InsertKey,
    Premise,
    require_same,
)
from lakebed.tables.insert.record_digest import digest
from lakebed.tables.insert.records import read_records
from lakebed.tables.insert.rejects import describe_bad
from lakebed.tables.insert.validation import BadRecord, validate
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.stored_rows import TableRows, as_stored
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.tables.rows.table_snapshot import TableSnapshots

if TYPE_CHECKING:
    import pyarrow as pa

REFUSE, KEEP = "refuse", "keep"
REPLACE, IGNORE = "replace", "ignore"
_ATTEMPTS = 20
_PATIENCE = 3
"""After so many attempts, keys of concurrent inserts are read instead of compared by statistics."""
_LONGEST_KEY = 256
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InsertOptions:
    """The options of an insert."""

    on_error: str = REFUSE
    if_exists: str = REPLACE
    key: str | None = None
    digest: bytes | None = None
    """The digest to store with the key; by default, that of the records."""

    def __post_init__(self) -> None:
        if self.on_error not in (REFUSE, KEEP):
            raise BadInput(
                f"on_error is {self.on_error!r}",
                hint=f"{REFUSE} takes all records or none; {KEEP} puts bad ones among the rejects",
            )
        if self.if_exists not in (REPLACE, IGNORE):
            raise BadInput(
                f"if_exists is {self.if_exists!r}",
                hint=f"{REPLACE} takes the new row of a key; {IGNORE} keeps the old one",
            )
        if self.key is not None and not _is_key(self.key):
            raise BadInput(
                f"the key of an insert is a text of 1 to {_LONGEST_KEY} characters, without NUL"
            )


class Inserter:
    """Inserts into the tables of one lake. Safe to use from several threads."""

    def __init__(
        self,
        catalog: Catalog,
        reader: RowReader,
        snapshots: TableSnapshots,
        publisher: TablePublisher,
        folder: Folder,
    ) -> None:
        self._catalog = catalog
        self._reader = reader
        self._snapshots = snapshots
        self._publisher = publisher
        self._folder = folder
        self._tables_by_name: dict[tuple[str, str], UserTable] = {}

    def insert(self, database: str, name: str, records: Any, options: InsertOptions) -> Inserted:
        """Insert records, all or none of the good ones, at one tick."""
        require_text(database, name)
        full_name = f"{database}.{name}"
        with Operation(_log, "insert", failure_level=logging.WARNING, table=full_name) as operation:
            if name.endswith(REJECTS):
                table = f"{database}.{name.removesuffix(REJECTS)}"
                raise Refused(
                    f"{full_name} has what {table} refused, and nothing else",
                    hint=f"insert into {table}",
                )
            rows = read_records(records)
            insert_key = None
            if options.key is not None:
                insert_key = InsertKey(options.key, options.digest or digest(rows))
            for attempt in range(_ATTEMPTS):
                try:
                    done = self._insert_once(database, name, rows, options, insert_key, attempt)
                    break
                except (UnknownTable, BadRecords):  # the cached definition may be old
                    if not self._find_again(database, name) or attempt:
                        raise
                except (StalePlan, LeaseLost):
                    if attempt == _ATTEMPTS - 1:
                        raise
                    self._find_again(database, name)
            operation.add(rows=done.rows, rejected=done.rejected, tick=done.tick)
        return done

    def _insert_once(
        self,
        database: str,
        name: str,
        records: list[Any] | pa.Table,
        options: InsertOptions,
        insert_key: InsertKey | None,
        attempt: int,
    ) -> Inserted:
        table = self.find(database, name)
        repeated = self._find_repeated(table, insert_key)
        if repeated is not None:
            return repeated
        checked = validate(records, table.schema)
        if checked.bad and options.on_error == REFUSE:
            raise BadRecords(checked.bad, len(records))
        rows = fold_rows.keep_last(as_stored(checked.rows, table), table.key)
        parts = [TableRows(table, rows)]
        if checked.bad:
            parts.append(self._reject(table, checked.bad))
        premise = None
        if table.key and options.if_exists == IGNORE:
            with self._snapshots.take(table.table_id) as snapshot:
                parts[0] = TableRows(table, leave_out_existing(self._reader, snapshot, rows))
            reader = self._reader if attempt >= _PATIENCE else None
            premise = Premise(snapshot.tick, keys=NewKeys(table, rows, reader))
        if not any(part.rows.num_rows for part in parts) and insert_key is None:
            with self._catalog.read() as connection:
                tables.get(connection, table.database, table.name)
                return Inserted(clock.now(connection), 0)
        done = self._publisher.insert(Insertion(parts, premise=premise, insert_key=insert_key))
        if not done.repeated:
            self._folder.fold_small(table, done.crowded)
        return done

    def find(self, database: str, name: str) -> UserTable:
        """Return the table of this name, from a cache that every insert verifies."""
        table = self._tables_by_name.get((database, name))
        if table is None:
            with self._catalog.glance() as connection:
                table = tables.get(connection, database, name)
            self._tables_by_name[database, name] = table
        return table

    def _find_again(self, database: str, name: str) -> bool:
        """Reload a table and its rejects table; return True if one of them changed."""
        names = [
            table_name
            for table_name in (name, f"{name}{REJECTS}")
            if (database, table_name) in self._tables_by_name
        ]
        old = [self._tables_by_name.pop((database, table_name), None) for table_name in names]
        return [self.find(database, table_name) for table_name in names] != old

    def _find_repeated(self, table: UserTable, insert_key: InsertKey | None) -> Inserted | None:
        if insert_key is None:
            return None
        with self._catalog.glance() as connection:
            earlier = inserts.find(connection, table.table_id, insert_key.key)
        if earlier is None:
            return None
        require_same(table, insert_key, earlier)
        return Inserted(earlier.tick, earlier.rows, earlier.rejected, repeated=True)

    def _reject(self, table: UserTable, bad: Sequence[BadRecord]) -> TableRows:
        """Return bad records as rows of the rejects table."""
        rejects = self.find(table.database, f"{table.name}{REJECTS}")
        with self._catalog.glance() as connection:
            now = clock.upcoming(connection)
        rows = validate([describe_bad(record, now) for record in bad], rejects.schema).rows
        return TableRows(rejects, as_stored(rows, rejects))


def _is_key(key: Any) -> bool:
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY:
        return False
    return is_speakable(key)
