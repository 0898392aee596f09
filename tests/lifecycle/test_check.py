"""Negative controls: for each promise something is broken, and `check` is seen to see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from lakebed.catalog import rules
from lakebed.catalog.schema import partition_metadata, partitions
from lakebed.errors import BadInput, Conflict, DamagedFile, UnknownObject
from lakebed.lake import Lake
from lakebed.lifecycle.check import Finding, Level, Severity
from lakebed.model.partition import Partition
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import put, read_all
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, stored_files


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    return lake


def _findings(lake: Lake, level: Level = Level.PAGES) -> list[Finding]:
    return [each for each in lake.checker.run(level).findings if each.severity != Severity.NOTE]


def _overwrite(lake: Lake, path: str, data: bytes) -> None:
    assert isinstance(lake.store, LocalStore)
    lake.store.locate(path).write_bytes(data)


def _without_rules(lake: Lake, statement: str, **values: object) -> None:
    """Change rows behind the database's back: its constraints are taken away first."""
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        if lake.catalog.dialect.name == "postgresql":
            for name in connection.scalars(
                sa.text(
                    "SELECT conname FROM pg_constraint WHERE contype IN ('x', 'c', 'f') "
                    "AND conrelid = 'lakehouse_partitions'::regclass"
                )
            ).all():
                connection.execute(
                    sa.text(f'ALTER TABLE lakehouse_partitions DROP CONSTRAINT "{name}"')
                )
        else:
            connection.execute(sa.text("DROP TRIGGER partitions_no_overlap_on_INSERT"))
            connection.execute(sa.text("DROP TRIGGER partitions_no_overlap_on_UPDATE"))
            connection.execute(sa.text("PRAGMA defer_foreign_keys = ON"))
        connection.execute(sa.text("DROP INDEX partitions_identity"))
    engine = lake.catalog.engine
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("SET TRANSACTION READ WRITE")
        connection.execute(sa.text(statement), values)
        connection.commit()
    engine.dispose()


def test_a_healthy_lake_is_clean_at_every_level(lake: Lake) -> None:
    for hour, count in enumerate((3, 0, 2)):
        publish_hour(lake, hour, count)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    lake.retirement.restore(lake.partitions.list_partitions(include_retired=True)[0].partition_id)
    for level in Level:
        report = lake.checker.run(level)
        assert report.findings == []
        assert report.partitions == 4
    assert (report.files, report.rows) == (2, 5)


def _truncate(lake: Lake, partition: Partition) -> None:
    path = partition.file_path or ""
    _overwrite(lake, path, read_all(lake.store, path)[:-20])


def _delete(lake: Lake, partition: Partition) -> None:
    lake.store.delete([partition.file_path or ""])


def _flip_in_the_data(lake: Lake, partition: Partition) -> None:
    path = partition.file_path or ""
    data = bytearray(read_all(lake.store, path))
    data[60] ^= 0xFF
    _overwrite(lake, path, bytes(data))


def _flip_in_the_footer(lake: Lake, partition: Partition) -> None:
    path = partition.file_path or ""
    data = bytearray(read_all(lake.store, path))
    data[-30] ^= 0xFF
    _overwrite(lake, path, bytes(data))


def _corrupt_stored_footer(lake: Lake, partition: Partition) -> None:
    with lake.catalog.write() as transaction:
        wrong = sa.update(partition_metadata).values(metadata=b"PAR1" * 20)
        transaction.connection.execute(wrong)


def _wrong_row_count(lake: Lake, partition: Partition) -> None:
    with lake.catalog.write() as transaction:
        transaction.connection.execute(sa.update(partitions).values(num_rows=4))


def _other_schema(lake: Lake, partition: Partition) -> None:
    """A file of another version in the place of this one."""
    lake.views.register(readings(2))
    other = publish_hour(lake, 1, version=2)
    data = read_all(lake.store, other.file_path or "")
    _overwrite(lake, partition.file_path or "", data)
    with lake.catalog.write() as transaction:
        wrong = sa.update(partitions).where(partitions.c.partition_id == partition.partition_id)
        transaction.connection.execute(wrong.values(file_size=len(data)))


def _remove_mark(lake: Lake, partition: Partition) -> None:
    lake.store.delete(["lake.json"])


