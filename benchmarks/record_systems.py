"""Systems that take records of devices, each by its own best way: Lakebed's tables, deltalake,
DuckDB and SQLite. All of them replace a record whose device and time are there already.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from benchmarks.harness import CATALOG_NAMES, Places
from lakebed.lake import Lake
from lakebed.opening import open_lake

DAY_MS = 86_400_000
FIRST_DAY = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp() * 1000)
DEVICES = 500
SCHEMA = {
    "device": {"type": "string", "unique": True},
    "time": {"type": "datetime", "unit": "ms", "time": True, "unique": True},
    "bpm": {"type": "int", "min": 0, "max": 400},
    "celsius": "float",
    "worn": "bool",
    "firmware": "string",
}
ARROW = pa.schema(
    [
        ("device", pa.string()),
        ("time", pa.timestamp("ms", "UTC")),
        ("bpm", pa.int64()),
        ("celsius", pa.float64()),
        ("worn", pa.bool_()),
        ("firmware", pa.string()),
    ]
)
Records = list[dict[str, Any]]


def records(count: int, days: int, seed: int) -> Records:
    """Records of as many days, at random moments; the same for the same seed."""
    rng = random.Random(seed)
    return [
        {
            "device": f"ring-{rng.randrange(DEVICES):04}",
            "time": FIRST_DAY + rng.randrange(days * DAY_MS),
            "bpm": rng.randrange(40, 180),
            "celsius": round(rng.uniform(30, 40), 2),
            "worn": rng.random() < 0.9,
            "firmware": f"1.{rng.randrange(12)}",
        }
        for _ in range(count)
    ]


def changes(known: Records, count: int, seed: int) -> Records:
    """New values for some of the records."""
    rng = random.Random(seed)
    return [each | {"bpm": rng.randrange(40, 180)} for each in rng.sample(known, count)]


class System(Protocol):
    """One system with one table."""

    name: str
    conflicts: tuple[type[Exception], ...]
    """What it raises if somebody else was in between, and it should be tried again."""

    def append(self, batch: Records) -> None:
        """Add records, none of which is there."""

    def upsert(self, batch: Records) -> None:
        """Add records, or take the places of those that are there."""

    def read_day(self, day: int) -> int:
        """All rows of one day in memory; how many there are."""

    def close(self) -> None: ...


def _bounds(day: int) -> tuple[datetime, datetime]:
    begin = FIRST_DAY + day * DAY_MS
    return (
        datetime.fromtimestamp(begin / 1000, UTC),
        datetime.fromtimestamp((begin + DAY_MS) / 1000, UTC),
    )


class LakebedRecords:
    """A table of a lake."""

    conflicts: tuple[type[Exception], ...] = ()

    def __init__(self, lake: Lake) -> None:
        self.name = f"Lakebed on {CATALOG_NAMES[lake.catalog.dialect.name]}"
        self.lake = lake
        self._table = lake.tables.get("bench", "records")

    @classmethod
    def make(cls, places: Places, catalog: str) -> LakebedRecords:
        lake = places.new_lake(catalog)
        lake.tables.create_database("bench")
        lake.tables.create_table("bench", "records", SCHEMA)
        return cls(lake)

    @classmethod
    def open(cls, url: str) -> LakebedRecords:
        return cls(open_lake(url))

    def append(self, batch: Records) -> None:
        self._table.insert(batch)

    def upsert(self, batch: Records) -> None:
        self._table.insert(batch)

    def read_day(self, day: int) -> int:
        begin, end = _bounds(day)
        return int(self._table.query(begin=begin, end=end).to_arrow().num_rows)

    def close(self) -> None:
        self.lake.close()


class DeltaRecords:
    """A Delta table partitioned by date; replacing is a merge."""

    name = "deltalake"

    def __init__(self, folder: Path) -> None:
        import deltalake.exceptions

        self.conflicts: tuple[type[Exception], ...] = (deltalake.exceptions.CommitFailedError,)
        self._path = str(folder / "table")

    def append(self, batch: Records) -> None:
        import deltalake

        rows = _with_date(batch)
        deltalake.write_deltalake(self._path, rows, mode="append", partition_by=["date"])

    def upsert(self, batch: Records) -> None:
        import deltalake

        rows = _with_date(batch)
        dates = sorted(set(rows["date"].to_pylist()))
        listed = ", ".join(f"'{date}'" for date in dates)
        same = "t.device = s.device AND t.time = s.time AND t.date = s.date"
        (
            deltalake.DeltaTable(self._path)
            .merge(rows, f"t.date IN ({listed}) AND {same}", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def read_day(self, day: int) -> int:
        import deltalake

        date = _bounds(day)[0].strftime("%Y-%m-%d")
        table = deltalake.DeltaTable(self._path)
        return int(table.to_pyarrow_table(partitions=[("date", "=", date)]).num_rows)

    def close(self) -> None:
        pass


def _with_date(batch: Records) -> pa.Table:
    import pyarrow.compute as pc

    rows = pa.Table.from_pylist(batch, ARROW)
    rows = rows.set_column(1, "time", rows["time"].cast(pa.timestamp("us", "UTC")))
    return rows.append_column("date", pc.strftime(rows["time"], "%Y-%m-%d"))


class DuckRecords:
    """A DuckDB file with a primary key."""

    name = "DuckDB"

    def __init__(self, folder: Path) -> None:
        import duckdb

        self.conflicts: tuple[type[Exception], ...] = (duckdb.TransactionException,)
        # In one process, whoever connects to the same file shares its database.
        self._connection = duckdb.connect(str(folder / "records.duckdb"))
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS records (device VARCHAR, time TIMESTAMPTZ, bpm BIGINT, "
            "celsius DOUBLE, worn BOOLEAN, firmware VARCHAR, PRIMARY KEY (device, time))"
        )

    def append(self, batch: Records) -> None:
        self.upsert(batch)

    def upsert(self, batch: Records) -> None:
        rows = pa.Table.from_pylist(batch, ARROW)  # noqa: F841  (DuckDB finds it by its name)
        self._connection.execute("INSERT OR REPLACE INTO records SELECT * FROM rows")

    def read_day(self, day: int) -> int:
        found = self._connection.sql(
            "SELECT * FROM records WHERE time >= ? AND time < ?", params=list(_bounds(day))
        )
        return int(found.to_arrow_table().num_rows)

    def close(self) -> None:
        self._connection.close()


class SqliteRecords:
    """An SQLite file with a primary key, synced like a lake's catalog."""

    name = "SQLite"
    conflicts: tuple[type[Exception], ...] = ()

    def __init__(self, folder: Path) -> None:
        from lakebed.catalog.connections.dialects import SqliteDialect

        path = folder / "records.sqlite3"
        connect = SqliteDialect(path).module.connect
        self._connection = connect(str(path), isolation_level=None, timeout=60)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS records (device TEXT, time INTEGER, bpm INTEGER, "
            "celsius REAL, worn INTEGER, firmware TEXT, PRIMARY KEY (time, device)) WITHOUT ROWID"
        )

    def append(self, batch: Records) -> None:
        self.upsert(batch)

    def upsert(self, batch: Records) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT OR REPLACE INTO records VALUES "
            "(:device, :time, :bpm, :celsius, :worn, :firmware)",
            batch,
        )
        self._connection.execute("COMMIT")

    def read_day(self, day: int) -> int:
        begin = FIRST_DAY + day * DAY_MS
        found = self._connection.execute(
            "SELECT * FROM records WHERE time >= ? AND time < ?", (begin, begin + DAY_MS)
        )
        return len(found.fetchall())

    def close(self) -> None:
        self._connection.close()
