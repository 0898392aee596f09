"""Retired partitions, each with the reason if it cannot be restored."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.records import files, partitions, tables
from lakebed.errors import Conflict, NotFound, Overlap, UnknownTable
from lakebed.lifecycle import selection
from lakebed.model.partition import FileState, Partition
from lakebed.model.tables.table import is_table, table_id_of


@dataclass(frozen=True, slots=True)
class RetiredPartition:
    """A retired partition."""

    partition: Partition
    name: str
    """The name of its view set or table."""
    obstacle: str | None
    """The reason why it cannot be restored; None if it can."""


def list_retired(
    catalog: Catalog, limit: int, view_set: str | None = None, *, with_replaced: bool = False
) -> list[RetiredPartition]:
    """Return retired partitions, the last retired first. Those that a merge or a fold replaced are
    left out by default, because their rows are still there."""
    with catalog.read() as connection:
        rows = partitions.list_retired(
            connection,
            limit,
            view_set=tables.find_stored(connection, view_set),
            with_replaced=with_replaced,
        )
        return [
            RetiredPartition(row, _find_name(connection, row), _find_obstacle(connection, row))
            for row in rows
        ]


def _find_obstacle(connection: Connection, partition: Partition) -> str | None:
    try:
        selection.get_restorable(connection, partition.partition_id)
        in_the_way = selection.list_in_the_way(connection, partition)
        if in_the_way:
            raise Overlap(f"{in_the_way[0].describe()} is in the way")
        if partition.file_path is not None:
            file = files.find_file(connection, partition.file_path)
            if file is None or file.state is FileState.DELETING:
                raise Conflict("its file is being swept")
    except (Conflict, NotFound) as error:
        if partition.replaced and is_table(partition.view_set):
            return "what is left of its rows lives on in what replaced it"
        return f"{error} ({error.hint})" if error.hint else str(error)
    return None


def _find_name(connection: Connection, partition: Partition) -> str:
    if not is_table(partition.view_set):
        return partition.view_set
    try:
        return tables.get_by_id(connection, table_id_of(partition.view_set)).full_name
    except UnknownTable:
        return partition.view_set
