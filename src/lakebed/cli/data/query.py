"""`lakebed query`: SQL in, rows out."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, AnyLakeOption, do_without_pandas, reached
from lakebed.errors import BadInput, BadSql, Denied, Refused
from lakebed.model.time import SECOND, parse_duration

if TYPE_CHECKING:
    from lakebed.query.output.result import Result

STANDARD_INPUT = "-"
SHOWN_ROWS = 100
"""The number of rows that a table shows without a limit."""

_SHORT_LINE = 60
_SHOWN_BEFORE, _SHOWN_AFTER = 50, 30


class FormatName(enum.StrEnum):
    """The format of the rows."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


class EngineName(enum.StrEnum):
    """The engine that computes the rows."""

    EMBEDDED = "embedded"
    SPARK = "spark"


_SUFFIXES = {
    ".json": FormatName.JSON,
    ".jsonl": FormatName.NDJSON,
    ".ndjson": FormatName.NDJSON,
    ".csv": FormatName.CSV,
    ".parquet": FormatName.PARQUET,
    ".txt": FormatName.TABLE,
}


StatementArgument = Annotated[
    str | None,
    typer.Argument(metavar="SQL", help="The statement; - or nothing: standard input."),
]
FileOption = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="A file with the statement.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Only rows since then: 1h (ago), today, 2026-11-15, 2026-11-15T12:00:00Z.",
    ),
]
BeginOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Only rows from here on.")
]
EndOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only rows before.")]
AsOfOption = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="The lake as it was at this time.")
]
StaleOption = Annotated[
    bool, typer.Option("--stale", help="Leave out what has landed and is not built.")
]
LimitOption = Annotated[int | None, typer.Option(min=0, help="At most so many rows.")]
TimeoutOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Give up after this long: 30s, 5m.")
]
FormatOption = Annotated[
    FormatName | None,
    typer.Option(
        "--format",
        help="Default: table on a terminal, ndjson when piped; for a file by its name.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="A file to write, whole or not at all."),
]
ExplainOption = Annotated[
    bool,
    typer.Option("--explain", help="Say what would be read, and why; do not run it."),
]
EngineOption = Annotated[EngineName, typer.Option(help="Who computes the rows.")]
MasterOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="With Spark: its master; default: this machine."),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="With Spark: a Connect server, sc://host:port."),
]
JsonFormatOption = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def query(
    context: typer.Context,
    sql: StatementArgument = None,
    file: FileOption = None,
    since: SinceOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    as_of: AsOfOption = None,
    stale: StaleOption = False,
    limit: LimitOption = None,
    timeout: TimeoutOption = None,
    shape: FormatOption = None,
    target: TargetOption = None,
    explain: ExplainOption = False,
    engine: EngineOption = EngineName.EMBEDDED,
    master: MasterOption = None,
    remote: RemoteOption = None,
    lake: AnyLakeOption = HERE,
    as_json: JsonFormatOption = False,
) -> None:
    """Run one SQL statement over the lake's view sets, what has just landed included.

    Ranges of --since, --from and --to are of the rows' own time. Rows go to stdout, warnings and
    counts to stderr. Wrong SQL is exit code 2, with the position; a limit of memory, time or
    unbuilt data that was reached is 1. With --lake grpc://… a server computes the rows; it takes
    the key in LAKEBED_KEY.

    Example: lakebed query "SELECT level, count(*) FROM log_entries GROUP BY level" --since 1h

    Example: lakebed query --file report.sql --format csv --output report.csv

    Example: lakebed query "SELECT * FROM spans WHERE name = 'checkout'" --explain

    Example: lakebed query "SHOW TABLES" --lake grpc://localhost:50051
    """
    _require_sense(since, begin, as_json, shape, engine, master or remote)
    text = _read_sql(sql, file)
    chosen = FormatName.JSON if as_json else shape
    spark: dict[str, Any] = {}
    if engine is EngineName.SPARK:
        spark = {"engine": engine.value, "master": master, "remote": remote}
    if explain:
        _require_explainable(chosen, target)
    else:
        chosen = _choose(chosen, target)
    longest = None if timeout is None else parse_duration(timeout) / SECOND
    if context.obj and not spark:
        do_without_pandas()
    with reached(lake) as source, _explained(text, explain=explain):
        result = source.query(
            text,
            begin=begin if since is None else since,
            end=end,
            as_of=as_of,
            stale=stale,
            limit=0 if explain else limit,
            timeout=longest,
            explained=explain,
            admin=not explain,  # what changes the lake is done with its planning
            **spark,
        )
        with result:
            if explain:
                _explain(result, as_json=chosen is not None)
            else:
                assert chosen is not None  # noqa: S101  (a choice was made above)
                _write(result, chosen, target, limit)


