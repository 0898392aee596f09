"""Users' tables of one lake: `lake.tables`. No server and no JVM is needed to insert or query, and
any number of threads and processes may do both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import BadInput
from lakebed.lifecycle.check import Checker
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable, name_import
from lakebed.model.time import Instant
from lakebed.tables.delete import Deleter, TableQueries
from lakebed.tables.erase import Eraser
from lakebed.tables.fold.fold import Folder
from lakebed.tables.insert.insert import Inserter, InsertOptions
from lakebed.tables.insert.insert_values import Inserted
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.tables.rows.table_snapshot import TableSnapshots
from lakebed.tables.schema.ddl import Definitions
from lakebed.tables.table import Table

if TYPE_CHECKING:
    from lakebed.tables.importing.report import ImportFile, ImportOutcome, ImportPlan, ImportReport
    from lakebed.tables.importing.run import Adopter


@checked_methods
class Tables:
    """Databases with tables of JSON records."""

    def __init__(
        self,
        catalog: Catalog,
        reader: RowReader,
        snapshots: TableSnapshots,
        publisher: TablePublisher,
        queries: TableQueries,
        checker: Checker,
    ) -> None:
        self.reader = reader
        self.snapshots = snapshots
        self.definitions = Definitions(catalog)
        self.folder = Folder(reader, snapshots, publisher)
        self.deleter = Deleter(reader, snapshots, publisher, queries)
        self.eraser = Eraser(reader, snapshots, publisher)
        self.query = queries.query
        self._checker = checker
        self._catalog = catalog
        self._quarantine = publisher.quarantine
        self.inserter = Inserter(catalog, reader, snapshots, publisher, self.folder)

    # -- databases and tables -------------------------------------------------------------------

    def create_database(self, name: str) -> None:
        """Create a database."""
        self.definitions.create_database(name)

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        return self.definitions.list_databases()

    def delete_database(self, name: str) -> list[str]:
        """Delete a database with all its tables, restorable for the lake's grace period. Returns
        the full names of the tables."""
        return [table.full_name for table in self.definitions.delete_database(name)]

    def restore_database(self, name: str, deleted_at: Instant | None = None) -> list[str]:
        """Restore the database of this name that was deleted last, or at an instant. Returns
        the full names of its tables."""
        return [table.full_name for table in self.definitions.restore_database(name, deleted_at)]

    def create_table(
        self,
        database: str,
        name: str,
        schema: Any,
        bucket: str = "day",
        *,
        retention: str | None = None,
    ) -> Table:
        """Create a table. The schema declares the type and the rules of each column; ``bucket`` is
        the split of rows by time: hour, day, week or month. A bad schema is refused whole, with
        every problem named."""
        self.definitions.create_table(database, name, schema, bucket, retention)
        return Table(self, database, name)

    def get(self, database: str, name: str) -> Table:
        """Return the table of this name; raise `UnknownTable` if there is none."""
        self.definitions.get(database, name)
        return Table(self, database, name)

    def list_tables(self, database: str | None = None) -> list[UserTable]:
        """Return the tables of one database or of all."""
        return self.definitions.list_tables(database)

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
        """Add columns, widen int to float, relax required; anything else is refused."""
        return self.definitions.alter_table(
            database, name, add=add, widen=widen, relax=relax, **unsupported
        )

    def set_retention(self, database: str, name: str, retention: str | None) -> UserTable:
        """Keep rows for this long after their time, as ``90d``; None keeps them for ever. Applied
        by retiring, with a plan: `Retirement.plan_by_table_retention`."""
        return self.definitions.set_retention(database, name, retention)

    def delete_table(self, database: str, name: str) -> None:
        """Delete a table, restorable for the lake's grace period."""
        self.definitions.delete_table(database, name)

    def restore_table(self, database: str, name: str, deleted_at: Instant | None = None) -> Table:
        """Restore the table of this name that was deleted last, or at an instant."""
        self.definitions.restore_table(database, name, deleted_at)
        return Table(self, database, name)

    # -- records --------------------------------------------------------------------------------

    def propose_schema(self, samples: Any) -> dict[str, Any]:
        """Return a draft of a schema for records like these."""
        from lakebed.tables.schema.infer_schema import propose_schema

        return propose_schema(samples)

    def insert(
        self,
        database: str,
        name: str,
        records: Any,
        *,
        on_error: str = "refuse",
        if_exists: str = "replace",
        key: str | None = None,
    ) -> Inserted:
        """Insert records (a JSON array, JSON lines, dicts or Arrow) in one transaction.

        A bad record refuses all of them; with ``on_error="keep"`` it goes, with the reasons, into
        the table's rejects, and the good ones are stored. A row whose unique columns are there
        already takes the old one's place, or with ``if_exists="ignore"`` is left out. An insert
        that is repeated with the same ``key`` counts once.
        """
        return self.inserter.insert(
            database, name, records, InsertOptions(on_error, if_exists, key)
        )

    def plan_import(
        self,
        folder: str | Path,
        database: str,
        name: str,
        *,
        time_column: str | None = None,
        bucket: str | None = None,
        unique: Sequence[str] = (),
        if_exists: str = "replace",
        zone: str | None = None,
        progress: Callable[[ImportFile], None] = lambda _file: None,
    ) -> ImportPlan:
        """Return the plan of an import of a tree of Parquet files, or of one file: the class of
        every file, and a schema if the table does not exist, for which the first options are. Rows
        whose unique columns are in the table replace the old ones, however old they are, or with
        ``if_exists="ignore"`` are left out. Files with timestamps without a zone are refused unless
        ``zone`` names it, as UTC, +02:00 or Europe/Berlin. Changes nothing."""
        from lakebed.tables.importing.plan import TableWishes
        from lakebed.tables.insert.convert_columns import check_zone

        if not isinstance(folder, str | Path):
            raise BadInput(f"expected a folder of Parquet files or one file, got {folder!r}")
        wishes = TableWishes(
            time_column,
            bucket,
            (unique,) if isinstance(unique, str) else unique,
            None if zone is None else check_zone(zone),
        )
        return self._adopter.plan(Path(folder), database, name, wishes, progress, if_exists)

    def carry_out_import(
        self,
        plan: ImportPlan,
        progress: Callable[[ImportOutcome], None] = lambda _outcome: None,
    ) -> ImportReport:
        """Insert the sound files of a plan, each in one transaction that counts once, and copy
        the others to quarantine. The source is never changed; repeating it is safe."""
        return self._adopter.carry_out(plan, progress)

    def list_quarantined(self, database: str, name: str) -> list[TemporaryFile]:
        """Return the files that imports into a table quarantined, with the reasons. They stay until
        they are condemned (`lakebed check --condemn`); erasure does not reach them."""
        return self._quarantine.list_files(name_import(database, name))

    @property
    def _adopter(self) -> Adopter:
        from lakebed.tables.importing.run import Adopter

        return Adopter(self._catalog, self.definitions, self.inserter, self._quarantine)

    def delete_rows(self, database: str, name: str, where: str) -> int:
        """Delete the rows for which a condition in SQL is true, and return their number."""
        return self.deleter.delete_rows(self.definitions.get(database, name), where)

    def find_empty_partitions(self, database: str, name: str) -> list[Partition]:
        """Return the live partitions of a table that hold no rows."""
        return [
            partition for partition in self.get(database, name).partitions() if partition.is_empty
        ]

    def validate_table_files(self, database: str, name: str) -> Any:
        """Read every file of a table, those of retired partitions too, to the last page. The
        report of `lakebed check --table`: its findings, and whether it `is_clean`."""
        return self._checker.check_table(self.definitions.get(database, name))
