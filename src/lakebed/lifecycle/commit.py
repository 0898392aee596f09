"""Retire and restore in one transaction. Every plan is committed here, behind the guard."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.records import files, lakes, partitions, tables, view_sets
from lakebed.errors import Conflict, StalePlan
from lakebed.lifecycle import selection
from lakebed.lifecycle.guard import Guard
from lakebed.lifecycle.planning import RetirementPlan
from lakebed.model.partition import FileState, Partition
from lakebed.model.tables.table import is_table, table_id_of
from lakebed.writing.publish import retire_rows


def commit(
    catalog: Catalog,
    guard: Guard,
    plans: Sequence[RetirementPlan],
    confirmed: Collection[str] = (),
    *,
    restored: Sequence[tuple[str, str]] = (),
    hint: str = "make the plan again",
) -> list[Partition]:
    """Carry out plans and restore partitions in one transaction, if the guard allows it.

    ``restored`` pairs the id of each partition to restore with its new one. Return the restored
    partitions. Raise `Refused` for a name that is not confirmed, `StalePlan` if the lake has
    changed since the plans were made; ``hint`` says what to do then.
    """
    doomed = [partition for plan in plans for partition in plan.partitions]
    lost = frozenset[str]().union(*(plan.lost for plan in plans))
    by_retention = any(plan.by_retention for plan in plans)

    def work(transaction: Transaction) -> list[Partition]:
        connection = transaction.connection
        for plan in plans:
            if plan.only_incompatible:
                _require_incompatible(connection, plan.partitions)
        if doomed:
            unconfirmed = guard.require(
                transaction, doomed, lost, confirmed, by_retention=by_retention
            )
        for plan in plans:
            retire_rows(
                transaction,
                plan.partitions,
                operation="hold" if plan.hold else "retire",
                reason=plan.reason,
                hint=hint,
                hold=plan.hold,
                unconfirmed=unconfirmed,
            )
            for name, floor in plan.retained_from:
                view_sets.raise_floor(connection, name, floor)
        return [restore_row(transaction, old, new) for old, new in restored]

    def happened(connection: Connection, _restored: list[Partition]) -> bool:
        rows = partitions.list_by_id(connection, [row.partition_id for row in doomed])
        new = partitions.list_by_id(connection, [new_id for _, new_id in restored])
        return len(new) == len(restored) and not any(row.is_live for row in rows)

    return catalog.commit(work, happened)


def restore_row(transaction: Transaction, partition_id: str, new_id: str) -> Partition:
    """Bring one retired partition back as part of a transaction."""
    connection, tick = transaction.connection, transaction.tick
    old = selection.get_restorable(connection, partition_id)
    if old.file_path is not None and not files.take(
        connection, [old.file_path], [FileState.RETIRED, FileState.QUARANTINED]
    ):
        raise Conflict(f"{old.describe()} is being swept")
    restored = replace(
        old,
        partition_id=new_id,
        published_at=tick,
        retired_at=None,
        expiration=None,
        held=False,
        replaced=False,
    )
    partitions.release(connection, partition_id, tick + lakes.get(connection).grace_us)
    partitions.insert_many(connection, [restored])
    if is_table(restored.view_set):
        tables.touch(connection, table_id_of(restored.view_set), tick)
    journal.append(
        transaction, [journal.Entry.about(journal.RESTORED, restored, f"of {partition_id}")]
    )
    return restored


def _require_incompatible(connection: Connection, incompatible: Sequence[Partition]) -> None:
    active = {entry.view_set.name: entry.schema_hash for entry in view_sets.list_active(connection)}
    for partition in incompatible:
        if active.get(partition.view_set) == partition.schema_hash:
            raise StalePlan(f"{partition.describe()} is compatible again", hint="plan again")
