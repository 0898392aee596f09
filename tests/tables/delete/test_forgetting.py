"""Forgetting where there is little to forget, or no way to say what."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import BadInput, DamagedFile, LakebedError
from lakebed.lake import Lake
from lakebed.opening import open_lake
from lakebed.storage.local import LocalStore
from tests.conftest import SQLITE_FIRST
from tests.tables.parts import retire, sweep_all

SCHEMA = {"time": "datetime", "device": {"type": "string", "unique": True}, "tags": "string[]"}
RING = {"time": "2026-11-16T05:00:00Z", "device": "ring-7", "tags": ["x"]}


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.tables.create_database("home")
    lake.tables.create_table("home", "pulse", SCHEMA).insert([RING])
    return lake


def test_what_was_forgotten_can_be_forgotten_again(filled: Lake) -> None:
    pulse = filled.tables.get("home", "pulse")
    assert [trace.rows for trace in pulse.forget(device="ring-7")] == [1]
    assert [partition.is_empty for partition in pulse.partitions()] == [True]
    assert pulse.plan_forget(device="ring-7") == []
    assert pulse.forget(device="ring-7") == []


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_the_catalogs_file_does_not_keep_what_it_deleted(filled: Lake) -> None:
    """The bounds of a file's values are in its partition and in its footer; both are deleted with
    it, and SQLite leaves deleted bytes in its pages unless ``secure_delete`` is set."""
    pulse = filled.tables.get("home", "pulse")
    for number in range(40):
        pulse.insert([{**RING, "device": f"ring-{number}", "tags": ["y" * 900]}])
    pulse.insert([{**RING, "device": "secret-ring"}])
    file = Path(filled.catalog.url.removeprefix("sqlite:///"))
    with filled.catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"secret-ring" in file.read_bytes()
    pulse.forget(device="secret-ring")
    sweep_all(filled)
    with filled.catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"secret-ring" not in file.read_bytes()


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_nothing_is_forgotten_by_lists(filled: Lake) -> None:
    pulse = filled.tables.get("home", "pulse")
    with pytest.raises(BadInput, match="tags holds lists"):
        pulse.forget(tags=["x"])
    assert pulse.count() == 1


def test_rejects_have_figures_of_their_own(filled: Lake) -> None:
    filled.tables.insert("home", "pulse", [{"device": 7}], on_error="keep")
    assert filled.tables.get("home", "pulse").stats().rejected == 1
    stats = filled.tables.get("home", "pulse_rejects").stats()
    assert (stats.rows, stats.rejected) == (1, 0)


def test_what_was_set_aside_and_cannot_be_read_is_condemned(filled: Lake) -> None:
    """An unreadable partition may hold a trace: it must become unrestorable."""
    pulse = filled.tables.get("home", "pulse")
    bad = pulse.partitions()[0]
    pulse.insert([{**RING, "device": "ring-8"}])
    assert isinstance(filled.store, LocalStore)
    filled.store.locate(bad.file_path or "").write_bytes(b"x" * bad.file_size)
    filled.checker.quarantine(bad.file_path or "")
    with open_lake(filled.catalog.url) as other:  # remembers nothing of the file
        pulse = other.tables.get("home", "pulse")
        for forget in (pulse.plan_forget, pulse.forget):
            (trace,) = forget(device="ring-9")
            assert (trace.partition.partition_id, trace.readable) == (bad.partition_id, False)
        assert pulse.plan_forget(device="ring-9") == []
        assert other.checker.run().is_clean
        with pytest.raises(LakebedError):
            other.retirement.restore(bad.partition_id)
        assert [trace.rows for trace in pulse.forget(device="ring-8")] == [1]
        sweep_all(other)
    assert not filled.store.locate(bad.file_path or "").exists()


def test_a_live_file_that_cannot_be_read_is_named(filled: Lake) -> None:
    """Its rows may be had again; who accepts the loss retires it first, as the hint says."""
    pulse = filled.tables.get("home", "pulse")
    (bad,) = pulse.partitions()
    assert isinstance(filled.store, LocalStore)
    filled.store.locate(bad.file_path or "").write_bytes(b"x" * bad.file_size)
    with open_lake(filled.catalog.url) as other:
        pulse = other.tables.get("home", "pulse")
        with pytest.raises(DamagedFile) as failed:
            pulse.forget(device="ring-7")
        assert bad.retire_command in str(failed.value.hint)
        retire(other, bad)
        assert [trace.readable for trace in pulse.forget(device="ring-7")] == [False]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
@pytest.mark.parametrize(
    ("record", "goes"),
    [
        ({"device": "ring-7"}, True),
        ({"devise": "ring-7"}, True),
        ({"device": None, "from": {"serial": ["ring-7"]}}, True),
        ({"device": ["ring-7"]}, True),
        ({"device": "ring-8"}, False),
        ({"device": "ring-8", "near": "ring-7"}, False),
        ({"devise": "ring-77"}, False),
        ("ring-7", True),
    ],
)
def test_rejects_with_the_value_anywhere_are_forgotten(
    filled: Lake, record: object, goes: bool
) -> None:
    """Rejects match by their text, unless their column has a valid other value."""
    filled.tables.insert("home", "pulse", [record], on_error="keep")
    pulse = filled.tables.get("home", "pulse")
    pulse.forget(device="ring-7")
    assert filled.tables.get("home", "pulse_rejects").count() == (0 if goes else 1)


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_rejects_are_told_by_times_and_numbers_too(lake: Lake) -> None:
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "seen", {"time": "datetime", "person": "int"})
    bad = [{"when": "2026-11-16T06:00:00+01:00"}, {"who": 7}, {"who": "7"}, {"who": 8}]
    table.insert(bad, on_error="keep")
    assert [trace.rows for trace in table.forget(person=7)] == [2]
    assert [trace.rows for trace in table.forget(time="2026-11-16T05:00:00Z")] == [1]
