"""Files are verified before the embedded engine's rows are handed out: once, by the columns that
are read, within the statement's time.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from lakebed.catalog.schema import partition_metadata
from lakebed.errors import Cancelled, DamagedFile, TimedOut
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.model.tables.table import VERSION
from lakebed.query.embedded.running.turns import Deadline
from lakebed.query.output.statement_stream import StatementStream
from lakebed.query.planning.conditions import Scan
from lakebed.query.queries import Queries, QuerySettings
from lakebed.query.snapshot.verification import FileRead, FileVerifier, Verification
from lakebed.storage import footer
from lakebed.storage.local import LocalStore
from tests.conftest import SQLITE_FIRST
from tests.parts.data import numbers_in, publish_hour, readings
from tests.tables.parts import BY_ID, NOON, make

SQL = "SELECT number FROM readings ORDER BY number"


class CountingStore(LocalStore):
    """Counts what is read of each file."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: dict[str, int] = {}
        self.checks: Counter[str] = Counter()

    def version(self, path: str) -> tuple[int, str]:
        self.checks[path] += 1
        return super().version(path)

    def read(self, path: str, start: int, length: int) -> bytes:
        self.reads[path] = self.reads.get(path, 0) + 1
        return super().read(path, start, length)


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.views.register(readings())
    for hour in range(3):
        publish_hour(lake, hour, 500)
    return lake


def _store(lake: Lake) -> LocalStore:
    assert isinstance(lake.store, LocalStore)
    return lake.store


def _queries(lake: Lake, store: LocalStore, **settings: Any) -> Queries:
    return Queries(lake.catalog, store, lake.leases, QuerySettings(**settings))


def _files(lake: Lake) -> list[Partition]:
    return lake.partitions.list_partitions("readings")


def _let_settle(lake: Lake) -> None:
    """Wait until the files are older than the resolution of their times: before that, a file may
    change again without another time, and has no version that lasts."""
    store, paths = _store(lake), [partition.file_path or "" for partition in _files(lake)]
    while any(store.version(path) != store.version(path) for path in paths):
        time.sleep(0.01)


def _flip(lake: Lake, partition: Partition, column: str) -> bytes:
    """Flip a bit in the last page of a column; return what the file was before."""
    path = _store(lake).locate(partition.file_path or "")
    whole = path.read_bytes()
    group = pq.read_metadata(io.BytesIO(whole)).row_group(0)
    (chunk,) = (
        group.column(number)
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == column
    )
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(whole)
    data[begin + chunk.total_compressed_size - 1] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)
    return whole


def test_files_are_read_for_verification_once(filled: Lake) -> None:
    store = CountingStore(_store(filled).root)
    queries = _queries(filled, store)
    _let_settle(filled)
    expected = queries.query(SQL).to_arrow()
    assert set(store.reads) == {partition.file_path for partition in _files(filled)}
    store.reads.clear()
    assert queries.query(SQL).to_arrow().equals(expected)
    assert queries.query("SELECT count(*) FROM readings").to_arrow().num_rows
    assert store.reads == {}
    queries.query("SELECT max(time) FROM readings").to_arrow()
    assert set(store.reads) == {partition.file_path for partition in _files(filled)}, (
        "another column"
    )
    queries.close()


def test_a_file_that_changed_is_verified_again(filled: Lake) -> None:
    _let_settle(filled)
    expected = filled.query(SQL).to_arrow()
    whole = _flip(filled, _files(filled)[1], "number")
    with pytest.raises(DamagedFile, match=_files(filled)[1].file_path or "-"):
        filled.query(SQL).to_arrow()
    _store(filled).locate(_files(filled)[1].file_path or "").write_bytes(whole)
    assert filled.query(SQL).to_arrow().equals(expected)


class Batches:
    """Batches of an engine that has read its files at a known batch."""

    schema = pa.schema([("number", pa.int32())])

    def __init__(self, count: int, complete_with: int) -> None:
        self._count = count
        self._complete_with = complete_with
        self.is_complete = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._count):
            self.is_complete = number >= self._complete_with
            yield pa.record_batch([pa.array([number], pa.int32())], schema=self.schema)

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("complete_with", "checks"), [(0, 1), (1, 2), (2, 2)])
def test_files_are_checked_once_if_they_were_read_by_the_first_batch(
    filled: Lake, complete_with: int, checks: int
) -> None:
    store = CountingStore(_store(filled).root)
    verifier = FileVerifier(filled.catalog, store)
    with filled.queries._taker.begin() as beginning:
        snapshot = beginning.take([Scan("readings")])
    verification = Verification(verifier, [], snapshot=snapshot)
    stream = StatementStream(Batches(3, complete_with), verification, snapshot=snapshot)
    assert len(list(stream)) == 3
    paths = [partition.file_path or "" for partition in _files(filled)]
    assert store.checks == dict.fromkeys(paths, checks)
    stream.close()


def test_file_that_changes_after_the_first_batch_is_damage(filled: Lake) -> None:
    _let_settle(filled)
    sql = "SELECT a.number FROM readings a, readings b"
    filled.query(sql).to_arrow()
    batches = iter(filled.query(sql))
    next(batches)
    _flip(filled, _files(filled)[1], "number")
    with pytest.raises(DamagedFile, match=_files(filled)[1].file_path or "-"):
        list(batches)


