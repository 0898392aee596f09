"""Partitions that queries cannot see, because their schema is not their view set's: their number,
the plan of retiring those of one view set, and the action.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import Refused, StalePlan
from lakebed.lake import Lake
from lakebed.lifecycle.guard import require_confirmed
from lakebed.lifecycle.planning import IncompatiblePartition
from lakebed.model.time import format_duration, format_instant
from lakebed.web.notes import FormResult
from lakebed.web.pages.retiring import read_names

_MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class UnseenRow:
    """The partitions of one view set that queries cannot see."""

    view_set: str
    partitions: int
    rows: int
    bytes: int
    lost_if_retired: int
    """The number that cannot be built again."""


@dataclass(frozen=True, slots=True)
class UnseenPartition:
    """One partition that queries cannot see."""

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
    """The partitions of one view set that would be retired."""

    view_set: str
    is_registered: bool
    partitions: Sequence[UnseenPartition]
    """The first partitions."""
    partition_count: int
    rows: int
    bytes: int
    lost: int
    """The number that cannot be built again."""
    lost_rows: int
    warnings: Sequence[str]
    must_confirm: Sequence[str]
    """The names to type before rows are lost."""
    restorable_for: str
    plan: str
    """A digest of exactly this plan; a form that carries another one is refused."""


def list_unseen(lake: Lake) -> list[UnseenRow]:
    """Return every view set with partitions that queries cannot see."""
    by_name: dict[str, list[IncompatiblePartition]] = {}
    for candidate in lake.retirement.list_incompatible_partitions():
        by_name.setdefault(candidate.partition.view_set, []).append(candidate)
    return [
        UnseenRow(
            name,
            len(parts),
            sum(candidate.partition.num_rows for candidate in parts),
            sum(candidate.partition.file_size for candidate in parts),
            sum(candidate.is_lost for candidate in parts),
        )
        for name, parts in sorted(by_name.items())
    ]


def read_unseen(lake: Lake, view_set: str) -> UnseenPage:
    """Return the plan for one view set, without changes."""
    incompatible = lake.retirement.list_incompatible_partitions(view_set)
    plan = lake.retirement.plan_found(incompatible)
    lost = [candidate.partition for candidate in incompatible if candidate.is_lost]
    return UnseenPage(
        view_set,
        any(active.view_set.name == view_set for active in lake.views.list_view_sets()),
        [
            UnseenPartition(
                candidate.partition.partition_id,
                candidate.partition.instance,
                format_instant(candidate.partition.insert_range.begin),
                format_instant(candidate.partition.insert_range.end),
                candidate.partition.num_rows,
                candidate.partition.file_size,
                candidate.partition.schema_hash.hex(),
                candidate.partition.is_empty,
                not candidate.is_lost,
            )
            for candidate in incompatible[:_MOST_SHOWN]
        ],
        len(incompatible),
        sum(candidate.partition.num_rows for candidate in incompatible),
        plan.bytes,
        len(lost),
        sum(partition.num_rows for partition in lost),
        plan.warnings,
        plan.confirm,
        format_duration(lake.row.grace_us),
        _mark(incompatible),
    )


def retire_unseen(lake: Lake, view_set: str, fields: Mapping[str, str]) -> FormResult:
    """Retire the partitions that the page has shown, in one transaction. Partitions that cannot be
    built again are retired only if the box is ticked and the view set's name is typed."""
    incompatible = lake.retirement.list_incompatible_partitions(view_set)
    if not incompatible or fields.get("plan") != _mark(incompatible):
        raise StalePlan(
            "what would be retired is not what it was when the page was loaded",
            hint="look at the plan again, which is new",
        )
    loss = fields.get("allow_loss") == "yes"
    doomed = [candidate for candidate in incompatible if loss or not candidate.is_lost]
    if not doomed:
        raise Refused(
            "none of them can be built again",
            hint="tick the box, if their rows may be lost after the grace period",
        )
    plan = lake.retirement.plan_found(doomed)
    names = read_names(fields)
    require_confirmed(plan.demands, names, by_form=True)
    lake.retirement.carry_out(plan, confirmed=names)
    rows = sum(partition.num_rows for partition in plan.partitions)
    spared = len(incompatible) - len(doomed)
    return FormResult(
        "/admin/retired",
        f"Retired {len(doomed):,} of {len(incompatible):,} partitions of {view_set} with {rows:,} "
        f"rows. They can be restored for {format_duration(lake.row.grace_us)}."
        + (f" {spared:,} cannot be built again and were left alone." if spared else ""),
    )


def _mark(incompatible: Sequence[IncompatiblePartition]) -> str:
    """Return a digest of the partitions, and of which of them would be lost."""
    digest = hashlib.sha256()
    for name, lost in sorted(
        (candidate.partition.partition_id, candidate.is_lost) for candidate in incompatible
    ):
        digest.update(f"{name} {lost}\n".encode())
    return digest.hexdigest()
