"""A sweep: the files that it would delete now, the reasons for the others, and the action
itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.catalog import leases
from lakebed.catalog.records.files import TemporaryFile
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import SweepPlan, SweepResult
from lakebed.model.time import SECOND, format_duration, format_instant
from lakebed.web.notes import FormResult

_MOST_SHOWN = 200
_MOST_BATCHES = 10
"""The limit of one form: the rest is left to the next one, to upkeep, or to the command line."""
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
    """A process that may still read files that were retired after a tick."""

    holder: str
    oldest: str
    taken_for_dead: bool


@dataclass(frozen=True, slots=True)
class SweepPage:
    """The data of the page."""

    is_empty: bool
    """True if there is nothing to do."""
    file_count: int
    bytes: int
    files: Sequence[DoomedFile]
    """The first files."""
    empty_partitions: int
    dead_leases: Sequence[str]
    """The holders of dead leases."""
    waiting: int
    """Files whose grace period still runs, or that are held."""
    grace: str
    protected: int
    """Files past it that a reader may still need."""
    readers: Sequence[ReaderRow]
    watched_seconds: float
    """The time after which the holder of a lease that stands still is assumed dead."""


def read_sweep(lake: Lake) -> SweepPage:
    """Return the plan for the next batch, without changes."""
    plan = lake.sweeper.plan()
    dead = {lease.lease_id for lease in plan.dead_leases}
    with lake.catalog.read() as connection:
        current_leases = leases.list_leases(connection)
    return SweepPage(
        plan.is_empty,
        len(plan.files),
        plan.bytes,
        _list_doomed(plan)[:_MOST_SHOWN],
        len(plan.empty),
        [lease.holder for lease in plan.dead_leases],
        plan.waiting,
        format_duration(lake.row.grace_us),
        plan.protected,
        [
            ReaderRow(lease.holder, format_instant(lease.oldest_tick), lease.lease_id in dead)
            for lease in current_leases
            if lease.oldest_tick is not None
        ],
        max((lease.ttl_us for lease in current_leases), default=0) / SECOND,
    )


def sweep(lake: Lake, *, most_batches: int = _MOST_BATCHES) -> FormResult:
    """Delete expired files, up to the limit of one request."""
    result = lake.sweeper.run(most_batches=most_batches)
    next_plan = lake.sweeper.plan()
    return FormResult(
        "/admin/sweep", _describe(result, has_more=bool(next_plan.files or next_plan.empty))
    )


def _list_doomed(plan: SweepPlan) -> list[DoomedFile]:
    def describe(files: Sequence[TemporaryFile], why: str) -> list[DoomedFile]:
        return [DoomedFile(file.file_path, file.file_size, why) for file in files]

    return [
        *describe(plan.unfinished, _UNFINISHED),
        *describe(plan.expired, _EXPIRED),
        *describe(plan.abandoned, _ABANDONED),
    ]


def _describe(result: SweepResult, *, has_more: bool) -> str:
    summary = (
        f"Swept {_count(result.files, 'file')} of {_count(result.bytes, 'byte')}, "
        f"{_count(result.empty_partitions, 'empty partition')} and "
        f"{_count(result.names_released, 'abandoned name')}; "
        f"ended {_count(result.leases_ended, 'lease')}."
    )
    return f"{summary} More is left: sweep again." if has_more else summary


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
