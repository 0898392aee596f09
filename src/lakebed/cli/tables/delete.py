"""`lakebed tables delete`, `restore`, `forget` and `expire`: out of sight, back again, gone. What
condemns shows its plan first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.cli.tables.names import (
    REPEAT,
    NameArgument,
    Row,
    TableArgument,
    split_name,
    split_table_name,
)
from lakebed.cli.tables.show import by_bucket, table_row
from lakebed.errors import BadInput, BadSql, Refused, UnknownDatabase

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.model.tables.schema import TableSchema
    from lakebed.tables.erase import Trace


def delete(
    name: NameArgument,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only the rows for which this condition is true."),
    ] = None,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a table, a database or, with --where, rows.

    Shows what would go; acts with --yes. A table or database can be restored until the lake's
    grace period ends. Deleted rows cannot: until then `lakebed query --as-of` still sees them.

    Example: lakebed tables delete home.heart_rate --yes

    Example: lakebed tables delete home.heart_rate --where "device = 'ring-7'" --yes
    """
    database, table = split_name(name)
    if where is not None and table is None:
        raise typer.BadParameter(f"--where is for the rows of a table: write {name}.TABLE")
    with opened(lake, is_plan=not yes) as open_lake:
        if where is not None:
            _delete_rows(open_lake, database, str(table), where, yes=yes, as_json=as_json)
        else:
            _delete_tables(open_lake, database, table, yes=yes, as_json=as_json)


def _delete_rows(
    lake: Lake, database: str, table: str, where: str, *, yes: bool, as_json: bool
) -> None:
    from lakebed.tables.delete import require_condition

    name = f"{database}.{table}"
    if not where.strip():
        raise BadInput("the condition is empty", hint="""e.g. --where "device = 'ring-7'" """)
    handle = lake.tables.get(database, table)
    require_condition(handle.definition, where)
    rows = _count_rows(lake, name, where)
    if yes and rows:
        rows = handle.delete_rows(where)
    if as_json:
        output.show_json({"done": yes, "table": name, "rows": rows})
    elif yes:
        output.tell(f"{name}: {output.plural(rows, 'row')} deleted")
    else:
        summary = f"plan: delete {rows:,} of {output.plural(handle.count(), 'row')} of {name}."
        output.say(f"{summary} {REPEAT}")


def _count_rows(lake: Lake, name: str, where: str) -> int:
    """Return the number of rows that a condition is true for. `BadSql` gives the position in it."""
    before = f"SELECT count(*) AS n FROM {name} WHERE ("
    try:
        counts = lake.query(f"{before}{where}\n)").to_arrow()
    except BadSql as error:
        reason = str(error).rpartition(" (line ")[0] or str(error)
        line, column = error.line, error.column
        if line is not None and column is not None and line == 1:
            column -= len(before)
        if line is not None and (line > len(where.splitlines()) or (column or 0) < 1):
            line = column = None
            reason = f"{reason.rstrip(': ').removesuffix(', found')} at its end"
        raise BadSql(
            f"in the condition: {reason}", line=line, column=column, hint=error.hint
        ) from error
    return int(counts["n"][0].as_py())


def _delete_tables(
    lake: Lake, database: str, table: str | None, *, yes: bool, as_json: bool
) -> None:
    from lakebed.model.time import format_duration

    definitions = lake.tables.definitions
    doomed = (
        definitions.list_tables(database) if table is None else [definitions.get(database, table)]
    )
    rows = [table_row(lake, definition) for definition in doomed]
    grace = format_duration(lake.row.grace_us)
    if yes and table is None:
        definitions.delete_database(database)
    elif yes and table is not None:
        definitions.delete_table(database, table)
    what = f"database {database}" if table is None else f"{database}.{table}"
    if as_json:
        output.show_json({"done": yes, "tables": rows, "restorable_for": grace})
        return
    if table is None and rows:
        names = ("table", "partitions", "stored_rows")
        table_rows = [
            {**{key: row[key] for key in names}, "size": output.size(row["bytes"])} for row in rows
        ]
        output.show(table_rows, as_json=False, empty="")
    counted = f"{sum(row['partitions'] for row in rows):,} partitions, " + output.size(
        sum(row["bytes"] for row in rows)
    )
    tables = "" if table is not None else f"{output.plural(len(rows), 'table')}, "
    if not yes:
        output.say(f"plan: delete {what} ({tables}{counted}). {REPEAT}")
        return
    output.tell(f"{what}: deleted ({tables}{counted})")
    back = f"lakebed tables restore {database}" + ("" if table is None else f".{table}")
    output.say(f"for {grace} it can be restored with: {back}")


