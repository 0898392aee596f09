"""Checks of the lake against its catalog: the findings of the daily duty, and a check at once,
whose findings are recorded in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from lakebed.catalog import journal
from lakebed.catalog.records import blocks, files, partitions
from lakebed.errors import BadInput, Conflict, Refused
from lakebed.lake import Lake
from lakebed.lifecycle.check import CheckReport, Level
from lakebed.model.time import format_instant
from lakebed.upkeep.upkeep import lease_of
from lakebed.web.notes import FormResult
from lakebed.web.pages.duties import DutyRow, list_duties

LEVELS = {
    "catalog": "the catalog's rules; no file is opened",
    "files": "also whether every file is there and of its size, and what else is in the store",
    "footers": "also row counts, schemas, and the blocks that partitions are made of",
}
"""The levels that this page offers, with what each looks at."""
_OPERATION = "check"
_DUTY = lease_of("check")
"""The lease under which upkeep checks: one check at a time is enough."""
_MOST_FILES = 5_000
_MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One problem that a check found."""

    severity: str
    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class LastCheck:
    """A check that an administrator started."""

    tick: str
    actor: str
    level: str
    is_clean: bool
    partitions: int
    segments: int
    blocks: int
    files: int
    rows: int
    bytes: int
    finding_count: int
    findings: Sequence[FindingRow]
    """The first findings, the worst first."""


@dataclass(frozen=True, slots=True)
class CheckPage:
    """The data of the page."""

    duty: DutyRow
    last: LastCheck | None
    levels: Mapping[str, str]
    files: int
    most_files: int
    """With more files than this, only the catalog is checked here."""


def read_check(lake: Lake) -> CheckPage:
    """Return the last findings; this checks nothing."""
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection, limit=1, operations=[_OPERATION])
    duty = next(row for row in list_duties(lake) if row.name == "check")
    last = _read_last(entries[0]) if entries else None
    return CheckPage(duty, last, LEVELS, _count_files(lake), _MOST_FILES)


def check_now(
    lake: Lake, fields: Mapping[str, str], *, most_files: int = _MOST_FILES
) -> FormResult:
    """Check without repairs, and record the findings in the journal."""
    name = fields.get("level", "")
    if name not in LEVELS:
        raise BadInput(f"there is no level {name!r} here", hint=f"one of {', '.join(LEVELS)}")
    level = Level[name.upper()]
    if level > Level.CATALOG and _count_files(lake) > most_files:
        raise Refused(
            f"this lake has more than {most_files:,} files, which takes too long for a page",
            hint=f"choose catalog, or run: lakebed check --level {name}",
        )
    with ExitStack() as stack:
        try:
            stack.enter_context(lake.leases.building(_DUTY))
        except Conflict as taken:
            raise Conflict("the lake is being checked at this moment", hint=taken.hint) from taken
        report = lake.checker.run(level)
        with lake.catalog.write() as transaction:
            entry = journal.Entry(_OPERATION, _describe(report), detail=_write(report))
            journal.append(transaction, [entry])
    return FormResult("/admin/check", f"Checked: {_describe(report)}.")


def _count_files(lake: Lake) -> int:
    """Return roughly the number of files: partitions without rows are counted too."""
    with lake.catalog.read() as connection:
        live = sum(partitions.count_live(connection).values())
        return live + len(files.list_files(connection)) + len(blocks.list_segments(connection))


def _describe(report: CheckReport) -> str:
    damaged = sum(finding.severity == "damage" for finding in report.findings)
    verdict = "nothing is damaged" if report.is_clean else f"{damaged} damaged"
    other_count = len(report.findings) - damaged
    return f"{verdict}, {other_count} other findings, down to {report.level.name.lower()}"


def _write(report: CheckReport) -> dict[str, object]:
    severities = ("damage", "warning", "note")
    worst = sorted(report.findings, key=lambda finding: severities.index(finding.severity))
    return {
        "level": report.level.name.lower(),
        "is_clean": report.is_clean,
        **report.figures,
        "finding_count": len(report.findings),
        "findings": [
            asdict(
                FindingRow(finding.severity.value, finding.kind, finding.subject, finding.message)
            )
            for finding in worst[:_MOST_FINDINGS]
        ],
    }


def _read_last(entry: journal.Entry) -> LastCheck:
    detail = dict(entry.detail)
    findings = [FindingRow(**fields) for fields in detail.pop("findings")]
    return LastCheck(format_instant(entry.tick), entry.actor, findings=findings, **detail)
