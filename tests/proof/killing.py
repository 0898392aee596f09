"""Kills a process at every step of an operation and looks at what is left.

Run in a process of its own, so that it can fork freely: every lake is closed before the next fork,
so that there are no connections and none of our threads. For each kill point of the operation,
taken from an undisturbed run, a copy of the same lake is made, the operation is killed there in a
child, and the rest is judged by this process, which has everything imported already.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.migrate import migrate
from lakebed.catalog.records import blocks
from lakebed.catalog.schema import lake_clock
from lakebed.errors import Conflict
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.time import TimeRange
from lakebed.opening import init_lake, open_lake
from lakebed.samples.generator import Generator
from tests.parts import servers
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, rows, stored_files
from tests.parts.older import describe, fill_older_shape
from tests.proof.seams import Killer, Recorder, hook_engine, hook_lake

DAY = 24 * HOUR


@dataclass(frozen=True)
class Place:
    """A lake that can be copied: a database and a folder."""

    catalog: str
    folder: Path

    def open(self) -> Lake:
        return open_lake(self.catalog)


@dataclass(frozen=True)
class Scenario:
    """The lake that an operation starts from, and the operation: steps, of which each is
    acknowledged before the next one."""

    prepare: Callable[[Lake], None]
    steps: tuple[Callable[[Lake], None], ...]


def _four_hours(lake: Lake) -> None:
    lake.views.register(readings())
    for hour, count in ((0, 3), (1, 0), (2, 4), (3, 2)):
        publish_hour(lake, hour, count)


def _publish(lake: Lake) -> None:
    new = rows(5, 4, numbers=range(1001, 1006))  # the same in every run
    lake.partitions.publish("readings", T0 + 4 * HOUR, T0 + 5 * HOUR, new)


def _replace(lake: Lake) -> None:
    old = lake.partitions.list_partitions(inserted=(T0, T0 + 3 * HOUR))
    numbers = sorted(numbers_in(lake))[:7]
    lake.partitions.publish(
        "readings", T0, T0 + 3 * HOUR, rows(7, 0, numbers=numbers), replaces=old
    )


def _retire(lake: Lake) -> None:
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 3 * HOUR, confirmed=["readings"])


def _restore(lake: Lake) -> None:
    retired = [
        each
        for each in lake.partitions.list_partitions(include_retired=True)
        if not each.is_live and not each.is_empty
    ]
    lake.retirement.restore(retired[0].partition_id)


def _sweep(lake: Lake) -> None:
    lake.sweeper.run()


def _retired_hours(lake: Lake) -> None:
    _four_hours(lake)
    _retire(lake)


@cache
def _request(number: int) -> bytes:
    return Generator(seed=number).serialized("logs", 20, services=2)


def _one_request(lake: Lake) -> None:
    lake.views.register(readings())
    lake.telemetry.land("logs", _request(1))


def _land(lake: Lake) -> None:
    lake.telemetry.land("logs", _request(2))


def _land_with_id(lake: Lake) -> None:
    lake.telemetry.land("logs", _request(2), request_id="sent again on purpose")


def _three_requests(lake: Lake) -> None:
    _one_request(lake)
    for number in (2, 3):
        lake.telemetry.land("logs", _request(number))


def _retire_blocks(lake: Lake) -> None:
    """All segments but the last; no view set reads them."""
    with lake.catalog.read() as connection:
        last = blocks.last_insert_time(connection)
    lake.blocks.carry_out(lake.blocks.plan_before(last or 0))


SCENARIOS = {
    "publish": Scenario(_four_hours, (_publish,)),
    "replace": Scenario(_four_hours, (_replace,)),
    "retire": Scenario(_four_hours, (_retire,)),
    "restore": Scenario(_retired_hours, (_restore,)),
    "sweep": Scenario(_retired_hours, (_sweep,)),
    "land": Scenario(_one_request, (_land, _land_with_id)),
    "retire blocks": Scenario(_three_requests, (_retire_blocks,)),
}


class Places:
    """Makes and copies lakes, on one kind of catalog."""

    def __init__(self, dialect: str, server: str, folder: Path) -> None:
        self._dialect = dialect
        self._server = server
        self._folder = folder
        self._count = 0
        self._migrated: Place | None = None

    def make(self, prepare: Callable[[Lake], object]) -> Place:
        """A lake to which something was done, all of it in its files, to be copied. Only the first
        catalog is migrated; the others begin as copies of it."""
        if self._migrated is None:
            self._migrated = self.blank()
            catalog = Catalog(self._migrated.catalog, actor="test")
            catalog.migrate()
            _settle(catalog)
            catalog.close()
        place = self.copy(self._migrated)
        with init_lake(catalog=place.catalog, store=self.store_url(place), grace="0s") as lake:
            prepare(lake)
            _settle(lake.catalog)
        return place

    def blank(self) -> Place:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        if self._dialect == "postgresql":
            return Place(servers.new_database(self._server), folder)
        (folder / "catalog.sqlite3").touch()
        return Place(f"sqlite:///{folder}/catalog.sqlite3", folder)

    def copy(self, original: Place) -> Place:
        """The same lake in another place, with the store moved along."""
        self._count += 1
        folder = self._folder / str(self._count)
        shutil.copytree(original.folder, folder)
        if self._dialect == "sqlite":
            return Place(f"sqlite:///{folder}/catalog.sqlite3", folder)
        template = original.catalog.split("?")[0].rsplit("/", 1)[1]
        url = servers.new_database(self._server, template)
        if (folder / "store").exists():
            _point_to_store(url, folder)
        return Place(url, folder)

    def remove(self, place: Place) -> None:
        shutil.rmtree(place.folder)
        if self._dialect == "postgresql":
            servers.drop_database(place.catalog)

    def store_url(self, place: Place) -> str | None:
        return f"file://{place.folder}/store" if self._dialect == "postgresql" else None


def _settle(catalog: Catalog) -> None:
    """Everything into the file that will be copied."""
    if catalog.dialect.name == "sqlite":
        with catalog.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _point_to_store(url: str, folder: Path) -> None:
    catalog = Catalog(url, actor="test")
    with catalog.write() as transaction:
        statement = sa.text("UPDATE lake SET store_url = :url")
        transaction.connection.execute(statement, {"url": f"file://{folder}/store"})
    catalog.close()


def run_and_die(work: Callable[[], object]) -> str:
    """How a child ended that does some work; only its death is of interest."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001  (a child must never return)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return "finished" if status == 0 else "failed; see above"


