"""Forgetting where there is little to forget, or no way to say what."""

from __future__ import annotations

import pytest

from lakebed.errors import BadInput
from lakebed.lake import Lake

SCHEMA = {"time": "datetime", "device": {"type": "string", "unique": True}, "tags": "string[]"}
RING = {"time": "2026-11-16T05:00:00Z", "device": "ring-7", "tags": ["x"]}


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.tables.create_database("home")
    lake.tables.create_table("home", "pulse", SCHEMA).insert([RING])
    return lake


def test_what_was_forgotten_can_be_forgotten_again(filled: Lake) -> None:
    pulse = filled.tables.get("home", "pulse")
    assert [each.rows for each in pulse.forget(device="ring-7")] == [1]
    assert [each.is_empty for each in pulse.partitions()] == [True]
    assert pulse.plan_forget(device="ring-7") == []
    assert pulse.forget(device="ring-7") == []


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
