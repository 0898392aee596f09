"""A bit that flips in a published file gives right rows or one error that names the file, through
every door. A bit that flips while a file is written is not published.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import Damage, DamagedFile
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake, open_lake
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.tasks import BuildOrder, carry_out
from lakebed.storage.disk import Disk
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import read_all
from lakebed.tables.rows.row_reader import RowReader
from tests.conftest import CAMPAIGN, SQLITE_FIRST, NewLake
from tests.parts.building import build, land
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings
from tests.parts.faults import FlippingDisk
from tests.tables.parts import LOOSE, NOON, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 5_000
FLIPS = 2_000 if CAMPAIGN else 60
SPARK_FLIPS = 60 if CAMPAIGN else 3
VIEW_SET = ViewSet(
    "samples",
    1,
    pa.schema(
        [
            pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
            ("number", pa.int64()),
            ("level", pa.string()),
            ("text", pa.string()),
            ("ratio", pa.float64()),
        ]
    ),
    "time",
)


def _rows() -> pa.Table:
    rng = random.Random(11)
    numbers = range(ROWS)
    columns = {
        "time": [T0 + number for number in numbers],
        "number": list(numbers),
        "level": [rng.choice(["debug", "info", "warn"]) for _ in numbers],
        "text": [rng.randbytes(9).hex() if rng.random() > 0.1 else None for _ in numbers],
        "ratio": [rng.random() for _ in numbers],
    }
    return pa.table(columns, schema=VIEW_SET.schema)


_times = itertools.count(time.time_ns(), 1_000_000)


class Flips:
    """Flips random bits of one file, each by itself. The seed is printed."""

    def __init__(self, path: Path, begin: int = 4, end: int | None = None) -> None:
        self.path = path
        self.whole = path.read_bytes()
        self._begin = begin
        self._end = end or pages_end(path)
        seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
        sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
        self._rng = random.Random(seed)
        path.chmod(0o644)

    def check(self, count: int, read: Callable[[], pa.Table], expected: pa.Table) -> int:
        """Read after each of some flips; return how many were errors that name the file."""
        errors = 0
        try:
            for _ in range(count):
                offset, bit = self._rng.randrange(self._begin, self._end), self._rng.randrange(8)
                changed = bytearray(self.whole)
                changed[offset] ^= 1 << bit
                self._write(changed)
                try:
                    rows = read()
                except Damage as error:
                    assert self.path.name in str(error)
                    errors += 1
                else:
                    assert rows.equals(expected), f"wrong rows with bit {bit} of byte {offset}"
        finally:
            self._write(self.whole)
        assert read().equals(expected)
        return errors

    def _write(self, data: bytes) -> None:
        """Write the file with a time of its own, also when a clock tick is not over."""
        self.path.write_bytes(data)
        written = next(_times)
        os.utime(self.path, ns=(written, written))


def pages_end(path: Path) -> int:
    """The offset behind the last page of a file."""
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return int(
        max(
            (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
            for chunk in chunks
        )
    )


def _located(lake: Lake, path: str | None) -> Path:
    assert isinstance(lake.store, LocalStore)
    return lake.store.locate(path or "")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake with one published file of 5,000 rows."""
    with init_lake(tmp_path_factory.mktemp("samples")) as lake:
        lake.views.register(VIEW_SET)
        lake.partitions.publish("samples", T0, T0 + HOUR, _rows())
        yield lake


def _path(lake: Lake) -> str:
    (partition,) = lake.partitions.list_partitions("samples")
    return str(partition.file_path)


# ---- reading ------------------------------------------------------------------------------------


def test_a_snapshot_of_a_file_with_a_flipped_bit_raises(samples: Lake) -> None:
    def read() -> pa.Table:
        with samples.partitions.snapshot("samples") as snapshot:
            return snapshot.read_all("samples")

    assert Flips(_located(samples, _path(samples))).check(FLIPS, read, _rows()) > FLIPS // 2


