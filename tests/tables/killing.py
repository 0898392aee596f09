"""Kills what is done to a table at its steps, and looks at what is left. Run in a process of its
own, like `proof.killing`, whose lakes and kill points it uses.

Nobody here asks in SQL but the children that are killed: a process whose engine has begun to work
cannot be forked. What readers would see is folded from the partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute  # noqa: F401  (once, and not in every child)

import lakebed.query.embedded.engine  # noqa: F401
from lakebed.catalog.records import files
from lakebed.errors import BadSchema, Conflict, NotFound
from lakebed.lake import Lake
from lakebed.model.partition import FileState
from lakebed.tables.fold import fold_rows
from lakebed.tables.table import Table
from tests.parts.data import stored_files
from tests.proof.killing import Place, Places, choose_points, kill, run_and_die
from tests.proof.seams import Killer, Recorder, hook_lake
from tests.tables.parts import BY_ID, HOUR_US, LOOSE, damage, jump, partitions_of, retire, sweep

MONTHS = [f"2026-0{month}-02T12:00:00Z" for month in range(1, 6)]


@dataclass(frozen=True)
class Scenario:
    """A table, what happened to it before, and what is killed while it happens."""

    schema: Any
    bucket: str
    prepare: Callable[[Lake, Table], object]
    act: Callable[[Lake, Table], object]
    is_one_step: bool = True
    """Whether it is one transaction; folding is one for each bucket."""


def _records(values: range, *, keyed: bool) -> list[dict[str, Any]]:
    return [
        {"time": MONTHS[value % 5], "value": value} | ({"id": value} if keyed else {})
        for value in values
    ]


def _insert_months(_lake: Lake, table: Table) -> None:
    """Insert a batch over five months with a refused record, under a key for repetitions."""
    bad = {"time": MONTHS[0], "value": "bad"}
    table.insert([*_records(range(10, 20), keyed=False), bad], on_error="keep", key="the batch")


def _fill(_lake: Lake, table: Table) -> None:
    keyed = bool(table.definition.key)
    for begin in (0, 3):
        table.insert(_records(range(begin, begin + 4), keyed=keyed))


def _fill_and_retire(lake: Lake, table: Table) -> None:
    _fill(lake, table)
    table.insert(_records(range(2), keyed=True))
    retire(lake, table.partitions()[1])


def _move(_lake: Lake, table: Table) -> None:
    rows = [
        row | {"time": MONTHS[(index + 1) % 5]}
        for index, row in enumerate(_records(range(4), keyed=True))
    ]
    table.insert(rows)


def _ignore(_lake: Lake, table: Table) -> None:
    table.insert(_records(range(8), keyed=True), if_exists="ignore")


def _delete_table(lake: Lake, _table: Table) -> None:
    lake.tables.delete_table("d", "t")


def _fill_and_delete(lake: Lake, table: Table) -> None:
    _fill(lake, table)
    lake.tables.delete_table("d", "t")


SCENARIOS = {
    "insert": Scenario(LOOSE, "month", _fill, _insert_months),
    "upsert": Scenario(BY_ID, "month", _fill, _move),
    "ignore": Scenario(BY_ID, "month", _fill, _ignore),
    "delete": Scenario(BY_ID, "month", _fill, lambda _l, table: table.delete_rows("value < 3")),
    "delete loose": Scenario(
        LOOSE, "month", _fill, lambda _l, table: table.delete_rows("value < 3")
    ),
    "fold": Scenario(BY_ID, "month", _fill, lambda _l, table: table.fold(), is_one_step=False),
    "forget": Scenario(BY_ID, "month", _fill_and_retire, lambda _l, table: table.forget(id=1)),
    "alter": Scenario(
        BY_ID, "month", _fill, lambda _l, table: table.alter(add={"more": "int"}, widen=["value"])
    ),
    "delete table": Scenario(BY_ID, "month", _fill, _delete_table),
    "restore table": Scenario(
        BY_ID, "month", _fill_and_delete, lambda lake, _t: lake.tables.restore_table("d", "t")
    ),
}


def visible(lake: Lake) -> Any:
    """Return the rows of the table and of its rejects that readers see; None without a table."""
    names = {definition.name for definition in lake.tables.list_tables("d")}
    if "t" not in names:
        return None
    contents = []
    for name in ("t", "t_rejects"):
        table = lake.tables.get("d", name).definition
        with lake.tables.snapshots.take(table.table_id) as snapshot:
            parts = [lake.tables.reader.read(table, partition) for partition in snapshot.partitions]
        rows = fold_rows.fold(parts, table.key).to_pylist() if parts else []
        columns = [
            column_name
            for column_name in table.schema.names
            if column_name != "time" or name == "t"
        ]
        contents.append(sorted(str([row[column] for column in columns]) for row in rows))
    return contents


def state_of(lake: Lake) -> Any:
    """The same, with the partitions that there are."""
    rows_before = visible(lake)
    if rows_before is None:
        return None
    table = lake.tables.get("d", "t")
    live = [[partition.instance, partition.num_rows] for partition in table.partitions()]
    gone = [partition.num_rows for partition in partitions_of(lake, table) if not partition.is_live]
    return [rows_before, live, sorted(gone), table.definition.version]


def act(scenario: Scenario, lake: Lake) -> None:
    scenario.act(lake, Table(lake.tables, "d", "t"))


def judge(
    lake_copy: Place, scenario: Scenario, before: Any, after: Any, expected_rows: Any
) -> list[str]:
    """Everything that is wrong with a lake after the kill."""
    with lake_copy.open() as lake:
        problems = [f"after the kill: {problem}" for problem in damage(lake)]
        state = state_of(lake)
        if scenario.is_one_step and state not in (before, after):
            problems.append(f"half done: {state}, neither {before} nor {after}")
        if not scenario.is_one_step and visible(lake) != expected_rows:
            problems.append(f"not the same any more: {visible(lake)}")
    ending = run_and_die(
        lambda: _repeat(lake_copy, scenario, done=state == after, expected_rows=expected_rows)
    )
    if ending != "finished":
        return [*problems, f"the process that repeated it {ending}"]
    return problems + json.loads((lake_copy.folder / "problems").read_text())


def _repeat(lake_copy: Place, scenario: Scenario, *, done: bool, expected_rows: Any) -> None:
    """Do it again, then sweep to the end; write down what is wrong."""
    problems: list[str] = []
    with lake_copy.open() as lake:
        try:
            act(scenario, lake)
        except (Conflict, NotFound, BadSchema) as error:
            if not done:
                problems.append(f"cannot be repeated: {error}")
        if visible(lake) != expected_rows:
            problems.append(f"repeating gave {visible(lake)}, expected {expected_rows}")
        for _ in range(2):
            jump(lake, 48 * HOUR_US)
            sweep(lake, leases_die=True)
        if visible(lake) != expected_rows:
            problems.append("sweeping changed what is there")
        problems += [f"in the end: {problem}" for problem in damage(lake)]
        with lake.catalog.read() as connection:
            unpublished = files.list_files(connection, [FileState.STAGED, FileState.DELETING])
        live = {
            partition.file_path
            for partition in lake.partitions.list_partitions()
            if partition.file_path
        }
        if stored_files(lake) != live:
            problems.append(f"leaked or lost files: {stored_files(lake) ^ live}")
        problems += [f"still reserved: {file}" for file in unpublished]
    (lake_copy.folder / "problems").write_text(json.dumps(problems))


def choose_most_telling(events: list[str], points: list[int], limit: int) -> list[int]:
    """So many of some points: just before the last commit, in the middle of a write, and others
    evenly between."""
    if len(points) <= limit:
        return points
    commits = [number for number in points if events[number - 1] == "sql COMMIT"]
    torn = [number for number in points if events[number - 1] == "disk write, half done"]
    telling_points = [*commits[-1:], *torn[:1]][:limit]
    other_points = [number for number in points if number not in telling_points]
    count = limit - len(telling_points)
    return sorted(
        [
            *telling_points,
            *(other_points[len(other_points) * number // count] for number in range(count)),
        ]
    )


def run(places: Places, name: str, every: int, limit: int) -> dict[str, Any]:
    """Kill at some points of an operation; the report that the test judges."""
    scenario = SCENARIOS[name]

    def prepare(lake: Lake) -> None:
        lake.tables.create_database("d")
        scenario.prepare(lake, lake.tables.create_table("d", "t", scenario.schema, scenario.bucket))

    base = places.make(prepare)
    calm = places.copy(base)
    with calm.open() as lake:
        before = state_of(lake)
        lake.leases.beat()
    # In a child, because some of it may ask in SQL; what it did is read here.
    ending = run_and_die(lambda: _record(calm, scenario))
    assert ending == "finished", ending
    events = json.loads((calm.folder / "events").read_text())
    with calm.open() as lake:
        after, rows_after = state_of(lake), visible(lake)
    points = choose_most_telling(events, choose_points(events, every), limit)
    failures = []
    for point in points:
        lake_copy, ending = kill(places, base, point, lambda at, by: _die(at, scenario, by))
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += judge(lake_copy, scenario, before, after, rows_after)
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(lake_copy)
    return {
        "events": events,
        "points": points,
        "changed": before != after,
        "failures": failures,
    }


def _record(lake_copy: Place, scenario: Scenario) -> None:
    with lake_copy.open() as lake:
        recorder = Recorder()
        hook_lake(lake, recorder)
        act(scenario, lake)
        events = list(recorder.events)
    (lake_copy.folder / "events").write_text(json.dumps(events))


def _die(lake_copy: Place, scenario: Scenario, killer: Killer) -> None:
    lake = lake_copy.open()
    hook_lake(lake, killer)
    act(scenario, lake)


def run_all(
    dialect: str, folder: Path, every: int, limit: dict[str, int], server: str = ""
) -> dict[str, Any]:
    """The reports of some scenarios, each with the number of kills that it takes at most."""
    places = Places(dialect, server, folder)
    return {name: run(places, name, every, limit[name]) for name in limit}
