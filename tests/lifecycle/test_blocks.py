"""Raw blocks have a retention of their own: they go when everything is built of them, in whole
segments, and what was built stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from lakebed import admin
from lakebed.catalog import clock, journal
from lakebed.catalog.records import failures, files
from lakebed.catalog.records.failures import BuildFailure
from lakebed.catalog.schema import lake_clock
from lakebed.cli import main
from lakebed.errors import BadInput, SnapshotExpired, StalePlan
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.block import Block
from lakebed.model.partition import FileState, Partition, hash_sources
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.time import SECOND
from lakebed.model.view_set import ViewSet
from lakebed.opening import copy_lake, open_lake
from lakebed.pipeline.steps import Build
from lakebed.writing.publish import NewPartition
from tests.conftest import NewLake
from tests.ingest.parts import landed, request_of
from tests.parts.data import readings, rows, stored_files

DAY = 24 * 3600 * SECOND


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    """Three segments (two blocks, one, two), a view set of logs and one of SQL over it."""
    lake = new_lake(grace="1h")
    logs = ViewSet(
        "logs", 1, readings().schema, "time", source=BlockSource("logs"), sort_order=("number",)
    )
    stats = ViewSet(
        "stats",
        1,
        readings().schema,
        "time",
        source=SqlSource("SELECT", "SELECT", (("logs", logs.schema_hash),)),
    )
    lake.views.register(logs)
    lake.views.register(stats)
    lake.telemetry.land("logs", request_of(("a", "one"), ("b", "two")))
    lake.telemetry.land("logs", request_of(("a", "three")))
    lake.telemetry.land("logs", request_of(("a", "four"), ("b", "five")))
    return lake


def cover(lake: Lake, name: str, covered: Sequence[Block]) -> Partition:
    """A partition that is made of these blocks."""
    begin, end = covered[0].insert_time, covered[-1].insert_time + 1
    source = hash_sources(each.block_id for each in covered)
    view_set = lake.views.get(name).view_set
    new = NewPartition.of_rows(view_set, begin, end, rows(len(covered)), source_hash=source)
    return lake.partitions.publish_many([new])[0]


def cover_all(lake: Lake, covered: Sequence[Block]) -> list[Partition]:
    return [cover(lake, name, covered) for name in ("logs", "stats")]


def retire_before(lake: Lake, before: int, **options: bool) -> int:
    return lake.blocks.carry_out(lake.blocks.plan_before(before, **options)).blocks


def test_blocks_go_in_whole_segments_and_partitions_stay(lake: Lake) -> None:
    every = landed(lake)
    made = cover_all(lake, every)
    # The fourth block is old enough, but its segment has a younger one.
    plan = lake.blocks.plan_before(every[4].insert_time)
    assert (plan.blocks, len(plan.segments), plan.unbuilt) == (3, 2, ())
    assert plan.before == every[2].insert_time + 1
    assert landed(lake) == every, "a plan changes nothing"
    lake.blocks.carry_out(plan)
    assert landed(lake) == every[3:]
    assert lake.partitions.list_partitions() == made
    gone = {every[0].segment_path, every[2].segment_path}
    with lake.catalog.read() as connection:
        retired = files.list_files(connection, [FileState.RETIRED])
    assert {each.file_path for each in retired} == gone
    assert gone <= stored_files(lake), "a grace period runs"
    assert lake.checker.run(Level.PAGES).findings == []
    assert lake.blocks.plan_before(every[4].insert_time).segments == ()
    assert retire_before(lake, every[4].insert_time) == 0


def test_a_sweep_takes_the_segments_after_their_grace_period(lake: Lake) -> None:
    every = landed(lake)
    cover_all(lake, every)
    retire_before(lake, every[3].insert_time)
    assert lake.sweeper.run().files == 0
    _jump(lake, 3 * 3600 * SECOND)
    assert lake.sweeper.run().files == 2
    assert every[0].segment_path not in stored_files(lake)
    assert every[3].segment_path in stored_files(lake)
    assert lake.checker.run(Level.PAGES).findings == []


def test_who_reads_a_segment_keeps_it(lake: Lake) -> None:
    every = landed(lake)
    cover_all(lake, every)
    with lake.partitions.snapshot("logs"):
        retire_before(lake, every[3].insert_time)
        _jump(lake, 3 * 3600 * SECOND)
        assert lake.sweeper.run().files == 0
    lake.leases.beat()
    assert lake.sweeper.run().files == 2


def _jump(lake: Lake, by: int) -> None:
    with lake.catalog.write() as transaction:
        transaction.connection.execute(sa.update(lake_clock).values(now=lake_clock.c.now + by))


def test_what_is_not_built_is_kept_and_all_that_landed_later(lake: Lake) -> None:
    every = landed(lake)
    cover_all(lake, every[:2])
    cover(lake, "logs", every[2:])  # the SQL over it is not built yet
    plan = lake.blocks.plan_before(every[4].insert_time + 1)
    assert (plan.blocks, len(plan.segments)) == (2, 1)
    (unbuilt,) = plan.unbuilt
    assert (unbuilt.view_set, unbuilt.blocks, unbuilt.first) == ("stats", 3, every[2].insert_time)
    lost = lake.blocks.plan_before(every[4].insert_time + 1, allow_loss=True)
    assert (lost.blocks, len(lost.segments)) == (5, 3)
    lake.blocks.carry_out(lost)
    assert landed(lake) == []
    assert lake.pipeline.plan("stats").steps == ()


def test_a_failed_block_is_not_built(lake: Lake) -> None:
    every = landed(lake)
    cover_all(lake, every[:2])
    cover_all(lake, every[3:])
    bad = every[2]
    with lake.catalog.write() as transaction:
        schema_hash = lake.views.get("logs").schema_hash
        failure = BuildFailure("logs", schema_hash, bad.block_id, bad.insert_time, "broken")
        failures.insert_many(transaction.connection, [failure], transaction.tick)
    assert lake.blocks.plan_before(every[4].insert_time + 1).blocks == 2
    assert retire_before(lake, every[4].insert_time + 1, allow_loss=True) == 5
    assert lake.pipeline.list_failures() == [], "nobody can try it again"


def test_a_partition_retired_meanwhile_stops_it(lake: Lake) -> None:
    every = landed(lake)
    logs, _ = cover_all(lake, every)
    plan = lake.blocks.plan_before(every[4].insert_time)
    lake.retirement.retire_partition_by_metadata(
        "logs", "global", logs.insert_range.begin, logs.insert_range.end
    )
    with pytest.raises(StalePlan):
        lake.blocks.carry_out(plan)
    assert landed(lake) == every


def test_frozen_partitions_are_never_built_from_nothing(lake: Lake) -> None:
    every = landed(lake)
    frozen, whole = [cover_all(lake, each) for each in (every[:3], every[3:])]
    assert retire_before(lake, every[2].insert_time) == 2  # one of the first partition's is left
    evolved = lake.views.get("logs").view_set
    lake.views.register(
        ViewSet("logs", 2, evolved.schema, "time", evolved.sort_order, source=evolved.source)
    )
    (step,) = lake.pipeline.plan("logs").steps
    assert isinstance(step, Build)
    assert step.blocks == tuple(every[2:])
    assert step.insert_range.begin == every[2].insert_time
    can = {
        each.partition.partition_id: each.can_be_rebuilt
        for each in lake.retirement.list_incompatible_partitions("logs")
    }
    assert can == {frozen[0].partition_id: False, whole[0].partition_id: True}
    lake.retirement.retire_incompatible_partitions("logs", confirmed=["logs"])
    left = lake.retirement.list_incompatible_partitions("logs")
    assert [each.partition for each in left] == [frozen[0]], "it needs an explicit word"


def evolve(lake: Lake) -> None:
    logs = lake.views.get("logs").view_set
    lake.views.register(
        ViewSet("logs", 2, logs.schema, "time", logs.sort_order, source=logs.source)
    )


def explain(lake: Lake, begin: int, end: int) -> list[tuple[str, str | None]]:
    rows = admin.explain_empty(lake, "logs", begin, end).to_pylist()
    return [(row["reason"], row["hint"]) for row in rows if row["reason"] != "no data landed"]


def test_advice_does_not_name_a_build_when_the_blocks_are_gone(lake: Lake) -> None:
    every = landed(lake)
    frozen = cover_all(lake, every[:3])[0]
    cover_all(lake, every[3:])
    evolve(lake)
    (warning,) = lake.query("SELECT * FROM logs").warnings
    assert warning.endswith("is not seen; rebuild them with: lakebed build logs")
    assert (
        explain(lake, every[0].insert_time, every[-1].insert_time + 1)
        == [("incompatible", "lakebed build logs")] * 2
    )
    retire_before(lake, every[2].insert_time, allow_loss=True)
    (warning,) = lake.query("SELECT * FROM logs").warnings
    assert warning.endswith(
        f"lakebed build logs; what landed in {frozen.insert_range} cannot be rebuilt, because "
        "their blocks are gone or never were"
    )
    assert explain(lake, every[0].insert_time, every[-1].insert_time + 1) == [
        ("incompatible", None),
        ("incompatible", "lakebed build logs"),
    ]
    retire_before(lake, every[-1].insert_time + 1, allow_loss=True)
    (warning,) = lake.query("SELECT * FROM logs").warnings
    assert "lakebed build" not in warning
    assert "they cannot be rebuilt" in warning
    begin, end = every[0].insert_time, every[-1].insert_time + 1
    assert {hint for _, hint in explain(lake, begin, end)} == {None}
    details = admin.explain_empty(lake, "logs", begin, end)["detail"].to_pylist()
    assert sum("their blocks are gone" in detail for detail in details) == 2
    lake.retirement.retire_incompatible_partitions("logs", allow_loss=True)
    assert {hint for _, hint in explain(lake, begin, end)} == {None}


def test_the_past_in_which_they_were_not_built_cannot_be_read_any_more(lake: Lake) -> None:
    every = landed(lake)
    before = every[-1].insert_time
    made = cover_all(lake, every)
    with lake.partitions.snapshot("logs", as_of=before):
        pass
    retire_before(lake, every[3].insert_time)
    with pytest.raises(SnapshotExpired):
        lake.partitions.snapshot("logs", as_of=before)
    with lake.partitions.snapshot("logs", as_of=made[1].published_at) as snapshot:
        assert snapshot.read_all("logs").num_rows == 5


def test_a_deleted_table_outlives_the_blocks(lake: Lake, tmp_path: object) -> None:
    """Its grace period is its own: that blocks are gone says nothing about its files."""
    row = {"time": "2026-11-16T05:00:00Z", "bpm": 60}
    lake.tables.create_database("home")
    lake.tables.create_table("home", "pulse", {"time": "datetime", "bpm": "int"}).insert([row])
    lake.tables.delete_table("home", "pulse")
    every = landed(lake)
    cover_all(lake, every)
    retire_before(lake, every[3].insert_time)
    assert [each.name for each in lake.tables.definitions.list_deleted()] == ["pulse"]
    place = f"{tmp_path}/copy"
    copy_lake(lake, place)
    with open_lake(place) as copy:
        assert copy.tables.restore_table("home", "pulse").count() == 1
        with pytest.raises(SnapshotExpired):
            copy.partitions.snapshot("logs", as_of=every[-1].insert_time)
    assert lake.tables.restore_table("home", "pulse").count() == 1


def test_a_lake_keeps_blocks_for_a_time_of_its_own(lake: Lake) -> None:
    every = landed(lake)
    cover_all(lake, every)
    with pytest.raises(BadInput, match="for ever"):
        lake.blocks.plan_expired()
    lake.blocks.keep(30 * DAY)
    assert lake.blocks.plan_expired().segments == ()
    _jump(lake, 31 * DAY)
    assert lake.blocks.plan_expired().blocks == 5
    lake.blocks.keep(None)
    with pytest.raises(BadInput, match="for ever"):
        lake.blocks.plan_expired()
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection, operations=["keep blocks"])
    assert [entry.reason for entry in entries] == ["for ever", f"for {30 * DAY} us"]


def test_blocks_stay_for_a_view_set_that_reads_blocks_of_every_kind(new_lake: NewLake) -> None:
    lake = new_lake()
    every_kind = ViewSet("every", 1, readings().schema, "time", source=BlockSource("blocks"))
    lake.views.register(every_kind)
    lake.telemetry.land("logs", request_of(("a", "one"), ("b", "two")))
    lake.telemetry.land("logs", request_of(("a", "three")))
    plan = lake.blocks.plan_before(landed(lake)[-1].insert_time)
    assert plan.segments == ()
    assert [(unbuilt.view_set, unbuilt.blocks) for unbuilt in plan.unbuilt] == [("every", 2)]


def test_a_copy_knows_what_is_frozen(lake: Lake, new_lake: NewLake, tmp_path: object) -> None:
    every = landed(lake)
    cover_all(lake, every)
    retire_before(lake, every[3].insert_time)
    place = f"{tmp_path}/copy"
    copy_lake(lake, place)
    with open_lake(place) as copy:
        assert copy.checker.run(Level.PAGES).findings == []
        with copy.catalog.read() as connection:
            assert clock.blocks_from(connection) == every[2].insert_time + 1


def test_the_command_shows_a_plan_first(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    every = landed(lake)
    cover_all(lake, every)
    place = ["--lake", lake.catalog.url if "postgres" in lake.catalog.url else _folder(lake)]

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run([*arguments, *place])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, _, err = run("blocks", "retire", "--expired")
    assert code == 2
    assert "lakebed blocks keep 30d" in err
    code, out, err = run("blocks", "keep", "1us")
    assert (code, out) == (0, "")
    assert "plan: retire 5 blocks in 3 segments" in err
    assert "Nothing was changed. Repeat with --yes" in err
    shown = json.loads(run("blocks", "keep", "1us", "--json")[1])
    assert (shown["done"], shown["keep"], shown["condemned"]["blocks"]) == (False, "forever", 5)
    assert run("blocks", "keep", "30d")[:2] == (0, "blocks are kept for 30d\n")
    code, out, err = run("blocks", "keep", "1us", "--yes")
    assert (code, out) == (0, "blocks are kept for 1us\n")
    assert "upkeep retires them" in err
    code, out, err = run("blocks", "retire", "--expired")
    assert (code, out) == (0, "")
    assert "plan: retire 5 blocks in 3 segments" in err
    assert landed(lake) == every
    code, out, _ = run("blocks", "retire", "--expired", "--yes", "--json")
    shown = json.loads(out)
    assert (code, shown["done"], shown["blocks"], shown["unbuilt"]) == (0, True, 5, [])
    assert landed(lake) == []
    assert run("blocks", "retire")[0] == 2


def _folder(lake: Lake) -> str:
    return lake.catalog.url.removeprefix("sqlite:///").removesuffix("/catalog.sqlite3")
