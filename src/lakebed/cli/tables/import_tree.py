"""`lakebed tables import`: a tree of Parquet files becomes a table, after its plan was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output, progress
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.cli.tables.names import (
    REPEAT,
    IfExists,
    IfExistsOption,
    Row,
    TableArgument,
    problems_told,
    split_table_name,
)
from lakebed.cli.tables.show import BucketName, describe_columns

if TYPE_CHECKING:
    from lakebed.tables.importing.report import ImportFile, ImportPlan, ImportReport

PARTLY = 5
SHOWN_FILES = 20


def import_files(
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR", show_default=False, help="A folder of files, or one file."),
    ],
    name: TableArgument,
    time_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A new table's time; needed if several could be."),
    ] = None,
    unique: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of a new table's key; may be repeated."),
    ] = None,
    bucket: Annotated[
        BucketName | None, typer.Option(help="How a new table splits its rows; default: day.")
    ] = None,
    if_exists: IfExistsOption = IfExists.REPLACE,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="The zone of timestamps stored without one: UTC, +02:00, Europe/Berlin.",
        ),
    ] = None,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Import a tree of Parquet files into a table.

    Shows what every file is; acts with --yes. Sound files are inserted, each in one transaction
    that counts once; what else has bytes is copied to quarantine with the reason. The files
    themselves are only read, and a repeated import does what is left. Folders such as
    partition_date=2026-11-16 give their value. Timestamps without a zone need --zone, also those
    of Spark's older INT96 type, which are in UTC. Exit code 5 if some files could not be read.

    Example: lakebed tables import old/heart_rate home.heart_rate --unique device --unique time
    """
    database, table = split_table_name(name)
    with opened(lake, is_plan=not yes) as open_lake, problems_told():
        homeless = database not in open_lake.tables.list_databases()
        with _show_progress("reading") as notify:
            plan = open_lake.tables.plan_import(
                folder,
                database,
                table,
                time_column=time_column,
                bucket=None if bucket is None else bucket.value,
                unique=unique or [],
                if_exists=if_exists.value,
                zone=zone,
                progress=notify,
            )
        if not yes:
            _show_plan(plan, as_json=as_json)
            if homeless and not as_json:
                output.say(f"the database {database} would be made, too")
            return
        with _show_progress("importing", len(plan.files)) as notify:
            report = open_lake.tables.carry_out_import(plan, notify)
    if homeless:
        output.say(f"{database}: created, a database")
    _show_report(report, name, as_json=as_json)
    if report.left_behind:
        raise typer.Exit(PARTLY)


def _show_plan(plan: ImportPlan, *, as_json: bool) -> None:
    name = f"{plan.database}.{plan.name}"
    if as_json:
        output.show_json(
            {
                "done": False,
                "table": name,
                "is_new": plan.table is None,
                "bucket": plan.bucket.value,
                "schema": plan.schema.to_json(),
                "rows": plan.rows,
                "files": [_file_row(file) for file in plan.files],
            }
        )
        return
    if plan.table is None:
        output.tell(f"{name} would be a new table, by {plan.bucket.value}:")
        output.show(describe_columns(plan.schema), as_json=False, empty="")
        output.tell("")
    for kind in plan.counts:
        _show_class(kind.value, plan.list_files(kind))
    sound = len([file for file in plan.files if file.kind.value == "sound"])
    output.say(
        f"plan: insert {output.plural(plan.rows, 'row')} of {output.plural(sound, 'file')} into "
        f"{name}; what else has bytes goes to quarantine. {REPEAT}"
    )


def _show_class(kind: str, files: Sequence[ImportFile]) -> None:
    """The files of one class; what is wrong with them is said of each."""
    rows = sum(file.rows or 0 for file in files)
    size = output.size(sum(file.size for file in files))
    counted = f", {output.plural(rows, 'row')}" if rows else ""
    output.tell(f"{kind}: {output.plural(len(files), 'file')}{counted}, {size}")
    by_importance = sorted(files, key=lambda file: not file.remarks)
    for file in by_importance[:SHOWN_FILES]:
        output.tell(f"  {_visible(file.path)}" + (f": {file.reason}" if file.reason else ""))
    if len(files) > SHOWN_FILES:
        output.tell(f"  … and {len(files) - SHOWN_FILES:,} more; --json has all")


def _visible(path: str) -> str:
    from lakebed.tables.importing.paths import show_path

    return show_path(path)


def _file_row(file: ImportFile) -> Row:
    return {
        "path": _visible(file.path),
        "class": file.kind.value,
        "bytes": file.size,
        "rows": file.rows,
        "reason": file.reason or None,
    }


def _show_report(report: ImportReport, name: str, *, as_json: bool) -> None:
    from lakebed.tables.importing.report import count_classes

    if as_json:
        files = [
            {
                **_file_row(outcome.file),
                "fate": outcome.fate.value,
                "rows_inserted": outcome.rows_inserted,
                "kept_as": outcome.kept_as,
                "note": outcome.note or None,
            }
            for outcome in report.outcomes
        ]
        created, rows = report.table_created, report.rows_inserted
        figures = {"done": True, "table": name, "created": created, "rows_inserted": rows}
        output.show_json({**figures, "files": files})
        return
    for outcome in report.quarantined:
        why = f": {outcome.file.reason}" if outcome.file.reason else ""
        output.say(f"quarantined: {_visible(outcome.file.path)}: {outcome.file.kind.value}{why}")
    _show_remarks([outcome.file for outcome in report.taken])
    for outcome in report.left_behind:
        output.say(f"error: {_visible(outcome.file.path)} was left behind: {outcome.note}")
    prefix = "made, " if report.table_created else ""
    output.tell(
        f"{name}: {prefix}{output.plural(report.rows_inserted, 'row')} of "
        f"{output.plural(len(report.taken), 'file')} inserted, "
        f"{len(report.quarantined):,} quarantined, {len(report.skipped):,} skipped"
    )
    if report.skipped:
        kinds = count_classes([outcome.file for outcome in report.skipped])
        counts = ", ".join(f"{count:,} {kind.value}" for kind, count in kinds.items())
        output.say(f"skipped: {counts}")


def _show_remarks(files: Sequence[ImportFile]) -> None:
    """Print each remark once, with the first file that it concerns and the number of the others."""
    paths: dict[str, list[str]] = {}
    for file in files:
        for remark in file.remarks:
            paths.setdefault(remark, []).append(_visible(file.path))
    for remark, concerned in paths.items():
        rest = output.plural(len(concerned) - 1, "more file")
        more = f" (and {rest})" if len(concerned) > 1 else ""
        output.say(f"warning: {concerned[0]}{more}: {remark}")


def _show_progress(
    label: str, total: int | None = None
) -> AbstractContextManager[Callable[[Any], None]]:
    return progress.show_bar(label, lambda _file: {"advance": 1, "note": "files"}, total=total)
