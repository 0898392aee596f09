"""Restoring what was deleted, and refusing to restore what is gone."""

from __future__ import annotations

import pytest

from lakebed.catalog import clock
from lakebed.catalog.records import tables
from lakebed.errors import BadSql, UnknownTable
from lakebed.lake import Lake
from lakebed.model.time import format_instant
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
    assert [definition.name for definition in hasty.tables.definitions.list_deleted()] == ["pulse"]
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


def test_of_several_with_one_name_the_meant_one_comes_back(lake: Lake) -> None:
    home = lake.tables
    home.create_database("home")
    ends = []
    for bpm in (60, 61, 62):
        pulse = home.create_table("home", "pulse", {"time": "datetime", "bpm": "int"})
        pulse.insert([ROW | {"bpm": bpm}])
        home.delete_table("home", "pulse")
        ends.append(home.definitions.list_deleted()[0].deleted_at)
    with pytest.raises(UnknownTable, match=r"no table home\.pulse was deleted at 1970-01-01"):
        home.restore_table("home", "pulse", 5)
    back = home.restore_table("home", "pulse", ends[0])
    assert back.query("SELECT bpm FROM pulse").to_arrow()["bpm"].to_pylist() == [60]
    home.delete_table("home", "pulse")
    assert ends[1] is not None
    back = home.restore_table("home", "pulse", format_instant(ends[1]))
    assert back.query("SELECT bpm FROM pulse").to_arrow()["bpm"].to_pylist() == [61]
    home.delete_database("home")
    home.create_database("home")
    home.delete_database("home")
    assert home.restore_database("home") == []
    home.delete_database("home")
    with lake.catalog.read() as connection:
        first = tables.list_databases(connection, deleted=True)[-1].deleted_at
    assert home.restore_database("home", first) == ["home.pulse"]


def test_the_past_has_the_tables_that_were_there(lake: Lake) -> None:
    home = lake.tables
    home.create_database("home")
    with lake.catalog.read() as connection:
        before = clock.now(connection)
    schema = {"time": "datetime", "bpm": "int"}
    then = home.create_table("home", "pulse", schema).insert([ROW]).tick
    sql = "SELECT bpm FROM home.pulse"
    home.delete_table("home", "pulse")
    assert lake.query(sql, as_of=then).to_arrow()["bpm"].to_pylist() == [60]
    later = home.create_table("home", "pulse", schema).insert([ROW | {"bpm": 61}]).tick
    assert lake.query(sql, as_of=then).to_arrow()["bpm"].to_pylist() == [60]
    assert lake.query(sql, as_of=later).to_arrow()["bpm"].to_pylist() == [61]
    assert lake.query(sql).to_arrow()["bpm"].to_pylist() == [61]
    with pytest.raises(BadSql, match=r"there is no table home\.pulse"):
        lake.query(sql, as_of=before)
