"""What a program brings is registered once, and a later program's is not taken back."""

from __future__ import annotations

from dataclasses import replace

from lakebed.lake import Lake
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views.active import plan_ensure
from lakebed.views.builtin import built_in
from tests.parts.data import HOUR, T0


def active(lake: Lake, name: str) -> ViewSet:
    return lake.views.get(name).view_set


def later(name: str, version: int, sql: str | None = None) -> list[ViewSet]:
    """The built-in view sets of a program that changed one of them."""
    changed = []
    for each in built_in():
        if each.name == name:
            source = each.source
            if sql is not None and isinstance(source, SqlSource):
                source = replace(source, sql=sql)
            changed.append(replace(each, version=version, source=source))
        else:
            changed.append(each)
    return changed


def test_registering_again_changes_nothing(lake: Lake) -> None:
    lake.views.ensure(built_in())
    before = lake.views.list_view_sets()
    lake.views.ensure(built_in())
    assert lake.views.list_view_sets() == before
    assert {each.view_set.name for each in before} == {each.name for each in built_in()}


def test_a_later_programs_schema_carries_over_to_its_readers(lake: Lake) -> None:
    lake.views.ensure(built_in())
    old = active(lake, "log_stats")
    lake.views.ensure(later("log_entries", 2))
    new = active(lake, "log_stats")
    assert active(lake, "log_entries").version == 2
    assert new.version == old.version + 1
    assert isinstance(new.source, SqlSource)
    assert new.source.reads == (("log_entries", active(lake, "log_entries").schema_hash),)
    lake.views.ensure(built_in())  # the older program
    assert active(lake, "log_stats") == new
    assert active(lake, "log_entries").version == 2


def test_a_later_programs_sql_takes_effect_on_what_is_there(lake: Lake) -> None:
    lake.views.ensure(built_in())
    lake.views.ensure(later("log_entries", 2))
    sql = "SELECT time AS time_bin, process_id, level, target, 1 AS count FROM log_entries"
    lake.views.ensure(later("log_stats", 2000, sql))
    new = active(lake, "log_stats")
    assert isinstance(new.source, SqlSource)
    assert (new.version, new.source.sql) == (2000, sql)
    assert new.source.reads == (("log_entries", active(lake, "log_entries").schema_hash),)
    lake.views.ensure(built_in())
    assert active(lake, "log_stats") == new


def test_plan_ensure_returns_what_ensure_registers(lake: Lake) -> None:
    for brought in (built_in(), later("log_entries", 2), later("log_stats", 2000, "SELECT 1")):
        planned = plan_ensure(lake.views.list_registered(), brought)
        before = lake.views.list_registered()
        assert lake.views.list_registered() == before
        lake.views.ensure(brought)
        registered = lake.views.list_registered()
        assert [entry.view_set for entry in planned] == [entry.view_set for entry in registered]
        assert [entry.schema_hash for entry in planned] == [
            entry.schema_hash for entry in registered
        ]


def test_publish_to_a_built_in_view_set_of_a_new_lake_registers_it(lake: Lake) -> None:
    partition = lake.partitions.publish_completed_empty("log_entries", T0, T0 + HOUR)
    assert lake.partitions.list_partitions("log_entries") == [partition]
    assert all(entry.activated_at > 0 for entry in lake.views.list_view_sets())


def test_publish_to_an_older_version_of_a_built_in_view_set_keeps_the_version(lake: Lake) -> None:
    entries, stats = (view for view in built_in() if view.name in ("log_entries", "log_stats"))
    lake.views.ensure([entries])
    older = replace(stats, version=stats.version - 1)
    lake.views.register(older)
    lake.partitions.publish_completed_empty("log_stats", T0, T0 + HOUR)
    assert active(lake, "log_stats") == older


def test_built_in_view_sets_are_listed_before_they_are_registered(lake: Lake) -> None:
    listed = lake.views.list_view_sets()
    assert [entry.view_set.name for entry in listed] == sorted(entry.name for entry in built_in())
    assert {entry.activated_at for entry in listed} == {0}
    assert lake.views.list_registered() == []
    rows = lake.query("SELECT view_set_name, activated FROM list_view_sets()").to_arrow()
    assert rows["view_set_name"].to_pylist() == [entry.view_set.name for entry in listed]
    assert set(rows["activated"].to_pylist()) == {None}
    lake.views.ensure(built_in())
    assert all(entry.activated_at > 0 for entry in lake.views.list_view_sets())