def kill(
    places: Places, base: Place, point: int, die: Callable[[Place, Killer], object]
) -> tuple[Place, str]:
    """A copy of a lake in which something was killed before its n-th step, and how it ended. In the
    run from which the points were taken a heart may have beaten, so that there was more to do than
    there is now: then it is killed a few steps earlier."""
    for step in (point, point - 6, point - 12):
        place = places.copy(base)
        ending = run_and_die(lambda place=place, step=step: die(place, Killer(max(step, 1))))
        if ending != "finished":
            break
    return place, ending


def state_of(lake: Lake) -> list[Any]:
    """What readers see, which partitions there are, and what has landed, read from its segments."""
    live = [
        [each.insert_range.begin, each.insert_range.end, each.num_rows]
        for each in lake.partitions.list_partitions()
    ]
    with lake.catalog.read() as connection:
        landed = [
            block
            for segment in blocks.list_segments(connection)
            for block in blocks.list_in_segment(connection, segment.segment_path)
        ]
    payloads = [
        lake.store.read(each.segment_path, each.segment_offset, each.payload_size)
        for each in landed
    ]
    contents = sorted(
        [each.block_id, hashlib.sha256(payload).hexdigest()]
        for each, payload in zip(landed, payloads, strict=True)
    )
    return [sorted(numbers_in(lake).elements()), live, contents]


def operate(place: Place, lake: Lake, scenario: Scenario) -> None:
    """Do every step, and write down outside of the lake which were acknowledged."""
    for number, step in enumerate(scenario.steps, start=1):
        step(lake)
        (place.folder / "acknowledged").write_text(str(number))


def judge(place: Place, scenario: Scenario, states: list[Any]) -> list[str]:
    """Everything that is wrong with a lake after the kill. ``states`` are those of an undisturbed
    run, before the operation and after each step; what was acknowledged must be there."""
    problems: list[str] = []
    after = states[-1]
    mark = place.folder / "acknowledged"
    acknowledged = int(mark.read_text() or 0) if mark.exists() else 0
    with place.open() as lake:
        problems += _damage(lake, "after the kill")
        state = state_of(lake)
        if state not in states[acknowledged : acknowledged + 2]:
            problems.append(f"half done after {acknowledged} steps: {state}")
        for step in scenario.steps:
            try:
                step(lake)
            except Conflict as conflict:
                if state != after:
                    problems.append(f"cannot be repeated: {conflict}")
        if state_of(lake) != after:
            problems.append(f"repeating gave {state_of(lake)}, expected {after}")
        problems += _damage(lake, "after repeating")
    with place.open() as lake:
        problems += _sweep_to_the_end(lake)
        if state_of(lake) != after:
            problems.append("sweeping changed what readers see")
    return problems


def _damage(lake: Lake, when: str) -> list[str]:
    report = lake.checker.run(Level.PAGES)
    return [
        f"{when}: {finding.kind} {finding.subject}: {finding.message}"
        for finding in report.findings
        if finding.severity is not Severity.NOTE and finding.kind != "overdue file"
    ]


