"""Reading a lake little by little. Each run reads the next share of its files to their end, so that
bytes that changed on their way or at rest are found before somebody needs them. What is damaged and
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
    """How much a run reads: so many files and bytes, or more of a lake so large that its round
    would take too many runs."""

    files: int = 1000
    bytes: int = 1 << 30
    longest_round: int = 30 * 24


@dataclass(slots=True)
class Place:
    """Where a round is: it goes through the partitions' files, then through the segments."""

    in_segments: bool = False
    after: str = ""
    damaged: list[str] = field(default_factory=list)


def read_share(
    lake: Lake, duty: str, pace: Pace | None = None
) -> tuple[CheckReport, list[Partition], list[Finding]]:
    """Read the next share and heal what is damaged: what was found, what will be built again, and
    what is left."""
    with lake.catalog.read() as connection:
        memo = duties.find_memo(connection, duty)
    place = Place(**json.loads(memo)) if memo else Place()
    report, damaged = lake.checker.read_share(
        lambda connection: choose(connection, place, pace or Pace())
    )
    healed, left = heal(lake, report)
    gone = {each.file_path for each in healed}
    place.damaged = [path for path in damaged if path not in gone][:_MOST_REMEMBERED]
    with lake.catalog.write() as transaction:
        duties.leave_memo(transaction.connection, duty, json.dumps(asdict(place)))
    return report, healed, left


def choose(connection: Connection, place: Place, pace: Pace) -> Share:
    """The next files of a round, and those known as damaged. The place moves on behind them."""
    count, size = rounds.weigh(connection)
    most_files = max(pace.files, count // pace.longest_round)
    most_bytes = max(pace.bytes, size // pace.longest_round)
    live: list[Partition] = []
    if not place.in_segments:
        found = rounds.list_partitions(connection, place.after, most_files)
        live = _take(found, most_bytes)
        if len(live) == len(found) < most_files:
            place.in_segments, place.after = True, ""
        else:
            place.after = live[-1].file_path or ""
    landed: list[Segment] = []
    if place.in_segments:
        most_files -= len(live)
        found_segments = rounds.list_segments(connection, place.after, most_files)
        landed = _take(found_segments, most_bytes - sum(each.file_size for each in live))
        if len(landed) == len(found_segments) < most_files:
            place.in_segments, place.after = False, ""
        elif landed:
            place.after = landed[-1].segment_path
    known_live, known_landed = rounds.list_at(connection, place.damaged)
    return Share(_join(known_live, live), _join(known_landed, landed))


def _take(found: Sequence[Stored], most_bytes: int) -> list[Stored]:
    """As many as are allowed, but at least one."""
    taken: list[Stored] = []
    for each in found:
        most_bytes -= each.file_size
        if taken and most_bytes < 0:
            break
        taken.append(each)
    return taken


def _join(known: Sequence[Stored], chosen: Sequence[Stored]) -> list[Stored]:
    return list(known) + [each for each in chosen if each not in known]
