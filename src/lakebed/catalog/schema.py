"""The catalog's tables as queries see them. Constraints, indexes and triggers are made by the
migrations; a test proves that a migrated database has exactly these columns.

Instants are microseconds in BIGINT columns; hashes are bytes.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[object]) -> sa.Table:
    return sa.Table(name, metadata, *columns)


def _text(name: str, **options: bool) -> sa.Column[object]:
    return sa.Column(name, sa.Text, **options)  # type: ignore[arg-type]


def _big(name: str, **options: bool) -> sa.Column[object]:
    return sa.Column(name, sa.BigInteger, **options)  # type: ignore[arg-type]


def _bytes(name: str, **options: bool) -> sa.Column[object]:
    return sa.Column(name, sa.LargeBinary, **options)  # type: ignore[arg-type]


REQUIRED = {"nullable": False}

# One row: which lake this is, where its store is, how long retired files are kept and how long
# a snapshot may be read.
lake = _table(
    "lake",
    sa.Column("singleton", sa.Integer, primary_key=True),
    _text("lake_id", **REQUIRED),
    _text("store_url", **REQUIRED),
    _big("grace_us", **REQUIRED),
    _big("longest_read_us", **REQUIRED),
    _big("keep_blocks_us"),
    _big("created_at", **REQUIRED),
    _text("copied_from"),
    sa.Column("is_whole", sa.Boolean, nullable=False),
)

# One row: the last tick, the tick up to which retired partitions may have been swept, the tick
# before which there are no blocks any more, and the one since when partitions show what these held.
lake_clock = _table(
    "lake_clock",
    sa.Column("singleton", sa.Integer, primary_key=True),
    _big("now", **REQUIRED),
    _big("sweep_horizon", **REQUIRED),
    _big("blocks_from", **REQUIRED),
    _big("blocks_horizon", **REQUIRED),
)

processes = _table(
    "processes",
    _text("process_id", primary_key=True),
    _text("properties", **REQUIRED),
    _big("insert_time", **REQUIRED),
)

streams = _table(
    "streams",
    _text("stream_id", primary_key=True),
    _text("process_id", **REQUIRED),
    _text("properties", **REQUIRED),
    _big("insert_time", **REQUIRED),
)

blocks = _table(
    "blocks",
    _text("block_id", primary_key=True),
    _text("stream_id", **REQUIRED),
    _text("process_id", **REQUIRED),
    _big("insert_time", **REQUIRED),
    _big("begin_time"),
    _big("end_time"),
    _big("nb_objects", **REQUIRED),
    _text("encoding", **REQUIRED),
    _bytes("payload_digest", **REQUIRED),
    _text("segment_path", **REQUIRED),
    _big("segment_offset", **REQUIRED),
    _big("payload_size", **REQUIRED),
)

# An object that holds the bytes of many blocks; lives as long as any of them.
segments = _table(
    "segments",
    _text("segment_path", primary_key=True),
    _big("file_size", **REQUIRED),
    _big("insert_time", **REQUIRED),
)

# Blocks that a view set's decoder could not read; plans go around them.
build_failures = _table(
    "build_failures",
    _text("view_set_name", primary_key=True),
    _bytes("file_schema_hash", primary_key=True),
    _text("block_id", primary_key=True),
    _big("insert_time", **REQUIRED),
    _text("reason", **REQUIRED),
    _big("recorded_at", **REQUIRED),
)

view_sets = _table(
    "view_sets",
    _text("name", primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    _bytes("schema_hash", **REQUIRED),
    _text("definition", **REQUIRED),
    _big("activated_at", **REQUIRED),
    _big("retention_us"),
    _big("retained_from", **REQUIRED),
)

# An integer for each (view set, instance, schema hash): what constraints and indexes compare.
series = _table(
    "series",
    sa.Column("series_id", sa.Integer, primary_key=True),
    _text("view_set_name", **REQUIRED),
    _text("view_instance_id", **REQUIRED),
    _bytes("file_schema_hash", **REQUIRED),
)

partitions = _table(
    "lakehouse_partitions",
    _text("partition_id", primary_key=True),
    sa.Column("series_id", sa.Integer, nullable=False),
    _text("view_set_name", **REQUIRED),
    _text("view_instance_id", **REQUIRED),
    _big("begin_insert_time", **REQUIRED),
    _big("end_insert_time", **REQUIRED),
    _bytes("file_schema_hash", **REQUIRED),
    _big("min_event_time"),
    _big("max_event_time"),
    # The power of two above max - min: with it, an overlap search is a few bounded ranges.
    _big("event_span"),
    _text("file_path"),
    _big("file_size", **REQUIRED),
    _big("num_rows", **REQUIRED),
    _bytes("source_data_hash", **REQUIRED),
    _text("sort_order", **REQUIRED),
    sa.Column("partition_format_version", sa.Integer, nullable=False),
    _text("statistics", **REQUIRED),
    _big("published_at", **REQUIRED),
    _big("retired_at"),
    # When a retired partition may be swept; NULL while live, and while held.
    _big("expiration"),
    sa.Column("held", sa.Boolean, nullable=False),
    # Its rows live on in the partitions that were published in its place.
    sa.Column("replaced", sa.Boolean, nullable=False),
)

partition_metadata = _table(
    "partition_metadata",
    _text("file_path", primary_key=True),
    _big("file_size", **REQUIRED),
    _bytes("metadata", **REQUIRED),
    sa.Column("partition_format_version", sa.Integer, nullable=False),
    _big("insert_time", **REQUIRED),
    _bytes("digest", **REQUIRED),
)

temporary_files = _table(
    "temporary_files",
    _text("file_path", primary_key=True),
    _big("file_size", **REQUIRED),
    _big("expiration"),
    _text("state", **REQUIRED),
    _text("lease_id"),
    _text("reason"),
    # Of segments; a partition's row says when its file was retired.
    _big("retired_at"),
)

leases = _table(
    "leases",
    _text("lease_id", primary_key=True),
    _text("kind", **REQUIRED),
    _text("holder", **REQUIRED),
    _text("view_set_name"),
    # Of readers: the oldest tick they use, and when they began to use it.
    _big("oldest_tick"),
    _big("pinned_at"),
    _big("beats", **REQUIRED),
    _big("ttl_us", **REQUIRED),
    _big("acquired_at", **REQUIRED),
)

journal = _table(
    "journal",
    sa.Column("entry_id", sa.BigInteger, primary_key=True),
    _big("tick", **REQUIRED),
    _text("operation", **REQUIRED),
    _text("actor", **REQUIRED),
    _text("reason"),
    _text("view_set_name"),
    _text("view_instance_id"),
    _text("partition_id"),
    _text("file_path"),
    _big("rows", **REQUIRED),
    _big("bytes", **REQUIRED),
    _text("detail", **REQUIRED),
)

databases = _table(
    "databases",
    _text("database_id", primary_key=True),
    _text("name", **REQUIRED),
    _big("created_at", **REQUIRED),
    _big("deleted_at"),
)

# Tables of records that users insert; their partitions are found by the id, not the name.
tables = _table(
    "tables",
    _text("table_id", primary_key=True),
    _text("database_id", **REQUIRED),
    _text("name", **REQUIRED),
    _text("bucket", **REQUIRED),
    _big("retention_us"),
    # Of a table that holds what another one refused: which.
    _text("rejects_of"),
    _big("created_at", **REQUIRED),
    # The last tick at which rows came or went.
    _big("changed_at", **REQUIRED),
    _big("deleted_at"),
)

table_versions = _table(
    "table_versions",
    _text("table_id", primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    _text("definition", **REQUIRED),
    _big("created_at", **REQUIRED),
)

# Inserts that carried a key of their own, so that a retry is known.
table_inserts = _table(
    "table_inserts",
    _text("table_id", primary_key=True),
    _text("key", primary_key=True),
    _bytes("digest", **REQUIRED),
    _big("tick", **REQUIRED),
    _big("rows", **REQUIRED),
    _big("rejected", **REQUIRED),
)

# What looks after the lake again and again: when it ran, what came of it, and when it is due.
upkeep_duties = _table(
    "upkeep_duties",
    _text("name", primary_key=True),
    _big("last_begin"),
    _big("last_success"),
    _big("last_failure"),
    _text("said"),
    _text("error"),
    _big("next_run", **REQUIRED),
    _big("runs", **REQUIRED),
    _big("failures", **REQUIRED),
    _text("memo"),
)

# Who may use a server, and for what. Of the secret only its digest is known.
api_keys = _table(
    "api_keys",
    _text("key_id", primary_key=True),
    _text("name", **REQUIRED),
    _text("roles", **REQUIRED),
    _bytes("digest", **REQUIRED),
    _big("created_at", **REQUIRED),
    _big("last_used_at"),
    _big("revoked_at"),
)
