"""What a sweep would delete now, what keeps the rest, and sweeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.catalog import leases
from lakebed.catalog.records.files import TemporaryFile
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import SweepPlan, SweepResult
from lakebed.model.time import SECOND, format_duration, format_instant
from lakebed.web.notes import Done

_MOST_SHOWN = 200
_MOST_BATCHES = 10
"""A form is answered when it is done: more is left to the next one, to upkeep, or to the command
line."""
_EXPIRED = "past its grace period"
_ABANDONED = "its writer is dead"
_UNFINISHED = "given up by its writer, or by an earlier sweep"


@dataclass(frozen=True, slots=True)
class DoomedFile:
    """A file that would be deleted."""

    file_path: str
    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class ReaderRow:
    """A process that may still read what was retired after a tick."""

    holder: str
    oldest: str
    taken_for_dead: bool


@dataclass(frozen=True, slots=True)
class SweepPage:
    """What the page shows."""

    is_empty: bool
    """Whether there is nothing to do."""
    file_count: int
    bytes: int
    files: Sequence[DoomedFile]
    """The first of them."""
    empty_partitions: int
    dead_leases: Sequence[str]
    """Whose they are."""
    waiting: int
    """Files whose grace period still runs, or that are held."""
    grace: str
    protected: int
    """Files past it that somebody may still read."""
    readers: Sequence[ReaderRow]
    watched_seconds: float
    """How long leases are watched until those that stand still are taken for dead."""


def read_sweep(lake: Lake) -> SweepPage:
    """The plan for the next batch; nothing is changed."""
    plan = lake.sweeper.plan()
    dead = {each.lease_id for each in plan.dead_leases}
    with lake.catalog.read() as connection:
        present = leases.list_leases(connection)
    return SweepPage(
        plan.is_empty,
        len(plan.files),
        plan.bytes,
        _list_doomed(plan)[:_MOST_SHOWN],
        len(plan.empty),
        [each.holder for each in plan.dead_leases],
        plan.waiting,
        format_duration(lake.row.grace_us),
        plan.protected,
        [
            ReaderRow(each.holder, format_instant(each.oldest_tick), each.lease_id in dead)
            for each in present
            if each.oldest_tick is not None
        ],
        max((each.ttl_us for each in present), default=0) / SECOND,
    )


def sweep(lake: Lake, *, most_batches: int = _MOST_BATCHES) -> Done:
    """Delete what can be deleted now, as much as one request should."""
    result = lake.sweeper.run(most_batches=most_batches)
    left = lake.sweeper.plan()
    return Done("/admin/sweep", _describe(result, has_more=bool(left.files or left.empty)))


def _list_doomed(plan: SweepPlan) -> list[DoomedFile]:
    def say(found: Sequence[TemporaryFile], why: str) -> list[DoomedFile]:
        return [DoomedFile(each.file_path, each.file_size, why) for each in found]

    return [
        *say(plan.unfinished, _UNFINISHED),
        *say(plan.expired, _EXPIRED),
        *say(plan.abandoned, _ABANDONED),
    ]


def _describe(result: SweepResult, *, has_more: bool) -> str:
    said = (
        f"Swept {_count(result.files, 'file')} of {_count(result.bytes, 'byte')}, "
        f"{_count(result.empty_partitions, 'empty partition')} and "
        f"{_count(result.names_released, 'abandoned name')}; "
        f"ended {_count(result.leases_ended, 'lease')}."
    )
    return f"{said} More is left: sweep again." if has_more else said


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
