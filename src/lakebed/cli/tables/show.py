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
    from lakebed.model.tables.schema import Column, TableSchema
    from lakebed.model.tables.table import UserTable
    from lakebed.tables.table import TableStats

SHOWN_BUCKETS = 10


class BucketName(enum.StrEnum):
    """The length of the buckets that rows are split into."""

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
            tables = definitions.list_deleted()
            if database is not None:
                tables = [definition for definition in tables if definition.database == database]
                names = [name for name in names if name == database]
        else:
            tables = definitions.list_tables(database)
            names = definitions.list_databases() if database is None else [database]
        rows = [table_row(open_lake, definition) for definition in tables]
    if as_json:
        output.show_json({"databases": names, "tables": rows})
        return
    if deleted:
        _show_deleted(rows, names)
        return
    table_rows = [
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
    if table_rows:
        output.show(table_rows, as_json=False, empty="")
    for name in names:
        if not any(row["database"] == name for row in rows):
            output.say(f"database {name} has no table yet")
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
        "stored_rows": sum(partition.num_rows for partition in partitions),
        "bytes": sum(partition.file_size for partition in partitions),
        "created_at": output.instant(table.created_at),
        "deleted_at": output.instant(table.deleted_at),
    }


def _live(lake: Lake, table: UserTable) -> Sequence[Partition]:
    with lake.tables.snapshots.take(table.table_id) as snapshot:
        return snapshot.partitions


def _show_deleted(rows: Sequence[Row], databases: Sequence[str]) -> None:
    table_rows = [
        output.short({name: row[name] for name in ("table", "bucket", "deleted_at")})
        for row in rows
    ]
    output.show(table_rows, as_json=False, empty="nothing was deleted")
    for database in databases:
        output.say(
            f"database {database} is deleted; with its tables: lakebed tables restore {database}"
        )


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
        bucket_rows = [
            {**row, "bytes": output.size(row["bytes"])} for row in buckets[-SHOWN_BUCKETS:]
        ]
        output.show(bucket_rows, as_json=False, empty="")
    if len(buckets) > SHOWN_BUCKETS:
        output.say(f"and {len(buckets) - SHOWN_BUCKETS:,} older buckets; --json has all")


def _as_json(table: UserTable, stats: TableStats, buckets: Sequence[Row]) -> Row:
    figures = asdict(stats)
    figures |= {name: output.instant(figures[name]) for name in ("earliest", "latest")}
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
        "versions": [version.to_json() for version in table.versions],
        "stats": figures,
        "buckets": list(buckets),
    }


def _describe(table: UserTable, stats: TableStats) -> Iterator[str]:
    """Yield a line for each fact about a table, without columns and buckets."""
    times = [output.instant(instant) for instant in (stats.earliest, stats.latest)]
    span = " to ".join(str(instant).replace(".000000Z", "Z") for instant in times)
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
        {"column": column.name, "type": column.type, "rules": _rules(column)}
        for column in schema.columns
    ]


def _rules(column: Column) -> str:
    """Return the rules of a column in a few words."""
    rules = []
    if column.time:
        rules.append("the time")
    if column.unique:
        rules.append("unique")
    if column.required and not (column.time or column.unique):
        rules.append("required")
    if column.min is not None or column.max is not None:
        low = "" if column.min is None else column.min
        high = "" if column.max is None else column.max
        rules.append(f"{low} … {high}".strip())
    if column.unit is not None:
        rules.append(f"numbers in {column.unit}")
    if column.description:
        rules.append(column.description)
    return ", ".join(rules)


def describe_change(old: TableSchema, new: TableSchema) -> str:
    """Return the changes from one version of a schema to the next."""
    old_columns = {old_column.name: old_column for old_column in old.columns}
    changes = []
    for column in new.columns:
        before = old_columns.get(column.name)
        if before is None:
            changes.append(f"added {column.name} {column.type}")
            continue
        if before.type != column.type:
            changes.append(f"widened {column.name} to {column.type}")
        if before.required and not column.required:
            changes.append(f"relaxed {column.name}")
    return ", ".join(changes)


def describe_table(table: UserTable) -> str:
    key = f"key {', '.join(table.key)}" if table.key else "no key"
    return (
        f"{output.plural(len(table.schema.columns), 'column')}, {key}, by {table.bucket.value} of "
        f"{table.time_column}, kept {show_keep(table.retention_us)}"
    )


def by_bucket(partitions: Sequence[Partition]) -> list[Row]:
    rows: dict[str, Row] = {}
    for partition in partitions:
        empty: Row = {"bucket": partition.instance, "partitions": 0, "stored_rows": 0, "bytes": 0}
        row = rows.setdefault(partition.instance, empty)
        row["partitions"] += 1
        row["stored_rows"] += partition.num_rows
        row["bytes"] += partition.file_size
    return [rows[name] for name in sorted(rows)]