def restore(
    name: NameArgument,
    deleted_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Of several with this name, the one deleted then."),
    ] = None,
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Bring back a table or database that was deleted.

    Of several with this name, the one that was deleted last, or at a given time. A database comes
    back with the tables that were deleted with it. What there is: `lakebed tables list --deleted`.

    Example: lakebed tables restore home.heart_rate
    """
    database, table = split_name(name)
    with opened(lake) as open_lake:
        definitions = open_lake.tables.definitions
        if table is None:
            restored = definitions.restore_database(database, deleted_at)
        elif database in definitions.list_deleted_databases():
            raise UnknownDatabase(
                f"the whole database {database} was deleted",
                hint=f"bring it back first: lakebed tables restore {database}",
            )
        else:
            restored = [definitions.restore_table(database, table, deleted_at)]
        rows = [table_row(open_lake, definition) for definition in restored]
        namesakes = [
            definition for definition in definitions.list_deleted() if definition.full_name == name
        ]
    if as_json:
        output.show_json({"tables": rows})
        return
    if table is None:
        output.tell(f"database {database}: restored, {output.plural(len(rows), 'table')}")
    for row in rows:
        output.tell(
            f"{row['table']}: restored, {output.plural(row['partitions'], 'partition')}, "
            f"{output.size(row['bytes'])}"
        )
    for namesake in namesakes:
        at = output.instant(namesake.deleted_at)
        output.say(f"another {name} was deleted at {at}; to have that one, delete this one first")


# ---- forget -------------------------------------------------------------------------------------


def forget(
    name: TableArgument,
    whom: Annotated[
        list[str],
        typer.Argument(metavar="COLUMN=VALUE", help="What the rows have; of several, all of them."),
    ],
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Erase rows for good, in every stored version of them.

    Shows what would be written again; acts with --yes. In a table with a key, all versions of
    every key that ever had these values go; so do records with them among the rejects, and
    retired partitions that cannot be read. The old files are deleted by `lakebed sweep` once the
    lake's grace period is over.

    Example: lakebed tables forget home.heart_rate device=ring-7
    """
    database, table = split_table_name(name)
    pairs = dict(_split_pair(text) for text in whom)
    if len(pairs) < len(whom):
        raise BadInput("a column is named twice", hint="rows have one value in each column")
    with opened(lake, is_plan=not yes) as open_lake:
        definition = open_lake.tables.definitions.get(database, table)
        where = {column: _read_value(definition.schema, column, pairs[column]) for column in pairs}
        eraser = open_lake.tables.eraser
        act = eraser.forget if yes else eraser.plan
        traces = act(definition, where)
        aside = [file.file_path for file in open_lake.tables.list_quarantined(database, table)]
    rows = sum(trace.rows for trace in traces)
    if as_json:
        partitions = [_trace(trace) for trace in traces]
        output.show_json(
            {"done": yes, "rows": rows, "partitions": partitions, "quarantined": aside}
        )
        return
    if aside:
        output.say(
            f"warning: imports into {name} set {output.plural(len(aside), 'file')} aside, in which "
            "nothing is forgotten; to delete them: lakebed check --condemn PATH"
        )
        for path in aside:
            output.say(f"  {path}")
    if not traces:
        output.say(f"nothing in {name} has these values")
    else:
        output.show(_sum_up(traces), as_json=False, empty="")
        versions = (
            f"{output.plural(rows, 'stored row')} in {output.plural(len(traces), 'partition')}"
        )
        if yes:
            output.tell(f"forgot {versions} of {name}")
            output.say("the old files go with `lakebed sweep` when the grace period is over")
        else:
            output.say(f"plan: write again or condemn {versions} of {name}. {REPEAT}")