@pytest.mark.parametrize(
    ("harm", "level", "kind"),
    [
        (_delete, Level.FILES, "missing file"),
        (_truncate, Level.FILES, "file size"),
        (_remove_mark, Level.FILES, "store mark"),
        (_flip_in_the_footer, Level.FOOTERS, "stored footer"),
        (_corrupt_stored_footer, Level.FOOTERS, "stored footer"),
        (_wrong_row_count, Level.FOOTERS, "file content"),
        (_other_schema, Level.FOOTERS, "file content"),
        (_flip_in_the_data, Level.PAGES, "file content"),
    ],
)
def test_harm_to_files_is_seen_at_its_level(
    lake: Lake, harm: Callable[[Lake, Partition], None], level: Level, kind: str
) -> None:
    partition = publish_hour(lake, 0)
    harm(lake, partition)
    if level > Level.FILES:
        assert _findings(lake, Level(level - 1)) == []
    found = _findings(lake, level)
    assert kind in {finding.kind for finding in found}
    assert not lake.checker.run(level).is_clean


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE lakehouse_partitions SET begin_insert_time = begin_insert_time - 1 "
            "WHERE begin_insert_time > :t0",
            "it overlaps another live partition of its series",
        ),
        (
            "UPDATE lakehouse_partitions SET end_insert_time = begin_insert_time "
            "WHERE begin_insert_time > :t0",
            "its insert range is empty or runs backwards",
        ),
        (
            "UPDATE lakehouse_partitions SET num_rows = 1 WHERE file_path IS NULL AND :t0 > 0",
            "it is empty in one column and not in another",
        ),
        (
            "UPDATE lakehouse_partitions SET event_span = 1 WHERE num_rows > 1 AND :t0 > 0",
            "its event span is too narrow to be found by",
        ),
        (
            "DELETE FROM partition_metadata WHERE :t0 > 0",
            "its file has no footer",
        ),
        (
            "UPDATE lakehouse_partitions SET view_set_name = 'x' WHERE begin_insert_time > :t0",
            "its names are not those of its series",
        ),
        (
            "UPDATE lakehouse_partitions SET published_at = 2 * :t0",
            "it was published or retired after the lake's last tick",
        ),
        (
            "UPDATE lakehouse_partitions SET retired_at = published_at + 1 "
            "WHERE begin_insert_time = :t0",
            "it is retired, but its file is neither temporary nor live",
        ),
        (
            "DELETE FROM lakehouse_partitions WHERE begin_insert_time = :t0",
            "the footer belongs to no partition",
        ),
        (
            "INSERT INTO temporary_files (file_path, file_size, state) SELECT file_path, 1, "
            "'retired' FROM lakehouse_partitions WHERE file_path IS NOT NULL AND :t0 > 0",
            "the file is live and temporary at once",
        ),
    ],
    ids=lambda value: value if not value.startswith(("UPDATE", "DELETE", "INSERT")) else "",
)
def test_broken_rules_of_the_catalog_are_seen(lake: Lake, statement: str, message: str) -> None:
    publish_hour(lake, 0)
    publish_hour(lake, 1, 0)
    publish_hour(lake, 2)
    assert _findings(lake, Level.CATALOG) == []
    _without_rules(lake, statement, t0=T0)
    if message == "its insert range is empty or runs backwards":
        with lake.catalog.read() as connection:
            assert message in {text for _, text in rules.list_broken(connection)}
        return
    assert message in {finding.message for finding in _findings(lake, Level.CATALOG)}


def test_strays_are_classified_with_their_times(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    path = partition.file_path or ""
    good = read_all(lake.store, path)
    folder = path.rsplit("/", 1)[0]
    name = "00000000-0000-4000-8000-00000000000"
    strays = {
        f"{folder}/{name}1.parquet": (b"", "zero bytes"),
        f"{folder}/{name}2.parquet": (good[:-30], "truncated"),
        f"{folder}/{name}3.parquet": (b"hello", "not Parquet"),
        f"{folder}/{name}4.parquet": (good, "unknown but valid"),
        "db/table/partition_date=2024-01-01/data.parquet": (good, "foreign layout"),
        "notes.txt": (b"remember the milk", "not Parquet"),
        "probe-1": (b"first", "leftover"),
    }
    for stray, (data, _) in strays.items():
        put(lake.store, stray, data)
    assert isinstance(lake.store, LocalStore)
    (lake.store.root / "table" / "empty").mkdir(parents=True)
    gone = publish_hour(lake, 1)
    data = read_all(lake.store, gone.file_path or "")
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 2 * HOUR, confirmed=["readings"])
    lake.sweeper.run()
    put(lake.store, gone.file_path or "", data)
    found = {finding.subject: finding for finding in _findings(lake)}
    expected = {stray: kind for stray, (_, kind) in strays.items()}
    expected |= {"table/empty": "empty directory", gone.file_path or "": "leftover"}
    assert {subject: finding.kind for subject, finding in found.items()} == expected
    assert all(finding.modified for finding in found.values())
    assert found[gone.file_path or ""].journaled is not None
    assert found["table/empty"].message == "nothing in it"
    assert found["notes.txt"].message == "17 bytes that no catalog row knows"
    assert lake.checker.run().is_clean, "strays are no damage"


