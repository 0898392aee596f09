"""A program that closes its embedded lake leaves it a little tidier, and never waits for that."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.errors import Unavailable
from lakebed.lake import Lake
from lakebed.opening import open_lake
from lakebed.settings import Settings
from lakebed.upkeep import embedded
from lakebed.upkeep.upkeep import Upkeep
from tests.parts.data import HOUR, T0, readings, rows


def _retire_one(folder: Path) -> str:
    """A lake without a grace period, in which a partition was published and retired."""
    with lakebed.init(folder, grace="0s", settings=Settings(tend_on_close=False)) as lake:
        lake.views.register(readings())
        made = lake.partitions.publish("readings", T0, T0 + HOUR, rows(3))
        lake.retirement.carry_out(
            lake.retirement.plan_by_range("readings", T0, T0 + HOUR), confirmed=("readings",)
        )
    assert made.file_path is not None
    return made.file_path


def _states(folder: Path) -> dict[str, int]:
    with open_lake(folder) as lake:
        return {duty.name: state.runs for duty, state in Upkeep(lake).list_duties()}


def test_what_is_condemned_goes_when_the_lake_is_closed(tmp_path: Path) -> None:
    path = _retire_one(tmp_path)
    with lakebed.open(tmp_path) as lake:
        assert lake.store.size(path)
    assert not (tmp_path / "store" / path).exists()
    assert _states(tmp_path) == {"build": 0, "sweep": 1, "retain": 1, "check": 0, "read": 0}
    lakebed.open(tmp_path).close()
    assert _states(tmp_path)["sweep"] == 1, "it was not due again"


def test_nobody_tends_who_does_not_want_to(tmp_path: Path) -> None:
    path = _retire_one(tmp_path)
    lakebed.open(tmp_path, settings=Settings(tend_on_close=False)).close()
    lakebed.open(tmp_path, read_only=True).close()
    assert (tmp_path / "store" / path).exists()
    assert set(_states(tmp_path).values()) == {0}


def test_closing_does_not_wait_for_who_is_at_it(tmp_path: Path) -> None:
    path = _retire_one(tmp_path)
    with open_lake(tmp_path) as other, other.leases.building("duty sweep"):
        lakebed.open(tmp_path).close()
        assert (tmp_path / "store" / path).exists()
    assert _states(tmp_path)["retain"] == 1


def test_a_lake_that_cannot_be_tended_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakebed.init(tmp_path).close()

    def fail(_lake: Lake) -> None:
        raise Unavailable("the catalog is away")

    monkeypatch.setattr(embedded, "tend", fail)
    lake = lakebed.open(tmp_path)
    lake.close()
    with pytest.raises(lakebed.LakebedError, match="closed"):
        lake.leases.pin()
