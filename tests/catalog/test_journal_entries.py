"""Each change leaves an entry in the journal that names its file, its rows and its bytes."""

from __future__ import annotations

import io

import pytest

from lakebed.catalog import journal
from lakebed.catalog.journal import Entry
from lakebed.catalog.records import blocks
from lakebed.lake import Lake
from tests.parts.building import land

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""The SHA-256 of abc."""


def list_entries(lake: Lake, *operations: str) -> list[Entry]:
    with lake.catalog.read() as connection:
        return journal.list_entries(connection, operations=operations)


def test_landing_names_the_segment_its_records_and_bytes(lake: Lake) -> None:
    land(lake, size=7)
    with lake.catalog.read() as connection:
        (segment,) = blocks.list_segments(connection)
    (entry,) = list_entries(lake, journal.LANDED)
    assert (entry.file_path, entry.rows) == (segment.segment_path, 7)
    assert entry.bytes == segment.file_size


def test_retiring_blocks_names_each_segment_and_its_bytes(lake: Lake) -> None:
    land(lake)
    land(lake, seed=2)
    plan = lake.blocks.plan_before("now", allow_loss=True)
    assert plan.segments
    lake.blocks.carry_out(plan)
    entries = list_entries(lake, "retire blocks")
    assert {(entry.file_path, entry.bytes) for entry in entries} == {
        (segment.segment_path, segment.file_size) for segment in plan.segments
    }


def test_quarantine_names_the_file_its_bytes_and_the_reason(lake: Lake) -> None:
    keeper = lake.tables.deleter._publisher.quarantine
    quarantined = keeper.keep(lambda: io.BytesIO(b"abc"), ABC, "a reason")
    (entry,) = list_entries(lake, "quarantine")
    assert (entry.file_path, entry.bytes, entry.reason) == (quarantined.path, 3, "a reason")


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_databases_are_journaled_when_they_come_and_go(lake: Lake) -> None:
    lake.tables.create_database("one")
    lake.tables.delete_database("one")
    lake.tables.restore_database("one")
    operations = [entry.operation for entry in list_entries(lake) if "database" in entry.operation]
    assert operations == ["restore database", "delete database", "create database"]
