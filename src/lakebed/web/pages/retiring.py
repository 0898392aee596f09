"""Retire one partition, after its plan was shown, and restore it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.catalog.records import partitions
from lakebed.errors import Refused, UnknownPartition
from lakebed.lake import Lake
from lakebed.lifecycle.guard import require_confirmed
from lakebed.lifecycle.planning import RetirementPlan
from lakebed.model.tables.table import is_table
from lakebed.model.time import format_duration, format_instant
from lakebed.web.notes import FormResult


@dataclass(frozen=True, slots=True)
class RetiringPage:
    """The plan for one partition."""

    partition_id: str
    name: str
    begin: str
    end: str
    rows: int
    bytes: int
    can_be_rebuilt: bool
    restorable_for: str
    must_confirm: Sequence[str]
    """The names to type before it is done."""
    risks: Sequence[str]
    """The reasons why they must be typed."""


def read_retiring(lake: Lake, partition_id: str) -> RetiringPage:
    """Return the plan for one live partition; nothing is changed."""
    plan = _plan(lake, partition_id)
    partition = plan.partitions[0]
    return RetiringPage(
        partition_id,
        partition.view_set,
        format_instant(partition.insert_range.begin),
        format_instant(partition.insert_range.end),
        partition.num_rows,
        partition.file_size,
        partition_id not in plan.lost,
        format_duration(lake.row.grace_us),
        plan.confirm,
        [str(demand) for demand in plan.demands],
    )


def retire(lake: Lake, partition_id: str, fields: Mapping[str, str]) -> FormResult:
    """Retire it. The names that the plan asks for must be typed, separated by commas."""
    plan = _plan(lake, partition_id)
    names = read_names(fields)
    require_confirmed(plan.demands, names, by_form=True)
    partition = lake.retirement.carry_out(plan, confirmed=names)[0].partition
    return FormResult(
        f"/lake/partitions/{partition.partition_id}",
        f"Retired. It can be restored for {format_duration(lake.row.grace_us)}.",
    )


def read_names(fields: Mapping[str, str]) -> list[str]:
    """Return the names that were typed into the field ``confirm``."""
    return [name.strip() for name in fields.get("confirm", "").split(",") if name.strip()]


def restore(lake: Lake, partition_id: str) -> FormResult:
    """Restore a retired partition as a new one, which is shown."""
    partition = lake.retirement.restore(partition_id)
    return FormResult(
        f"/lake/partitions/{partition.partition_id}", "Restored, as this new partition."
    )


def _plan(lake: Lake, partition_id: str) -> RetirementPlan:
    with lake.catalog.read() as connection:
        matching = partitions.list_by_id(connection, [partition_id])
    if not matching or not matching[0].is_live:
        raise UnknownPartition(
            f"no live partition has the id {partition_id!r}", hint="it may be retired already"
        )
    partition = matching[0]
    if is_table(partition.view_set):
        raise Refused(
            "a partition of a table is not retired here: rows that it replaced would come back",
            hint="delete rows with: lakebed tables delete DATABASE.TABLE --where …",
        )
    return lake.retirement.plan_by_metadata(
        partition.view_set,
        partition.instance,
        partition.insert_range.begin,
        partition.insert_range.end,
        partition.schema_hash,
    )
