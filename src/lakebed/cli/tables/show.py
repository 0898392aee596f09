"""`lakebed tables list` and `show`: what tables there are, and what is known of one."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, opened
from lakebed.cli.retention import show_keep
from lakebed.cli.tables.names import Row, TableArgument, split_table_name

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.model.partition import Partition
    from lakebed.model.table import Column, TableSchema
    from lakebed.model.user_table import UserTable
    from lakebed.tables.table import TableStats

SHOWN_BUCKETS = 10


class BucketName(enum.StrEnum):
    """How rows are split by time."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def list_tables(
    database: Annotated[str | None, typer.Argument(help="Only of this database.")] = None,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="What was deleted and can be restored.")
    ] = False,
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List tables and what is stored of them.

    Rows that were replaced or deleted count as stored until their bucket is folded.

    Example: lakebed tables list home
    """
    with opened(lake, write=False) as open_lake:
        definitions = open_lake.tables.definitions
        if deleted:
            names = definitions.list_deleted_databases()
            found = definitions.list_deleted()
            if database is not None:
                found = [each for each in found if each.database == database]
                names = [each for each in names if each == database]
        else:
            found = definitions.list_tables(database)
            names = definitions.list_databases() if database is None else [database]
        rows = [table_row(open_lake, each) for each in found]
    if as_json:
        output.show_json({"databases": names, "tables": rows})
        return
    if deleted:
        _show_deleted(rows, names)
        return
    shown = [
        {
            "table": row["table"],
            "key": ", ".join(row["key"]) or None,
            "bucket": row["bucket"],
            "keep": row["keep"],
            "partitions": row["partitions"],
            "stored_rows": row["stored_rows"],
            "size": output.size(row["bytes"]),
        }
        for row in rows
    ]
    if shown:
        output.show(shown, as_json=False, empty="")
    for each in names:
        if not any(row["database"] == each for row in rows):
            output.say(f"database {each} has no table yet")
    if not names:
        output.say("no database yet: make one with lakebed tables create DATABASE.TABLE --schema …")


def table_row(lake: Lake, table: UserTable) -> Row:
    partitions = [] if table.deleted_at is not None else _live(lake, table)
    return {
        "database": table.database,
        "table": table.full_name,
        "key": list(table.key),
        "columns": len(table.schema.columns),
        "bucket": table.bucket.value,
        "keep": show_keep(table.retention_us),
        "version": table.version,
        "partitions": len(partitions),
        "stored_rows": sum(each.num_rows for each in partitions),
        "bytes": sum(each.file_size for each in partitions),
        "created_at": output.instant(table.created_at),
        "deleted_at": output.instant(table.deleted_at),
    }


def _live(lake: Lake, table: UserTable) -> Sequence[Partition]:
    with lake.tables.snapshots.take(table.table_id) as snapshot:
        return snapshot.partitions


def _show_deleted(rows: Sequence[Row], databases: Sequence[str]) -> None:
    shown = [
        output.short({name: row[name] for name in ("table", "bucket", "deleted_at")})
        for row in rows
    ]
    output.show(shown, as_json=False, empty="nothing was deleted")
    for each in databases:
        output.say(f"database {each} is deleted; with its tables: lakebed tables restore {each}")


def show(name: TableArgument, lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """Show a table: columns, key, rows, buckets, versions.

    Late rows came when their bucket was over; future ones had a time that was not yet.

    Example: lakebed tables show home.heart_rate
    """
    database, table = split_table_name(name)
    with opened(lake, write=False) as open_lake:
        handle = open_lake.tables.get(database, table)
        definition, stats = handle.definition, handle.stats()
        buckets = by_bucket(handle.partitions())
    if as_json:
        output.show_json(_as_json(definition, stats, buckets))
        return
    for line in _describe(definition, stats):
        output.tell(line)
    output.tell("")
    output.show(describe_columns(definition.schema), as_json=False, empty="")
    if buckets:
        output.tell("")
        shown = [{**row, "bytes": output.size(row["bytes"])} for row in buckets[-SHOWN_BUCKETS:]]
        output.show(shown, as_json=False, empty="")
    if len(buckets) > SHOWN_BUCKETS:
        output.say(f"and {len(buckets) - SHOWN_BUCKETS:,} older buckets; --json has all")


def _as_json(table: UserTable, stats: TableStats, buckets: Sequence[Row]) -> Row:
    figures = asdict(stats)
    figures |= {each: output.instant(figures[each]) for each in ("earliest", "latest")}
    return {
        "database": table.database,
        "table": table.full_name,
        "key": list(table.key),
        "time_column": table.time_column,
        "bucket": table.bucket.value,
        "keep": show_keep(table.retention_us),
        "created_at": output.instant(table.created_at),
        "version": table.version,
        "schema": table.schema.to_json(),
        "versions": [each.to_json() for each in table.versions],
        "stats": figures,
        "buckets": list(buckets),
    }


def _describe(table: UserTable, stats: TableStats) -> Iterator[str]:
    """What there is to know besides columns and buckets, a line each."""
    times = [output.instant(each) for each in (stats.earliest, stats.latest)]
    span = " to ".join(str(each).replace(".000000Z", "Z") for each in times)
    empty = f", {stats.empty_partitions:,} of them empty" if stats.empty_partitions else ""
    yield f"{table.full_name}, version {table.version}"
    yield f"  rows      {stats.rows:,}" + ("" if stats.earliest is None else f", {span}")
    yield f"  stored    {output.plural(stats.buckets, table.bucket.value + ' bucket')}, " + (
        f"{output.plural(stats.partitions, 'partition')}{empty}, {output.size(stats.bytes)}"
    )
    yield f"  key       {', '.join(table.key) or 'none: rows are never replaced'}"
    yield f"  kept      {show_keep(table.retention_us)}"
    yield f"  late      {stats.late:,}"
    yield f"  future    {stats.future:,}"
    hint = f": SELECT * FROM {table.full_name}_rejects" if stats.rejected else ""
    yield f"  rejected  {stats.rejected:,}{hint}"
    if table.schema.out_of_range != "reject":
        yield "  ranges    values outside are stored, and named in _out_of_range"
    for number, (old, new) in enumerate(zip(table.versions, table.versions[1:], strict=False), 2):
        yield f"  version {number} {describe_change(old, new)}"


def describe_columns(schema: TableSchema) -> list[Row]:
    """The columns with what they must be, to show them."""
    return [
        {"column": each.name, "type": each.type, "rules": _rules(each)} for each in schema.columns
    ]


def _rules(column: Column) -> str:
    """What a column must be, in few words."""
    said = []
    if column.time:
        said.append("the time")
    if column.unique:
        said.append("unique")
    if column.required and not (column.time or column.unique):
        said.append("required")
    if column.min is not None or column.max is not None:
        low = "" if column.min is None else column.min
        high = "" if column.max is None else column.max
        said.append(f"{low} … {high}".strip())
    if column.unit is not None:
        said.append(f"numbers in {column.unit}")
    if column.description:
        said.append(column.description)
    return ", ".join(said)


def describe_change(old: TableSchema, new: TableSchema) -> str:
    """What one version of a schema has that the one before had not."""
    known = {each.name: each for each in old.columns}
    said = []
    for each in new.columns:
        before = known.get(each.name)
        if before is None:
            said.append(f"added {each.name} {each.type}")
            continue
        if before.type != each.type:
            said.append(f"widened {each.name} to {each.type}")
        if before.required and not each.required:
            said.append(f"relaxed {each.name}")
    return ", ".join(said)


def describe_table(table: UserTable) -> str:
    key = f"key {', '.join(table.key)}" if table.key else "no key"
    return (
        f"{output.plural(len(table.schema.columns), 'column')}, {key}, by {table.bucket.value} of "
        f"{table.time_column}, kept {show_keep(table.retention_us)}"
    )


def by_bucket(partitions: Sequence[Partition]) -> list[Row]:
    rows: dict[str, Row] = {}
    for each in partitions:
        empty: Row = {"bucket": each.instance, "partitions": 0, "stored_rows": 0, "bytes": 0}
        row = rows.setdefault(each.instance, empty)
        row["partitions"] += 1
        row["stored_rows"] += each.num_rows
        row["bytes"] += each.file_size
    return [rows[name] for name in sorted(rows)]
