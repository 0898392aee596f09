"""Kills an import at its steps and looks at what is left. Run in a process of its own, like
`proof.killing`, whose lakes and kill points it uses.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from lakebed.catalog.records import files
from lakebed.lake import Lake
from lakebed.model.partition import FileState
from lakebed.tables.importing.report import ImportReport
from tests.parts.data import stored_files
from tests.proof.killing import Place, Places, choose_points, kill
from tests.proof.seams import Killer, Recorder, hook_lake
from tests.tables.importing.trees import as_bytes, as_counter, aside, put, rows
from tests.tables.parts import HOUR_US, damage, jump, sweep

SOUND = (rows(1), rows(2))


def build_tree(root: Path) -> None:
    """Sound files, one of them twice, and others that are kept."""
    put(root, "date=2024-05-01/data.parquet", SOUND[0])
    put(root, "date=2024-05-02/data.parquet", SOUND[1])
    put(root, "copy.parquet", SOUND[1])
    put(root, "cut.parquet", as_bytes(rows(3))[:-9])
    put(root, "notes.txt", b"nothing to see")


def adopt(lake: Lake, root: Path) -> ImportReport:
    """Import into a table that the import makes, unless a killed one made it."""
    return lake.tables.carry_out_import(lake.tables.plan_import(root, "home", "pulse"))


def state_of(lake: Lake) -> tuple[Any, dict[str, str]]:
    """The rows of the table, if there is one, and what is in quarantine."""
    counts = as_counter()
    if lake.tables.list_tables():
        counts = as_counter(lake.query("SELECT time, device, bpm FROM home.pulse").to_arrow())
    return counts, aside(lake)


def judge(lake_copy: Place, root: Path, expected: tuple[Any, dict[str, str]]) -> list[str]:
    """Everything that is wrong after a kill: with what is there, with doing it again, and with what
    a sweep leaves of both."""
    problems = []
    whole = [as_counter(*tables) for count in range(3) for tables in combinations(SOUND, count)]
    with lake_copy.open() as lake:
        problems += [f"after the kill: {problem}" for problem in damage(lake)]
        rows, quarantined = state_of(lake)
        if rows not in whole or not quarantined.items() <= expected[1].items():
            problems.append(f"half done: {rows}, {quarantined}")
        adopt(lake, root)
        problems += [f"after repeating: {problem}" for problem in damage(lake)]
        if state_of(lake) != expected:
            problems.append(f"repeating gave {state_of(lake)}, expected {expected}")
        again = adopt(lake, root)
        if again.taken or again.quarantined:
            problems.append(f"the next time it did {again.counts}")
    with lake_copy.open() as lake:
        for _ in range(2):
            jump(lake, 48 * HOUR_US)
            sweep(lake, leases_die=True)
        if state_of(lake) != expected:
            problems.append("sweeping changed what is there")
        with lake.catalog.read() as connection:
            safe = files.list_paths(connection, [FileState.QUARANTINED])
            unpublished = files.list_files(connection, [FileState.STAGED, FileState.DELETING])
        safe |= {partition.file_path or "" for partition in lake.partitions.list_partitions()}
        if stored_files(lake) != safe:
            problems.append(f"leaked or lost files: {stored_files(lake) ^ safe}")
        problems += [f"still reserved: {file}" for file in unpublished]
    return problems


def run(dialect: str, folder: Path, every: int, limit: int, server: str = "") -> dict[str, Any]:
    """Kill at some points of an import, evenly chosen; the report that the test judges."""
    places, root = Places(dialect, server, folder / "lakes"), folder / "tree"
    build_tree(root)
    base = places.make(lambda _lake: None)  # the import makes everything
    with places.copy(base).open() as lake:
        recorder = Recorder()
        hook_lake(lake, recorder)
        adopt(lake, root)
        events = list(recorder.events)
        expected = state_of(lake)
    failures = []
    points = choose_points(events, every)
    points = points[:: -(-len(points) // limit)]

    def die(lake_copy: Place, killer: Killer) -> None:
        lake = lake_copy.open()
        hook_lake(lake, killer)
        adopt(lake, root)

    for point in points:
        lake_copy, ending = kill(places, base, point, die)
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += judge(lake_copy, root, expected)
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(lake_copy)
    return {
        "events": len(events),
        "points": points,
        "rows": expected[0].total(),
        "aside": len(expected[1]),
        "failures": failures,
    }
