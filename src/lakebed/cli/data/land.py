"""`lakebed land`: files of OpenTelemetry requests become blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output, progress
from lakebed.cli.options import HERE, JsonOption, LakeOption, opened
from lakebed.errors import LakebedError, Unavailable
from lakebed.model.signal import Signal

if TYPE_CHECKING:
    from lakebed.ingest.telemetry import LandedFile
    from lakebed.lake import Lake

    Progress = Callable[[LandedFile], None]

PARTLY = 5
STANDARD_INPUT = "-"


def land(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files of OTLP requests; - is standard input."),
    ],
    signal: Annotated[
        Signal | None,
        typer.Option(help="What the requests hold, where their bytes do not say it."),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Your own id of a file; its requests are ID/1 …"),
    ] = None,
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Land files of OpenTelemetry requests; what is counted is durable.

    A file holds one OTLP request as protobuf or JSON, or what OpenTelemetry's file exporter writes
    (JSON lines, length-prefixed protobuf), or gzip of these. Nothing of a file lands unless all of
    it is sound. What landed before is counted as duplicates and stored once.

    Exit code 5 if some of the files could not land.

    Example: lakebed land telemetry.jsonl

    Example: lakebed land - --signal logs (of what is piped into it)
    """
    if request_id is not None and len(files) > 1:
        raise typer.BadParameter("--id names the requests of one file; land each by itself")
    with opened(lake) as open_lake, progress.show_count("reading …", _describe) as notify:
        results = [_land_one(open_lake, file, signal, request_id, notify) for file in files]
    refused = [error for _, error in results if error is not None]
    if len(refused) == len(results) == 1:
        raise refused[0]
    for error in refused:
        output.say(f"error: {error}" + (f"; {error.hint}" if error.hint else ""))
    _show(files, results, as_json=as_json)
    if refused:
        raise typer.Exit(PARTLY if len(refused) < len(results) else refused[0].exit_code)


def _land_one(
    lake: Lake,
    name: str,
    signal: str | None,
    request_id: str | None,
    notify: Callable[[LandedFile], None],
) -> tuple[LandedFile, LakebedError | None]:
    """Land one file. Return what landed, and the error that ended it. `Unavailable` ends the
    command."""
    from lakebed.ingest.telemetry import LandedFile

    telemetry = lake.telemetry
    landed = LandedFile()

    def remember(done: LandedFile) -> None:
        nonlocal landed
        landed = done
        notify(done)

    try:
        if name == STANDARD_INPUT:
            stream = sys.stdin.buffer
            landed = telemetry.land_stream(
                stream, "standard input", signal=signal, request_id=request_id, progress=remember
            )
        else:
            landed = telemetry.land_file(
                name, signal=signal, request_id=request_id, progress=remember
            )
    except Unavailable:
        raise
    except LakebedError as error:
        return landed, error
    return landed, None


def _show(
    names: Sequence[str],
    results: Sequence[tuple[LandedFile, LakebedError | None]],
    *,
    as_json: bool,
) -> None:
    from lakebed.ingest.telemetry import LandedFile

    rows: list[dict[str, Any]] = [
        {"file": name, **asdict(landed), "error": None if error is None else str(error)}
        for name, (landed, error) in zip(names, results, strict=True)
    ]
    total = {key: sum(row[key] for row in rows) for key in asdict(LandedFile())}
    for row in rows:
        if row["requests"] and not row["records"] and not row["duplicates"]:
            output.say(
                f"{row['file']} holds no records; unknown fields are ignored, so look at how "
                "resourceLogs, scopeLogs, logRecords and the like are spelled in it"
            )
    if as_json:
        output.show_json({**total, "files": rows})
        return
    output.tell(
        f"landed {output.plural(total['requests'], 'request')}: "
        f"{output.plural(total['blocks'], 'block')}, {output.plural(total['records'], 'record')}, "
        f"{output.size(total['bytes'])}, {output.plural(total['duplicates'], 'duplicate')}"
    )


def _describe(landed: LandedFile) -> str:
    return (
        f"landed {landed.requests:,} requests, {landed.records:,} records, "
        f"{output.size(landed.bytes)}"
    )
