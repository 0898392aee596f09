"""`lakebed tables`: databases and tables of JSON records. Here they are made and altered; the other
verbs are in modules beside.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.cli.retention import FOREVER, UNCHANGED, say_what_upkeep_does, show_keep
from lakebed.cli.tables import delete as table_delete
from lakebed.cli.tables import import_tree as table_import
from lakebed.cli.tables import insert as table_insert
from lakebed.cli.tables import show as table_show
from lakebed.cli.tables.names import (
    TableArgument,
    problems_told,
    read_bytes,
    read_file,
    split_name,
    split_table_name,
)
from lakebed.cli.tables.show import BucketName, by_bucket, describe_change, describe_table
from lakebed.errors import BadInput

if TYPE_CHECKING:
    from lakebed.lifecycle.planning import RetirementPlan

app = typer.Typer(
    no_args_is_help=True,
    help="Tables of JSON records: create, insert, list, show, alter, delete, restore, import.",
)


# ---- create -------------------------------------------------------------------------------------


def create(
    name: Annotated[
        str | None, typer.Argument(metavar="DATABASE[.TABLE]", show_default=False)
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The columns, as JSON; - is standard input."),
    ] = None,
    bucket: Annotated[
        BucketName, typer.Option(help="How rows are split by their time.")
    ] = BucketName.DAY,
    keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long rows are kept after their time, as 90d."),
    ] = None,
    propose: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Print a schema drafted for records like these; create nothing."
        ),
    ] = None,
    lake: LakeOption = HERE,
) -> None:
    """Create a table with its database, or a database alone.

    A database that is missing is made too, and that is said. A schema is an object of columns,
    {"time": "datetime", "bpm": {"type": "int", "min": 20}}; docs/tables.md has all of it.
    Everything wrong with one is said, in a line each, and then nothing has been created.

    Example: lakebed tables create --propose records.json > heart_rate.json

    Example: lakebed tables create home.heart_rate --schema heart_rate.json --keep 90d

    Example: lakebed tables create home
    """
    if propose is not None:
        with problems_told():
            _propose(propose, schema)
        return
    if name is None:
        raise typer.BadParameter("say what to create: DATABASE.TABLE, or DATABASE")
    database, table = split_name(name)
    if table is None:
        if schema is not None or keep is not None:
            raise typer.BadParameter(f"--schema and --keep are for a table: write {name}.TABLE")
        with opened(lake) as open_lake:
            open_lake.tables.create_database(database)
        output.tell(f"{database}: created, a database")
        return
    if schema is None:
        raise typer.BadParameter(
            "say with --schema FILE what columns it has; --propose RECORDS drafts one"
        )
    with problems_told():
        _create_table(database, table, read_bytes(schema), bucket, keep, lake)


def _create_table(
    database: str, table: str, text: bytes, bucket: BucketName, keep: str | None, address: str
) -> None:
    """Everything is checked before the database is made, so that a mistake leaves nothing."""
    from lakebed.model.tables.declaration import parse_schema
    from lakebed.model.tables.table import check_name, parse_retention

    check_name(database, "database")
    check_name(table, "table")
    schema = parse_schema(text)
    if keep is not None:
        parse_retention(keep)
    with opened(address) as lake:
        is_new = database not in lake.tables.list_databases()
        if is_new:
            lake.tables.create_database(database)
            output.say(f"{database}: created, a database")
        new_table = lake.tables.create_table(database, table, schema, bucket.value, retention=keep)
        output.tell(f"{database}.{table}: created, {describe_table(new_table.definition)}")


def _propose(samples: str, schema: str | None) -> None:
    if schema is not None:
        raise typer.BadParameter("--propose only prints a schema; leave out --schema")
    from lakebed.tables.schema.infer_schema import propose_schema

    output.show_json(propose_schema(read_file(samples)))


def alter(
    name: TableArgument,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:TYPE", help="A new column, as note:string or x:{JSON}."),
    ] = None,
    widen: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="From int to float.")
    ] = None,
    relax: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="From required to optional.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long rows are kept after their time, or forever."),
    ] = None,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add, widen or relax columns; set how long rows are kept.

    Rows that are there stay as they are and have NULL in new columns. What else could be changed
    would make them wrong, and is refused. If rows are older than they shall be kept, it shows them
    and changes nothing without --yes; upkeep retires what is too old.

    Example: lakebed tables alter home.heart_rate --add note:string --widen bpm

    Example: lakebed tables alter home.heart_rate --keep 90d
    """
    from lakebed.lifecycle.planning import RetirementPlan

    database, table = split_table_name(name)
    added = dict(_split_column(text) for text in add or [])
    if len(added) < len(add or []):
        raise BadInput("a column is added twice")
    if not (added or widen or relax or keep is not None):
        raise typer.BadParameter("say what to change: --add, --widen, --relax or --keep")
    retention = None if keep == FOREVER else keep
    plan = RetirementPlan((), "")
    with opened(lake) as open_lake, problems_told():
        definitions = open_lake.tables.definitions
        before = definitions.get(database, table)
        if retention is not None:
            plan = open_lake.retirement.plan_by_table_retention(database, table, retention)
        acts = yes or not plan.partitions
        if acts and (added or widen or relax):
            definitions.alter_table(
                database, table, add=added, widen=widen or [], relax=relax or []
            )
        if acts and keep is not None:
            definitions.set_retention(database, table, retention)
        after = definitions.get(database, table)
    if as_json:
        output.show_json(
            {
                "table": name,
                "done": acts,
                "version": after.version,
                "keep": show_keep(after.retention_us),
                "condemned": by_bucket(plan.partitions),
                "schema": after.schema.to_json(),
            }
        )
        return
    if after.version > before.version:
        change = describe_change(before.schema, after.schema)
        output.tell(f"{name}: version {after.version}, {change}")
    if keep is not None:
        _show_keeping(name, plan, show_keep(after.retention_us), done=acts)


def _show_keeping(name: str, plan: RetirementPlan, retention: str, *, done: bool) -> None:
    if plan.partitions and not done:
        output.show(by_bucket(plan.partitions), as_json=False, empty="")
        output.say(
            f"older than that: {output.plural(len(plan.partitions), 'partition')} with "
            f"{output.plural(sum(partition.num_rows for partition in plan.partitions), 'row')}"
        )
        output.say(UNCHANGED)
        return
    output.tell(f"{name}: kept {retention}")
    if plan.partitions:
        confirm = f" --confirm {name}" if plan.confirm else ""
        say_what_upkeep_does(plan, f"lakebed tables expire {name}{confirm}")
    elif retention != FOREVER:
        output.say("nothing is older than that")


def _split_column(text: str) -> tuple[str, Any]:
    name, colon, spec = text.partition(":")
    if not name or not colon or not spec:
        raise BadInput(f"{text!r} is not NAME:TYPE", hint="write it like note:string")
    if not spec.startswith("{"):
        return name, spec
    try:
        return name, json.loads(spec)
    except ValueError as error:
        raise BadInput(f"{spec!r} is not JSON: {error}") from error


for verb, command in (
    ("create", create),
    ("insert", table_insert.insert),
    ("list", table_show.list_tables),
    ("show", table_show.show),
    ("alter", alter),
    ("delete", table_delete.delete),
    ("restore", table_delete.restore),
    ("forget", table_delete.forget),
    ("expire", table_delete.expire),
    ("import", table_import.import_files),
):
    app.command(verb)(command)
