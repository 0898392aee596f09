"""The rules for partitions of users' tables, beyond those for every partition: the table exists and
knows the partition's schema, and the rows are in the partition's bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakebed.catalog.catalog import Connection
from lakebed.catalog.records import tables
from lakebed.errors import LakebedError
from lakebed.lifecycle.checks.findings import Finding, Severity, damage
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable, is_table, table_id_of


def list_known(connection: Connection) -> dict[str, UserTable]:
    """Return every table, deleted or not, by its id."""
    every = [*tables.list_tables(connection), *tables.list_deleted(connection)]
    return {table.table_id: table for table in every}


def look_at(partition: Partition, known_tables: Mapping[str, UserTable]) -> Iterator[Finding]:
    """Yield the findings for a partition, if it belongs to a table."""
    if not is_table(partition.view_set):
        return
    subject = partition.partition_id
    table = known_tables.get(table_id_of(partition.view_set))
    if table is None:
        yield damage("table", subject, f"{partition.identity} belongs to no table")
        return
    if partition.schema_hash not in table.stored:
        yield damage("table", subject, f"{table.full_name} never had the schema of this partition")
    try:
        within = table.bucket.range_of(partition.instance)
    except LakebedError as error:
        yield damage("table", subject, f"{table.full_name}: {error}")
        return
    events = partition.events
    if events is not None and not (within.begin <= events.earliest <= events.latest < within.end):
        yield damage(
            "table", subject, f"{table.full_name} has times outside bucket {partition.instance}"
        )
    if partition.is_live and table.deleted_at is not None:
        yield damage("table", subject, f"{table.full_name} was deleted, this partition was not")
    if partition.is_live and partition.is_empty:
        message = f"{table.full_name} {partition.instance}: nothing is left in it"
        yield Finding(Severity.NOTE, "empty partition", subject, message)
