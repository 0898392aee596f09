"""Partitions as rows: inserting, retiring and deleting them. The database keeps the rules that must
always hold; see the migration that makes the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.connections.trips import LATER
from lakebed.catalog.expressions import one_of
from lakebed.catalog.schema import partitions as table
from lakebed.catalog.schema import series, view_sets
from lakebed.model.partition import EventRange, Identity, Partition
from lakebed.model.time import TimeRange

SeriesKey = tuple[str, str, bytes]
"""The key of a series: view set, instance, schema hash."""

_spell = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_INSERT = sa.insert(table).inline().execution_options(**{LATER: True})


def insert_many(
    connection: sa.Connection,
    partitions: Sequence[Partition],
    series_ids: Mapping[SeriesKey, int] | None = None,
) -> None:
    """Make partitions live; their footers must be there. `Overlap` if the range is taken.

    ``series_ids`` holds the series that this transaction has already looked up.
    """
    numbers = dict(series_ids or {})
    rows = []
    for partition in partitions:
        key = (partition.view_set, partition.instance, partition.schema_hash)
        if key not in numbers:
            numbers[key] = _series_id(connection, *key)
        rows.append(_write(partition, numbers[key]))
    if rows:
        connection.execute(_INSERT, rows)


_SERIES = sa.select(series.c.series_id).where(
    *(
        series.c[name] == sa.bindparam(name)
        for name in ("view_set_name", "view_instance_id", "file_schema_hash")
    )
)


def _series_id(connection: sa.Connection, view_set: str, instance: str, schema_hash: bytes) -> int:
    """Return the number of a series, assigned at its first use; the clock keeps this unique."""
    columns = {
        "view_set_name": view_set,
        "view_instance_id": instance,
        "file_schema_hash": schema_hash,
    }
    series_id = connection.scalar(_SERIES, columns)
    if series_id is None:
        statement = sa.insert(series).values(**columns).returning(series.c.series_id)
        series_id = connection.scalar(statement)
    return int(series_id)


def retire(
    connection: sa.Connection,
    partition_ids: Sequence[str],
    tick: int,
    *,
    expiration: int | None,
    held: bool = False,
    replaced: bool = False,
) -> int:
    """Retire live partitions. Return the number of those that still were live."""
    statement = (
        sa.update(table)
        .where(one_of(table.c.partition_id, partition_ids), table.c.retired_at.is_(None))
        .values(retired_at=tick, expiration=expiration, held=held, replaced=replaced)
    )
    return connection.execute(statement).rowcount


def condemn(connection: sa.Connection, partition_ids: Sequence[str], expiration: int) -> None:
    """Make retired partitions unrestorable, and release their holds."""
    connection.execute(
        sa.update(table)
        .where(one_of(table.c.partition_id, partition_ids), table.c.retired_at.is_not(None))
        .values(
            replaced=True, held=False, expiration=sa.func.coalesce(table.c.expiration, expiration)
        )
    )


def release(connection: sa.Connection, partition_id: str, expiration: int) -> None:
    """Release the hold of a retired row that a restored one replaces."""
    connection.execute(
        sa.update(table)
        .where(table.c.partition_id == partition_id)
        .values(held=False, expiration=expiration)
    )


def list_by_id(connection: sa.Connection, partition_ids: Sequence[str]) -> list[Partition]:
    """Return the partitions with these ids, live or retired, in no particular order."""
    rows = connection.execute(sa.select(table).where(one_of(table.c.partition_id, partition_ids)))
    return [read_partition(row) for row in rows]


def list_by_path(connection: sa.Connection, file_path: str) -> list[Partition]:
    """Return every row that refers to a file, oldest first."""
    query = sa.select(table).where(table.c.file_path == file_path).order_by(table.c.published_at)
    return [read_partition(row) for row in connection.execute(query)]


def find_newer_copy(connection: sa.Connection, partition: Partition) -> Partition | None:
    """Return the newest row that restored this partition: of the same identity and file, or
    None."""
    same_file = (
        table.c.file_path.is_(None)
        if partition.file_path is None
        else table.c.file_path == partition.file_path
    )
    row = connection.execute(
        sa.select(table)
        .where(
            table.c.view_set_name == partition.view_set,
            table.c.view_instance_id == partition.instance,
            table.c.begin_insert_time == partition.insert_range.begin,
            table.c.end_insert_time == partition.insert_range.end,
            table.c.file_schema_hash == partition.schema_hash,
            same_file,
            table.c.published_at > partition.published_at,
        )
        .order_by(table.c.published_at.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else read_partition(row)


def count_live(connection: sa.Connection) -> dict[str, int]:
    """Return the number of live partitions of each view set."""
    rows = connection.execute(
        sa.select(table.c.view_set_name, sa.func.count())
        .where(table.c.retired_at.is_(None))
        .group_by(table.c.view_set_name)
    )
    return {name: count for name, count in rows}  # noqa: C416


def count_live_by_schema(connection: sa.Connection) -> dict[tuple[str, bytes], int]:
    """Return the number of live partitions of each view set and schema hash."""
    rows = connection.execute(
        sa.select(table.c.view_set_name, table.c.file_schema_hash, sa.func.count())
        .where(table.c.retired_at.is_(None))
        .group_by(table.c.view_set_name, table.c.file_schema_hash)
    )
    return {(name, bytes(schema_hash)): count for name, schema_hash, count in rows}


@dataclass(frozen=True, slots=True)
class Ground:
    """The catalog's state for a range that is about to be published, with the next tick. A series
    has no number before its first partition."""

    version: int
    schema_hash: bytes
    retained_from: int
    has_held: bool
    series_id: int | None
    upcoming: int


_HELD = (
    table.c.held,
    table.c.view_set_name == sa.bindparam("view_set"),
    table.c.view_instance_id == sa.bindparam("instance"),
    table.c.begin_insert_time < sa.bindparam("end"),
    table.c.end_insert_time > sa.bindparam("begin"),
)
_GROUND = sa.select(
    view_sets.c.version,
    view_sets.c.schema_hash,
    view_sets.c.retained_from,
    sa.exists(sa.select(table.c.partition_id).where(*_HELD)),
    sa.select(series.c.series_id)
    .where(
        series.c.view_set_name == view_sets.c.name,
        series.c.view_instance_id == sa.bindparam("instance"),
        series.c.file_schema_hash == view_sets.c.schema_hash,
    )
    .scalar_subquery(),
    sa.select(clock.UPCOMING).scalar_subquery(),
).where(view_sets.c.name == sa.bindparam("view_set"))


def find_ground(
    connection: sa.Connection, view_set: str, instance: str, within: TimeRange
) -> Ground | None:
    """Return the active version of a view set, its floor, and whether the range has held
    partitions. One statement, because every publish asks twice."""
    parameters = {
        "view_set": view_set,
        "instance": instance,
        "begin": within.begin,
        "end": within.end,
    }
    row = connection.execute(_GROUND, parameters).one_or_none()
    if row is None:
        return None
    version, schema_hash, retained_from, has_held, series_id, upcoming = row
    return Ground(
        version, bytes(schema_hash), retained_from, bool(has_held), series_id, int(upcoming or 0)
    )


def list_held(
    connection: sa.Connection, view_set: str, instance: str, within: TimeRange
) -> list[Partition]:
    """Return the held partitions that overlap a range, of any schema."""
    parameters = {
        "view_set": view_set,
        "instance": instance,
        "begin": within.begin,
        "end": within.end,
    }
    return [
        read_partition(row)
        for row in connection.execute(sa.select(table).where(*_HELD), parameters)
    ]


def list_retired(
    connection: sa.Connection,
    limit: int,
    *,
    view_set: str | None = None,
    with_replaced: bool = False,
) -> list[Partition]:
    """Return the retired rows that are not swept, the last retired first. Those that were replaced
    by others with the same rows are included only on request."""
    query = sa.select(table).where(table.c.retired_at.is_not(None))
    if view_set is not None:
        query = query.where(table.c.view_set_name == view_set)
    if not with_replaced:
        query = query.where(~table.c.replaced)
    last = query.order_by(table.c.retired_at.desc(), table.c.partition_id).limit(limit)
    return [read_partition(row) for row in connection.execute(last)]


def list_expired_empty(
    connection: sa.Connection, now: int, protected_from: int, limit: int
) -> list[Partition]:
    """Return the retired rows without a file that are past their grace period and in no
    snapshot."""
    rows = connection.execute(
        sa.select(table)
        .where(
            table.c.expiration <= now,
            table.c.file_path.is_(None),
            table.c.retired_at <= protected_from,
        )
        .order_by(table.c.expiration, table.c.partition_id)
        .limit(limit)
    )
    return [read_partition(row) for row in rows]


def delete_by_id(connection: sa.Connection, partition_ids: Sequence[str]) -> int:
    """Delete retired rows."""
    statement = sa.delete(table).where(
        one_of(table.c.partition_id, partition_ids), table.c.retired_at.is_not(None)
    )
    return connection.execute(statement).rowcount


def delete_by_path(connection: sa.Connection, paths: Sequence[str]) -> int:
    """Delete every retired row of files that are gone."""
    statement = sa.delete(table).where(
        one_of(table.c.file_path, paths), table.c.retired_at.is_not(None)
    )
    return connection.execute(statement).rowcount


def last_retirement(connection: sa.Connection, paths: Sequence[str]) -> int:
    """Return the latest tick at which a partition of these files was retired."""
    query = sa.select(sa.func.max(table.c.retired_at)).where(one_of(table.c.file_path, paths))
    return int(connection.scalar(query) or 0)


def list_live_among(connection: sa.Connection, paths: Sequence[str]) -> list[str]:
    """Return the paths among these that belong to a live partition."""
    query = sa.select(table.c.file_path).where(
        one_of(table.c.file_path, paths), table.c.retired_at.is_(None)
    )
    return [str(path) for path in connection.scalars(query)]


def _write(partition: Partition, series_id: int) -> dict[str, object]:
    events = partition.events
    return {
        "partition_id": partition.partition_id,
        "series_id": series_id,
        "view_set_name": partition.view_set,
        "view_instance_id": partition.instance,
        "begin_insert_time": partition.insert_range.begin,
        "end_insert_time": partition.insert_range.end,
        "file_schema_hash": partition.schema_hash,
        "min_event_time": events.earliest if events else None,
        "max_event_time": events.latest if events else None,
        "event_span": 1 << (events.latest - events.earliest).bit_length() if events else None,
        "file_path": partition.file_path,
        "file_size": partition.file_size,
        "num_rows": partition.num_rows,
        "source_data_hash": partition.source_hash,
        "sort_order": json.dumps(list(partition.sort_order)),
        "partition_format_version": partition.format_version,
        "statistics": _spell(partition.statistics),
        "published_at": partition.published_at,
        "retired_at": partition.retired_at,
        "expiration": partition.expiration,
        "held": partition.held,
        "replaced": partition.replaced,
    }


def read_partition(row: sa.Row[Any]) -> Partition:
    """Return the partition in a row that begins with this table's columns, in the table's order."""
    (
        partition_id,
        _series_id,
        view_set,
        instance,
        begin,
        end,
        schema_hash,
        earliest,
        latest,
        _span,
        file_path,
        file_size,
        num_rows,
        source_hash,
        sort_order,
        format_version,
        statistics,
        published_at,
        retired_at,
        expiration,
        held,
        replaced,
    ) = row[: len(table.columns)]
    return Partition(
        partition_id=partition_id,
        identity=Identity(view_set, instance, TimeRange(begin, end), bytes(schema_hash)),
        events=None if earliest is None else EventRange(earliest, latest),
        file_path=file_path,
        file_size=file_size,
        num_rows=num_rows,
        source_hash=bytes(source_hash),
        sort_order=_read_sort_order(sort_order),
        format_version=format_version,
        statistics=msgspec.json.decode(statistics),
        published_at=published_at,
        retired_at=retired_at,
        expiration=expiration,
        held=bool(held),
        replaced=bool(replaced),
    )


@cache
def _read_sort_order(text: str) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(text))
