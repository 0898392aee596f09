"""Taking one partition out of sight, and bringing it back: first the plan, then the deed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.catalog import blocks, partitions
from lakebed.errors import Refused, UnknownPartition
from lakebed.lake import Lake
from lakebed.lifecycle.retire import RetirementPlan
from lakebed.model.time import format_duration, format_instant
from lakebed.model.user_table import is_table
from lakebed.web.notes import Done


@dataclass(frozen=True, slots=True)
class RetiringPage:
    """What would happen."""

    partition_id: str
    name: str
    begin: str
    end: str
    rows: int
    bytes: int
    can_be_rebuilt: bool
    restorable_for: str
    warnings: Sequence[str]
    must_confirm: Sequence[str]
    """View sets of which this is implausibly much."""


def read_retiring(lake: Lake, partition_id: str) -> RetiringPage:
    """The plan for one live partition; nothing is changed."""
    plan = _plan(lake, partition_id)
    partition = plan.partitions[0]
    with lake.catalog.read() as connection:
        rebuildable = blocks.list_rebuildable(connection, [partition])
    return RetiringPage(
        partition_id,
        partition.view_set,
        format_instant(partition.insert_range.begin),
        format_instant(partition.insert_range.end),
        partition.num_rows,
        partition.file_size,
        partition.is_empty or partition_id in rebuildable,
        format_duration(lake.row.grace_us),
        plan.warnings,
        plan.confirm,
    )


def retire(lake: Lake, partition_id: str) -> Done:
    """Do it. What the plan wants confirmed by name is refused: that is for the command line."""
    gone = lake.retirement.carry_out(_plan(lake, partition_id))[0].partition
    return Done(
        f"/lake/partitions/{gone.partition_id}",
        f"Retired. It can be restored for {format_duration(lake.row.grace_us)}.",
    )


def restore(lake: Lake, partition_id: str) -> Done:
    """Bring a retired partition back; as a new one, which is shown."""
    back = lake.retirement.restore(partition_id)
    return Done(f"/lake/partitions/{back.partition_id}", "Restored, as this new partition.")


def _plan(lake: Lake, partition_id: str) -> RetirementPlan:
    with lake.catalog.read() as connection:
        found = partitions.list_by_id(connection, [partition_id])
    if not found or not found[0].is_live:
        raise UnknownPartition(
            f"no live partition has the id {partition_id!r}", hint="it may be retired already"
        )
    partition = found[0]
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
