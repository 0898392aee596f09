"""The catalog's own rules, checked on the rows instead of the constraints: `check` reports
violations even if a constraint was dropped or bypassed.
"""

from __future__ import annotations

import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.records import view_sets
from lakebed.catalog.schema import (
    blocks,
    lake_clock,
    partition_metadata,
    partitions,
    processes,
    segments,
    series,
    streams,
    temporary_files,
)
from lakebed.model.partition import FileState

_OTHER = partitions.alias("other")


def list_broken(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return every violation as (subject, problem)."""
    broken: list[tuple[str, str]] = []
    for message, query in _RULES.items():
        broken += [(str(subject), message) for subject in connection.scalars(query)]
    for active in view_sets.list_active(connection):
        if active.view_set.schema_hash != active.schema_hash:
            subject = f"view set {active.view_set.name}"
            broken.append((subject, "its definition does not give its schema hash"))
    return broken


def oldest_overdue(connection: sa.Connection) -> tuple[str, int] | None:
    """Return the temporary file that is overdue for a sweep for the longest time, and since
    when."""
    row = connection.execute(
        sa.select(temporary_files.c.file_path, temporary_files.c.expiration)
        .where(_is_overdue(connection))
        .order_by(temporary_files.c.expiration)
        .limit(1)
    ).one_or_none()
    return None if row is None else (row.file_path, row.expiration)


def count_overdue(connection: sa.Connection) -> int:
    """Return the number of temporary files that are overdue for a sweep."""
    query = sa.select(sa.func.count()).select_from(temporary_files)
    return int(connection.scalar(query.where(_is_overdue(connection))) or 0)


def _is_overdue(connection: sa.Connection) -> sa.ColumnElement[bool]:
    return sa.and_(
        temporary_files.c.state == FileState.RETIRED.value,
        temporary_files.c.expiration <= clock.upcoming(connection),
    )


def _overlaps() -> sa.Select[tuple[object]]:
    """Live rows that begin before the end of an earlier one of their series."""
    ends = sa.func.max(partitions.c.end_insert_time).over(
        partition_by=partitions.c.series_id,
        order_by=(partitions.c.begin_insert_time, partitions.c.partition_id),
        rows=(None, -1),
    )
    ordered = (
        sa.select(partitions.c.partition_id, partitions.c.begin_insert_time, ends.label("reached"))
        .where(partitions.c.retired_at.is_(None))
        .subquery()
    )
    return sa.select(ordered.c.partition_id).where(ordered.c.begin_insert_time < ordered.c.reached)


def _rules() -> dict[str, sa.Select[tuple[object]]]:
    p, m, t = partitions, partition_metadata, temporary_files
    now = sa.select(lake_clock.c.now).scalar_subquery()
    which = sa.select(p.c.partition_id)
    has_footer = sa.exists().where(m.c.file_path == p.c.file_path)
    is_live = sa.and_(_OTHER.c.retired_at.is_(None), _OTHER.c.file_path == p.c.file_path)
    empty = p.c.file_path.is_(None)
    return {
        "it overlaps another live partition of its series": _overlaps(),
        "its insert range is empty or runs backwards": which.where(
            p.c.begin_insert_time >= p.c.end_insert_time
        ),
        "it is empty in one column and not in another": which.where(
            sa.or_(
                sa.and_(
                    empty,
                    sa.or_(
                        p.c.num_rows != 0,
                        p.c.file_size != 0,
                        p.c.min_event_time.is_not(None),
                        p.c.max_event_time.is_not(None),
                    ),
                ),
                sa.and_(
                    p.c.file_path.is_not(None),
                    sa.or_(
                        p.c.num_rows <= 0,
                        p.c.min_event_time.is_(None),
                        p.c.max_event_time.is_(None),
                    ),
                ),
            )
        ),
        "its event span is too narrow to be found by": which.where(
            p.c.max_event_time - p.c.min_event_time >= p.c.event_span
        ),
        "its file has no footer": which.where(p.c.file_path.is_not(None), ~has_footer),
        "its names are not those of its series": sa.select(p.c.partition_id)
        .join_from(p, series, p.c.series_id == series.c.series_id, isouter=True)
        .where(
            sa.or_(
                series.c.series_id.is_(None),
                series.c.view_set_name != p.c.view_set_name,
                series.c.view_instance_id != p.c.view_instance_id,
                series.c.file_schema_hash != p.c.file_schema_hash,
            )
        ),
        "it was published or retired after the lake's last tick": which.where(
            sa.or_(p.c.published_at > now, p.c.retired_at > now)
        ),
        "it is retired, but its file is neither temporary nor live": which.where(
            p.c.retired_at.is_not(None),
            p.c.file_path.is_not(None),
            ~sa.exists().where(t.c.file_path == p.c.file_path),
            ~sa.exists().where(is_live),
        ),
        "the footer belongs to no partition": sa.select(m.c.file_path).where(
            ~sa.exists().where(p.c.file_path == m.c.file_path)
        ),
        "the file is live and temporary at once": sa.select(t.c.file_path).where(
            sa.exists().where(p.c.file_path == t.c.file_path, p.c.retired_at.is_(None))
        ),
        "the file is live in two partitions": sa.select(p.c.file_path)
        .where(p.c.retired_at.is_(None), p.c.file_path.is_not(None))
        .group_by(p.c.file_path)
        .having(sa.func.count() > 1),
    }


def _shared_bytes() -> sa.Select[tuple[object]]:
    """Blocks that begin before the end of an earlier one of their segment."""
    ends = sa.func.max(blocks.c.segment_offset + blocks.c.payload_size).over(
        partition_by=blocks.c.segment_path,
        order_by=(blocks.c.segment_offset, blocks.c.block_id),
        rows=(None, -1),
    )
    ordered = sa.select(blocks.c.block_id, blocks.c.segment_offset, ends.label("reached"))
    extents = ordered.subquery()
    return sa.select(extents.c.block_id).where(extents.c.segment_offset < extents.c.reached)


def _landing_rules() -> dict[str, sa.Select[tuple[object]]]:
    b, s = blocks, segments
    now = sa.select(lake_clock.c.now).scalar_subquery()
    which = sa.select(b.c.block_id)
    return {
        "the block's segment is not recorded": which.where(
            ~sa.exists().where(s.c.segment_path == b.c.segment_path)
        ),
        "the block lies outside its segment": sa.select(b.c.block_id)
        .join_from(b, s, b.c.segment_path == s.c.segment_path)
        .where(
            sa.or_(
                b.c.segment_offset < 0,
                b.c.payload_size < 0,
                b.c.segment_offset + b.c.payload_size > s.c.file_size,
            )
        ),
        "the block overlaps another one of its segment": _shared_bytes(),
        "the block's process is unknown": which.where(
            ~sa.exists().where(processes.c.process_id == b.c.process_id)
        ),
        "the block's stream is unknown, or another process's": which.where(
            ~sa.exists().where(
                streams.c.stream_id == b.c.stream_id, streams.c.process_id == b.c.process_id
            )
        ),
        "the stream's process is unknown": sa.select(streams.c.stream_id).where(
            ~sa.exists().where(processes.c.process_id == streams.c.process_id)
        ),
        "the block landed after the lake's last tick": which.where(b.c.insert_time > now),
        "the segment landed after the lake's last tick": sa.select(s.c.segment_path).where(
            s.c.insert_time > now
        ),
        "the segment is recorded and temporary at once": sa.select(s.c.segment_path).where(
            sa.exists().where(temporary_files.c.file_path == s.c.segment_path)
        ),
        "the segment holds no block": sa.select(s.c.segment_path).where(
            ~sa.exists().where(b.c.segment_path == s.c.segment_path)
        ),
    }


_RULES = _rules() | _landing_rules()
