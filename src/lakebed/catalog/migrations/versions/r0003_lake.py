"""The lake: one clock, partitions with an identity of their own and rules that the database keeps,
view sets, leases and the journal. Edited in place until the first release.
"""

import uuid
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_LIVE = "retired_at IS NULL"

# The neighbour by begin has the largest end of all that begin before us, because live partitions
# of a series never overlap: one index look-up decides.
_SQLITE_OVERLAP = """
CREATE TRIGGER partitions_no_overlap_on_{event}
BEFORE {event} ON lakehouse_partitions WHEN NEW.retired_at IS NULL
BEGIN
  SELECT RAISE(ABORT, 'lakebed:overlap')
  WHERE NEW.begin_insert_time < (
    SELECT end_insert_time FROM lakehouse_partitions
    WHERE series_id = NEW.series_id AND retired_at IS NULL
      AND begin_insert_time < NEW.end_insert_time{others}
    ORDER BY begin_insert_time DESC LIMIT 1);
END
"""

# Equality of the series is written as a range so that no extension is needed.
_POSTGRES_OVERLAP = """
ALTER TABLE lakehouse_partitions ADD CONSTRAINT partitions_no_overlap
EXCLUDE USING gist (
  int8range(series_id, series_id, '[]') WITH &&,
  int8range(begin_insert_time, end_insert_time) WITH &&
) WHERE (retired_at IS NULL)
"""

_CHECKS = {
    # Zero-width ranges would escape the exclusion constraint.
    "partitions_range_not_empty": "begin_insert_time < end_insert_time",
    # An empty partition is a proof: no rows, no file, no events, no bytes. All or none.
    "partitions_empty_has_no_file": "(num_rows = 0) = (file_path IS NULL)",
    "partitions_empty_has_no_events": "(file_path IS NULL) = (min_event_time IS NULL)"
    " AND (min_event_time IS NULL) = (max_event_time IS NULL)"
    " AND (min_event_time IS NULL) = (event_span IS NULL)",
    "partitions_empty_has_no_bytes": "(num_rows = 0) = (file_size = 0)",
    "partitions_counts_not_negative": "num_rows >= 0 AND file_size >= 0",
    # Searching by event time relies on the span being wide enough.
    "partitions_events_fit_span": "min_event_time <= max_event_time"
    " AND max_event_time - min_event_time < event_span",
    "partitions_retired_after_published": "retired_at > published_at",
    "partitions_only_retired_expire": "retired_at IS NOT NULL OR (expiration IS NULL AND NOT held)",
    "partitions_held_never_expire": "NOT held OR expiration IS NULL",
    "partitions_only_retired_replaced": "retired_at IS NOT NULL OR NOT replaced",
}


def upgrade() -> None:
    connection = op.get_bind()
    _create_lake_tables()
    op.drop_index("lakehouse_partitions_path", "lakehouse_partitions")
    op.rename_table("lakehouse_partitions", "older_partitions")
    _create_partitions(connection)
    _adopt(connection)
    op.drop_table("older_partitions")