def test_the_oldest_overdue_file_is_reported(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    [finding] = _findings(lake, Level.CATALOG)
    assert (finding.kind, finding.subject) == ("overdue file", partition.file_path)
    assert "lakebed sweep" in finding.message


def test_quarantine_sets_aside_and_never_deletes(lake: Lake) -> None:
    partition, healthy = publish_hour(lake, 0), publish_hour(lake, 1)
    path = partition.file_path or ""
    _flip_in_the_data(lake, partition)
    with pytest.raises(DamagedFile):
        numbers_in(lake)
    assert "retired" in lake.checker.quarantine(path)
    assert lake.partitions.list_partitions() == [healthy]
    put(lake.store, "stray.bin", b"bytes")
    lake.checker.quarantine("stray.bin")
    lake.sweeper.run()
    assert {path, "stray.bin"} <= stored_files(lake)
    assert _findings(lake, Level.FILES) == []
    with pytest.raises(UnknownObject):
        lake.checker.quarantine("nothing/there")


def test_what_was_set_aside_can_be_condemned(lake: Lake) -> None:
    partition, healthy = publish_hour(lake, 0), publish_hour(lake, 1)
    path = partition.file_path or ""
    _flip_in_the_data(lake, partition)
    put(lake.store, "stray.bin", b"bytes")
    for each in (path, "stray.bin"):
        lake.checker.quarantine(each, "damaged")
        lake.checker.condemn(each)
        with pytest.raises(Conflict, match="not set aside"):
            lake.checker.condemn(each)
    report = lake.checker.run(Level.PAGES)
    assert report.is_clean
    notes = [each.subject for each in report.findings if each.severity is Severity.NOTE]
    assert notes == [path, "stray.bin"]
    lake.sweeper.run()
    assert not {path, "stray.bin"} & stored_files(lake)
    assert lake.checker.run(Level.PAGES).findings == []
    assert lake.partitions.list_partitions(include_retired=True) == [healthy]


def test_what_is_not_set_aside_is_not_condemned(lake: Lake) -> None:
    live, retired = publish_hour(lake, 0), publish_hour(lake, 1)
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 2 * HOUR, confirmed=["readings"])
    for path in (live.file_path, retired.file_path, "nothing/there"):
        with pytest.raises(Conflict, match="not set aside"):
            lake.checker.condemn(path or "")
    with pytest.raises(BadInput):
        lake.checker.condemn("../catalog.sqlite3")


def test_a_reserved_file_is_not_quarantined(lake: Lake) -> None:
    _, [path] = lake._names.take("readings", "global", 1)
    put(lake.store, path, b"being written")
    with pytest.raises(Conflict, match="staged"):
        lake.checker.quarantine(path)


def test_the_missing_file_of_a_restored_partition_is_seen(lake: Lake) -> None:
    """Whichever of its rows is looked at first: ids are random, so a few are tried."""
    for hour in range(4):
        old = publish_hour(lake, hour)
        lake.retirement.retire_partitions(
            "readings", T0 + hour * HOUR, T0 + (hour + 1) * HOUR, confirmed=["readings"]
        )
        lake.retirement.restore(old.partition_id)
        lake.store.delete([old.file_path or ""])
    assert [finding.kind for finding in _findings(lake, Level.FILES)] == ["missing file"] * 4


def test_the_stores_mark_and_folders_are_not_quarantined(lake: Lake) -> None:
    publish_hour(lake, 0)
    with pytest.raises(BadInput):
        lake.checker.quarantine("lake.json")
    with pytest.raises(UnknownObject):
        lake.checker.quarantine("partitions/readings")
