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
    found = as_counter()
    if lake.tables.list_tables():
        found = as_counter(lake.query("SELECT time, device, bpm FROM home.pulse").to_arrow())
    return found, aside(lake)


def judge(place: Place, root: Path, wanted: tuple[Any, dict[str, str]]) -> list[str]:
    """Everything that is wrong after a kill: with what is there, with doing it again, and with what
    a sweep leaves of both."""
    problems = []
    whole = [as_counter(*some) for count in range(3) for some in combinations(SOUND, count)]
    with place.open() as lake:
        problems += [f"after the kill: {each}" for each in damage(lake)]
        found, kept = state_of(lake)
        if found not in whole or not kept.items() <= wanted[1].items():
            problems.append(f"half done: {found}, {kept}")
        adopt(lake, root)
        problems += [f"after repeating: {each}" for each in damage(lake)]
        if state_of(lake) != wanted:
            problems.append(f"repeating gave {state_of(lake)}, expected {wanted}")
        again = adopt(lake, root)
        if again.taken or again.quarantined:
            problems.append(f"the next time it did {again.counts}")
    with place.open() as lake:
        for _ in range(2):
            jump(lake, 48 * HOUR_US)
            sweep(lake, leases_die=True)
        if state_of(lake) != wanted:
            problems.append("sweeping changed what is there")
        with lake.catalog.read() as connection:
            safe = files.list_paths(connection, [FileState.QUARANTINED])
            left = files.list_files(connection, [FileState.STAGED, FileState.DELETING])
        safe |= {each.file_path or "" for each in lake.partitions.list_partitions()}
        if stored_files(lake) != safe:
            problems.append(f"leaked or lost files: {stored_files(lake) ^ safe}")
        problems += [f"still reserved: {each}" for each in left]
    return problems


def run(dialect: str, folder: Path, every: int, most: int, server: str = "") -> dict[str, Any]:
    """Kill at some points of an import, evenly chosen; the report that the test judges."""
    places, root = Places(dialect, server, folder / "lakes"), folder / "tree"
    build_tree(root)
    base = places.make(lambda _lake: None)  # the import makes everything
    with places.copy(base).open() as lake:
        recorder = Recorder()
        hook_lake(lake, recorder)
        adopt(lake, root)
        events = list(recorder.events)
        wanted = state_of(lake)
    failures = []
    points = choose_points(events, every)
    points = points[:: -(-len(points) // most)]

    def die(place: Place, killer: Killer) -> None:
        lake = place.open()
        hook_lake(lake, killer)
        adopt(lake, root)

    for point in points:
        place, ending = kill(places, base, point, die)
        problems = [] if ending == "killed by SIGKILL" else [f"the child {ending}"]
        problems += judge(place, root, wanted)
        if problems:
            failures.append({"point": point, "event": events[point - 1], "problems": problems})
        places.remove(place)
    return {
        "events": len(events),
        "points": points,
        "rows": wanted[0].total(),
        "aside": len(wanted[1]),
        "failures": failures,
    }
