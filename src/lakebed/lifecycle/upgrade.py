"""Rewrite footers of the older format in the catalog, in batches. Queries work before, during
and after it, because readers upgrade old footers in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import footers, partitions
from lakebed.catalog.records.footers import StoredFooter
from lakebed.errors import DamagedFooter
from lakebed.logs import Operation
from lakebed.reading.footers import usable_bytes
from lakebed.storage import footer as footer_format

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class UpgradeResult:
    """The number of rewritten footers, and the paths of those that could not be rewritten."""

    rewritten: int = 0
    damaged: list[str] | None = None

    def add_damaged(self, message: str) -> None:
        self.damaged = [*(self.damaged or []), message]


def upgrade_footers(
    catalog: Catalog,
    *,
    batch_rows: int = 200,
    progress: Callable[[UpgradeResult], None] = lambda _result: None,
) -> UpgradeResult:
    """Rewrite every footer in the current format; a damaged one is reported and left as it is."""
    result = UpgradeResult()
    with Operation(_log, "migrate footers") as operation:
        _upgrade(catalog, result, batch_rows, progress)
        operation.add(rewritten=result.rewritten, damaged=len(result.damaged or []))
    return result


def _upgrade(
    catalog: Catalog,
    result: UpgradeResult,
    batch_rows: int,
    progress: Callable[[UpgradeResult], None],
) -> None:
    after = ""
    while True:
        with catalog.read() as connection:
            page = footers.list_of_format(
                connection, footer_format.LEGACY_FORMAT, after, batch_rows
            )
            rows = {
                stored.file_path: partitions.list_by_path(connection, stored.file_path)
                for stored in page
            }
        if not page:
            return
        after = page[-1].file_path
        upgraded = []
        for stored in page:
            try:
                num_rows = rows[stored.file_path][-1].num_rows if rows[stored.file_path] else 0
                metadata = usable_bytes(stored, num_rows)
                footer_format.parse(metadata, path=stored.file_path)
            except DamagedFooter as error:
                result.add_damaged(str(error))
                continue
            digest = footer_format.digest(metadata)
            new = StoredFooter(
                stored.file_path, stored.file_size, metadata, footer_format.FOOTER_FORMAT, digest
            )
            upgraded.append((new, stored.digest))
        with catalog.write() as transaction:
            changed = [
                new.file_path
                for new, old in upgraded
                if footers.rewrite(transaction.connection, new, old)
            ]
            entry = journal.Entry("footers rewritten", detail={"footers": len(changed)})
            journal.append(transaction, [entry] if changed else [])
        result.rewritten += len(changed)
        progress(result)