@contextmanager
def _explained(text: str, *, explain: bool) -> Iterator[None]:
    """Point at the place of an error in the statement, and refuse to explain changes."""
    try:
        yield
    except Denied as error:
        if not explain:
            raise
        raise Refused(
            "a statement that changes the lake cannot be explained",
            hint="leave out --explain, and it is run",
        ) from error
    except BadSql as error:
        for line in point_at(text, error.line, error.column):
            error.add_note(line)
        raise


def _require_sense(
    since: str | None,
    begin: str | None,
    as_json: bool,
    shape: FormatName | None,
    engine: EngineName,
    spark: str | None,
) -> None:
    if since is not None and begin is not None:
        raise typer.BadParameter("--since and --from say the same; give one of them")
    if as_json and shape not in (None, FormatName.JSON):
        raise typer.BadParameter("--json is --format json; give one of them")
    if spark is not None and engine is not EngineName.SPARK:
        raise typer.BadParameter("--master and --remote are for --engine spark")


def _read_sql(sql: str | None, file: str | None) -> str:
    """The statement, from where it was said to be."""
    if sql is not None and file is not None:
        raise typer.BadParameter("give the statement or --file, not both")
    if file is None and sql not in (None, STANDARD_INPUT):
        text = str(sql)
    elif file is None and sql is None and sys.stdin.isatty():
        raise typer.BadParameter("give the statement: as an argument, with --file, or piped")
    else:
        text = _read_text(STANDARD_INPUT if file is None else file)
    if not text.strip():
        raise BadInput("there is no statement", hint='try: lakebed query "SHOW TABLES"')
    return text


def _read_text(name: str) -> str:
    where = "standard input" if name == STANDARD_INPUT else name
    try:
        data = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read {where}: {(error.strerror or '').lower()}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{where} is not SQL: byte {error.start} is not UTF-8") from error


def _require_explainable(shape: FormatName | None, target: str | None) -> None:
    if target is not None:
        raise typer.BadParameter("--explain gives no rows; leave out --output")
    if shape not in (None, FormatName.TABLE, FormatName.JSON):
        raise typer.BadParameter("--explain is for people, or --format json")


def _choose(shape: FormatName | None, target: str | None) -> FormatName:
    """The format that was asked for, or that fits where the rows go."""
    if shape is None:
        if target is not None:
            suffix = Path(target).suffix.lower()
            if suffix and suffix not in _SUFFIXES:
                raise BadInput(
                    f"{suffix} says no format", hint=f"use {', '.join(_SUFFIXES)}, or add --format"
                )
            return _SUFFIXES.get(suffix, FormatName.NDJSON)
        return FormatName.TABLE if sys.stdout.isatty() else FormatName.NDJSON
    if shape is FormatName.PARQUET and target is None and sys.stdout.isatty():
        raise BadInput(
            "Parquet is not for terminals", hint="add --output FILE, or pipe it somewhere"
        )
    return shape


def _warn(result: Result) -> None:
    for warning in result.warnings:
        output.say(f"warning: {warning}")


def _explain(result: Result, *, as_json: bool) -> None:
    if as_json:
        output.show_json(result.explanation.as_dict())
        return
    _warn(result)
    for line in result.explanation.lines():
        output.tell(line)


def _write(result: Result, shape: FormatName, target: str | None, limit: int | None) -> None:
    from lakebed.cli.data.row_formats import make_writer, written_whole

    _warn(result)
    sys.stdout.flush()
    place = nullcontext(sys.stdout.buffer) if target is None else written_whole(Path(target))
    with place as sink:
        for_tables: dict[str, Any] = {}
        if shape is FormatName.TABLE:
            for_tables = {"most_rows": SHOWN_ROWS if limit is None else limit, "say": output.say}
        writer = make_writer(shape.value, sink, result.schema, **for_tables)
        for batch in result:
            writer.write(batch)
            if target is None:
                sys.stdout.buffer.flush()
        writer.end()


def point_at(sql: str, line: int | None, column: int | None) -> list[str]:
    """The line of a statement and a caret below the column, unless it can be seen at a glance."""
    lines = sql.splitlines()
    if line is None or column is None or not 1 <= line <= len(lines):
        return []
    shown = lines[line - 1]
    if len(lines) == 1 and len(shown) <= _SHORT_LINE:
        return []
    from lakebed.cli.data.row_formats import make_visible, measure

    begin = max(column - 1 - _SHOWN_BEFORE, 0)
    before = ("… " if begin else "") + make_visible(shown[begin : column - 1].replace("\t", " "))
    end = column - 1 + _SHOWN_AFTER
    after = make_visible(shown[column - 1 : end].replace("\t", " ")) + " …" * (end < len(shown))
    margin = f"{line} | "
    return [
        f"{margin}{before}{after}",
        " " * (len(margin) - 2) + "| " + " " * measure(before) + "^",
    ]
