"""Disks that are full, syncs that fail, connections that break during commit: a clear error,
nothing published, and the same operation works afterwards.
"""

from __future__ import annotations

import errno

import pytest

from lakebed.errors import OutcomeUnknown, Unavailable
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.storage.disk import Disk
from lakebed.storage.local import LocalStore
from tests.conftest import NewLake
from tests.parts.data import numbers_in, publish_hour, readings
from tests.parts.faults import FailingDisk, break_commit


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake()
    lake.views.register(readings())
    publish_hour(lake, 0)
    return lake


@pytest.mark.parametrize(
    ("operation", "code", "words"),
    [
        ("write", errno.ENOSPC, "no space left on device"),
        ("create", errno.ENOSPC, "no space left on device"),
        ("sync", errno.EIO, "input/output error"),
        ("sync_directory", errno.EIO, "input/output error"),
        ("create", errno.EROFS, "read-only file system"),
    ],
)
def test_a_failing_disk_publishes_nothing_and_says_so(
    lake: Lake, operation: str, code: int, words: str
) -> None:
    assert isinstance(lake.store, LocalStore)
    before = numbers_in(lake)
    lake.store.disk = FailingDisk(operation, code)
    with pytest.raises(Unavailable, match=words):
        publish_hour(lake, 1)
    lake.store.disk = Disk()
    assert numbers_in(lake) == before
    assert _damage(lake) == []
    # A file whose sync failed is lost for good: the next attempt uses another name.
    publish_hour(lake, 1)
    assert sum(numbers_in(lake).values()) == 6


def _damage(lake: Lake) -> list[str]:
    findings = lake.checker.run(Level.PAGES).findings
    return [each.message for each in findings if each.severity is Severity.DAMAGE]


def test_a_commit_that_arrived_although_the_connection_broke_counts(lake: Lake) -> None:
    broken = break_commit(lake, after=True)
    retired = lake.retirement.retire_partition_by_metadata(
        "readings", "global", *_span(lake), None, confirmed=["readings"]
    )
    assert broken() == 1
    assert retired.succeeded
    assert lake.partitions.list_partitions() == []
    restored = lake.retirement.restore(retired.partition.partition_id)
    assert lake.partitions.list_partitions() == [restored]


def _span(lake: Lake) -> tuple[int, int]:
    [partition] = lake.partitions.list_partitions()
    return partition.insert_range.begin, partition.insert_range.end


def test_a_publish_whose_commit_arrived_is_reported_as_done(lake: Lake) -> None:
    publish_hour(lake, 1)
    broken = break_commit(lake, after=True)
    made = publish_hour(lake, 2)
    assert broken() == 1
    assert made in lake.partitions.list_partitions()
    assert _damage(lake) == []


def test_a_publish_whose_commit_was_lost_is_reported_as_not_done(lake: Lake) -> None:
    publish_hour(lake, 1)
    before = numbers_in(lake)
    broken = break_commit(lake, after=False)
    with pytest.raises(Unavailable, match="nothing was committed") as lost:
        publish_hour(lake, 2)
    assert not isinstance(lost.value, OutcomeUnknown)
    assert broken() == 1
    assert numbers_in(lake) == before
    publish_hour(lake, 2)
    assert _damage(lake) == []


def test_a_server_that_ends_the_connection_is_survived(
    new_lake: NewLake, dialect: str, postgres_url: str
) -> None:
    if dialect == "sqlite":
        return  # there is no server
    lake = new_lake()
    lake.views.register(readings())
    publish_hour(lake, 0)
    with lake.catalog.engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    for hour in (1, 2):
        try:
            publish_hour(lake, hour)
        except Unavailable:
            publish_hour(lake, hour)
    assert sum(numbers_in(lake).values()) == 9
