"""What a program brings is registered once, and a later program's is not taken back."""

from __future__ import annotations

from dataclasses import replace

from lakebed.lake import Lake
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views.builtin import built_in


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
