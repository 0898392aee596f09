"""Footers move to a table of their own, keyed by the file they belong to.

`prepare` and `move_batch` are committed on their own, so that a large catalog moves in small steps
and a killed migration resumes where it stopped; `upgrade` moves the remaining rows and drops the
old column. This revision is frozen.
"""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_LEFT = sa.text(
    "SELECT file_path, file_size, file_metadata, updated "
    "FROM lakehouse_partitions AS p "
    "WHERE file_path IS NOT NULL AND file_metadata IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM partition_metadata AS m WHERE m.file_path = p.file_path) "
    "LIMIT :limit"
)
_METADATA = sa.table(
    "partition_metadata",
    sa.column("file_path", sa.Text),
    sa.column("file_size", sa.BigInteger),
    sa.column("metadata", sa.LargeBinary),
    sa.column("partition_format_version", sa.Integer),
    sa.column("insert_time", sa.BigInteger),
    sa.column("digest", sa.LargeBinary),
)


def prepare(connection: sa.Connection) -> None:
    """Make the new table; does nothing if an earlier run made it."""
    if sa.inspect(connection).has_table("partition_metadata"):
        return
    table = sa.Table(
        "partition_metadata",
        sa.MetaData(),
        sa.Column("file_path", sa.Text, primary_key=True),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
        sa.Column("partition_format_version", sa.Integer, nullable=False),
        sa.Column("insert_time", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
    )
    sa.Index("partition_metadata_insert_time", table.c.insert_time)
    table.create(connection)


def move_batch(connection: sa.Connection, limit: int) -> int:
    """Copy up to ``limit`` footers that are not there yet; how many were copied."""
    rows = {row.file_path: row for row in connection.execute(_LEFT, {"limit": limit})}
    if rows:
        connection.execute(
            _METADATA.insert(),
            [
                {
                    "file_path": row.file_path,
                    "file_size": row.file_size,
                    "metadata": bytes(row.file_metadata),
                    # Written by another system, whatever it says: readers must not trust them.
                    "partition_format_version": 1,
                    "insert_time": row.updated,
                    "digest": hashlib.sha256(row.file_metadata).digest(),
                }
                for row in rows.values()
            ],
        )
    return len(rows)


def upgrade() -> None:
    connection = op.get_bind()
    prepare(connection)
    while move_batch(connection, 1000):
        pass
    op.drop_column("lakehouse_partitions", "file_metadata")
