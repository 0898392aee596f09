"""Restoring what was deleted, and refusing to restore what is gone."""

from __future__ import annotations

import pytest

from lakebed.errors import UnknownTable
from lakebed.lake import Lake
from tests.conftest import NewLake

ROW = {"time": "2026-11-16T05:00:00Z", "bpm": 60}


@pytest.fixture
def hasty(new_lake: NewLake) -> Lake:
    """A lake without a grace period, with a table."""
    lake = new_lake(grace="0s")
    lake.tables.create_database("home")
    lake.tables.create_table("home", "pulse", {"time": "datetime", "bpm": "int"}).insert([ROW])
    return lake


def _sweep(lake: Lake) -> None:
    lake.tables.create_database("ticks")  # what was deleted at the last tick expires after it
    assert lake.sweeper.run().files == 1


def test_a_table_that_was_swept_is_not_restored_without_its_rows(hasty: Lake) -> None:
    hasty.tables.delete_table("home", "pulse")
    assert [each.name for each in hasty.tables.definitions.list_deleted()] == ["pulse"]
    _sweep(hasty)
    assert hasty.tables.definitions.list_deleted() == []
    with pytest.raises(UnknownTable, match="has been swept since"):
        hasty.tables.restore_table("home", "pulse")
    assert hasty.tables.list_tables("home") == []


def test_a_database_that_was_swept_is_not_restored(hasty: Lake) -> None:
    hasty.tables.delete_database("home")
    assert hasty.tables.definitions.list_deleted_databases() == ["home"]
    _sweep(hasty)
    assert hasty.tables.definitions.list_deleted_databases() == []
    with pytest.raises(UnknownTable, match="has been swept since"):
        hasty.tables.restore_database("home")
    assert hasty.tables.list_databases() == ["ticks"]


def test_what_is_deleted_after_a_sweep_can_be_restored(hasty: Lake) -> None:
    other = hasty.tables.create_table("home", "other", {"time": "datetime", "bpm": "int"})
    other.insert([ROW])
    hasty.tables.delete_table("home", "pulse")
    _sweep(hasty)
    hasty.tables.delete_table("home", "other")
    assert hasty.tables.restore_table("home", "other").count() == 1