def _create_lake_tables() -> None:
    op.create_table(
        "lake",
        sa.Column("singleton", sa.Integer, primary_key=True),
        sa.Column("lake_id", sa.Text, nullable=False),
        sa.Column("store_url", sa.Text, nullable=False),
        sa.Column("grace_us", sa.BigInteger, nullable=False),
        sa.Column("longest_read_us", sa.BigInteger, nullable=False),
        sa.Column("keep_blocks_us", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("copied_from", sa.Text),
        # False until its store is marked and, for a copy, every file is there.
        sa.Column("is_whole", sa.Boolean, nullable=False),
        sa.CheckConstraint("singleton = 1", name="lake_is_one"),
    )
    op.create_table(
        "lake_clock",
        sa.Column("singleton", sa.Integer, primary_key=True),
        sa.Column("now", sa.BigInteger, nullable=False),
        sa.Column("sweep_horizon", sa.BigInteger, nullable=False),
        sa.Column("blocks_from", sa.BigInteger, nullable=False),
        sa.Column("blocks_horizon", sa.BigInteger, nullable=False),
        sa.CheckConstraint("singleton = 1", name="lake_clock_is_one"),
    )
    op.create_table(
        "view_sets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("schema_hash", sa.LargeBinary, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("activated_at", sa.BigInteger, nullable=False),
        sa.Column("retention_us", sa.BigInteger),
        sa.Column("retained_from", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "series",
        sa.Column("series_id", sa.Integer, primary_key=True),
        sa.Column("view_set_name", sa.Text, nullable=False),
        sa.Column("view_instance_id", sa.Text, nullable=False),
        sa.Column("file_schema_hash", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint(
            "view_set_name", "view_instance_id", "file_schema_hash", name="series_is_unique"
        ),
        # What the partition's foreign key refers to, so that its names cannot disagree.
        sa.UniqueConstraint(
            "series_id",
            "view_set_name",
            "view_instance_id",
            "file_schema_hash",
            name="series_names",
        ),
    )
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("view_set_name", sa.Text),
        sa.Column("oldest_tick", sa.BigInteger),
        sa.Column("pinned_at", sa.BigInteger),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("ttl_us", sa.BigInteger, nullable=False),
        sa.Column("acquired_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("kind IN ('reader', 'writer', 'builder')", name="leases_kind"),
        sa.CheckConstraint(
            "(kind = 'reader') = (oldest_tick IS NOT NULL)"
            " AND (kind = 'reader') = (pinned_at IS NOT NULL)",
            name="leases_reader",
        ),
        sa.CheckConstraint(
            "(kind = 'builder') = (view_set_name IS NOT NULL)", name="leases_builder"
        ),
    )
    # One builder at a time for each view set.
    op.create_index("leases_one_builder", "leases", ["view_set_name"], unique=True)
    op.create_table(
        "journal",
        sa.Column(
            "entry_id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("view_set_name", sa.Text),
        sa.Column("view_instance_id", sa.Text),
        sa.Column("partition_id", sa.Text),
        sa.Column("file_path", sa.Text),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("journal_tick", "journal", ["tick"])
    op.create_index("journal_file", "journal", ["file_path"])
    with op.batch_alter_table("temporary_files") as table:
        table.add_column(
            sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'retired'"))
        )
        table.add_column(sa.Column("lease_id", sa.Text))
        table.add_column(sa.Column("reason", sa.Text))
        table.add_column(sa.Column("retired_at", sa.BigInteger))
        table.create_check_constraint(
            "temporary_files_state", "state IN ('staged', 'retired', 'deleting', 'quarantined')"
        )
        # A reservation lives as long as its lease and by no clock.
        table.create_check_constraint(
            "temporary_files_staged", "state <> 'staged' OR lease_id IS NOT NULL"
        )
        table.create_check_constraint(
            "temporary_files_quarantined", "state <> 'quarantined' OR expiration IS NULL"
        )
    op.create_index("temporary_files_expiration", "temporary_files", ["state", "expiration"])
    op.create_index("temporary_files_lease", "temporary_files", ["lease_id"])
    op.create_table(
        "segments",
        sa.Column("segment_path", sa.Text, primary_key=True),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("insert_time", sa.BigInteger, nullable=False),
    )
    op.create_index("blocks_segment", "blocks", ["segment_path", "segment_offset"])
    # Ticks are unique, one per block: so a range of them says exactly which blocks are inside.
    op.create_index("blocks_insert_time", "blocks", ["insert_time"], unique=True)
    op.create_table(
        "build_failures",
        sa.Column("view_set_name", sa.Text, primary_key=True),
        sa.Column("file_schema_hash", sa.LargeBinary, primary_key=True),
        sa.Column("block_id", sa.Text, primary_key=True),
        sa.Column("insert_time", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("recorded_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "upkeep_duties",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("last_begin", sa.BigInteger),
        sa.Column("last_success", sa.BigInteger),
        sa.Column("last_failure", sa.BigInteger),
        sa.Column("said", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("next_run", sa.BigInteger, nullable=False),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("memo", sa.Text),
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )
    _create_user_tables()


def _create_user_tables() -> None:
    op.create_table(
        "databases",
        sa.Column("database_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
    )
    op.create_table(
        "tables",
        sa.Column("table_id", sa.Text, primary_key=True),
        sa.Column("database_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("bucket", sa.Text, nullable=False),
        sa.Column("retention_us", sa.BigInteger),
        sa.Column("rejects_of", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
        sa.ForeignKeyConstraint(["database_id"], ["databases.database_id"], name="tables_database"),
        sa.CheckConstraint("bucket IN ('hour', 'day', 'week', 'month')", name="tables_bucket"),
    )
    live = sa.text("deleted_at IS NULL")
    for table, columns in (("databases", ["name"]), ("tables", ["database_id", "name"])):
        op.create_index(
            f"{table}_name",
            table,
            columns,
            unique=True,
            sqlite_where=live,
            postgresql_where=live,
        )
    op.create_table(
        "table_versions",
        sa.Column("table_id", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["tables.table_id"], name="table_versions_table"),
    )
    op.create_table(
        "table_inserts",
        sa.Column("table_id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("rejected", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["tables.table_id"], name="table_inserts_table"),
    )
    op.create_index("table_inserts_tick", "table_inserts", ["tick"])


def _create_partitions(connection: sa.Connection) -> None:
    op.create_table(
        "lakehouse_partitions",
        sa.Column("partition_id", sa.Text, primary_key=True),
        sa.Column("series_id", sa.Integer, nullable=False),
        sa.Column("view_set_name", sa.Text, nullable=False),
        sa.Column("view_instance_id", sa.Text, nullable=False),
        sa.Column("begin_insert_time", sa.BigInteger, nullable=False),
        sa.Column("end_insert_time", sa.BigInteger, nullable=False),
        sa.Column("file_schema_hash", sa.LargeBinary, nullable=False),
        sa.Column("min_event_time", sa.BigInteger),
        sa.Column("max_event_time", sa.BigInteger),
        sa.Column("event_span", sa.BigInteger),
        sa.Column("file_path", sa.Text),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("num_rows", sa.BigInteger, nullable=False),
        sa.Column("source_data_hash", sa.LargeBinary, nullable=False),
        sa.Column("sort_order", sa.Text, nullable=False),
        sa.Column("partition_format_version", sa.Integer, nullable=False),
        sa.Column("statistics", sa.Text, nullable=False),
        sa.Column("published_at", sa.BigInteger, nullable=False),
        sa.Column("retired_at", sa.BigInteger),
        sa.Column("expiration", sa.BigInteger),
        sa.Column("held", sa.Boolean, nullable=False),
        sa.Column("replaced", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id", "view_set_name", "view_instance_id", "file_schema_hash"],
            [
                "series.series_id",
                "series.view_set_name",
                "series.view_instance_id",
                "series.file_schema_hash",
            ],
            name="partitions_series",
        ),
        # No file without a footer, and no footer goes before its file's rows.
        sa.ForeignKeyConstraint(
            ["file_path"], ["partition_metadata.file_path"], name="partitions_footer"
        ),
        *(sa.CheckConstraint(rule, name=name) for name, rule in _CHECKS.items()),
    )
    if connection.dialect.name == "postgresql":
        op.execute(_POSTGRES_OVERLAP)
    else:
        op.execute(_SQLITE_OVERLAP.format(event="INSERT", others=""))
        itself = " AND partition_id <> OLD.partition_id"
        op.execute(_SQLITE_OVERLAP.format(event="UPDATE", others=itself))

    def index(name: str, columns: list[str], where: str, *, unique: bool = False) -> None:
        # SQLite uses a partial index only for a condition spelled like the query's.
        on_sqlite = "held = 1" if where == "held" else where
        op.create_index(
            name,
            "lakehouse_partitions",
            columns,
            unique=unique,
            sqlite_where=sa.text(on_sqlite),
            postgresql_where=sa.text(where),
        )

    index(
        "partitions_identity",
        [
            "view_set_name",
            "view_instance_id",
            "begin_insert_time",
            "end_insert_time",
            "file_schema_hash",
        ],
        _LIVE,
        unique=True,
    )
    index("partitions_neighbours", ["series_id", "begin_insert_time", "end_insert_time"], _LIVE)
    index(
        "partitions_events",
        ["view_set_name", "file_schema_hash", "event_span", "min_event_time"],
        _LIVE,
    )
    index("partitions_live_file", ["file_path"], f"{_LIVE} AND file_path IS NOT NULL", unique=True)
    index("partitions_file", ["file_path"], "file_path IS NOT NULL")
    index("partitions_retired", ["retired_at"], "retired_at IS NOT NULL")
    index("partitions_expiring", ["expiration"], "expiration IS NOT NULL")
    index("partitions_retired_ranges", ["series_id", "begin_insert_time"], "retired_at IS NOT NULL")
    index("partitions_held", ["view_set_name", "view_instance_id"], "held")


def _adopt(connection: sa.Connection) -> None:
    """Give the older rows their identity. `find_problems` has seen that all of them fit."""
    rows = connection.execute(sa.text("SELECT * FROM older_partitions")).all()
    tables = sa.MetaData()
    tables.reflect(connection, only=["lakehouse_partitions", "series", "lake_clock"])
    names = {_name_series(row) for row in rows}
    series = {name: number for number, name in enumerate(sorted(names), start=1)}
    for (view_set, instance, schema_hash), number in series.items():
        connection.execute(
            tables.tables["series"].insert(),
            {
                "series_id": number,
                "view_set_name": view_set,
                "view_instance_id": instance,
                "file_schema_hash": schema_hash,
            },
        )
    if series and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "SELECT setval(pg_get_serial_sequence('series', 'series_id'), max(series_id)) "
            "FROM series"
        )
    for row in rows:
        empty = row.file_path is None
        span = None if empty else _event_span(row)
        connection.execute(
            tables.tables["lakehouse_partitions"].insert(),
            {
                "partition_id": str(uuid.uuid4()),
                "series_id": series[_name_series(row)],
                "view_set_name": row.view_set_name,
                "view_instance_id": row.view_instance_id,
                "begin_insert_time": row.begin_insert_time,
                "end_insert_time": row.end_insert_time,
                "file_schema_hash": row.file_schema_hash,
                "min_event_time": None if empty else row.min_event_time,
                "max_event_time": None if empty else row.max_event_time,
                "event_span": span,
                "file_path": row.file_path,
                "file_size": 0 if empty else row.file_size,
                "num_rows": row.num_rows,
                "source_data_hash": row.source_data_hash,
                "sort_order": "[]",
                "partition_format_version": row.partition_format_version,
                "statistics": "{}",
                "published_at": row.updated,
                "held": False,
                "replaced": False,
            },
        )
    now = max((row.updated for row in rows), default=0)
    connection.execute(
        tables.tables["lake_clock"].insert(),
        {
            "singleton": 1,
            "now": now,
            "sweep_horizon": 0,
            "blocks_from": 0,
            "blocks_horizon": 0,
        },
    )


def find_problems(connection: sa.Connection) -> list[str]:
    """Return a line for each row that breaks a rule of this revision, in a catalog of revision 0001
    or 0002. Changes nothing."""
    inspector = sa.inspect(connection)
    columns = {column["name"] for column in inspector.get_columns("lakehouse_partitions")}
    inline = "file_metadata IS NOT NULL" if "file_metadata" in columns else "1 = 0"
    rows = connection.execute(
        sa.text(
            "SELECT view_set_name, view_instance_id, file_schema_hash, begin_insert_time, "
            "end_insert_time, min_event_time, max_event_time, file_path, file_size, num_rows, "
            f"{inline} AS has_footer FROM lakehouse_partitions "
            "ORDER BY view_set_name, view_instance_id, file_schema_hash, begin_insert_time, "
            "end_insert_time"
        )
    ).all()
    temporary = set(connection.scalars(sa.text("SELECT file_path FROM temporary_files")))
    footers = {row.file_path for row in rows if row.has_footer}
    if inspector.has_table("partition_metadata"):
        footers.update(connection.scalars(sa.text("SELECT file_path FROM partition_metadata")))
    problems = []
    first_rows: dict[str, sa.Row[Any]] = {}
    for row in rows:
        broken_rules = _find_broken_rules(row)
        path = row.file_path
        if path is not None:
            if path not in footers:
                broken_rules.append("has a file without a footer")
            if path in temporary:
                broken_rules.append("has a file that is listed as temporary")
            first = first_rows.setdefault(path, row)
            if first is not row:
                broken_rules.append(f"has the file of {_name_row(first)}")
        file = "" if path is None else f", {path}"
        problems += [f"{_name_row(row)} {rule}{file}" for rule in broken_rules]
    return problems + _find_overlaps(rows) + _find_simultaneous_blocks(connection)


def _find_broken_rules(row: sa.Row[Any]) -> list[str]:
    """Return the rules that a row breaks by itself."""
    broken_rules = []
    if row.begin_insert_time >= row.end_insert_time:
        broken_rules.append("has a range that is empty or runs backwards")
    if row.file_path is None:
        if row.num_rows != 0:
            broken_rules.append(f"has {row.num_rows} rows but no file")
        return broken_rules
    if row.num_rows <= 0:
        broken_rules.append(f"has a file but {row.num_rows} rows")
    if row.file_size <= 0:
        broken_rules.append(f"has a file of {row.file_size} bytes")
    if row.min_event_time is None or row.max_event_time is None:
        broken_rules.append("has a file but no range of event times")
    elif row.min_event_time > row.max_event_time:
        broken_rules.append("has event times that run backwards")
    elif _event_span(row) >= 1 << 63:
        broken_rules.append("has event times that are too far apart")
    return broken_rules


def _find_overlaps(rows: Iterable[sa.Row[Any]]) -> list[str]:
    """Return a line for each row that begins before an earlier one of its series ends."""
    problems = []
    furthest: dict[tuple[str, str, bytes], sa.Row[Any]] = {}
    for row in rows:
        if row.begin_insert_time >= row.end_insert_time:
            continue
        series = _name_series(row)
        earlier = furthest.get(series)
        if earlier is not None and row.begin_insert_time < earlier.end_insert_time:
            problems.append(f"{_name_row(earlier)} overlaps {_name_row(row)}")
        if earlier is None or row.end_insert_time > earlier.end_insert_time:
            furthest[series] = row
    return problems


def _find_simultaneous_blocks(connection: sa.Connection) -> list[str]:
    """Return a line for each insert time that several blocks have."""
    blocks = connection.execute(
        sa.text(
            "SELECT block_id, insert_time FROM blocks WHERE insert_time IN "
            "(SELECT insert_time FROM blocks GROUP BY insert_time HAVING count(*) > 1) "
            "ORDER BY insert_time, block_id"
        )
    )
    return [
        f"blocks {' and '.join(row.block_id for row in group)} have the same insert time, {time}"
        for time, group in groupby(blocks, key=lambda row: row.insert_time)
    ]


def _name_series(row: sa.Row[Any]) -> tuple[str, str, bytes]:
    return row.view_set_name, row.view_instance_id, bytes(row.file_schema_hash)


def _name_row(row: sa.Row[Any]) -> str:
    return (
        f"{row.view_set_name}/{row.view_instance_id} "
        f"[{row.begin_insert_time}, {row.end_insert_time}) {bytes(row.file_schema_hash).hex()}"
    )


def _event_span(row: sa.Row[Any]) -> int:
    return 1 << int(row.max_event_time - row.min_event_time).bit_length()
