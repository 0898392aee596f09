"""The older shape, as catalogs before Lakebed have it: footers inline in the partition's row.

This revision is frozen.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "processes",
        sa.Column("process_id", sa.Text, primary_key=True),
        sa.Column("properties", sa.Text, nullable=False),
        sa.Column("insert_time", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "streams",
        sa.Column("stream_id", sa.Text, primary_key=True),
        sa.Column("process_id", sa.Text, nullable=False),
        sa.Column("properties", sa.Text, nullable=False),
        sa.Column("insert_time", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "blocks",
        sa.Column("block_id", sa.Text, primary_key=True),
        sa.Column("stream_id", sa.Text, nullable=False),
        sa.Column("process_id", sa.Text, nullable=False),
        sa.Column("insert_time", sa.BigInteger, nullable=False),
        sa.Column("begin_time", sa.BigInteger),
        sa.Column("end_time", sa.BigInteger),
        sa.Column("nb_objects", sa.BigInteger, nullable=False),
        sa.Column("encoding", sa.Text, nullable=False),
        sa.Column("payload_digest", sa.LargeBinary, nullable=False),
        sa.Column("segment_path", sa.Text, nullable=False),
        sa.Column("segment_offset", sa.BigInteger, nullable=False),
        sa.Column("payload_size", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "lakehouse_partitions",
        sa.Column("view_set_name", sa.Text, nullable=False),
        sa.Column("view_instance_id", sa.Text, nullable=False),
        sa.Column("begin_insert_time", sa.BigInteger, nullable=False),
        sa.Column("end_insert_time", sa.BigInteger, nullable=False),
        sa.Column("min_event_time", sa.BigInteger),
        sa.Column("max_event_time", sa.BigInteger),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("file_path", sa.Text),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("file_schema_hash", sa.LargeBinary, nullable=False),
        sa.Column("source_data_hash", sa.LargeBinary, nullable=False),
        sa.Column("file_metadata", sa.LargeBinary),
        sa.Column("num_rows", sa.BigInteger, nullable=False),
        sa.Column(
            "partition_format_version", sa.Integer, nullable=False, server_default=sa.text("1")
        ),
    )
    op.create_index("lakehouse_partitions_path", "lakehouse_partitions", ["file_path"])
    op.create_table(
        "temporary_files",
        sa.Column("file_path", sa.Text, primary_key=True),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("expiration", sa.BigInteger),
    )
