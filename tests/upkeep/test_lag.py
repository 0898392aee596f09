"""How far view sets are behind what has landed."""

from __future__ import annotations

from lakebed.catalog.records import blocks
from lakebed.lake import Lake
from lakebed.upkeep.lag import find_unbuilt
from lakebed.views.builtin import built_in
from tests.parts.building import build, land


def _unbuilt(lake: Lake) -> dict[str, int | None]:
    with lake.catalog.read() as connection:
        return find_unbuilt(connection)


def test_a_view_set_lacks_the_oldest_block_that_no_partition_has(lake: Lake) -> None:
    assert _unbuilt(lake) == {each.name: None for each in built_in()}
    land(lake, requests=2)
    with lake.catalog.read() as connection:
        first = blocks.first_insert_time(connection)
        last = blocks.last_insert_time(connection)
    assert first is not None
    assert last is not None
    assert _unbuilt(lake)["log_entries"] == first, "also where nothing was ever built"
    lake.views.ensure(built_in())
    lacking = _unbuilt(lake)
    assert (lacking["log_entries"], lacking["log_stats"], lacking["blocks"]) == (first,) * 3
    assert lacking["spans"] is None, "no block is for it"
    build(lake, end=last)
    assert _unbuilt(lake)["log_entries"] == last
    build(lake, begin=last)
    assert _unbuilt(lake)["log_entries"] is None
    assert _unbuilt(lake)["log_stats"] == first, "nothing was made of log_entries"
