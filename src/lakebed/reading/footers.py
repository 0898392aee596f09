"""Footers as readers use them: checked against their digest, upgraded in memory if another system
wrote them in the older format. The file is never touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import footers, partitions
from lakebed.catalog.records.footers import StoredFooter
from lakebed.errors import DamagedFooter, UnknownFooter
from lakebed.storage import footer as footer_format

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def usable_bytes(stored: StoredFooter, num_rows: int) -> bytes:
    """Return the footer bytes as in the file; ``num_rows`` comes from the same snapshot."""
    if footer_format.digest(stored.metadata) != stored.digest:
        raise DamagedFooter(
            f"the stored footer of {stored.file_path} ({len(stored.metadata)} bytes) "
            "does not match its digest",
            hint="see the damage with: lakebed check --level footers",
        )
    if stored.format_version == footer_format.FOOTER_FORMAT:
        return stored.metadata
    if stored.format_version == footer_format.LEGACY_FORMAT:
        return footer_format.upgrade(stored.metadata, num_rows=num_rows, path=stored.file_path)
    raise DamagedFooter(
        f"the stored footer of {stored.file_path} ({len(stored.metadata)} bytes) "
        f"has format {stored.format_version}, which this program does not know"
    )


def parse(stored: StoredFooter, num_rows: int) -> pq.FileMetaData:
    """Return the parsed footer. Bytes that Lakebed wrote and whose digest fits are trusted."""
    footer = usable_bytes(stored, num_rows)
    trusted = stored.format_version == footer_format.FOOTER_FORMAT
    return footer_format.parse(footer, path=stored.file_path, trusted=trusted)


def get_footer(catalog: Catalog, file_path: str) -> bytes:
    """Return the footer bytes of one live or retired file; raise `UnknownFooter` if missing."""
    with catalog.read() as connection:
        stored = footers.get(connection, file_path)
        rows = partitions.list_by_path(connection, file_path)
    if not rows:
        raise UnknownFooter(f"no partition refers to {file_path}")
    return usable_bytes(stored, rows[-1].num_rows)
