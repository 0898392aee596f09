"""The duties of upkeep: the work of each on a lake, and a text with its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakebed.catalog.records import tables
from lakebed.errors import LakebedError, Refused
from lakebed.lake import Lake
from lakebed.lifecycle.check import Finding, Level
from lakebed.model.partition import Partition
from lakebed.upkeep.healing import heal
from lakebed.upkeep.reading import read_share

_NOTHING = "nothing to do"


_MOST_BATCHES = 10
_MOST_RETIRED = 1000


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The result of a duty that stopped before its end. It is due again at once, after other
    duties."""

    result: str


@dataclass(frozen=True, slots=True)
class Duty:
    """A task that is due at intervals; ``work`` returns a text with its result, or raises."""

    name: str
    every_seconds: int
    purpose: str
    work: Callable[[Lake], str | Unfinished]
    own_thread: bool = False
    """True if it runs in a thread of its own in a loop, and does not wait for other duties."""


def _build(lake: Lake) -> str:
    report = lake.pipeline.build(keep_session=True)
    if report.problems:
        raise LakebedError(
            f"{len(report.problems)} steps failed: {report.problems[0].problem}",
            hint="see them with: lakebed build --plan",
        )
    if not report.published:
        return _NOTHING
    return f"{_count(len(report.published), 'partition')} with {_count(report.rows, 'row')}"


def retain(lake: Lake, most_retired: int = _MOST_RETIRED) -> str | Unfinished:
    """Apply the retention of view sets, tables and blocks to at most `most_retired` partitions and
    segments. `Refused` with all plans that the breaker refuses and an operator must confirm; the
    other plans are carried out."""
    plans = [
        (lake.retirement.plan_by_retention(entry.view_set.name), False)
        for entry in lake.views.list_view_sets()
        if entry.view_set.retention_us is not None
    ]
    with lake.catalog.read() as connection:
        retained_tables = [
            table for table in tables.list_tables(connection) if table.retention_us is not None
        ]
    for table in retained_tables:
        # The whole plan at once: a part could uncover rows that a retired partition had replaced.
        plan = lake.retirement.plan_by_table_retention(table.database, table.name)
        plans.append((plan, True))
    retired, refused, has_more = 0, [], False
    for plan, whole in plans:
        part = plan.first(most_retired - retired)
        part = plan if whole and part.partitions else part
        try:
            retired += len(lake.retirement.carry_out(part))
        except Refused as error:
            refused.append(str(error))
        else:
            has_more |= len(part.partitions) < len(plan.partitions)
    results = [f"retired {_count(retired, 'partition')}"] if retired else []
    if lake.blocks.find_keep() is not None:
        old = lake.blocks.plan_expired()
        done = lake.blocks.carry_out(lake.blocks.shorten(old, most_retired))
        has_more |= len(done.segments) < len(old.segments)
        results += [f"retired {_count(len(done.segments), 'segment')}"] if done.segments else []
    if refused:
        raise Refused("; ".join([*results, *refused]))
    text = "; ".join(results) or _NOTHING
    return Unfinished(text) if has_more else text


def _sweep(lake: Lake, most_batches: int = _MOST_BATCHES) -> str | Unfinished:
    done = lake.sweeper.run(most_batches=most_batches)
    if not (done.files or done.empty_partitions or done.leases_ended or done.has_more):
        return _NOTHING
    result = (
        f"deleted {_count(done.files, 'file')} of {_count(done.bytes, 'byte')}, "
        f"{_count(done.empty_partitions, 'record')} of empty partitions, "
        f"ended {_count(done.leases_ended, 'lease')}"
    )
    return Unfinished(result) if done.has_more else result


def _check(lake: Lake) -> str:
    report = lake.checker.run(Level.FILES)
    healed, unhealed = heal(lake, report)
    result = f"looked for {_count(report.files, 'file')} and their sizes"
    return _say_healing(result, healed, unhealed)


def _read(lake: Lake) -> str:
    report, healed, unhealed = read_share(lake, "read")
    result = f"read {_count(report.files, 'file')} of {_count(report.bytes, 'byte')} to their end"
    return _say_healing(result, healed, unhealed)


def _say_healing(result: str, healed: Sequence[Partition], unhealed: Sequence[Finding]) -> str:
    if healed:
        result += f"; {len(healed)} set aside, to be built again"
    if unhealed:
        raise LakebedError(
            f"{result}; {_count(len(unhealed), 'thing')} cannot be healed: "
            f"{unhealed[0].subject}: {unhealed[0].message}",
            hint="see all with: lakebed check --level pages",
        )
    return result


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


DUTIES = (
    Duty("sweep", 300, "deletes what is past its grace period", _sweep),
    Duty("retain", 3600, "retires what is older than it should be kept", retain),
    Duty("check", 24 * 3600, "looks whether every file is there, and heals", _check),
    Duty("read", 3600, "reads a share of the files to their end, and heals", _read),
    # The last, so that it builds what was set aside.
    Duty("build", 10, "builds, merges and folds what has landed", _build, own_thread=True),
)

_EVERY = {duty.name: duty for duty in DUTIES}
SHARE = (
    replace(_EVERY["sweep"], work=lambda lake: _sweep(lake, most_batches=1)),
    _EVERY["retain"],
)
"""Cheap duties, which any program can do before it ends."""
