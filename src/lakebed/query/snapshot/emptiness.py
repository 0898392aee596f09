"""Reasons why there are no rows. Pure: the catalog's facts about a view set go in, ranges of insert
time without rows come out, each with its reason.

Ranges are of insert time, because the catalog has that exactly: the processed ranges, the blocks in
them, and their state. Event times are known only of rows that exist. The ranges of users' tables
are of the rows' own time.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakebed.catalog.lookups.listing import Stretch
from lakebed.catalog.records.failures import BuildFailure
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange, find_gaps, format_duration, format_instant
from lakebed.model.view_set import ViewSet


class Reason(enum.StrEnum):
    """Causes of a range without rows."""

    NO_DATA = "no data landed"
    EMPTY = "processed and empty"
    NOT_BUILT = "not built yet"
    FAILED = "failed"
    RETIRED = "retired"
    EXPIRED = "expired"
    INCOMPATIBLE = "incompatible"
    REPLACED = "deleted or replaced"


@dataclass(frozen=True, slots=True)
class EmptyRange:
    """Insert times of which there are no rows."""

    within: TimeRange
    reason: Reason
    detail: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """Facts of the catalog about one view set in a range, at one tick."""

    active: ActiveViewSet
    tick: int
    live: Sequence[Stretch]
    retired: Sequence[Stretch]
    failures: Sequence[BuildFailure]
    """Failures of the view set itself and of everything that its SQL reads."""
    tail_is_read: bool
    """True if blocks that are not built are decoded for queries."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A statement about a range that follows from one fact; without a reason the range has rows."""

    within: TimeRange
    rank: int
    reason: Reason | None = None
    detail: str = ""
    hint: str | None = None


def find_unexplained(facts: RangeFacts, within: TimeRange) -> list[TimeRange]:
    """Return the parts of a range that only landed blocks can explain, where to look for them."""
    past = TimeRange(min(within.begin, facts.tick), facts.tick + 1)
    if facts.active.view_set.source is None or not past.overlaps(within):
        return []
    claims = [claim.within for claim in (*_claim_processed(facts), *_claim_expired(facts, within))]
    return find_gaps(past.intersect(within), claims)


def explain(facts: RangeFacts, within: TimeRange, landed: Sequence[int]) -> list[EmptyRange]:
    """Return the parts of a range that have no rows, in order. ``landed`` has the insert times of
    the view set's source blocks, in the ranges that `find_unexplained` returned."""
    claims = [
        *_claim_processed(facts),
        *_claim_expired(facts, within),
        *_claim_retired(facts),
        *_claim_unbuilt(facts, find_unexplained(facts, within), landed),
        *_claim_no_data(facts, within),
    ]
    return list(_join(_choose(claims, within)))


def _claim_processed(facts: RangeFacts) -> Iterable[_Claim]:
    """Yield the claims of partitions and failures."""
    name = facts.active.view_set.name
    for partition in facts.live:
        if partition.schema_hash == facts.active.schema_hash:
            if not partition.is_empty:
                yield _Claim(partition.within, 0)
                continue
            detail = "what landed was processed to its end and gave no rows"
            yield _Claim(partition.within, 1, Reason.EMPTY, detail)
        else:
            rows = "nothing" if partition.is_empty else f"{partition.num_rows} rows"
            detail = (
                f"{rows} in schema {partition.schema_hash.hex()[:12]}, "
                f"the active one is {facts.active.schema_hash.hex()[:12]}"
            )
            hint = _how_to_make(facts.active.view_set, partition)
            if hint is None:
                detail += "; they cannot be rebuilt, because their blocks are gone or never were"
            yield _Claim(partition.within, 5, Reason.INCOMPATIBLE, detail, hint)
    for partition in facts.retired:
        if partition.held:
            detail = f"partition {partition.partition_id} of {partition.num_rows} rows is held back"
            hint = f"lakebed partitions restore {partition.partition_id}"
            yield _Claim(partition.within, 3, Reason.RETIRED, detail, hint)
    for failure in facts.failures:
        detail = f"{failure.view_set} cannot read block {failure.block_id}: {failure.reason}"
        instant = TimeRange(failure.insert_time, failure.insert_time + 1)
        yield _Claim(instant, 4, Reason.FAILED, detail, f"lakebed build {name} --retry-failed")


def _claim_expired(facts: RangeFacts, within: TimeRange) -> Iterable[_Claim]:
    floor = facts.active.retained_from
    if within.begin < floor:
        detail = f"kept from {format_instant(floor)} on"
        yield _Claim(TimeRange(within.begin, floor), 2, Reason.EXPIRED, detail)


def _claim_retired(facts: RangeFacts) -> Iterable[_Claim]:
    for partition in facts.retired:
        if partition.retired_at is None or partition.held:
            continue
        detail = (
            f"partition {partition.partition_id} of {partition.num_rows} rows was retired at "
            f"{format_instant(partition.retired_at)}"
        )
        hint: str | None = f"lakebed partitions restore {partition.partition_id}"
        remake = _how_to_make(facts.active.view_set, partition)
        if partition.schema_hash != facts.active.schema_hash:
            # Queries would not see it: restoring it makes it incompatible.
            detail += f", in schema {partition.schema_hash.hex()[:12]}, which is not the active one"
            hint = remake
        elif remake is not None and facts.active.view_set.source is not None:
            hint = f"{remake}, or {hint}"
        yield _Claim(partition.within, 7, Reason.RETIRED, detail, hint)


