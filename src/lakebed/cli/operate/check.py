"""`lakebed check`: is the lake what its catalog says, and what is set aside of what is not."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output, progress
from lakebed.cli.options import DAMAGED, HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.errors import BadInput

if TYPE_CHECKING:
    from lakebed.lifecycle.check import CheckReport, Finding
    from lakebed.tables.importing.tree_check import TreeReport

SHOWN_NOTES = 20


class LevelName(enum.StrEnum):
    """The depth of a check."""

    CATALOG = "catalog"
    FILES = "files"
    FOOTERS = "footers"
    PAGES = "pages"


def check(
    lake: LakeOption = HERE,
    level: Annotated[LevelName, typer.Option(help="How deep to look.")] = LevelName.FOOTERS,
    quarantine: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Set this file aside (with --yes); deletes nothing."),
    ] = None,
    condemn: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Let a sweep delete this file that was set aside (with --yes)."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(metavar="DATABASE.TABLE", help="Check the files of one table only."),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Check any folder of Parquet files, or s3://bucket/prefix, instead of a lake.",
        ),
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that the lake is what its catalog says. Exit code 1 if anything is damaged.

    Levels: catalog (its rules), files (present and of their size, strays), footers (row counts,
    schema hashes, the blocks that partitions are made of), pages (every page read, every block's
    digest). Files that are set aside stay until they are condemned: then a sweep deletes them
    when the lake's grace period is over. Notes name what is no damage: folders and partitions in
    which nothing is left, files that were set aside.

    --folder checks a tree of Parquet files that belongs to no lake: folders and files without
    rows, damaged files, files with other columns than most, Hive-style folders whose value cannot
    be read. Levels: footers and pages.

    Example: lakebed check --level pages --json

    Example: lakebed check --folder s3://bucket/old/heart_rate
    """
    from lakebed.lifecycle.check import Level
    from lakebed.model.tables.table import split_name

    if folder is not None:
        if table is not None or quarantine or condemn:
            raise typer.BadParameter("--folder goes with --level and --json only")
        _check_folder(folder, level, as_json=as_json)
        return
    if quarantine or condemn:
        if as_json or (quarantine and condemn):
            raise BadInput(
                "--quarantine and --condemn are done one at a time, and say what they do in words",
                hint="leave out the other, and --json",
            )
        _quarantine(lake, quarantine or [], yes)
        _condemn(lake, condemn or [], yes)
        if not yes:
            output.say("Nothing was changed. Repeat with --yes.")
        return
    with opened(lake, write=False) as open_lake, _show_progress() as notify:
        if table is None:
            report = open_lake.checker.run(Level[level.name], notify)
        else:
            definition = open_lake.tables.definitions.get(*split_name(table))
            report = open_lake.checker.check_table(definition, Level[level.name])
    findings = [_finding(finding) for finding in report.findings]
    if as_json:
        header = {"clean": report.is_clean, "level": level.value}
        output.show_json({**header, **report.figures, "findings": findings})
    else:
        _show_findings(findings, Counter(finding["kind"] for finding in findings))
        _tell_verdict(report, ("partition", "segment", "block", "file", "row"), level.value)
    if not report.is_clean:
        raise typer.Exit(DAMAGED)


def _check_folder(folder: str, level: LevelName, *, as_json: bool) -> None:
    from lakebed.tables.importing.tree_check import check_tree

    if level in (LevelName.CATALOG, LevelName.FILES):
        raise BadInput(f"--folder has no level {level}", hint="use --level footers or pages")
    with _show_progress() as notify:
        report = check_tree(folder, pages=level is LevelName.PAGES, progress=notify)
    figures = {name: getattr(report, name) for name in ("folders", "files", "rows", "bytes")}
    findings = [
        {name: getattr(finding, name) for name in ("severity", "kind", "subject", "message")}
        for finding in report.findings
    ]
    if as_json:
        counts = dict(report.counts)
        header = {"clean": report.is_clean, "level": level.value, "folder": folder}
        output.show_json({**header, **figures, "counts": counts, "findings": findings})
    else:
        _show_findings(findings, report.counts)
        _tell_verdict(report, ("folder", "file", "row"), level.value)
    if not report.is_clean:
        raise typer.Exit(DAMAGED)


def _quarantine(lake: str, paths: list[str], yes: bool) -> None:
    with opened(lake, is_plan=not yes) as open_lake:
        for path in paths:
            if yes:
                output.tell(open_lake.checker.quarantine(path))
            else:
                output.say(open_lake.checker.plan_quarantine(path))


def _condemn(lake: str, paths: list[str], yes: bool) -> None:
    with opened(lake, is_plan=not yes) as open_lake:
        for path in paths:
            if yes:
                output.tell(open_lake.checker.condemn(path))
                continue
            file = open_lake.checker.get_aside(path)
            size = output.size(file.file_size)
            output.say(
                f"would let a sweep delete {path} ({size}), set aside because: {file.reason}"
            )


def _show_progress() -> AbstractContextManager[Callable[[CheckReport | TreeReport], None]]:
    return progress.show_count(
        "checking …", lambda report: f"checked {report.files:,} files, {report.rows:,} rows"
    )


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "kind": finding.kind,
        "subject": finding.subject,
        "message": finding.message,
        "modified": output.instant(finding.modified),
        "journaled": output.instant(finding.journaled),
    }


def _tell_verdict(report: CheckReport | TreeReport, nouns: Sequence[str], level: str) -> None:
    counts = [output.plural(getattr(report, f"{noun}s"), noun) for noun in nouns]
    output.tell(
        f"{'clean' if report.is_clean else 'DAMAGED'}: {', '.join(counts)}, "
        f"{output.size(report.bytes)} checked down to {level}"
    )


def _show_findings(findings: Sequence[dict[str, Any]], counts: Mapping[str, int]) -> None:
    """Print all damage and warnings, and the first notes of each kind with the number of others."""
    displayed: list[dict[str, Any]] = []
    notes: Counter[str] = Counter()
    for finding in findings:
        notes[finding["kind"]] += finding["severity"] == "note"
        if finding["severity"] != "note" or notes[finding["kind"]] <= SHOWN_NOTES:
            displayed.append(finding)
    if displayed:
        output.show(displayed, as_json=False, empty="")
    for kind, count in counts.items():
        more = count - sum(finding["kind"] == kind for finding in displayed)
        if more:
            output.say(f"… and {more:,} more of kind {kind}; --json has more")
