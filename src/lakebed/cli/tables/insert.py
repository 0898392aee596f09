"""`lakebed tables insert`: records become rows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output, progress
from lakebed.cli.options import (
    HERE,
    JsonOption,
    LakeOption,
    do_without_pandas,
    opened,
)
from lakebed.cli.tables.names import (
    STANDARD_INPUT,
    IfExists,
    IfExistsOption,
    Row,
    TableArgument,
    read_file,
    split_table_name,
)
from lakebed.errors import BadPayload, BadRecords, LakebedError, Unavailable

if TYPE_CHECKING:
    from lakebed.lake import Lake

PARTLY = 5
SHOWN_RECORDS = 20
OTHER_KINDS = "Parquet and Arrow are known by .parquet and .arrow"


class OnError(enum.StrEnum):
    """The treatment of bad records."""

    REFUSE = "refuse"
    KEEP = "keep"


def insert(
    context: typer.Context,
    name: TableArgument,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="JSON arrays, JSON lines, .parquet or .arrow files; - is standard input.",
        ),
    ],
    on_error: Annotated[
        OnError,
        typer.Option(
            "--on-error", help="Bad records: refuse the whole file, or keep them as rejects."
        ),
    ] = OnError.REFUSE,
    if_exists: IfExistsOption = IfExists.REPLACE,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Your name of this insert; repeated, it counts once."),
    ] = None,
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Insert records: of each file all or none.

    Each file is one insert. What is wrong with bad records is said on stderr, a line for each,
    counted from 0; with --on-error keep they are stored in DATABASE.TABLE_rejects, with the
    reasons. Exit code 5 if some of the files could not be inserted.

    Example: lakebed tables insert home.heart_rate records.json

    Example: lakebed tables insert home.heart_rate day-*.jsonl --on-error keep

    Example: lakebed tables insert home.heart_rate - --key upload-17 (of what is piped into it)
    """
    if key is not None and len(files) > 1:
        raise typer.BadParameter("--key names the insert of one file; insert each by itself")
    if files.count(STANDARD_INPUT) > 1:
        raise typer.BadParameter("- is given twice; standard input can be read once")
    database, table = split_table_name(name)
    if context.obj:
        do_without_pandas()
    options = {"on_error": on_error.value, "if_exists": if_exists.value, "key": key}
    with opened(lake) as open_lake:
        open_lake.tables.get(database, table)
        with _show_progress(len(files)) as notify:
            done = [
                _insert_one(open_lake, database, table, file, options, notify) for file in files
            ]
    _show_inserts(done, name, if_exists, as_json=as_json)
    failed = [error for _, error in done if error is not None]
    if failed:
        raise typer.Exit(PARTLY if len(failed) < len(done) else failed[0].exit_code)


def _insert_one(
    lake: Lake,
    database: str,
    table: str,
    file: str,
    options: dict[str, Any],
    notify: Callable[[int], None],
) -> tuple[Row, LakebedError | None]:
    """Insert one file. Return its row of the report, and its error. `Unavailable` ends the
    command."""
    from lakebed.tables.insert.records import read_records

    row: Row = {"file": file, "records": 0, "rows": 0, "rejected": 0, "repeated": False}
    row |= {"tick": None, "buckets": [], "error": None, "bad": []}
    try:
        records = read_records(read_file(file))
        row["records"] = len(records)
        done = lake.tables.insert(database, table, records, **options)
    except Unavailable:
        raise
    except LakebedError as error:
        row["error"] = str(error).splitlines()[0]
        if isinstance(error, BadRecords):
            row["bad"] = [_describe_bad(record) for record in error.bad]
        return row, error
    row |= {"rows": done.rows, "rejected": done.rejected, "repeated": done.repeated}
    row |= {"tick": output.instant(done.tick), "buckets": list(done.buckets)}
    notify(done.rows)
    return row, None


def _describe_bad(bad: Any) -> Row:
    problems = [
        {"column": problem.column, "expected": problem.expected, "got": problem.got}
        for problem in bad.problems
    ]
    return {"index": bad.index, "problems": problems}


def _show_inserts(
    done: Sequence[tuple[Row, LakebedError | None]],
    name: str,
    if_exists: IfExists,
    *,
    as_json: bool,
) -> None:
    several = len(done) > 1
    for row, error in done:
        if error is not None:
            _tell_refused(error, row["file"], several=several)
    rows = [row for row, _ in done]
    new = [row for row, error in done if error is None and not row["repeated"]]
    total = {field: sum(row[field] for row in new) for field in ("records", "rows", "rejected")}
    repeated = [row for row in rows if row["repeated"]]
    if as_json:
        output.show_json({"table": name, **total, "repeated": len(repeated), "files": rows})
        return
    if all(error is not None for _, error in done):
        return
    for row in repeated:
        output.tell(
            f"{name}: repeated, nothing was changed; this key had inserted "
            f"{output.plural(row['rows'], 'row')} and rejected {row['rejected']:,} at {row['tick']}"
        )
    if new:
        output.tell(f"{name}: {_describe_new(new, several=several, if_exists=if_exists)}")
    if any(row["rejected"] for row in new):
        output.say(f'see why with: lakebed query "SELECT * FROM {name}_rejects"')


def _describe_new(rows: Sequence[Row], *, several: bool, if_exists: IfExists) -> str:
    records, inserted, rejected = (
        sum(row[field] for row in rows) for field in ("records", "rows", "rejected")
    )
    parts = [f"{output.plural(inserted, 'row')} inserted"]
    if rejected:
        parts.append(f"{rejected:,} rejected")
    if replaced := records - inserted - rejected:
        reason = "was there or came again" if if_exists is IfExists.IGNORE else "came again later"
        parts.append(f"{replaced:,} left out whose key {reason}")
    return ", ".join(parts) + (f", of {output.plural(len(rows), 'file')}" if several else "")


def _tell_refused(error: LakebedError, file: str, *, several: bool) -> None:
    """Print why a file was not inserted. A problem that many bad records share gets one line, every
    other bad record a line of its own."""
    is_unreadable = isinstance(error, BadPayload) and file != STANDARD_INPUT
    prefix = f"{file}: " if several or is_unreadable else ""
    if not isinstance(error, BadRecords):
        hint = error.hint or (OTHER_KINDS if is_unreadable else None)
        text = f"{error}" + (f"; {hint}" if hint else "")
        output.say(f"error: {prefix}{' '.join(text.split())}")
        return
    output.say(
        f"error: {prefix}{len(error.bad):,} of {output.plural(error.total, 'record')} "
        f"{'is' if len(error.bad) == 1 else 'are'} bad and nothing was inserted"
        + ("; to insert the others: --on-error keep" if len(error.bad) < error.total else "")
    )
    lines, more = error.summarize(SHOWN_RECORDS)
    for line in lines:
        output.say(f"  {prefix}{' '.join(line.split())}")
    if more:
        output.say(f"  {prefix}… and {more:,} more; --json has all")


def _show_progress(files: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show how many of several files are inserted."""
    if files < 2:
        return nullcontext(lambda _rows: None)
    total = 0

    def describe(rows: int) -> dict[str, Any]:
        nonlocal total
        total += rows
        return {"advance": 1, "note": f"files, {total:,} rows"}

    return progress.show_bar("inserting", describe, total=files)