STATEMENTS = {
    "everything": "SELECT * FROM samples ORDER BY time",
    "one column": "SELECT text FROM samples ORDER BY time",
    "a condition": "SELECT number FROM samples WHERE level = 'warn' AND ratio > 0.5 ORDER BY time",
    "sums": "SELECT level, count(*), sum(number), max(text) FROM samples GROUP BY 1 ORDER BY 1",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_over_a_file_with_a_flipped_bit_raises(samples: Lake, name: str) -> None:
    def read() -> pa.Table:
        return samples.query(STATEMENTS[name]).to_arrow()

    flips = Flips(_located(samples, _path(samples)))
    assert flips.check(FLIPS, read, read()) > (FLIPS // 2 if name == "everything" else 0)


def test_a_statement_over_a_file_with_a_flipped_bit_behind_its_pages_raises(
    samples: Lake,
) -> None:
    """In the footer, which is compared with the catalog's. Page indexes are not read."""
    path = _located(samples, _path(samples))

    def read() -> pa.Table:
        sql = "SELECT * FROM samples WHERE number BETWEEN 4000 AND 4010 AND level <> 'x'"
        return samples.query(sql).to_arrow()

    flips = Flips(path, pages_end(path), path.stat().st_size)
    assert flips.check(FLIPS, read, read()) > FLIPS // 4


def test_a_statement_is_not_disturbed_by_columns_that_it_does_not_read(samples: Lake) -> None:
    path = _located(samples, _path(samples))
    whole = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    text = group.column(VIEW_SET.schema.names.index("text"))
    data = bytearray(whole)
    data[text.data_page_offset + 100] ^= 8
    path.write_bytes(data)
    expected = _rows().group_by("level").aggregate([("number", "sum")]).sort_by("level")
    sql = "SELECT level, sum(number) AS total FROM samples GROUP BY level ORDER BY level"
    assert samples.query(sql).to_arrow()["total"].to_pylist() == expected["number_sum"].to_pylist()
    assert samples.query("SELECT count(*) AS n FROM samples").to_arrow()["n"].to_pylist() == [ROWS]
    assert samples.query("EXPLAIN SELECT text FROM samples").to_arrow().num_rows
    with pytest.raises(DamagedFile, match="column text"):
        samples.query("SELECT max(text) FROM samples").to_arrow()
    path.write_bytes(whole)


def test_a_merge_of_a_file_with_a_flipped_bit_raises(samples: Lake) -> None:
    path = _path(samples)
    names = iter(f"{path[:-13]}{number:08x}.parquet" for number in range(2 * FLIPS))

    def merge() -> pa.Table:
        target = next(names)
        order = BuildOrder(VIEW_SET.definition(), (target,), files=((path, ROWS),), is_merge=True)
        carry_out(samples.store, order)
        return pq.ParquetFile(_located(samples, target)).read().cast(VIEW_SET.schema)

    assert Flips(_located(samples, path)).check(FLIPS // 4, merge, _rows()) > FLIPS // 8


def test_a_data_source_task_over_a_file_with_a_flipped_bit_raises(samples: Lake) -> None:
    from lakebed.pipeline.frames.types import spark_schema
    from lakebed.spark.source import Files, _read_files

    files = Files(StoreAddress.of(samples.store), [_path(samples)])

    def read() -> pa.Table:
        batches = _read_files(files, spark_schema(VIEW_SET), "time", [None, None])
        return pa.Table.from_batches(batches).cast(VIEW_SET.schema)

    assert Flips(_located(samples, _path(samples))).check(FLIPS // 2, read, _rows()) > FLIPS // 4


def test_spark_over_a_file_with_a_flipped_bit_raises(samples: Lake, spark: SparkSession) -> None:
    """Spark's own reader: it verifies pages only with an option."""

    def read() -> pa.Table:
        sql = "SELECT * FROM samples ORDER BY time"
        rows = samples.query(sql, engine="spark", spark=spark).to_arrow()
        return rows.select(VIEW_SET.schema.names).cast(VIEW_SET.schema)

    flips = Flips(_located(samples, _path(samples)))
    assert flips.check(SPARK_FLIPS, read, _rows()) == SPARK_FLIPS


def test_a_fold_of_a_file_with_a_flipped_bit_raises(new_lake: NewLake) -> None:
    lake = new_lake()
    table = make(lake, LOOSE)
    for begin in (0, ROWS):
        values = range(begin, begin + ROWS)
        table.insert([{"time": NOON, "value": value, "note": f"n{value}"} for value in values])
    partition = table.partitions()[0]

    with lake.tables.snapshots.take(table.definition.table_id) as snapshot:

        def read() -> pa.Table:
            return RowReader(lake.store).read(snapshot.table, partition)

        flips = Flips(_located(lake, partition.file_path))
        assert flips.check(FLIPS // 4, read, read()) > FLIPS // 8


def test_landed_bytes_with_a_flipped_bit_are_left_out_with_a_warning(new_lake: NewLake) -> None:
    lake = new_lake()
    land(lake)
    sql = "SELECT * FROM log_entries"
    whole = lake.query(sql).to_arrow().num_rows
    (segment,) = (file for file in lake.store.list() if file.path.startswith("segments/"))
    path = _located(lake, segment.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with open_lake(lake.catalog.url) as other:  # which remembers nothing
        result = other.query(sql)
        assert result.to_arrow().num_rows < whole
        assert any("cannot be decoded" in warning for warning in result.explanation.warnings)


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_statements_and_snapshots_over_an_object_with_a_flipped_bit_raise(
    new_lake: Any, s3_bucket: str
) -> None:
    import obstore

    lake: Lake = new_lake(store=f"s3://{s3_bucket}/flipped")
    lake.views.register(VIEW_SET)
    path = lake.partitions.publish("samples", T0, T0 + HOUR, _rows()).file_path or ""
    sql = "SELECT * FROM samples ORDER BY time"
    assert lake.query(sql).to_arrow().equals(_rows())
    changed = bytearray(read_all(lake.store, path))
    changed[len(changed) // 3] ^= 1
    obstore.put(lake.store._store, path, bytes(changed), mode="overwrite")  # type: ignore[attr-defined]
    with pytest.raises(DamagedFile, match=path):
        lake.query(sql).to_arrow()
    with lake.partitions.snapshot("samples") as snapshot, pytest.raises(DamagedFile, match=path):
        snapshot.read_all("samples")


# ---- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.98, 0.9999])
def test_a_file_whose_bit_flipped_while_it_was_written_is_not_published(
    lake: Lake, share: float
) -> None:
    """In pages, in what is behind them, and in the footer."""
    lake.views.register(readings())
    publish_hour(lake, 0)
    before = numbers_in(lake)
    assert isinstance(lake.store, LocalStore)
    lake.store.disk = FlippingDisk(share)
    with pytest.raises(DamagedFile, match=r"cannot publish partitions/readings/.*\.parquet") as met:
        publish_hour(lake, 1, 5_000)
    assert "repeat" in str(met.value.hint)
    lake.store.disk = Disk()
    assert numbers_in(lake) == before
    publish_hour(lake, 1, 5_000)
    assert sum(numbers_in(lake).values()) == 5_003
    findings = lake.checker.run(Level.PAGES).findings
    assert Severity.DAMAGE not in {finding.severity for finding in findings}


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_large_file_whose_bit_flipped_while_it_was_written_is_not_published(lake: Lake) -> None:
    """It is written page by page, and read back piece by piece."""
    lake.views.register(readings())
    count = 1_100_000
    numbers = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(os.urandom(8 * count))])
    times = pa.array(range(T0, T0 + count), pa.timestamp("us", "UTC"))
    rows = pa.table([times, numbers], schema=readings().schema)
    assert isinstance(lake.store, LocalStore)
    lake.store.disk = FlippingDisk(0.5)
    with pytest.raises(DamagedFile, match="cannot publish"):
        lake.partitions.publish("readings", T0, T0 + HOUR, rows)
    lake.store.disk = Disk()
    partition = lake.partitions.publish("readings", T0, T0 + HOUR, rows)
    assert partition.file_size > 8 << 20
    assert lake.checker.run(Level.PAGES).is_clean


def test_rows_of_a_table_whose_bit_flipped_while_they_were_written_are_refused(
    lake: Lake,
) -> None:
    table = make(lake, LOOSE)
    table.insert([{"time": NOON, "value": 1}])
    assert isinstance(lake.store, LocalStore)
    lake.store.disk = FlippingDisk(0.02)
    with pytest.raises(DamagedFile, match="cannot publish"):
        table.insert([{"time": NOON, "value": 2}])
    lake.store.disk = Disk()
    table.insert([{"time": NOON, "value": 3}])
    assert sorted(
        table.query(f"SELECT value FROM {table.name}").to_arrow()["value"].to_pylist()
    ) == [
        1,
        3,
    ]


def test_a_build_whose_bit_flips_while_it_is_written_is_not_published(new_lake: NewLake) -> None:
    lake = new_lake()
    land(lake)
    assert isinstance(lake.store, LocalStore)
    lake.store.disk = FlippingDisk(0.5)
    with pytest.raises(DamagedFile, match="cannot publish"):
        build(lake)
    lake.store.disk = Disk()
    assert lake.query("SELECT * FROM log_entries").to_arrow().num_rows == 20
