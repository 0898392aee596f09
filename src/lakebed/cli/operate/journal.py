"""`lakebed journal` and `leases`: what happened to a lake, and which processes use it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, opened
from lakebed.errors import BadInput


def _require_operations(requested: list[str], recorded: list[str]) -> None:
    """Raise if the journal has never told of one of these."""
    for operation in requested:
        if operation not in recorded:
            raise BadInput(
                f"the journal has no operation {operation!r}", hint=f"it has {', '.join(recorded)}"
            )


def show_journal(
    lake: LakeOption = HERE,
    limit: Annotated[int, typer.Option(min=1, help="At most so many entries.")] = 50,
    operation: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these, e.g. publish, retire.")
    ] = None,
    view_set: Annotated[
        str | None,
        typer.Option(
            "--view", metavar="NAME", help="Only this view set, or table as DATABASE.TABLE."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened to the lake, newest first.

    Example: lakebed journal --operation retire --operation restore
    """
    from lakebed.catalog import journal
    from lakebed.catalog.records import tables

    with opened(lake, write=False) as open_lake, open_lake.catalog.read() as connection:
        entries = journal.list_entries(
            connection,
            limit=limit,
            operations=operation or (),
            view_set=tables.find_stored(connection, view_set),
        )
        names = {} if as_json else tables.list_names(connection)
        if operation and not entries:
            _require_operations(operation, journal.list_operations(connection))
    rows: list[dict[str, Any]] = [
        {
            "time": output.instant(entry.tick),
            "operation": entry.operation,
            "view_set_name": entry.view_set,
            "rows": entry.rows,
            "bytes": entry.bytes,
            "reason": entry.reason,
            "actor": entry.actor,
        }
        | (
            {
                "view_instance_id": entry.instance,
                "partition_id": entry.partition_id,
                "file_path": entry.file_path,
                "detail": entry.detail,
            }
            if as_json
            else {}
        )
        for entry in entries
    ]
    rows = [output.name_tables(row, names) for row in rows]
    output.show(rows, as_json=as_json, empty="no entry of the journal matches")


def show_leases(lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """Show which processes read, write or build now.

    Example: lakebed leases
    """
    from lakebed.catalog import leases

    with opened(lake, write=False) as open_lake, open_lake.catalog.read() as connection:
        rows = [
            {
                "kind": lease.kind.value,
                "holder": lease.holder,
                "view_set_name": lease.view_set,
                "reads_since": output.instant(lease.oldest_tick),
                "acquired_at": output.instant(lease.acquired_at),
                "beats": lease.beats,
            }
            for lease in leases.list_leases(connection)
            if lease.holder != open_lake.catalog.actor
        ]
    output.show(rows, as_json=as_json, empty="no other process uses the lake")