def _claim_unbuilt(
    facts: RangeFacts, gaps: Sequence[TimeRange], landed: Sequence[int]
) -> Iterable[_Claim]:
    """Yield claims for gaps: from the first to the last block in each there are rows in the tail,
    or will be."""
    is_read = facts.tail_is_read and isinstance(facts.active.view_set.source, BlockSource)
    times = sorted(landed)
    index = 0
    for gap in gaps:
        while index < len(times) and times[index] < gap.begin:
            index += 1
        first = index
        while index < len(times) and times[index] < gap.end:
            index += 1
        if index == first:
            continue
        within = TimeRange(times[first], times[index - 1] + 1)
        if is_read:
            yield _Claim(within, 6)
            continue
        detail = f"{index - first} blocks landed"
        if isinstance(facts.active.view_set.source, SqlSource):
            detail += "; view sets made by SQL have no fresh tail"
        else:
            detail += "; the fresh tail was left out"
        hint = f"lakebed build {facts.active.view_set.name}"
        yield _Claim(within, 8, Reason.NOT_BUILT, detail, hint)


def _claim_no_data(facts: RangeFacts, within: TimeRange) -> Iterable[_Claim]:
    has_source = facts.active.view_set.source is not None
    detail = "no blocks that it is made of" if has_source else "nobody published anything"
    yield _Claim(within, 9, Reason.NO_DATA, detail)
    if within.end > facts.tick + 1:
        future = TimeRange(max(within.begin, facts.tick + 1), within.end)
        detail = f"the lake's clock stands at {format_instant(facts.tick)}"
        yield _Claim(future, 8, Reason.NO_DATA, detail)


def _how_to_make(view_set: ViewSet, stretch: Stretch) -> str | None:
    """Return how to make the rows of a partition again; None if nothing can."""
    if view_set.source is None:
        return "publish the rows again"
    return None if stretch.is_frozen else f"lakebed build {view_set.name}"


def explain_table(
    user_table: UserTable,
    live: Sequence[Stretch],
    retired: Sequence[Stretch],
    within: TimeRange,
    tick: int,
) -> list[EmptyRange]:
    """Return the parts of a range of the rows' own time in which a user's table has no rows."""
    claims = [_Claim(within, 9, Reason.NO_DATA, f"no rows of {user_table.full_name} are of it")]
    claims += [_Claim(stretch.within, 0) for stretch in live if not stretch.is_empty]
    if user_table.retention_us is not None:
        floor = tick - user_table.retention_us
        if within.begin < floor:
            detail = f"rows are kept for {format_duration(user_table.retention_us)}"
            claims.append(_Claim(TimeRange(within.begin, floor), 2, Reason.EXPIRED, detail))
    for stretch in retired:
        if stretch.is_empty or stretch.retired_at is None:
            continue
        time = format_instant(stretch.retired_at)
        if stretch.replaced:
            detail = f"rows of it were deleted or replaced at {time}"
            hint = f"read the past with as_of, from before {time}"
            claims.append(_Claim(stretch.within, 4, Reason.REPLACED, detail, hint))
        else:
            partition = f"partition {stretch.partition_id} of {stretch.num_rows} rows"
            detail = f"{partition} was retired at {time}"
            hint = f"lakebed partitions restore {stretch.partition_id}"
            claims.append(_Claim(stretch.within, 3, Reason.RETIRED, detail, hint))
    return list(_join(_choose(claims, within)))


def _choose(claims: Iterable[_Claim], within: TimeRange) -> Iterable[_Claim]:
    """Yield for each part of a range the claim of the lowest rank, in order."""
    clipped = [
        _Claim(claim.within.intersect(within), claim.rank, claim.reason, claim.detail, claim.hint)
        for claim in claims
        if claim.within.overlaps(within)
    ]
    clipped.sort(key=lambda claim: claim.within.begin)
    edges = sorted({edge for claim in clipped for edge in (claim.within.begin, claim.within.end)})
    current: list[tuple[int, int]] = []
    index = 0
    for begin, end in pairwise(edges):
        while index < len(clipped) and clipped[index].within.begin <= begin:
            heapq.heappush(current, (clipped[index].rank, index))
            index += 1
        while current and clipped[current[0][1]].within.end <= begin:
            heapq.heappop(current)
        if current:
            best = clipped[current[0][1]]
            yield _Claim(TimeRange(begin, end), best.rank, best.reason, best.detail, best.hint)


def _join(claims: Iterable[_Claim]) -> Iterable[EmptyRange]:
    """Yield the empty ranges; neighbours with the same reason become one."""
    last: EmptyRange | None = None
    for claim in claims:
        if claim.reason is None:
            continue
        if (
            last is not None
            and last.within.end == claim.within.begin
            and (last.reason, last.detail, last.hint) == (claim.reason, claim.detail, claim.hint)
        ):
            last = EmptyRange(
                TimeRange(last.within.begin, claim.within.end), last.reason, last.detail, last.hint
            )
            continue
        if last is not None:
            yield last
        last = EmptyRange(claim.within, claim.reason, claim.detail, claim.hint)
    if last is not None:
        yield last