def _sweep_to_the_end(lake: Lake) -> list[str]:
    """With every lease dead and every grace period over, only live files are left."""
    times = iter([0.0, 1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9, 9e9])
    sweeper = Sweeper(lake.catalog, lake.store, observer=LeaseObserver(lambda: next(times)))
    for _ in range(2):
        sweeper.plan()
        with lake.catalog.write() as transaction:
            transaction.connection.execute(
                sa.update(lake_clock).values(now=lake_clock.c.now + 2 * DAY)
            )
        sweeper.run()
    live = {each.file_path for each in lake.partitions.list_partitions() if each.file_path}
    problems = []
    with lake.catalog.read() as connection:
        segments = {each.segment_path for each in blocks.list_segments(connection)}
        if stored_files(lake) != live | segments:
            problems.append(f"leaked or lost files: {stored_files(lake) ^ (live | segments)}")
        for table in ("temporary_files", "leases"):
            left = connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))
            if left and table == "temporary_files":
                problems.append(f"{left} rows left in {table}")
        footers = set(connection.scalars(sa.text("SELECT file_path FROM partition_metadata")))
    if footers != live:
        problems.append(f"footers without file or files without footer: {footers ^ live}")
    return problems


def choose_points(events: list[str], every: int) -> list[int]:
    """Every so-many-th point, and in any case each commit and the first of each disk operation:
    whatever dies between two of those leaves the same."""
    telling = {number for number, event in enumerate(events, 1) if event == "sql COMMIT"}
    telling |= {events.index(event) + 1 for event in set(events) if event.startswith("disk")}
    return sorted(telling | set(range(1, len(events) + 1, every)))


def run_calmly(place: Place, scenario: Scenario) -> tuple[list[Any], list[str]]:
    """An undisturbed run: the states before it and after each step, and every event."""
    with place.open() as lake:
        states = [state_of(lake)]
        lake.leases.beat()
        recorder = Recorder()
        hook_lake(lake, recorder)
        events: list[str] = []
        for step in scenario.steps:
            recorder.events.clear()
            step(lake)
            events += recorder.events
            states.append(state_of(lake))
            lake.leases.beat()
    return states, events


def run_scenario(name: str, places: Places, every: int) -> dict[str, Any]:
    """Kill at every so-many-th point of an operation; the report that the test judges."""
    scenario = SCENARIOS[name]
    base = places.make(scenario.prepare)
    states, events = run_calmly(places.copy(base), scenario)
    failures = []
    points = choose_points(events, every)

    def die(place: Place, killer: Killer) -> None:
        lake = place.open()
        state_of(lake)
        lake.leases.beat()
        hook_lake(lake, killer)
        operate(place, lake, scenario)

    for point in points:
        place, ending = kill(places, base, point, die)
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += judge(place, scenario, states)
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(place)
    return {
        "events": events,
        "points": len(points),
        "changed": states[0] != states[-1],
        "failures": failures,
    }


def run_migration(places: Places, every: int) -> dict[str, Any]:
    """Kill a migration of an older catalog at every so-many-th point."""
    base, fresh = places.blank(), places.blank()
    catalog = Catalog(base.catalog, actor="test")
    migrate(catalog.engine, target="0001")
    fill_older_shape(catalog.engine, 12)
    catalog.close()
    catalog = Catalog(fresh.catalog, actor="test")
    catalog.migrate()
    wanted = describe(catalog.engine)
    catalog.close()

    def finish(place: Place, hook: Any) -> None:
        catalog = Catalog(place.catalog, actor="test")
        hook_engine(catalog.engine, hook)
        migrate(catalog.engine, batch_rows=5)
        catalog.close()

    def mend(place: Place) -> list[str]:
        catalog = Catalog(place.catalog, actor="test")
        catalog.migrate()
        problems = [] if describe(catalog.engine) == wanted else ["not like a fresh catalog"]
        with catalog.read() as connection:
            footers = connection.scalar(sa.text("SELECT count(*) FROM partition_metadata"))
            found = partition_search.search(
                connection,
                PartitionFilter(inserted=TimeRange(T0, T0 + 20 * HOUR)),
            )
        catalog.close()
        if (footers, len(found), sum(each.is_empty for each in found)) != (11, 12, 1):
            problems.append(f"{footers} footers, {len(found)} partitions")
        return problems

    recorder = Recorder()
    finish(places.copy(base), recorder)
    events = recorder.events
    failures = []
    points = choose_points(events, every)
    for point in points:
        place, ending = kill(places, base, point, finish)
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += mend(place)
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(place)
    return {"events": events, "points": len(points), "changed": True, "failures": failures}


def run(name: str, dialect: str, folder: Path, every: int, server: str = "") -> dict[str, Any]:
    """The report of one scenario on one kind of catalog."""
    places = Places(dialect, server, folder)
    if name == "migrate":
        return run_migration(places, every)
    return run_scenario(name, places, every)
