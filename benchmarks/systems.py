"""The systems that are compared when they commit: each is made once, in a place of its own, and
opened by every process that writes to it. The peers are tuned in their favour; what was set and
why stands next to it.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.harness import CATALOG_NAMES, EPOCH, MINUTE, READINGS, Places
from lakebed.opening import open_lake

if TYPE_CHECKING:
    import pyarrow as pa

_DELTA_CHECKPOINT = 10
_ICEBERG_SNAPSHOTS = 10


class Writer(Protocol):
    """An open table of one system."""

    def commit(self, minute: int, rows: pa.Table) -> None:
        """Append rows in a transaction of their own."""
        ...

    def recover(self) -> None:
        """Look at the table again after a commit failed."""
        ...

    def close(self) -> None: ...


class System(Protocol):
    """A table that exists; plain values, so that it can be sent to another process."""

    @property
    def name(self) -> str: ...

    def open(self) -> Writer: ...


@dataclass(frozen=True, slots=True)
class LakebedSystem:
    """A lake with one view set; durable: file, folder and catalog are synced by every commit."""

    name: str
    place: str

    @classmethod
    def create(cls, places: Places, catalog: str) -> LakebedSystem:
        with places.new_lake(catalog) as lake:
            lake.views.register(READINGS)
            place = lake.catalog.url
        return cls(f"Lakebed on {CATALOG_NAMES[catalog]}", place)

    def open(self) -> Writer:
        return _LakebedWriter(self.place)


class _LakebedWriter:
    def __init__(self, place: str) -> None:
        self._lake = open_lake(place)

    def commit(self, minute: int, rows: pa.Table) -> None:
        begin = EPOCH + minute * MINUTE
        self._lake.partitions.publish(READINGS, begin, begin + MINUTE, rows)

    def recover(self) -> None:
        pass

    def close(self) -> None:
        self._lake.close()


@dataclass(frozen=True, slots=True)
class DeltaSystem:
    """A Delta table. delta-rs syncs nothing that it writes; ``synced`` adds what a crash-proof
    commit needs: its data file, its log entry and their folders are synced after each commit."""

    name: str
    place: str
    synced: bool

    @classmethod
    def create(cls, places: Places, *, synced: bool = False) -> DeltaSystem:
        from deltalake import DeltaTable

        folder = str(places.new_folder() / "table")
        configuration = {
            "delta.checkpointInterval": str(_DELTA_CHECKPOINT),
            # Statistics of the time column only, without which nothing could be found by time.
            "delta.dataSkippingNumIndexedCols": "1",
            "delta.enableExpiredLogCleanup": "false",
        }
        DeltaTable.create(folder, READINGS.schema, configuration=configuration)
        return cls("deltalake, then synced" if synced else "deltalake", folder, synced)

    def open(self) -> Writer:
        return _DeltaWriter(Path(self.place), self.synced)


class _DeltaWriter:
    def __init__(self, folder: Path, synced: bool) -> None:
        from deltalake import PostCommitHookProperties

        self._folder = folder
        self._synced = synced
        self._open()
        self._hooks = PostCommitHookProperties(cleanup_expired_logs=False)

    def commit(self, _minute: int, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._table, rows, mode="append", post_commithook_properties=self._hooks)
        if self._synced:
            self._sync()
        # An open table gets slower with every log entry it has read (37 ms instead of 6 after 400
        # commits); opened again behind each checkpoint it stays fast.
        if self._table.version() // _DELTA_CHECKPOINT > self._opened // _DELTA_CHECKPOINT:
            self._open()

    def _open(self) -> None:
        from deltalake import DeltaTable

        self._table = DeltaTable(self._folder)
        self._opened = self._table.version()

    def _sync(self) -> None:
        log = self._folder / "_delta_log" / f"{self._table.version():020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        added = [self._folder / action["add"]["path"] for action in actions if "add" in action]
        for path in (*added, self._folder, log, log.parent):
            sync(path)

    def recover(self) -> None:
        self._open()

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class IcebergSystem:
    """An Iceberg table in pyiceberg's SQLite catalog. The catalog's rows are synced by SQLite's
    rollback journal; data files and manifests are not.

    ``tidy`` forgets old snapshots every so often, as part of a commit: otherwise each commit
    rewrites the list of all earlier ones and takes longer than the last. With several writers that
    would only add conflicts.
    """

    name: str
    place: str
    tidy: bool

    @classmethod
    def create(cls, places: Places, *, tidy: bool) -> IcebergSystem:
        folder = str(places.new_folder())
        catalog = _iceberg_catalog(folder)
        catalog.create_namespace("bench")
        properties = {
            # Metadata files that list no more of their predecessors than they must.
            "write.metadata.previous-versions-max": "1",
            # Statistics of the time column only, without which nothing could be found by time.
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.time": "full",
            # Few manifests, so that the list of them, written by every commit, stays short.
            "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "10",
        }
        catalog.create_table("bench.readings", READINGS.schema, properties=properties)
        return cls("pyiceberg", folder, tidy)

    def open(self) -> Writer:
        return _IcebergWriter(self.place, self.tidy)


class _IcebergWriter:
    def __init__(self, folder: str, tidy: bool) -> None:
        # The table stays open: it learns its new metadata from each commit.
        self._table = _iceberg_catalog(folder).load_table("bench.readings")
        self._tidy = tidy

    def commit(self, _minute: int, rows: pa.Table) -> None:
        self._table.append(rows)
        if self._tidy and len(self._table.metadata.snapshots) >= _ICEBERG_SNAPSHOTS:
            self._table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()

    def recover(self) -> None:
        self._table.refresh()

    def close(self) -> None:
        pass


def _iceberg_catalog(folder: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(
        "bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )


def sync(path: Path) -> None:
    """Make a file or a folder last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
