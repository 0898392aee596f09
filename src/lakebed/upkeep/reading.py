"""Read a lake little by little. Each run reads the next share of its files to their end, so that
bytes that changed in transit or at rest are found before a query needs them. A damaged file that
cannot be healed is read again in every run, and so stays visible until it is sound or gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import rounds
from lakebed.catalog.records import duties
from lakebed.catalog.records.blocks import Segment
from lakebed.lake import Lake
from lakebed.lifecycle.check import CheckReport, Finding, Share
from lakebed.model.partition import Partition
from lakebed.upkeep.healing import heal

_MOST_REMEMBERED = 1000
Stored = TypeVar("Stored", Partition, Segment)


@dataclass(frozen=True, slots=True)
class Pace:
    """The limits of one run: so many files and bytes, or more if the lake is so large that its
    round would take too many runs."""

    files: int = 1000
    bytes: int = 1 << 30
    longest_round: int = 30 * 24


@dataclass(slots=True)
class RoundPosition:
    """The position of a round, which goes through the partitions' files and then the segments."""

    in_segments: bool = False
    after: str = ""
    damaged: list[str] = field(default_factory=list)


def read_share(
    lake: Lake, duty: str, pace: Pace | None = None
) -> tuple[CheckReport, list[Partition], list[Finding]]:
    """Read the next share and heal the damage. Return the report, the partitions that will be built
    again, and the findings that remain."""
    with lake.catalog.read() as connection:
        memo = duties.find_memo(connection, duty)
    position = RoundPosition(**json.loads(memo)) if memo else RoundPosition()
    report, damaged = lake.checker.read_share(
        lambda connection: choose(connection, position, pace or Pace())
    )
    healed, unhealed = heal(lake, report)
    gone = {partition.file_path for partition in healed}
    position.damaged = [path for path in damaged if path not in gone][:_MOST_REMEMBERED]
    with lake.catalog.write() as transaction:
        duties.leave_memo(transaction.connection, duty, json.dumps(asdict(position)))
    return report, healed, unhealed


def choose(connection: Connection, position: RoundPosition, pace: Pace) -> Share:
    """Return the next files of a round, and those known as damaged. Advances `position`."""
    count, size = rounds.weigh(connection)
    most_files = max(pace.files, count // pace.longest_round)
    most_bytes = max(pace.bytes, size // pace.longest_round)
    live: list[Partition] = []
    if not position.in_segments:
        next_partitions = rounds.list_partitions(connection, position.after, most_files)
        live = _take(next_partitions, most_bytes)
        if len(live) == len(next_partitions) < most_files:
            position.in_segments, position.after = True, ""
        else:
            position.after = live[-1].file_path or ""
    landed: list[Segment] = []
    if position.in_segments:
        most_files -= len(live)
        found_segments = rounds.list_segments(connection, position.after, most_files)
        landed = _take(found_segments, most_bytes - sum(partition.file_size for partition in live))
        if len(landed) == len(found_segments) < most_files:
            position.in_segments, position.after = False, ""
        elif landed:
            position.after = landed[-1].segment_path
    known_live, known_landed = rounds.list_at(connection, position.damaged)
    return Share(_join(known_live, live), _join(known_landed, landed))


def _take(stored: Sequence[Stored], most_bytes: int) -> list[Stored]:
    """Return as many files as are allowed, but at least one."""
    share: list[Stored] = []
    for file in stored:
        most_bytes -= file.file_size
        if share and most_bytes < 0:
            break
        share.append(file)
    return share


def _join(damaged: Sequence[Stored], next_files: Sequence[Stored]) -> list[Stored]:
    return list(damaged) + [file for file in next_files if file not in damaged]
