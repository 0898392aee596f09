"""What was retired last, until when it can be restored, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.catalog import files, partitions, tables
from lakebed.catalog.catalog import Connection
from lakebed.errors import BadInput, Conflict, NotFound, Overlap, UnknownTable
from lakebed.lake import Lake
from lakebed.lifecycle import selection
from lakebed.model.partition import FileState, Partition
from lakebed.model.time import format_instant
from lakebed.model.user_table import is_table, table_id_of
from lakebed.web.times import read_number

ASKED = ("view_set", "lines", "replaced")
"""The parameters of its address."""
_LINES = 50
_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class RetiredRow:
    """One retired partition."""

    partition_id: str
    name: str
    """Its view set's, or its table's."""
    instance: str
    begin: str
    end: str
    rows: int
    bytes: int
    retired: str
    until: str | None
    """When its grace period ends; None if it is held until it is restored."""
    obstacle: str | None
    """Why it cannot be restored; None if it can."""


@dataclass(frozen=True, slots=True)
class RetiredPage:
    """What the page shows."""

    asked: Mapping[str, str]
    retired: Sequence[RetiredRow]
    has_more: bool


def read_retired(lake: Lake, asked: Mapping[str, str]) -> RetiredPage:
    """What was retired, the last first; what a merge or a fold replaced only if it is asked for,
    because its rows are still there."""
    wanted = {each: asked[each] for each in ASKED if asked.get(each)}
    if wanted.get("replaced", "yes") != "yes":
        raise BadInput(f"replaced is {wanted['replaced']!r}", hint="use yes, or leave it out")
    limit = read_number(wanted, "lines", _LINES, _MOST_LINES)
    with lake.catalog.read() as connection:
        found = partitions.list_retired(
            connection,
            limit + 1,
            view_set=tables.find_stored(connection, wanted.get("view_set")),
            with_replaced="replaced" in wanted,
        )
        rows = [
            RetiredRow(
                each.partition_id,
                _find_name(connection, each),
                each.instance,
                format_instant(each.insert_range.begin),
                format_instant(each.insert_range.end),
                each.num_rows,
                each.file_size,
                format_instant(each.retired_at or 0),
                None if each.expiration is None else format_instant(each.expiration),
                _find_obstacle(connection, each),
            )
            for each in found[:limit]
        ]
    return RetiredPage(wanted, rows, len(found) > limit)


def _find_obstacle(connection: Connection, partition: Partition) -> str | None:
    try:
        selection.get_restorable(connection, partition.partition_id)
        others = selection.list_in_the_way(connection, partition)
        if others:
            raise Overlap(f"{others[0].describe()} is in the way")
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
