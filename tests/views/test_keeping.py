"""How long a view set keeps its rows can be changed without touching anything else of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakebed.errors import BadInput, UnknownViewSet
from lakebed.lake import Lake
from lakebed.model.time import parse_duration
from lakebed.views.builtin import built_in
from tests.parts.building import build, land
from tests.parts.data import publish_hour, readings


def test_only_the_retention_changes(lake: Lake) -> None:
    lake.views.ensure(built_in())
    before = lake.views.get("log_entries").view_set
    kept = lake.views.keep("log_entries", "30d")
    assert kept == lake.views.get("log_entries")
    assert kept.view_set == replace(before, retention_us=parse_duration("30d"))
    assert lake.views.keep("log_entries", None).view_set == before


def test_the_retention_of_telemetry_can_be_set_before_any_lands(lake: Lake) -> None:
    lake.views.keep("log_stats", "4w")
    assert lake.views.get("log_stats").view_set.retention_us == parse_duration("28d")
    land(lake)
    build(lake)
    assert lake.views.get("log_entries").view_set.retention_us is None


def test_a_later_program_keeps_what_the_operator_set(lake: Lake) -> None:
    lake.views.keep("log_entries", "30d")
    lake.views.keep("log_stats", "90d")
    later = [
        replace(each, version=each.version + 1) if each.name == "log_entries" else each
        for each in built_in()
    ]
    lake.views.ensure(later)
    evolved = lake.views.get("log_entries").view_set
    assert (evolved.version, evolved.retention_us) == (2, parse_duration("30d"))
    assert lake.views.get("log_stats").view_set.retention_us == parse_duration("90d")


@pytest.mark.parametrize("wrong", ["soon", "0s"])
def test_a_mistake_changes_nothing(lake: Lake, wrong: str) -> None:
    lake.views.register(readings())
    with pytest.raises(BadInput):
        lake.views.keep("readings", wrong)
    with pytest.raises(UnknownViewSet):
        lake.views.keep("nothing", "30d")
    assert [entry.view_set for entry in lake.views.list_registered()] == [readings()]


def test_what_a_retention_would_condemn_can_be_seen_before_it_is_set(lake: Lake) -> None:
    lake.views.register(readings())
    old = publish_hour(lake, 0)
    plan = lake.retirement.plan_by_retention("readings", "1h")
    assert [each.partition_id for each in plan.partitions] == [old.partition_id]
    assert lake.retirement.plan_by_retention("readings", "5000w").partitions == ()
    with pytest.raises(BadInput, match="has no retention"):
        lake.retirement.plan_by_retention("readings")
