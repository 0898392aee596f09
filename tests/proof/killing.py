"""Kills a process at every step of an operation and looks at what is left.

Run as a program, so that it can fork freely: it keeps no threads and no connections itself, and
every lake is opened in a child. For each kill point of the operation, taken from an undisturbed
run, a copy of the same lake is made, the operation is killed there, and the rest is judged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute
import pyarrow.parquet  # noqa: F401  (imported once here instead of in every child)
import sqlalchemy as sa

from lakebed.catalog import partitions as catalog_partitions
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.migrate import migrate
from lakebed.catalog.schema import lake_clock
from lakebed.errors import Conflict
from lakebed.lake import Lake, init_lake, open_lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.time import TimeRange
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
    """An operation, the lake that it starts from, and whether it changes what readers see."""

    prepare: Callable[[Lake], None]
    operate: Callable[[Lake], None]
    changes: bool = True


def _four_hours(lake: Lake) -> None:
    lake.views.register(readings())
    for hour, count in ((0, 3), (1, 0), (2, 4), (3, 2)):
        publish_hour(lake, hour, count)


def _publish(lake: Lake) -> None:
    publish_hour(lake, 4, 5)


def _replace(lake: Lake) -> None:
    old = lake.partitions.list_partitions(inserted=(T0, T0 + 3 * HOUR))
    numbers = sorted(numbers_in(lake))[:7]
    lake.partitions.publish(
        "readings", T0, T0 + 3 * HOUR, rows(7, 0, numbers=numbers), replaces=old
    )


def _retire(lake: Lake) -> None:
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 3 * HOUR)


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


SCENARIOS = {
    "publish": Scenario(_four_hours, _publish),
    "replace": Scenario(_four_hours, _replace, changes=False),
    "retire": Scenario(_four_hours, _retire),
    "restore": Scenario(_retired_hours, _restore),
    "sweep": Scenario(_retired_hours, _sweep, changes=False),
}


class Places:
    """Makes and copies lakes, on one kind of catalog."""

    def __init__(self, dialect: str, server: str, folder: Path) -> None:
        self._dialect = dialect
        self._server = server
        self._folder = folder
        self._count = 0

    def blank(self) -> Place:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        if self._dialect == "postgresql":
            return Place(_in_child(lambda: servers.new_database(self._server)), folder)
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

        def copy_database() -> str:
            url = servers.new_database(self._server, template)
            if (folder / "store").exists():
                _point_to_store(url, folder)
            return url

        return Place(_in_child(copy_database), folder)

    def remove(self, place: Place) -> None:
        shutil.rmtree(place.folder)
        if self._dialect == "postgresql":
            _in_child(lambda: servers.drop_database(place.catalog))

    def store_url(self, place: Place) -> str | None:
        return f"file://{place.folder}/store" if self._dialect == "postgresql" else None


def _point_to_store(url: str, folder: Path) -> None:
    catalog = Catalog(url, actor="test")
    with catalog.write() as transaction:
        statement = sa.text("UPDATE lake SET store_url = :url")
        transaction.connection.execute(statement, {"url": f"file://{folder}/store"})
    catalog.close()


def _in_child(work: Callable[[], Any]) -> Any:
    """The result of some work, done in a child so that this process stays free of threads."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            text = json.dumps(work())
            os.write(writing, text.encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001  (a child must never return)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    os.close(writing)
    parts = []
    while part := os.read(reading, 1 << 20):
        parts.append(part)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    if os.WEXITSTATUS(status):
        raise RuntimeError("a child failed; see above")
    return json.loads(b"".join(parts))


def _state(lake: Lake) -> list[Any]:
    """What readers see, and which partitions there are."""
    live = [
        [each.insert_range.begin, each.insert_range.end, each.num_rows]
        for each in lake.partitions.list_partitions()
    ]
    return [sorted(numbers_in(lake).elements()), live]


def _judge(place: Place, scenario: Scenario, before: Any, after: Any) -> list[str]:
    """Everything that is wrong with a lake after the kill."""
    problems: list[str] = []
    with place.open() as lake:
        problems += _damage(lake, "after the kill")
        state = _state(lake)
        if state not in (before, after):
            problems.append(f"half done: {state}")
        try:
            scenario.operate(lake)
        except Conflict as conflict:
            if state != after:
                problems.append(f"cannot be repeated: {conflict}")
        if _state(lake) != after:
            problems.append(f"repeating gave {_state(lake)}, expected {after}")
        problems += _damage(lake, "after repeating")
    with place.open() as lake:
        problems += _sweep_to_the_end(lake)
        if _state(lake) != after:
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
    if stored_files(lake) != live:
        problems.append(f"leaked or lost files: {stored_files(lake) ^ live}")
    with lake.catalog.read() as connection:
        for table in ("temporary_files", "leases"):
            left = connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))
            if left and table == "temporary_files":
                problems.append(f"{left} rows left in {table}")
        footers = set(connection.scalars(sa.text("SELECT file_path FROM partition_metadata")))
    if footers != live:
        problems.append(f"footers without file or files without footer: {footers ^ live}")
    return problems


