"""Healing: a partition whose file is damaged or missing is retired if its rows can be built
again from their blocks; until then the fresh tail has them. Other damage is reported, until an
operator accepts the loss.
"""

from __future__ import annotations

from lakebed.catalog.records import blocks, partitions
from lakebed.errors import LakebedError, UnknownObject
from lakebed.lake import Lake
from lakebed.lifecycle.check import CheckReport, Finding, Severity
from lakebed.model.partition import Partition
from lakebed.storage.marks import require_mark

_OF_FILES = ("missing file", "file size", "file content", "stored footer")


def heal(lake: Lake, report: CheckReport) -> tuple[list[Partition], list[Finding]]:
    """Heal the damage that a check found. Return the partitions that will be built again, and the
    findings that remain. Raises if the store does not have this lake's mark, because then files are
    not missing but the store is."""
    require_mark(lake.store, lake.lake_id)
    healed: list[Partition] = []
    unhealed: list[Finding] = []
    for finding in report.findings:
        if finding.severity is not Severity.DAMAGE:
            continue
        partition = _find_rebuildable(lake, finding)
        if partition is None:
            unhealed.append(finding)
            continue
        try:
            if finding.kind == "missing file":
                if not _is_missing(lake, finding.subject):
                    continue
                plan = lake.retirement.plan_healing(finding.subject)
                lake.retirement.carry_out(plan, confirmed=[partition.view_set, *plan.confirm])
            else:
                lake.checker.quarantine(finding.subject, f"damaged: {finding.message}")
            healed.append(partition)
        except LakebedError as error:
            unhealed.append(Finding(finding.severity, finding.kind, finding.subject, str(error)))
    return healed, unhealed


def _is_missing(lake: Lake, path: str) -> bool:
    """Return True if a file is missing in a store that has its mark before and afterwards."""
    try:
        lake.store.size(path)
    except UnknownObject:
        require_mark(lake.store, lake.lake_id)
        return True
    return False


def _find_rebuildable(lake: Lake, finding: Finding) -> Partition | None:
    """Return the live partition of a damaged file, or None if its blocks are gone."""
    if finding.kind not in _OF_FILES:
        return None
    with lake.catalog.read() as connection:
        live = [e for e in partitions.list_by_path(connection, finding.subject) if e.is_live]
        rebuildable = blocks.list_rebuildable(connection, live)
    rebuildable_partitions = [
        partition for partition in live if partition.partition_id in rebuildable
    ]
    return rebuildable_partitions[0] if rebuildable_partitions else None
