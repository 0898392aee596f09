"""Backups: consistent while writers run, lakes of their own, restorable to either catalog."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakebed.catalog import leases
from lakebed.catalog.leases import LeaseKind
from lakebed.errors import Conflict, DamagedFile, LakeNotFound, Refused
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import copy_lake, init_lake, open_lake
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake(grace="1h")
    lake.views.register(readings())
    for hour, count in enumerate((3, 0, 2, 4)):
        publish_hour(lake, hour, count)
    return lake


def test_a_backup_is_a_lake_with_the_same_rows(lake: Lake, tmp_path: Path) -> None:
    lake.retirement.retire_partitions("readings", T0, T0 + 2 * HOUR, confirmed=["readings"])
    lake._names.take("readings", "global", 1)
    lake.leases.beat()
    done = copy_lake(lake, tmp_path / "backup")
    assert done.files == 3
    with open_lake(tmp_path / "backup") as backup:
        assert backup.lake_id != lake.lake_id
        assert backup.row.copied_from == lake.lake_id
        assert numbers_in(backup) == numbers_in(lake)
        assert backup.checker.run(Level.PAGES).findings == []
        retired = [
            each
            for each in backup.partitions.list_partitions(include_retired=True)
            if not each.is_live
        ]
        assert [backup.retirement.restore(each.partition_id).num_rows for each in retired] == [3, 0]
        publish_hour(backup, 9)
        assert backup.checker.run(Level.PAGES).findings == []


def test_a_backup_is_restored_to_either_kind_of_catalog(
    lake: Lake, new_catalog: object, tmp_path: Path
) -> None:
    copy_lake(lake, tmp_path / "backup")
    url = new_catalog()  # type: ignore[operator]
    store = f"file://{tmp_path / 'restored'}"
    with open_lake(tmp_path / "backup") as backup:
        copy_lake(backup, catalog=url, store=store)
    with open_lake(url) as restored:
        assert numbers_in(restored) == numbers_in(lake)
        assert restored.checker.run(Level.PAGES).findings == []
        publish_hour(restored, 9)
        lake.views.register(readings(2))


def test_a_backup_is_consistent_while_writers_replace_and_sweep(
    new_lake: NewLake, tmp_path: Path
) -> None:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    numbers = publish_hour(lake, 0, 5)
    stop, errors = threading.Event(), []

    def churn() -> None:
        current = numbers
        try:
            with open_lake(lake.catalog.url) as writer:
                while not stop.is_set():
                    current = publish_hour(writer, 0, 5, replaces=[current])
                    writer.sweeper.run()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for number in range(4):
            copy_lake(lake, tmp_path / str(number))
    finally:
        stop.set()
        writer.join()
    assert errors == []
    for number in range(4):
        with open_lake(tmp_path / str(number)) as backup:
            assert backup.checker.run(Level.PAGES).is_clean
            assert sum(numbers_in(backup).values()) == 5


def test_a_backup_goes_only_to_an_empty_place(lake: Lake, tmp_path: Path) -> None:
    copy_lake(lake, tmp_path / "backup")
    with pytest.raises(Conflict, match="there is a lake already"):
        copy_lake(lake, tmp_path / "backup")
    used = tmp_path / "used" / "store" / "partitions"
    used.mkdir(parents=True)
    (used / "x.parquet").write_bytes(b"somebody's")
    with pytest.raises(Refused, match="has files"):
        copy_lake(lake, tmp_path / "used")


@pytest.mark.parametrize("change", [b"", b"one byte", b"x" * 100_000])
def test_backup_is_refused_when_a_file_has_another_size_than_the_catalog_says(
    lake: Lake, tmp_path: Path, change: bytes
) -> None:
    """Shorter and longer."""
    partition = lake.partitions.list_partitions()[0]
    file = lake.store.locate(str(partition.file_path))  # type: ignore[attr-defined]
    file.chmod(0o644)
    file.write_bytes(change)
    with pytest.raises(DamagedFile, match=f"has {len(change)} bytes, the catalog says"):
        copy_lake(lake, tmp_path / "backup")
    with pytest.raises(LakeNotFound, match="unfinished copy"):
        open_lake(tmp_path / "backup")


def test_a_backup_that_was_killed_is_no_lake(lake: Lake, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def die(progress: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        copy_lake(lake, tmp_path / "backup", progress=die)
    with pytest.raises(LakeNotFound, match="unfinished copy"):
        open_lake(tmp_path / "backup")
    for again in (
        lambda: copy_lake(lake, tmp_path / "backup"),
        lambda: init_lake(tmp_path / "backup"),
    ):
        with pytest.raises(Conflict, match="unfinished copy"):
            again()


def test_held_partitions_are_backed_up_however_old(new_lake: NewLake, tmp_path: Path) -> None:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    publish_hour(lake, 0)
    publish_hour(lake, 1, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + 2 * HOUR, hold=True)
    publish_hour(lake, 2)
    lake.retirement.retire_partitions(
        "readings", T0 + 2 * HOUR, T0 + 3 * HOUR, confirmed=["readings"]
    )
    lake.sweeper.run()  # the horizon passes the held ones
    copy_lake(lake, tmp_path / "backup")
    with open_lake(tmp_path / "backup") as backup:
        held = [e for e in backup.partitions.list_partitions(include_retired=True) if e.held]
        assert [backup.retirement.restore(each.partition_id).num_rows for each in held] == [3, 0]
        assert backup.checker.run(Level.PAGES).findings == []


def test_a_lake_that_is_read_only_can_be_backed_up(lake: Lake, tmp_path: Path) -> None:
    with open_lake(lake.catalog.url, read_only=True) as reader:
        assert copy_lake(reader, tmp_path / "backup").files == 3


def test_backup_gives_its_pin_back(lake: Lake, tmp_path: Path) -> None:
    copy_lake(lake, tmp_path / "backup")
    lake.leases.beat()
    with lake.catalog.read() as connection:
        held = leases.list_leases(connection)
    assert LeaseKind.READER not in {lease.kind for lease in held}