def choose_points(events: list[str], step: int) -> list[int]:
    """Every ``step``-th point, and in any case each commit and the first of each disk operation:
    whatever dies between two of those leaves the same."""
    telling = {number for number, event in enumerate(events, 1) if event == "sql COMMIT"}
    telling |= {events.index(event) + 1 for event in set(events) if event.startswith("disk")}
    return sorted(telling | set(range(1, len(events) + 1, step)))


def run_scenario(name: str, places: Places, step: int) -> dict[str, Any]:
    """Kill at every ``step``-th point of an operation; the report that the test judges."""
    scenario = SCENARIOS[name]
    base = places.blank()

    def prepare() -> None:
        with init_lake(catalog=base.catalog, store=places.store_url(base), grace="0s") as lake:
            scenario.prepare(lake)
            if places._dialect == "sqlite":
                with lake.catalog.engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    _in_child(prepare)
    calm = places.copy(base)

    def undisturbed() -> Any:
        with calm.open() as lake:
            before = _state(lake)
            lake.leases.beat()
            recorder = Recorder()
            hook_lake(lake, recorder)
            scenario.operate(lake)
            events = list(recorder.events)
            return [before, _state(lake), events]

    before, after, events = _in_child(undisturbed)
    failures = []
    points = choose_points(events, step)
    for point in points:
        place = places.copy(base)

        def killed(place: Place = place, point: int = point) -> str:
            lake = place.open()
            _state(lake)
            lake.leases.beat()
            hook_lake(lake, Killer(point))
            scenario.operate(lake)
            return "finished"

        ending = _in_child(killed)
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += _in_child(lambda place=place: _judge(place, scenario, before, after))
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(place)
    return {
        "events": events,
        "points": len(points),
        "changed": before != after,
        "failures": failures,
    }


def run_migration(places: Places, step: int) -> dict[str, Any]:
    """Kill a migration of an older catalog at every ``step``-th point."""
    base, fresh = places.blank(), places.blank()

    def prepare() -> None:
        catalog = Catalog(base.catalog, actor="test")
        migrate(catalog.engine, target="0001")
        fill_older_shape(catalog.engine, 12)
        catalog.close()

    def shape() -> Any:
        catalog = Catalog(fresh.catalog, actor="test")
        catalog.migrate()
        found = describe(catalog.engine)
        catalog.close()
        return found

    def finish(place: Place, hook: Any) -> None:
        catalog = Catalog(place.catalog, actor="test")
        hook_engine(catalog.engine, hook)
        migrate(catalog.engine, batch_rows=5)
        catalog.close()

    def judge(place: Place) -> list[str]:
        catalog = Catalog(place.catalog, actor="test")
        catalog.migrate()
        problems = [] if describe(catalog.engine) == wanted else ["not like a fresh catalog"]
        with catalog.read() as connection:
            footers = connection.scalar(sa.text("SELECT count(*) FROM partition_metadata"))
            found = catalog_partitions.search(
                connection,
                catalog_partitions.Search(inserted=TimeRange(T0, T0 + 20 * HOUR)),
            )
        catalog.close()
        if (footers, len(found), sum(each.is_empty for each in found)) != (11, 12, 1):
            problems.append(f"{footers} footers, {len(found)} partitions")
        return problems

    _in_child(prepare)
    wanted = _in_child(shape)

    def record() -> list[str]:
        recorder = Recorder()
        finish(places_copy, recorder)
        return recorder.events

    places_copy = places.copy(base)
    events = _in_child(record)
    failures = []
    points = choose_points(events, step)
    for point in points:
        place = places.copy(base)
        ending = _in_child(lambda place=place, point=point: finish(place, Killer(point)))
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += _in_child(lambda place=place: judge(place))
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(place)
    return {"events": events, "points": len(points), "changed": True, "failures": failures}


def main() -> None:
    """``killing SCENARIO DIALECT FOLDER STEP [SERVER]`` prints its report as JSON."""
    name, dialect, folder, step = sys.argv[1:5]
    places = Places(dialect, sys.argv[5] if len(sys.argv) > 5 else "", Path(folder))
    if name == "migrate":
        report = run_migration(places, int(step))
    else:
        report = run_scenario(name, places, int(step))
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
