"""Upkeep does what is due and no more, records what came of it, and survives what fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakebed.catalog import leases
from lakebed.catalog.schema import lake_clock
from lakebed.errors import BadInput, LakebedError
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.opening import open_lake
from lakebed.settings import Settings
from lakebed.upkeep.duties import DUTIES, Duty, Unfinished, retain
from lakebed.upkeep.healing import heal
from lakebed.upkeep.upkeep import Upkeep, lease_of
from tests.conftest import NewLake
from tests.parts.building import build, land
from tests.parts.data import HOUR, T0, publish_hour, readings, stored_files


def _duty(name: str, done: list[str], *, fails: bool = False, every: int = 3600) -> Duty:
    def work(_lake: Lake) -> str:
        done.append(name)
        if fails:
            raise LakebedError("the disk is on fire")
        return f"did {name}"

    return Duty(name, every, "for the test", work)


def test_what_is_due_is_done_once_and_recorded(lake: Lake) -> None:
    done: list[str] = []
    upkeep = Upkeep(lake, [_duty("one", done), _duty("often", done, every=0)])
    assert [(each.name, each.result) for each in upkeep.run_due()] == [
        ("one", "did one"),
        ("often", "did often"),
    ]
    assert [each.name for each in upkeep.run_due()] == ["often"]
    assert [each.name for each in upkeep.run_due("one")] == ["one"]
    assert done == ["one", "often", "often", "one"]
    states = {duty.name: state for duty, state in upkeep.list_duties()}
    one = states["one"]
    assert (one.runs, one.failures, one.result, one.error) == (2, 0, "did one", None)
    assert one.last_begin is not None
    assert one.last_success is not None
    assert one.last_begin < one.last_success < one.next_run


def test_one_that_fails_does_not_stop_the_others(lake: Lake) -> None:
    done: list[str] = []
    upkeep = Upkeep(lake, [_duty("bad", done, fails=True, every=1), _duty("good", done)])
    bad, good = upkeep.run_due()
    assert bad.error == "the disk is on fire"
    assert good.result == "did good"
    state = upkeep.list_duties()[0][1]
    assert (state.failures, state.error) == (1, "the disk is on fire")
    assert state.last_success is None
    first = state.next_run
    upkeep.run_due(everything=True)
    again = upkeep.list_duties()[0][1]
    assert again.failures == 2
    before = first - (state.last_failure or 0)
    assert again.next_run - (again.last_failure or 0) == 2 * before
    for _ in range(20):
        upkeep.run_due(everything=True)
    last = upkeep.list_duties()[0][1]
    assert last.next_run - (last.last_failure or 0) == 3600 * 1_000_000
    works = Upkeep(lake, [_duty("bad", done)])
    works.run_due(everything=True)
    assert works.list_duties()[0][1].error is None


def test_two_processes_do_not_do_the_same_at_once(lake: Lake) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(_lake: Lake) -> str:
        begun.set()
        assert go_on.wait(300)
        return "slow"

    slow = Duty("slow", 0, "for the test", wait)
    results: list[object] = []
    first = threading.Thread(target=lambda: results.extend(Upkeep(lake, [slow]).run_due()))
    first.start()
    assert begun.wait(300)
    ended = threading.Event()

    def show_life() -> None:
        while not ended.wait(0.2):
            lake.leases.beat()

    alive = threading.Thread(target=show_life)
    alive.start()
    with open_lake(lake.catalog.url) as other:
        done: list[str] = []
        (second,) = Upkeep(other, [_duty("slow", done)]).run_due()
    ended.set()
    alive.join()
    go_on.set()
    first.join()
    assert second.skipped is not None
    assert done == []
    assert [each.result for each in results] == ["slow"]  # type: ignore[attr-defined]


def test_what_another_did_meanwhile_is_not_done_again(lake: Lake) -> None:
    done: list[str] = []
    shared = _duty("shared", done)
    with open_lake(lake.catalog.url) as other:

        def let_the_other_do_it(_lake: Lake) -> str:
            assert [each.result for each in Upkeep(other, [shared]).run_due()] == ["did shared"]
            return "waited"

        upkeep = Upkeep(lake, [Duty("first", 0, "for the test", let_the_other_do_it), shared])
        _, second = upkeep.run_due()
    assert (second.result, second.skipped) == (None, "done by another meanwhile")
    assert done == ["shared"]
    assert upkeep.list_duties()[1][1].runs == 1
    assert upkeep.run_due("shared")[0].result == "did shared", "who names it wants it now"


def test_who_is_told_to_stop_does_not_wait_for_the_dead(lake: Lake) -> None:
    """Somebody was killed at the duty; whoever is next would take it over after half a minute."""
    done: list[str] = []
    with open_lake(lake.catalog.url) as killed:
        killed.leases._start = lambda: None  # type: ignore[method-assign]
        with killed.leases.building(lease_of("slow")):
            stop, looked = threading.Event(), threading.Event()
            find = lake.leases._find_builders

            def look(names: Any) -> Any:
                looked.set()
                return find(names)

            lake.leases._find_builders = look  # type: ignore[method-assign]
            upkeep = Upkeep(lake, [_duty("slow", done), _duty("other", done)], stop)
            waiting = threading.Thread(target=upkeep.run_due)
            waiting.start()
            assert looked.wait(300)
            stop.set()
            waiting.join()
            with lake.catalog.read() as connection:
                assert leases.find_builder(connection, lease_of("slow")) is not None
    assert done == [], "no duty begins any more"


def test_what_did_only_a_share_is_due_again_at_once(lake: Lake) -> None:
    left = [3]

    def work(_lake: Lake) -> str | Unfinished:
        left[0] -= 1
        return Unfinished("some") if left[0] else "the rest"

    upkeep = Upkeep(lake, [Duty("long", 3600, "for the test", work)])
    (first,) = upkeep.run_due()
    assert (first.result, first.unfinished) == ("some", True)
    assert [each.result for each in upkeep.run_due(everything=True)] == ["some", "the rest"]
    assert upkeep.run_due() == []


def test_building_does_not_wait_for_what_takes_long(lake: Lake) -> None:
    stop, slow_began, go_on, built = (threading.Event() for _ in range(4))
    builds: list[str] = []

    def check(_lake: Lake) -> str:
        slow_began.set()
        assert go_on.wait(300)
        return "checked"

    def build_again(_lake: Lake) -> str:
        assert slow_began.wait(300)
        builds.append("built")
        if len(builds) == 3:
            built.set()
        return "built"

    upkeep = Upkeep(
        lake,
        [
            Duty("check", 3600, "for the test", check),
            Duty("build", 0, "for the test", build_again, own_thread=True),
        ],
    )
    looping = threading.Thread(target=upkeep.loop, args=(stop, 0.01))
    looping.start()
    try:
        assert built.wait(300)
        assert not go_on.is_set()
    finally:
        stop.set()
        go_on.set()
        looping.join()
    assert upkeep.list_duties()[0][1].result == "checked", "what was begun is ended"


def test_a_sweep_of_very_much_goes_in_shares(new_lake: NewLake) -> None:
    lake = new_lake(grace="0s", settings=Settings(sweep_files=1))
    lake.views.register(readings())
    for hour in range(12):
        publish_hour(lake, hour)
    lake.retirement.retire_partitions("readings", T0, T0 + 12 * HOUR, confirmed=["readings"])
    upkeep = Upkeep(lake, [each for each in DUTIES if each.name == "sweep"])
    (first,) = upkeep.run_due()
    assert str(first.result).startswith("deleted 10 files")
    assert len(stored_files(lake)) == 2
    (second,) = upkeep.run_due()
    assert (str(second.result)[:15], second.unfinished) == ("deleted 2 files", False)


def test_retention_retires_the_oldest_first_and_so_many_at_once(lake: Lake) -> None:
    lake.views.register(readings(retention_us=HOUR))
    made = [publish_hour(lake, hour).partition_id for hour in range(5)]
    assert retain(lake, 2) == Unfinished("retired 2 partitions")
    live = {each.partition_id for each in lake.partitions.list_partitions("readings")}
    assert live == set(made[2:])
    assert retain(lake, 2) == Unfinished("retired 2 partitions")
    assert retain(lake, 2) == "retired 1 partition"
    assert retain(lake, 2) == "nothing to do"


def test_a_table_expires_at_once_however_much_of_it(lake: Lake) -> None:
    lake.views.register(readings(retention_us=HOUR))
    publish_hour(lake, 0)
    lake.tables.create_database("home")
    for name in ("a", "b"):
        schema = {"time": "datetime", "n": {"type": "int", "unique": True}}
        table = lake.tables.create_table("home", name, schema, retention="30d")
        for day in range(1, 4):
            table.insert([{"time": f"2020-01-0{day}T00:00:00Z", "n": 1}])
    assert retain(lake, 2) == Unfinished("retired 4 partitions")
    assert retain(lake, 2) == "retired 3 partitions"


def test_blocks_that_are_too_old_go_from_the_oldest_on(lake: Lake) -> None:
    land(lake, requests=3)
    lake.blocks.keep(1)
    every = sorted(lake.blocks.plan_expired().segments, key=lambda each: each.insert_time)
    assert retain(lake, 2) == Unfinished("retired 2 segments")
    assert lake.blocks.plan_expired().segments == (every[2],)
    assert retain(lake, 2) == "retired 1 segment"


def test_rejects_have_a_retention_as_well(lake: Lake) -> None:
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "t", {"time": "datetime", "n": "int"})
    table.insert([{"time": "2020-01-01T00:00:00Z", "n": "no"}], on_error="keep")
    lake.tables.set_retention("home", "t_rejects", "7d")
    with lake.catalog.write() as transaction:
        later = sa.update(lake_clock).values(now=transaction.tick + 60 * 24 * HOUR)
        transaction.connection.execute(later)
    assert retain(lake) == "retired 1 partition"


def test_an_unknown_duty_is_refused(lake: Lake) -> None:
    with pytest.raises(BadInput, match="no duty 'dust'") as refused:
        Upkeep(lake).run_due("dust")
    assert "sweep" in str(refused.value.hint)


def test_sweeping_and_retention_are_duties(lake: Lake) -> None:
    lake.tables.create_database("home")
    table = lake.tables.create_table(
        "home", "old", {"time": "datetime", "n": "int"}, retention="30d"
    )
    table.insert([{"time": "2020-01-01T00:00:00Z", "n": 1}])
    table.insert([{"time": "2099-01-01T00:00:00Z", "n": 2}])
    upkeep = Upkeep(lake, [each for each in DUTIES if each.name in ("retain", "sweep", "check")])
    said = {each.name: each.result for each in upkeep.run_due()}
    assert said["retain"] == "retired 1 partition"
    assert table.query().to_arrow()["n"].to_pylist() == [2]
    assert said["sweep"] is not None
    assert said["check"] == "looked for 2 files and their sizes"


def test_a_damaged_partition_is_set_aside_and_its_rows_stay_visible(lake: Lake) -> None:
    land(lake)
    partition = build(lake)
    path = lake.store.locate(str(partition.file_path))  # type: ignore[attr-defined]
    _damage(path)
    report = lake.checker.run(Level.FILES)
    assert not report.is_clean
    healed, left = heal(lake, report)
    assert [each.partition_id for each in healed] == [partition.partition_id]
    assert left == []
    count = lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py()
    assert count == 20
    build(lake)
    assert lake.checker.run(Level.FOOTERS).is_clean


def test_a_missing_file_is_built_again(lake: Lake) -> None:
    land(lake)
    partition = build(lake)
    lake.store.locate(str(partition.file_path)).unlink()  # type: ignore[attr-defined]
    healed, left = heal(lake, lake.checker.run(Level.FILES))
    assert (len(healed), left) == (1, [])
    build(lake)
    count = lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py()
    assert count == 20
    report = lake.checker.run(Level.FILES)
    assert report.is_clean, "nothing is missing but what was given up"
    (finding,) = report.findings
    assert (finding.severity, finding.kind) == (Severity.WARNING, "missing file")
    assert heal(lake, report) == ([], [])


def test_heal_leaves_a_file_that_is_there_again(lake: Lake) -> None:
    """The check missed it, for example while a disk was mounted: the partition stays live."""
    land(lake)
    partition = build(lake)
    file = lake.store.locate(str(partition.file_path))  # type: ignore[attr-defined]
    content = file.read_bytes()
    file.unlink()
    report = lake.checker.run(Level.FILES)
    damage = [finding.kind for finding in report.findings if finding.severity is not Severity.NOTE]
    assert damage == ["missing file"]
    file.write_bytes(content)
    assert heal(lake, report) == ([], [])
    assert lake.partitions.list_partitions("log_entries") == [partition]


def test_what_cannot_be_built_again_is_left_and_said(lake: Lake) -> None:
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "t", {"time": "datetime", "n": "int"})
    table.insert([{"time": "2026-01-01T00:00:00Z", "n": 1}])
    path = str(table.partitions()[0].file_path)
    _damage(lake.store.locate(path))  # type: ignore[attr-defined]
    (run,) = Upkeep(lake, [each for each in DUTIES if each.name == "check"]).run_due()
    assert run.error is not None
    assert path in run.error
    assert len(table.partitions()) == 1


def _damage(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-10])