def test_without_the_setting_nothing_is_verified(filled: Lake) -> None:
    store = CountingStore(_store(filled).root)
    queries = _queries(filled, store, verify_pages=False)
    _flip(filled, _files(filled)[0], "number")
    assert queries.query(SQL).to_arrow().num_rows == 1_500
    assert store.reads == {}
    queries.close()


def test_the_number_of_files_that_are_remembered_is_limited(filled: Lake) -> None:
    store = CountingStore(_store(filled).root)
    verifier = FileVerifier(filled.catalog, store, most_files=2)
    _let_settle(filled)
    reads = [FileRead(partition, None) for partition in _files(filled)]
    Verification(verifier, reads).run()
    assert len(verifier.list_unverified(reads)) == 1


def test_columns_that_were_verified_add_up(filled: Lake) -> None:
    verifier = FileVerifier(filled.catalog, filled.store)
    _let_settle(filled)
    (one, *_) = _files(filled)
    for columns in ({"time"}, {"number"}):
        read = FileRead(one, frozenset(columns))
        assert verifier.list_unverified([read]) == [read]
        Verification(verifier, [read]).run()
    assert verifier.list_unverified([FileRead(one, frozenset({"time", "number"}))]) == []
    assert verifier.list_unverified([FileRead(one, None)])


def test_verification_obeys_the_time_limit_and_cancellation(filled: Lake) -> None:
    verifier = FileVerifier(filled.catalog, filled.store)
    reads = [FileRead(partition, None) for partition in _files(filled)]
    with pytest.raises(TimedOut, match="longer than 0 s"):
        Verification(verifier, reads, Deadline.after(0)).run()
    cancelled = Verification(verifier, reads)
    cancelled.cancel()
    with pytest.raises(Cancelled):
        cancelled.run()
    assert verifier.list_unverified(reads) == reads


def test_a_result_that_is_cancelled_before_its_rows_are_fetched_verifies_nothing(
    filled: Lake,
) -> None:
    store = CountingStore(_store(filled).root)
    queries = _queries(filled, store)
    result = queries.query(SQL)
    store.reads.clear()  # of footers
    result.cancel()
    with pytest.raises(Cancelled):
        result.to_arrow()
    assert store.reads == {}
    queries.close()


def test_a_damaged_footer_in_the_catalog_does_not_make_the_file_damaged(filled: Lake) -> None:
    (one, *_) = _files(filled)
    with filled.catalog.write() as transaction:
        transaction.connection.execute(
            sa.update(partition_metadata)
            .where(partition_metadata.c.file_path == one.file_path)
            .values(digest=b"\0" * 32)
        )
    assert filled.query(SQL).to_arrow().num_rows == 1_500
    _flip(filled, one, "number")
    with pytest.raises(DamagedFile, match=one.file_path or "-"):
        filled.query(SQL).to_arrow()


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_file_of_another_system_has_no_checksums_to_verify(filled: Lake) -> None:
    (one, *_) = _files(filled)
    sink = io.BytesIO()
    pq.write_table(pa.table({"number": [1, 2, 3]}), sink)
    path = _store(filled).locate(one.file_path or "")
    path.chmod(0o644)
    path.write_bytes(sink.getvalue())
    size = len(sink.getvalue())
    own = footer.split_footer(sink.getvalue(), path="it", file_size=size)
    with filled.catalog.write() as transaction:
        transaction.connection.execute(
            sa.update(partition_metadata)
            .where(partition_metadata.c.file_path == one.file_path)
            .values(metadata=own, digest=footer.digest(own), file_size=size)
        )
    foreign = replace(one, file_size=size)
    verifier = FileVerifier(filled.catalog, filled.store)
    read = FileRead(foreign, frozenset({"number"}))
    Verification(verifier, [read]).run()
    assert verifier.list_unverified([read]) == []


@pytest.fixture
def keyed(lake: Lake) -> Iterator[tuple[Lake, Any]]:
    """A table with a key: a large partition, and a newer one that hides some of its rows."""
    table = make(lake, BY_ID)
    table.insert(
        [{"id": i, "time": NOON, "value": i, "note": f"note {i}" * 50} for i in range(30_000)]
    )
    table.insert([{"id": 7, "time": NOON, "value": 70, "note": "new"}])
    yield lake, table


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_of_tables_with_keys_all_that_decides_about_rows_is_verified(
    keyed: tuple[Lake, Any],
) -> None:
    lake, table = keyed
    sql = f"SELECT sum(value) AS total FROM {table.name}"
    expected = table.query(sql).to_arrow()
    partition = max(table.partitions(), key=lambda partition: partition.num_rows)
    path = _store(lake).locate(partition.file_path or "")
    for column in ("id", "value", VERSION, "note"):
        whole = _flip(lake, partition, column)
        if column == "note":
            assert table.query(sql).to_arrow().equals(expected)
        else:
            with pytest.raises(DamagedFile, match=f"column {column}"):
                table.query(sql).to_arrow()
        path.write_bytes(whole)
    assert table.query(sql).to_arrow().equals(expected)


def test_reading_by_snapshot_agrees(filled: Lake) -> None:
    assert sorted(filled.query(SQL).to_arrow()["number"].to_pylist()) == sorted(
        numbers_in(filled).elements()
    )
