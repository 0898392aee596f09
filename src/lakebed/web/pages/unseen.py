"""Partitions that queries cannot see, because their schema is not their view set's: how many there
are, what retiring those of one view set would do, and doing it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.errors import Refused, StalePlan
from lakebed.lake import Lake
from lakebed.lifecycle.retire import IncompatiblePartition, RetirementPlan
from lakebed.model.time import format_duration, format_instant
from lakebed.web.notes import Done

_MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class UnseenRow:
    """What queries cannot see of one view set."""

    view_set: str
    partitions: int
    rows: int
    bytes: int
    lost_if_retired: int
    """How many cannot be built again."""


@dataclass(frozen=True, slots=True)
class UnseenPartition:
    """One of them."""

    partition_id: str
    instance: str
    begin: str
    end: str
    rows: int
    bytes: int
    schema_hash: str
    is_empty: bool
    can_be_rebuilt: bool


@dataclass(frozen=True, slots=True)
class UnseenPage:
    """What would be retired of one view set."""

    view_set: str
    is_registered: bool
    partitions: Sequence[UnseenPartition]
    """The first of them."""
    partition_count: int
    rows: int
    bytes: int
    lost: int
    """How many cannot be built again."""
    lost_rows: int
    warnings: Sequence[str]
    must_confirm: Sequence[str]
    """View sets of which this is implausibly much: their names have to be typed."""
    restorable_for: str
    plan: str
    """Stands for exactly this plan; a form that carries another one is refused."""


@dataclass(frozen=True, slots=True)
class _Seen:
    plan: RetirementPlan
    found: Mapping[str, IncompatiblePartition]

    def is_lost(self, partition_id: str) -> bool:
        """Whether rows are gone for good once it is swept; also if nobody knows."""
        each = self.found.get(partition_id)
        return each is None or (not each.can_be_rebuilt and not each.partition.is_empty)

    @property
    def mark(self) -> str:
        """The partitions, and which of them would be lost."""
        told = hashlib.sha256()
        for each in sorted(part.partition_id for part in self.plan.partitions):
            told.update(f"{each} {self.is_lost(each)}\n".encode())
        return told.hexdigest()


def list_unseen(lake: Lake) -> list[UnseenRow]:
    """Every view set of which queries cannot see something."""
    found: dict[str, list[IncompatiblePartition]] = {}
    for each in lake.retirement.list_incompatible_partitions():
        found.setdefault(each.partition.view_set, []).append(each)
    return [
        UnseenRow(
            name,
            len(parts),
            sum(each.partition.num_rows for each in parts),
            sum(each.partition.file_size for each in parts),
            sum(not each.can_be_rebuilt and not each.partition.is_empty for each in parts),
        )
        for name, parts in sorted(found.items())
    ]


def read_unseen(lake: Lake, view_set: str) -> UnseenPage:
    """The plan for one view set; nothing is changed."""
    seen = _look(lake, view_set)
    chosen = seen.plan.partitions
    lost = [each for each in chosen if seen.is_lost(each.partition_id)]
    return UnseenPage(
        view_set,
        any(each.view_set.name == view_set for each in lake.views.list_view_sets()),
        [
            UnseenPartition(
                each.partition_id,
                each.instance,
                format_instant(each.insert_range.begin),
                format_instant(each.insert_range.end),
                each.num_rows,
                each.file_size,
                each.schema_hash.hex(),
                each.is_empty,
                not seen.is_lost(each.partition_id),
            )
            for each in chosen[:_MOST_SHOWN]
        ],
        len(chosen),
        sum(each.num_rows for each in chosen),
        seen.plan.bytes,
        len(lost),
        sum(each.num_rows for each in lost),
        seen.plan.warnings,
        seen.plan.confirm,
        format_duration(lake.row.grace_us),
        seen.mark,
    )


def retire_unseen(lake: Lake, view_set: str, fields: Mapping[str, str]) -> Done:
    """Retire what the page has shown, all of it in one transaction; what cannot be built again
    only if that was allowed, as on the command line."""
    seen = _look(lake, view_set)
    if not seen.plan.partitions or fields.get("plan") != seen.mark:
        raise StalePlan(
            "what would be retired is not what it was when the page was loaded",
            hint="look at the plan again, which is new",
        )
    chosen = seen.plan.partitions
    if fields.get("allow_loss") != "yes":
        chosen = tuple(each for each in chosen if not seen.is_lost(each.partition_id))
    if not chosen:
        raise Refused(
            "none of them can be built again",
            hint="tick the box, if their rows may be lost after the grace period",
        )
    typed = fields.get("confirm", "").strip()
    if any(name != typed for name in seen.plan.confirm):
        names = " and ".join(seen.plan.confirm)
        raise Refused(f"this is most of {names}", hint=f"confirm it by typing {names}")
    lake.retirement.carry_out(replace(seen.plan, partitions=chosen), confirmed=[typed])
    rows = sum(each.num_rows for each in chosen)
    left = len(seen.plan.partitions) - len(chosen)
    return Done(
        "/admin/retired",
        f"Retired {len(chosen):,} of {len(seen.plan.partitions):,} partitions of {view_set} with "
        f"{rows:,} rows. They can be restored for {format_duration(lake.row.grace_us)}."
        + (f" {left:,} cannot be built again and were left alone." if left else ""),
    )


def _look(lake: Lake, view_set: str) -> _Seen:
    found = lake.retirement.list_incompatible_partitions(view_set)
    plan = lake.retirement.plan_incompatible(view_set)
    return _Seen(plan, {each.partition.partition_id: each for each in found})