def _split_pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not column or not equals:
        raise BadInput(f"{text!r} is not COLUMN=VALUE", hint="write it like device=ring-7")
    return column, value


def _read_value(schema: TableSchema, name: str, text: str) -> Any:
    """A value as its column has it."""
    from lakebed.tables.insert.convert_columns import convert

    column = schema.column(name)
    if column.is_array:
        raise BadInput(f"{name} holds lists, by which nothing can be forgotten")
    value: Any = text
    if column.type == "json":
        try:
            return json.loads(text)
        except ValueError:
            raise BadInput(f"{text!r} is no JSON, as column {name} is") from None
    if column.unit is not None or column.type not in ("string", "datetime"):
        try:
            value = json.loads(text)
        except ValueError:
            value = text
    converted = convert([value], column)
    if converted.bad or value is None:
        raise BadInput(f"{text!r} is no {column.type}, as column {name} is")
    return converted.values[0].as_py()


def _trace(trace: Trace) -> Row:
    partition = trace.partition
    return {
        "bucket": partition.instance,
        "rows": trace.rows,
        "of": partition.num_rows,
        "state": "live" if partition.is_live else "retired" if trace.readable else "unreadable",
        "partition_id": partition.partition_id,
    }


def _sum_up(traces: Sequence[Trace]) -> list[Row]:
    """Return the number of rows to erase for each bucket and state."""
    rows: dict[tuple[str, str], Row] = {}
    for trace in map(_trace, traces):
        empty: Row = {"bucket": trace["bucket"], "state": trace["state"]}
        empty |= {"partitions": 0, "stored_rows": 0}
        row = rows.setdefault((trace["bucket"], trace["state"]), empty)
        row["partitions"] += 1
        row["stored_rows"] += trace["rows"]
    return [rows[bucket] for bucket in sorted(rows)]


# ---- expire -------------------------------------------------------------------------------------


def expire(
    name: TableArgument,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="The table's name again, if most of it would go."),
    ] = None,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Retire buckets that are older than their table keeps.

    How long that is, `lakebed tables alter --keep` says. Shows the plan; acts with --yes. Nothing
    is deleted at once: the partitions can be restored until the lake's grace period ends.

    Example: lakebed tables expire home.heart_rate --yes
    """
    database, table = split_table_name(name)
    with opened(lake, is_plan=not yes) as open_lake:
        plan = open_lake.retirement.plan_by_table_retention(database, table)
        buckets = by_bucket(plan.partitions)
        if yes:
            if plan.confirm and confirm != name:
                raise Refused(
                    f"this would retire most of {name} ({len(plan.partitions)} partitions)",
                    hint=f"if that is meant, add: --confirm {name}",
                )
            open_lake.retirement.carry_out(plan, confirmed=plan.confirm)
    if as_json:
        needs = bool(plan.confirm) and confirm != name
        output.show_json(
            {
                "done": yes,
                "buckets": buckets,
                "warnings": list(plan.warnings),
                "needs_confirmation": needs,
            }
        )
        return
    for warning in plan.warnings:
        output.say(f"warning: {warning}")
    if not buckets:
        output.say(f"nothing in {name} is older than it is kept")
        return
    output.show(buckets, as_json=False, empty="")
    counted = (
        f"{output.plural(len(buckets), 'bucket')} of {name}, "
        f"{output.plural(len(plan.partitions), 'partition')}, {output.size(plan.bytes)}"
    )
    if yes:
        output.tell(f"retired {counted}")
        return
    if plan.confirm and confirm != name:
        output.say(f"this is most of {name}: it needs --confirm {name}")
    output.say(f"plan: retire {counted}. {REPEAT}")
